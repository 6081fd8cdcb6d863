"""Raw folders of OGB's datasets for graph property prediction, read without OGB and without making single graphs.

The files have the layout and meaning of OGB 1.3.6 (ogb/io/read_graph_raw.py, graphproppred/dataset_dgl.py).
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._core.checks import as_path
from dgl_tuplepack._core.files import cannot, is_there, open_file
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, Array, GraphBlock
from dgl_tuplepack.graphs.readers.source import SizedSource, Source, reading
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray

# Bytes of a CSV file to scan at once.
_CHUNK = 1 << 20
# Texts that show a missing value: empty fields, and words that pandas reads as missing, in lower case.
_GAPS = (b",,", b",\n", b"\n,", b"na", b"n/a", b"null", b"none")
_DAMAGED = "it is damaged, or not a file of OGB"
# The array of endpoints in an npz file.
_ENDS = "edge_index"


@contextlib.contextmanager
def opened_npz(path: Path, what: str) -> Iterator[Any]:
    """Open an npz file in a ``with`` block; errors become FormatErrors as in `reading`."""
    with reading(what, _DAMAGED), open_file(path) as file, np.load(file, allow_pickle=False) as arrays:
        yield arrays


class CsvTable:
    """Rows of a gzip-compressed CSV file without header; as in OGB, int64 if all values are integers, else float32."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_integer, self.has_missing = _scan(path)
        self._reader: Any = None
        self._columns: int | None = None

    def read(self, number: int) -> Array:
        """Return the next rows, ``[number, columns]``; raise FormatError if there are fewer."""
        rows = self._next(number)
        if len(rows) != number:
            raise FormatError(f"{self.path} ends too early; it does not belong to the other tables, or is damaged.")
        return rows if self.is_integer else rows.astype(np.float32)

    def check_end(self) -> None:
        """Raise FormatError if there are more rows."""
        if len(self._next(1)):
            raise FormatError(
                f"{self.path} has more rows than the lists of sizes add up to; it does not belong to these lists."
            )

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()

    def _next(self, number: int) -> Array:
        """Return the next `number` rows, or fewer at the end. An array without rows still has columns."""
        pandas = load("pandas")
        # Without a dtype, pandas would choose a dtype for each chunk of rows.
        dtype = np.int64 if self.is_integer else np.float64
        rows = np.empty((0, self._columns or 1), dtype)
        # If pandas is asked for 0 rows, it skips rows; but the first call shows the number of columns.
        if number or self._columns is None:
            with (
                contextlib.suppress(StopIteration, pandas.errors.EmptyDataError),
                reading(self.path, _DAMAGED, StopIteration, pandas.errors.EmptyDataError),
            ):
                if self._reader is None:
                    settings: Any = {"compression": "gzip", "header": None, "dtype": dtype}
                    self._reader = pandas.read_csv(self.path, iterator=True, **settings)
                rows = np.asarray(self._reader.get_chunk(number), dtype)
                self._columns = rows.shape[1]
        return rows


def _scan(path: Path) -> tuple[bool, bool]:
    """Return whether a CSV file holds integers only, and whether values are missing."""
    is_integer, has_missing, last = True, False, b"\n"
    with reading(path, _DAMAGED):
        with open_file(path) as packed, gzip.open(packed) as file:
            # `text` begins with the end of the text before it, since a gap may lie across two chunks.
            while chunk := file.read(_CHUNK):
                text = (last + chunk).replace(b"\r", b"").replace(codecs.BOM_UTF8, b"").lower()
                has_missing |= any(gap in text for gap in _GAPS)
                is_integer &= not (has_missing or text.translate(None, b"0123456789-+,\n "))
                last = text[-3:]
        # The last field of the file is empty, and no newline follows it.
        if last.endswith(b","):
            is_integer, has_missing = False, True
    return is_integer, has_missing


class NpzTable:
    """Rows of an array of an npz file, in the array's dtype; the array ``edge_index`` ``[2, E]`` is transposed."""

    def __init__(self, path: Path, member: str) -> None:
        self.path, self.member, self._position = path, member, 0
        with opened_npz(path, f"{member!r:.200} in {path}") as arrays:
            array = np.asarray(arrays[member])
            is_ends = member == _ENDS
            if array.ndim < 1 or (is_ends and (array.ndim < 2 or len(array) < 2)):
                raise ValueError(
                    f"its shape is {array.shape}, but it must have a row for each graph, node or edge (edge_index: two "
                    "rows)"
                )
            array = array[:2].T if is_ends else array
            self._rows: Array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def has_missing(self) -> bool:
        """Whether there is a NaN."""
        return self._rows.dtype.kind == "f" and bool(np.isnan(self._rows).any())

    def read(self, number: int) -> Array:
        """Return the next rows, ``[number, ...]``; raise FormatError if there are fewer."""
        first, self._position = self._position, self._position + number
        if self._position > len(self):
            raise FormatError(f"{self.member} in {self.path} ends too early; it does not belong to the other arrays.")
        return self._rows[first : self._position]

    def check_end(self) -> None:
        """Raise FormatError if there are more rows."""
        if self._position != len(self):
            raise FormatError(
                f"{self.member} in {self.path} has {len(self)} rows, but the lists of sizes add up to "
                f"{self._position}; it does not belong to these lists."
            )


