"""Histogram of sizes: each distinct size (size class) with its number of graphs."""

from __future__ import annotations

import csv
import functools
import io
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, cast

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX, as_path, choice, shown
from dgl_tuplepack._core.files import JsonFormat, parse_json, read_text, write_text
from dgl_tuplepack._core.optional import registered
from dgl_tuplepack.errors import FormatError, InputError, SizesError
from dgl_tuplepack.planning.sizes import HOMOGENEOUS, GraphSizes, IntArray, as_int64, component_names, exact_sum

_FILE = JsonFormat("dgl_tuplepack.histogram", 1, "histogram", "count the graphs again")
_EXAMPLES = ("ogbg-molhiv",)


@dataclass(frozen=True, eq=False)
class SizeHistogram:
    """Size classes and their counts: the only facts about a dataset that planning needs.

    Parameters
    ----------
    sizes
        int64 ``[C, k]``, the distinct sizes; stored in ascending lexicographic order.
    counts
        int64 ``[C]``, the number of graphs of each size, >= 1.
    components
        k names. Default: ``("nodes", "edges")`` for k = 2, ``("nodes",)`` for k = 1.
    graph_classes
        The size class of each graph, int64 ``[N]`` (index into the stored `sizes`); None if unknown.

    Raises
    ------
    SizesError
        There are no graphs, an argument is malformed, a size is repeated, or a total exceeds 2**63 - 1.
    """

    sizes: IntArray
    counts: IntArray
    components: tuple[str, ...] = ()
    graph_classes: IntArray | None = None

    def __post_init__(self) -> None:
        sizes = as_int64(self.sizes, "sizes of a histogram")
        counts = as_int64(self.counts, "counts of a histogram")
        if counts.ndim == 1 and not counts.size:
            raise SizesError("the histogram has no graphs; an empty dataset cannot be packed.")
        if sizes.ndim != 2 or counts.shape != sizes.shape[:1] or sizes.shape[1] == 0:
            raise SizesError(
                "a histogram needs sizes of shape [classes, components] and one count for each class, but got "
                f"shapes {sizes.shape} and {counts.shape}."
            )
        if not counts.all():
            raise SizesError(
                f"the size class at index {int(np.argmin(counts))} has no graphs; such classes must be left out."
            )
        components = component_names(self.components, sizes.shape[1])
        order = np.lexsort(sizes.T[::-1])
        if self.graph_classes is not None:
            classes = as_int64(self.graph_classes, "graph_classes of a histogram")
            wrong = classes.ndim != 1 or (classes >= len(counts)).any() or (np.diff(order) < 0).any()
            if wrong or not np.array_equal(np.bincount(classes, minlength=len(counts)), counts):
                raise SizesError(
                    "graph_classes do not match the sizes (ascending) and their counts; use SizeHistogram.from_sizes."
                )
            object.__setattr__(self, "graph_classes", classes)
        sizes, counts = sizes[order], counts[order]
        repeated = np.flatnonzero((sizes[1:] == sizes[:-1]).all(axis=1))
        if len(repeated):
            raise SizesError(
                f"the size {tuple(sizes[repeated[0]].tolist())} is in the histogram twice; add up its counts."
            )
        for field, value in (("sizes", sizes), ("counts", counts)):
            value.setflags(write=False)
            object.__setattr__(self, field, value)
        object.__setattr__(self, "components", components)
        _check_totals({"graphs": self.num_graphs} | self._totals)

    @classmethod
    def from_sizes(cls, sizes: GraphSizes | Any) -> SizeHistogram:
        """Count how many graphs have each size, and keep the size class of each graph; `sizes` may also be a store.

        Raise SizesError if there are no graphs, or if `sizes` are not numbers. Time O(N) if the numbers in the sizes
        are small, else O(N log N); memory O(N).

        >>> SizeHistogram.from_sizes([[3, 4], [2, 2], [3, 4]]).to_counts()
        {(2, 2): 1, (3, 4): 2}
        """
        of_store = getattr(sizes, "sizes", None)
        sizes = of_store if isinstance(of_store, GraphSizes) else sizes
        are_rows = isinstance(sizes, list) and (not sizes or is_row(sizes[0]))
        if not (are_rows or isinstance(sizes, GraphSizes) or hasattr(sizes, "__array__")):
            first = f" of {type(sizes[0]).__name__}" if isinstance(sizes, list | tuple) and sizes else ""
            raise SizesError(
                f"sizes must be rows of whole numbers, one for each graph, but are {type(sizes).__name__}{first}; "
                "call sizes_of(source) first."
            )
        sizes = sizes if isinstance(sizes, GraphSizes) else GraphSizes(sizes)
        if not len(sizes):
            raise SizesError("the dataset has no graphs; at least one is needed.")
        classes, graph_classes, counts = distinct_rows(sizes.array)
        return cls(classes, counts, sizes.components, graph_classes)

    @classmethod
    def from_counts(cls, counts: Mapping[tuple[int, ...] | int, int], components: Sequence[str] = ()) -> SizeHistogram:
        """Make a histogram from ``{size: count}``, such as ``{(3, 4): 2, (2, 2): 1}``, without sizes of count 0."""
        if not isinstance(counts, Mapping):
            raise SizesError(f"counts must be a mapping of sizes to numbers of graphs, but are {shown(counts)}.")
        present = {size: n for size, n in counts.items() if not (isinstance(n, int | np.integer) and n == 0)}
        rows = [size if isinstance(size, tuple) else (size,) for size in present]
        if len({len(row) for row in rows}) > 1:
            raise SizesError(f"all sizes need the same number of components, but got {shown(rows[:5])}.")
        return cls(cast(Any, rows), cast(Any, list(present.values())), cast(Any, components))

    @functools.cached_property
    def num_graphs(self) -> int:
        """Number of graphs N."""
        return exact_sum(self.counts)

    def __len__(self) -> int:
        return len(self.counts)

    def totals(self) -> dict[str, int]:
        """Return the sum of each component over all graphs."""
        return dict(self._totals)

    @functools.cached_property
    def _totals(self) -> dict[str, int]:
        return {name: exact_sum(self.sizes[:, column], self.counts) for column, name in enumerate(self.components)}

    def maxima(self) -> dict[str, int]:
        """Return the largest value of each component."""
        return dict(zip(self.components, self.sizes.max(axis=0).tolist(), strict=True))

    def to_counts(self) -> dict[tuple[int, ...], int]:
        """Return ``{size: count}`` in ascending order of size."""
        return dict(zip(map(tuple, self.sizes.tolist()), self.counts.tolist(), strict=True))

    def without_ids(self) -> SizeHistogram:
        """Return the same counts without `graph_classes`."""
        return SizeHistogram(self.sizes, self.counts, self.components) if self.graph_classes is not None else self

    def __add__(self, other: SizeHistogram) -> SizeHistogram:
        if not isinstance(other, SizeHistogram):
            return NotImplemented
        if self.components != other.components:
            raise SizesError(
                f"histograms of {self.components} and of {other.components} cannot be added; "
                "count the same components, in the same order, in both."
            )
        # Check the totals first, since adding the counts below might overflow.
        sums = {name: total + other._totals[name] for name, total in self._totals.items()}
        _check_totals({"graphs": self.num_graphs + other.num_graphs} | sums)
        classes, members, _ = distinct_rows(np.concatenate([self.sizes, other.sizes]))
        counts = np.zeros(len(classes), dtype=np.int64)
        np.add.at(counts, members, np.concatenate([self.counts, other.counts]))
        return SizeHistogram(classes, counts, self.components)

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, SizeHistogram) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: the ``components``, and ``rows`` that hold a size and then its count."""
        return {"components": list(self.components), "rows": np.column_stack([self.sizes, self.counts]).tolist()}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> SizeHistogram:
        """Make a histogram from the result of `to_dict`."""
        rows = as_int64(document["rows"], "rows of a histogram")
        if rows.ndim != 2 or rows.shape[1] < 2:
            raise SizesError(f"each row of a histogram must hold a size and a count, but rows have shape {rows.shape}.")
        return cls(rows[:, :-1], rows[:, -1], tuple(document["components"]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a ``.json`` or ``.csv`` file; the columns of a CSV file are the components, then ``count``."""
        write_text(path, self.to_csv() if _suffix(path) == ".csv" else self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SizeHistogram:
        """Read a file that `save` wrote, or a bare JSON list of ``[nodes, edges, count]`` rows.

        Raise FormatError, which names the first bad line, if the file is missing, altered or of another format.
        """
        read = cls.from_csv if _suffix(path) == ".csv" else cls.from_json
        return read(read_text(path), str(path))

    def to_json(self) -> str:
        """Return the text of a ``.json`` file, in one line."""
        return _FILE.text(self.to_dict())

    @classmethod
    def from_json(cls, text: str, name: str = "the text") -> SizeHistogram:
        """Make a histogram from the text of a file that `load` reads; messages refer to it by `name`."""
        document = parse_json(text, name)
        if isinstance(document, list):
            document = _FILE.document({"components": (), "rows": document})
        with _FILE.checking(document, name):
            cells = len(document["components"] or HOMOGENEOUS) + 1
            for number, row in enumerate(document["rows"], start=1):
                _check_row(row, cells, f"row {number}")
            return cls.from_dict(document)

    def to_csv(self) -> str:
        """Return a CSV table of the components and ``count``, one line for each size class."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([[*self.components, "count"], *self.to_dict()["rows"]])
        return text.getvalue()

    @classmethod
    def from_csv(cls, text: str, name: str = "the text") -> SizeHistogram:
        """Make a histogram from the result of `to_csv`; messages refer to it by `name`.

        Without the column ``count``, each line is the size of one graph. The counts of equal sizes are added up.
        """
        try:
            plain = io.StringIO(text.lstrip("\ufeff").rstrip("\r\n"), newline="")
            header, *lines = [*csv.reader(plain, skipinitialspace=True)] or [[]]
        except csv.Error as error:
            raise FormatError(f"{name} is not valid CSV ({error}); it is damaged or another kind of file.") from error
        header = [cell.strip() for cell in header]
        has_counts = len(header) > 1 and header[-1] == "count"
        # Without counts, only the usual names are components: the last column may be a misspelt "count".
        if not header or not (has_counts or all(cell.split(":")[0] in HOMOGENEOUS for cell in header)):
            raise FormatError(f"{name} needs a first line such as nodes,edges,count; it has {header!s:.200}.")
        counts = Counter[tuple[int, ...] | int]()
        for number, line in enumerate(lines, start=2):
            try:
                row = [int(cell) for cell in line]
            except ValueError:
                row = []
            _check_row(row, len(header), f"line {number} of {name}", has_counts, ",".join(line))
            *size, count = row if has_counts else [*row, 1]
            counts[tuple(size)] += count
        try:
            return cls.from_counts(counts, header[: len(header) - has_counts])
        except InputError as error:
            raise FormatError(f"{name} holds no valid histogram: {error!s:.500}") from error


def as_histogram(source: SizeHistogram | GraphSizes | Any) -> SizeHistogram:
    """Return a histogram unchanged; otherwise count graph sizes, or the sizes of any source that `sizes_of` reads."""
    if isinstance(source, SizeHistogram):
        return source
    if isinstance(source, GraphSizes):
        return SizeHistogram.from_sizes(source)
    # The room `graphs` may import this room, but not the reverse, so the function is found by its role.
    histogram: SizeHistogram = registered("histogram_of")(source)
    return histogram


def quantiles(values: IntArray, counts: IntArray, fractions: Sequence[float]) -> list[int]:
    """Return, for each fraction, the smallest v such that at least this fraction of all graphs have `values` <= v."""
    order = np.argsort(values, kind="stable")
    up_to = np.cumsum(counts[order])
    at = np.searchsorted(up_to, [max(1.0, fraction * int(up_to[-1])) for fraction in fractions])
    return cast(list[int], values[order][at].tolist())


def is_row(row: object) -> bool:
    """Return whether `row` can be the size of a graph: one or more numbers, not a graph or a pair (graph, label)."""
    cells = row if isinstance(row, list | tuple) else [row]
    return all(isinstance(cell, int | float | np.generic | np.ndarray) for cell in cells)


def load_example(name: str) -> SizeHistogram:
    """Load an example histogram: ``"ogbg-molhiv"``, the sizes of its 32,901 training graphs.

    Examples
    --------
    >>> histogram = load_example("ogbg-molhiv")
    >>> len(histogram), histogram.num_graphs, histogram.maxima()
    (795, 32901, {'nodes': 222, 'edges': 502})
    """
    choice("example", name, _EXAMPLES, SizesError)
    text = resources.files("dgl_tuplepack").joinpath("data", f"{name}.csv").read_text(encoding="utf-8")
    return SizeHistogram.from_csv(text, name)


def distinct_rows(rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the distinct rows in ascending order, the index of each row among the distinct rows, and their counts."""
    radix = [int(largest) + 1 for largest in rows.max(axis=0)]
    cells = math.prod(radix)
    if cells > INT64_MAX:
        distinct, members, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        return distinct, members.reshape(-1).astype(np.int64), counts.astype(np.int64)
    # One integer key for each row, which sorts like the row: integers are much faster to sort and count than rows.
    keys = rows[:, 0].copy()
    for column, base in enumerate(radix[1:], start=1):
        keys *= base
        keys += rows[:, column]
    if cells <= 4 * len(rows) + 1024:
        # With few possible keys, counting each of them is faster than sorting.
        cell_counts = np.bincount(keys, minlength=cells)
        present = np.flatnonzero(cell_counts)
        counts = cell_counts[present]
        members = (np.cumsum(cell_counts > 0) - 1)[keys]
    else:
        present, members, counts = np.unique(keys, return_inverse=True, return_counts=True)
    distinct = np.stack(np.unravel_index(present, radix), axis=1)
    return distinct.astype(np.int64), members.reshape(-1).astype(np.int64), counts.astype(np.int64)


def _suffix(path: str | os.PathLike[str]) -> str:
    """Return the ending of a path, ".json" or ".csv"; raise FormatError for any other ending."""
    suffix = as_path(path).suffix.lower()
    if suffix not in (".json", ".csv"):
        raise FormatError(f"a histogram file ends in .json or .csv, but the path is {path}; rename it.")
    return suffix


def _check_row(row: Any, cells: int, where: str, has_count: bool = True, written: str | None = None) -> None:
    """Raise FormatError unless `row` is a size and a count; the message shows `row`, or `written` if given."""
    whole = isinstance(row, list) and all(type(cell) is int and 0 <= cell <= INT64_MAX for cell in row)
    if not whole or len(row) != cells or (has_count and row[-1] == 0):
        count = ", of which the last one, the count, is above 0" if has_count else ""
        raise FormatError(
            f"{where} is {shown(row if written is None else written, 200)}, but must hold {cells} whole numbers in "
            f"0..2**63-1{count}; correct or remove it."
        )


def _check_totals(totals: Mapping[str, int]) -> None:
    for name, total in totals.items():
        if total > INT64_MAX:
            raise SizesError(f"the histogram counts {total} {name} in total, above 2**63-1; split the dataset.")