Table = CsvTable | NpzTable

# OGB's own datasets in CSV form: name -> whether each edge row stands for both directions, task, default split scheme.
_MOLECULES = ("bace", "bbbp", "clintox", "muv", "pcba", "sider", "tox21", "toxcast", "hiv", "chembl")
_KNOWN: dict[str, tuple[bool | None, str | None, str | None]] = {
    **{f"ogbg-mol{name}": (True, "classification", "scaffold") for name in _MOLECULES},
    **{f"ogbg-mol{name}": (True, "regression", "scaffold") for name in ("esol", "freesolv", "lipo")},
    "ogbg-ppa": (True, "classification", "species"),
    "ogbg-code2": (False, "subtoken prediction", "project"),
}
_SPLITS = ("train", "valid", "test")
# Graphs in a block.
_GRAPHS = 4096


class OgbFolder:
    """A dataset in OGB's raw layout, in its CSV or its binary (npz) form.

    Parameters
    ----------
    path
        The dataset's folder, which holds ``raw/`` (such as ``ogbg_molhiv``), or a folder that holds one such folder.
    name
        Name such as "ogbg-molhiv", to choose among several datasets in `path`.
    add_inverse_edge
        Whether each edge of a CSV file stands for both directions. OGB's own datasets, recognised by the name of the
        folder, have OGB's setting by default; other datasets in CSV form need this argument.
    split
        Name of a split folder, such as "scaffold". The default is OGB's own choice, or the only split folder.
    labels
        Whether to read labels. Labels of ogbg-code2 are text, which cannot be stored, so pass False.

    Attributes
    ----------
    path
        The dataset's folder.

    Raises
    ------
    FormatError
        The dataset does not exist, or its files are damaged. Damage may be found only while the files are read.

    Notes
    -----
    Features have the names of OGB's files or arrays, without the prefix "node" or "edge": "feat" in most datasets.
    Reading the CSV form keeps one block of graphs in memory; reading the binary form keeps all arrays.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        add_inverse_edge: bool | None = None,
        split: str | None = None,
        labels: bool = True,
    ) -> None:
        # An absolute path, since workers may run in another directory.
        self.path = _dataset_folder(as_path(path).absolute(), name)
        self._raw, self._split = self.path / "raw", split
        self.is_binary = is_there(self._raw / "data.npz")
        self.labels = labels
        # OGB adds _dgl to folders of its DGL datasets: ogbg_molhiv_dgl.
        self.name = self.path.name.removesuffix("_dgl").replace("_", "-")
        inverse, self._task, self._usual_split = _KNOWN.get(self.name, (None, None, None))
        if add_inverse_edge is not None:
            if self.is_binary and add_inverse_edge:
                raise FormatError(f"{self.path} is in OGB's binary form, which lists both directions of each edge.")
            inverse = add_inverse_edge
        if inverse is None and not self.is_binary:
            raise FormatError(
                f"{self.name} is not one of OGB's own datasets, so it is not known whether each edge of {self._raw} "
                "stands for both directions; pass add_inverse_edge=True or False."
            )
        self.add_inverse_edge = bool(inverse) and not self.is_binary

    @property
    def sizes(self) -> GraphSizes:
        """Sizes (nodes, edges) of all graphs."""
        nodes, edges = self._counts("node"), self._counts("edge")
        if len(nodes) != len(edges):
            raise FormatError(
                f"{self._raw} lists the nodes of {len(nodes)} graphs, but the edges of {len(edges)}; it is damaged."
            )
        return GraphSizes(np.stack([nodes, edges * (1 + self.add_inverse_edge)], axis=1))

    def _counts(self, name: str) -> IntArray:
        """Return the number of nodes (`name` is "node") or of rows of the edge table ("edge") of each graph."""
        if self.is_binary:
            path = self._raw / "data.npz"
            table = NpzTable(path, f"num_{name}s_list")
            counts = table.read(len(table))
        else:
            path = self._raw / f"num-{name}-list.csv.gz"
            counts = _read_column(path)
        if counts.size != len(counts) or counts.dtype.kind not in "iu" or (counts < 0).any():
            raise FormatError(
                f"{path} must hold the number of {name}s of each graph, an integer >= 0, but does not; it is damaged."
            )
        return np.asarray(counts, dtype=np.int64).reshape(-1)

    @property
    def splits(self) -> dict[str, IntArray]:
        """The ids of each split by its name; empty without splits."""
        folder = self.path / "split"
        try:
            names = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
        except OSError as error:
            raise FormatError(cannot("read", folder, error)) from error
        usual = names if len(names) == 1 else [name for name in names if name == self._usual_split]
        chosen = self._split or (usual[0] if usual else None)
        if chosen is None and not names:
            return {}
        if chosen not in names:
            problem = "several split schemes" if chosen is None else f"no split scheme {chosen!r}"
            raise FormatError(
                f"{folder} holds {problem}: there are {', '.join(names) or 'none'}; choose one by split= "
                "(--split-scheme)."
            )
        folder /= chosen
        if is_there(folder / "train.csv.gz"):
            return {split: _read_column(folder / f"{split}.csv.gz") for split in _SPLITS}
        return _saved_splits(folder / "split_dict.pt")

    def __len__(self) -> int:
        return len(self.sizes)

    def blocks(self) -> Iterator[GraphBlock]:
        """Yield all graphs in order, a few thousand at a time."""
        sizes = self.sizes
        # `doubled`: edges for each row of the edge tables. `edges`: rows of the edge tables for each graph.
        doubled = 1 + self.add_inverse_edge
        nodes, edges = sizes.num_nodes, sizes.num_edges // doubled
        with ExitStack() as opened:
            ends, node_tables, edge_tables, label_tables = self._tables(opened)
            as_label = self._label_converter(label_tables)
            for first in range(0, len(sizes), _GRAPHS):
                block = slice(first, first + _GRAPHS)
                # How many rows of labels, of nodes and of edges to read.
                number, of_nodes, of_edges = len(nodes[block]), int(nodes[block].sum()), int(edges[block].sum())
                yield GraphBlock(
                    lengths={NODE_TYPE: nodes[block], EDGE_TYPE: edges[block] * doubled},
                    endpoints={EDGE_TYPE: self._endpoints(ends, of_edges)},
                    features={
                        NODE_TYPE: {name: table.read(of_nodes) for name, table in node_tables.items()},
                        EDGE_TYPE: {n: np.repeat(t.read(of_edges), doubled, axis=0) for n, t in edge_tables.items()},
                    },
                    labels={name: as_label(table.read(number)) for name, table in label_tables.items()},
                )
            for table in (ends, *node_tables.values(), *edge_tables.values(), *label_tables.values()):
                table.check_end()

    def _tables(self, opened: ExitStack) -> tuple[Table, dict[str, Table], dict[str, Table], dict[str, Table]]:
        """Open the table of endpoints, and the tables of node features, of edge features and of labels, by name.

        The label table has the empty name.
        """
        raw = self._raw
        ends: Table
        tables: dict[str, Table]
        if self.is_binary:
            file = raw / "data.npz"
            ends = NpzTable(file, _ENDS)
            # Arrays that are not features.
            lists = (_ENDS, "num_nodes_list", "num_edges_list")
            with opened_npz(file, str(file)) as arrays:
                members = [name for name in arrays.files if name not in lists]
            tables = {member: NpzTable(file, member) for member in members}
            if self.labels:
                tables["label"] = NpzTable(raw / "graph-label.npz", "graph_label")
        else:

            def csv(path: Path) -> CsvTable:
                return opened.enter_context(closing(CsvTable(path)))

            ends = csv(raw / "edge.csv.gz")
            files = sorted([*raw.glob("node[-_]*.csv.gz"), *raw.glob("edge[-_]*.csv.gz")])
            tables = {path.name.removesuffix(".csv.gz").replace("-", "_"): csv(path) for path in files}
            if self.labels:
                tables["label"] = csv(raw / "graph-label.csv.gz")
        of_nodes = {name[5:]: table for name, table in tables.items() if name.startswith("node_")}
        of_edges = {name[5:]: table for name, table in tables.items() if name.startswith("edge_")}
        return ends, of_nodes, of_edges, {"": tables["label"]} if self.labels else {}

    def _endpoints(self, ends: Table, number: int) -> tuple[IntArray, IntArray]:
        """Read the next `number` rows of endpoints; return the sources and destinations of all edges in these rows."""
        rows = ends.read(number)
        if number and (rows.shape[1:] != (2,) or rows.dtype.kind not in "iu"):
            raise FormatError(f"{ends.path} must hold pairs of node indices, but does not; is it an OGB file?")
        src, dst = rows[:, 0].astype(np.int64), rows[:, -1].astype(np.int64)
        if not self.add_inverse_edge:
            return src, dst
        # Each edge is followed by its reverse.
        return np.stack([src, dst], axis=1).reshape(-1), np.stack([dst, src], axis=1).reshape(-1)

    def _label_converter(self, tables: Mapping[str, Table]) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """Return a function that converts labels as OGB does: to int64 or float32."""
        if not tables or self._task is None:
            return lambda values: values
        if self._task == "subtoken prediction":
            raise FormatError(f"the labels of {self.name} are text, which cannot be stored; pass labels=False.")
        whole = self._task == "classification" and not tables[""].has_missing
        return lambda values: values.astype(np.int64 if whole else np.float32)


class OgbSource(SizedSource):
    """An `OgbFolder`, or a path with the arguments of `OgbFolder`."""

    def __init__(self, folder: OgbFolder) -> None:
        super().__init__(str(folder.path), folder)
        self.files = folder.path
        # Shards are identified by these settings, so the attributes of `OgbFolder` must not be renamed.
        self.settings = {key: repr(value) for key, value in sorted(vars(folder).items()) if key != "path"}

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """Recognise a folder that holds ``raw/``, or that holds such folders."""
        return cls(OgbFolder(path, **settings)) if _datasets_in(path) else None

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Recognise an `OgbFolder`."""
        return cls(given) if isinstance(given, OgbFolder) else None


def folder_of(root: Path, name: str) -> Path:
    """Return the folder that OGB makes in `root` for a dataset of this name; the folder need not exist."""
    path = root / name.replace("-", "_")
    of_dgl = path.parent / f"{path.name}_dgl"
    return of_dgl if is_there(of_dgl) and not is_there(path) else path


def _dataset_folder(path: Path, name: str | None) -> Path:
    """Return the folder of the dataset in `path`; raise FormatError unless there is exactly one dataset."""
    path = path if name is None else folder_of(path, name)
    inside = _datasets_in(path)
    if len(inside) == 1:
        return inside[0]
    if inside:
        raise FormatError(f"{path} holds {', '.join(p.name for p in inside)}; give the folder of one of them.")
    if not is_there(path):
        raise FormatError(f"{path} does not exist; give the folder of an OGB dataset, such as root/ogbg_molhiv.")
    store = " (a store is given as GraphStore(path))" if (path / "metadata.json").exists() else ""
    raise FormatError(
        f"{path} is not an OGB dataset: it has no folder raw/; give a folder such as root/ogbg_molhiv{store}."
    )


def _datasets_in(path: Path) -> list[Path]:
    """Return the folder itself if it holds ``raw/``, else all its subfolders that hold ``raw/``."""
    try:
        if (path / "raw").is_dir():
            return [path]
        return sorted(p for p in path.iterdir() if (p / "raw").is_dir()) if path.is_dir() else []
    except OSError as error:
        raise FormatError(cannot("read", path, error)) from error


def _read_column(path: Path) -> IntArray:
    pandas = load("pandas")
    try:
        with reading(path, _DAMAGED, pandas.errors.EmptyDataError), open_file(path) as file:
            rows = np.asarray(pandas.read_csv(file, compression="gzip", header=None, dtype=np.int64), np.int64)
    except pandas.errors.EmptyDataError:
        return np.empty(0, np.int64)
    if rows.shape[1] != 1:
        raise FormatError(f"{path} has {rows.shape[1]} columns, but must have one; is it an OGB file?")
    return rows[:, 0]


def _saved_splits(path: Path) -> dict[str, IntArray]:
    """Read the splits that OGB's DatasetSaver stored."""
    torch: Any = load("torch")
    if not is_there(path):
        raise FormatError(f"{path.parent} holds neither train.csv.gz nor split_dict.pt; complete it.")
    # torch loads numpy arrays only if their classes, and the function that rebuilds them (`saved[0]`), are allowed.
    saved: Any = np.empty(0, np.int64).__reduce__()
    numpy_arrays = [saved[0], np.ndarray, np.dtype, type(np.dtype(np.int64))]
    with reading(path, "store the ids as CSV"):
        with open_file(path) as file, torch.serialization.safe_globals(numpy_arrays):
            content = torch.load(file, weights_only=True)
        splits = {str(split): np.asarray(ids).reshape(-1) for split, ids in content.items()}
        wrong = [split for split, ids in splits.items() if ids.size and ids.dtype.kind not in "iu"]
        if len(splits) != len(content) or wrong:
            raise ValueError(f"the ids of {wrong[0]!r:.100} are not integers" if wrong else "two split names are equal")
    return {split: ids.astype(np.int64) for split, ids in splits.items()}
