"""The plan: which sizes share a pack, how many packs repeat each pattern, and figures of plans.

How data flows: `GraphSizes` (`sizes.py`) has a row for each graph. A `SizeHistogram` (`histogram.py`) counts equal
rows: planning sees only these size classes, so its time depends on distinct sizes more than on graphs. Limits come from
the user, or from `search_limits` (`search/`), which plans many candidates and keeps the best. `pack` (`packing/`) makes
`Patterns` within the limits, by one of its methods; "auto" runs stages until the number of packs meets the lower bound
of `bounds/`. A `PackPlan` is the patterns with their histogram, limits and bound. A sampler fills its packs with ids.
"""

from __future__ import annotations

import functools
import hashlib
import json
import operator
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX, UINT64_MAX, whole_number
from dgl_tuplepack._core.files import JsonFormat
from dgl_tuplepack._version import __version__
from dgl_tuplepack.errors import PlanError
from dgl_tuplepack.planning.buckets import Buckets, all_of
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.sizes import FloatArray, IntArray, as_int64, components_of_kind, exact_sum

PLAN_FILE = JsonFormat("dgl_tuplepack.plan", 1, "plan", "make the plan again")
_ARRAYS = ("offsets", "classes", "multiplicities", "repeats")
_OTHERS = ("lower_bound", "method", "heuristic", "seed", "random_ties", "versions")


@functools.cache
def library_versions() -> Mapping[str, str]:
    """Return the versions that a plan records, by name: this package, Python, and the libraries that compute plans."""
    # Importing these libraries to read their versions would take longer.
    libraries = {name: metadata.version(name) for name in ("numpy", "numba", "highspy")}
    return {"dgl_tuplepack": __version__, "python": platform.python_version(), **libraries}


@dataclass(frozen=True, eq=False)
class Patterns:
    """Q patterns in int64 CSR arrays: what packs hold; see `PackPlan` for the arrays."""

    offsets: IntArray
    classes: IntArray
    multiplicities: IntArray
    repeats: IntArray

    def __len__(self) -> int:
        return len(self.repeats)

    @property
    def num_packs(self) -> int:
        """Number of packs of all patterns."""
        return exact_sum(self.repeats)

    @property
    def graphs(self) -> IntArray:
        """Number of graphs in one pack of each pattern, int64 ``[Q]``."""
        return np.asarray(np.add.reduceat(self.multiplicities, self.offsets[:-1]), dtype=np.int64)

    def contents(self, sizes: IntArray) -> IntArray:
        """Return the content of one pack of each pattern, int64 ``[Q, d]``, for classes of `sizes` ``[C, d]``."""
        weighted = sizes[self.classes] * self.multiplicities[:, None]
        return np.asarray(np.add.reduceat(weighted, self.offsets[:-1], axis=0), dtype=np.int64)

    def room(self, sizes: IntArray, limits: IntArray) -> FloatArray:
        """Return the room left in one pack of each pattern, as a share of each limit, float64 ``[Q, d]``."""
        return (limits - self.contents(sizes)) / limits

    def packed(self, classes: int) -> IntArray:
        """Return how many graphs of each class all packs together hold, int64 ``[C]``; `classes` is C."""
        held = np.zeros(classes, dtype=np.int64)
        np.add.at(held, self.classes, self.multiplicities * np.repeat(self.repeats, np.diff(self.offsets)))
        return held

    def dense(self, classes: int, most: int) -> IntArray:
        """Return the number of graphs of each class in the first `most` patterns, int64 ``[M, C]``; `classes` is C."""
        number = min(most, len(self))
        dense = np.zeros((number, classes), dtype=np.int64)
        last = int(self.offsets[number])
        patterns = np.repeat(np.arange(number), np.diff(self.offsets[: number + 1]))
        np.add.at(dense, (patterns, self.classes[:last]), self.multiplicities[:last])
        return dense

    def with_classes(self, classes: IntArray) -> Patterns:
        """Return the same patterns with `classes` as the class of each entry."""
        return replace(self, classes=classes)

    def take(self, chosen: IntArray, repeats: IntArray) -> Patterns:
        """Return the patterns with the indices `chosen`; pattern ``chosen[i]`` gets ``repeats[i]``, >= 1."""
        lengths = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        # entries[i]: index in `self.classes` of entry i of the result.
        entries = np.repeat(self.offsets[chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Patterns(offsets, self.classes[entries], self.multiplicities[entries], repeats.astype(np.int64))

    def replaced(self, chosen: IntArray, fresh: Patterns) -> Patterns:
        """Return the patterns with ``chosen[q]`` fewer packs of pattern q, and after them the patterns `fresh`."""
        left = self.repeats - chosen
        kept = np.flatnonzero(left)
        return joined([self.take(kept, left[kept]), fresh])


def joined(several: Iterable[Patterns]) -> Patterns:
    """Join several `Patterns` into one, in order."""
    columns = [(np.diff(each.offsets), each.classes, each.multiplicities, each.repeats) for each in several]
    empty = [np.zeros(0, dtype=np.int64)] * 4
    lengths, *others = (np.concatenate(arrays) for arrays in zip(empty, *columns, strict=True))
    return Patterns(np.append(0, np.cumsum(lengths)).astype(np.int64), *others)


def collected(rows: Iterable[tuple[dict[int, int], int]]) -> Patterns:
    """Make patterns from pairs (content, repeats); a content is a dict, class -> number of graphs."""
    rows = list(rows)
    numbers = (
        np.cumsum([0, *(len(content) for content, _ in rows)]),
        [size_class for content, _ in rows for size_class in content],
        [number for content, _ in rows for number in content.values()],
        [repeats for _, repeats in rows],
    )
    return Patterns(*(np.array(each, dtype=np.int64) for each in numbers))


def taken_packs(remaining: IntArray, content: IntArray, most: int) -> tuple[dict[int, int], int]:
    """Take up to `most` packs of `content` out of `remaining` ``[C]``; return the content as dict, and the packs."""
    entries = np.flatnonzero(content)
    packs = min(most, int((remaining[entries] // content[entries]).min()))
    remaining -= packs * content
    return dict(zip(entries.tolist(), content[entries].tolist(), strict=True)), packs


def of_packs(packs: IntArray, classes: IntArray) -> Patterns:
    """Make one pattern for each pack that has graphs, given the pack and the class of every graph."""
    # Entries are the distinct (pack, class) pairs in ascending order, each as one integer key.
    width = int(classes.max(initial=0)) + 1
    keys, multiplicities = np.unique(packs * width + classes, return_counts=True)
    starts = np.flatnonzero(np.diff(keys // width, prepend=-1))
    offsets = np.append(starts, len(keys))
    return Patterns(offsets, keys % width, multiplicities, np.ones(len(starts), dtype=np.int64))


@dataclass(frozen=True, eq=False)
class PackPlan:
    """A list of patterns that together hold every graph of a histogram exactly once.

    A *pattern* is a multiset of size classes with a repeat count: the number of packs that hold exactly these sizes.

    Parameters
    ----------
    histogram
        The sizes that were packed.
    limits
        Limits of every pack, one for each component; with shape buckets, the largest limits.
    offsets, classes, multiplicities
        int64 CSR arrays: a pack of pattern q holds ``multiplicities[e]`` >= 1 graphs of the size class ``classes[e]``
        (row of ``histogram.sizes``) for each e in ``offsets[q]:offsets[q + 1]``.
    repeats
        Number of packs of each pattern, int64 ``[Q]``, >= 1.
    lower_bound
        No plan has fewer packs than this.
    method, heuristic, seed, random_ties, versions
        How the plan was made; see `pack`.
    buckets
        Limits of several shapes; each pack has the smallest that holds it. None: one shape.

    Raises
    ------
    PlanError
        The patterns exceed a limit, or do not hold every graph exactly once (see `validate`).
    """

    histogram: SizeHistogram
    limits: Limits
    offsets: IntArray
    classes: IntArray
    multiplicities: IntArray
    repeats: IntArray
    lower_bound: int
    method: str
    heuristic: str | None = None
    seed: int = 0
    random_ties: bool = False
    versions: Mapping[str, str] = field(default_factory=library_versions)
    buckets: Buckets | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "histogram", self.histogram.without_ids())
        components, totals = self.histogram.components, self.histogram.totals()
        # Missing limits become the totals, which no pack exceeds.
        object.__setattr__(self, "limits", self.limits.filled(components, totals))
        if self.buckets is not None:
            object.__setattr__(self, "buckets", self.buckets.filled(components, totals))
        for name in _ARRAYS:
            array = as_int64(getattr(self, name), f"{name} of a plan")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        self.validate()

    @property
    def _arrays(self) -> dict[str, IntArray]:
        return {name: getattr(self, name) for name in _ARRAYS}

    @property
    def patterns(self) -> Patterns:
        """The patterns without the facts about the plan."""
        return Patterns(**self._arrays)

    @functools.cached_property
    def num_packs(self) -> int:
        """Number of packs P."""
        return self.patterns.num_packs

    @property
    def num_patterns(self) -> int:
        """Number of patterns Q."""
        return len(self.repeats)

    @property
    def gap(self) -> int:
        """Packs above the lower bound; 0 means proven optimal."""
        return self.num_packs - self.lower_bound

    @property
    def is_optimal(self) -> bool:
        """Whether the lower bound proves that no plan has fewer packs."""
        return self.gap == 0

    @functools.cached_property
    def pattern_contents(self) -> IntArray:
        """Content (total size) of one pack of each pattern, int64 ``[Q, k]``."""
        return self.patterns.contents(self.histogram.sizes)

    @functools.cached_property
    def pattern_graphs(self) -> IntArray:
        """Graphs in one pack of each pattern, int64 ``[Q]``."""
        return self.patterns.graphs

    @property
    def made_for(self) -> Limits | Buckets:
        """The limits that the packs were planned for: the shape buckets if there are any, else `limits`."""
        return self.limits if self.buckets is None else self.buckets

    @property
    def shapes(self) -> tuple[Limits, ...]:
        """Limits of every shape, smallest first."""
        return all_of(self.made_for)

    @functools.cached_property
    def pattern_shapes(self) -> IntArray:
        """Index in `shapes` of the smallest shape that holds the packs of each pattern, int64 ``[Q]``."""
        if self.buckets is None:
            return np.zeros(self.num_patterns, dtype=np.int64)
        return self.buckets.smallest_for(self.pattern_contents, self.pattern_graphs)

    @functools.cached_property
    def packs_of_shapes(self) -> tuple[int, ...]:
        """Number of packs of each shape."""
        return tuple(exact_sum(self.repeats[self.pattern_shapes == number]) for number in range(len(self.shapes)))

    @property
    def slots(self) -> dict[str, int]:
        """Component -> slots of all packs: the limit, summed over all packs, without slots reserved for padding."""
        return slots_of(self.shapes, self.packs_of_shapes)

    @property
    def padded_slots(self) -> int:
        """Node and edge slots of an epoch with one pack per batch, including a reserved node of each type per batch."""
        return padded_slots_of(self.slots, self.num_packs)

    @property
    def max_graphs(self) -> int:
        """Most graphs in any pack."""
        return int(self.pattern_graphs.max())

    @property
    def efficiency(self) -> dict[str, float]:
        """Component -> real content / slots, relative to the limits of each pack's shape, in [0, 1]."""
        return self._efficiency(self.slots)

    @property
    def effective_limits(self) -> Limits:
        """The limits, each lowered to the largest content of any pack, but at least 1."""
        largest = np.maximum(self.pattern_contents.max(axis=0), 1).tolist()
        maxima = dict(zip(self.histogram.components, largest, strict=True))
        return Limits.from_components(maxima, self.max_graphs)

    @property
    def effective_efficiency(self) -> dict[str, float]:
        """Efficiency relative to `effective_limits`, as in the Tuple Packing paper."""
        return self._efficiency({n: self.num_packs * limit for n, limit in self.effective_limits.maxima.items()})

    def _efficiency(self, slots: Mapping[str, int]) -> dict[str, float]:
        totals = self.histogram.totals()
        return {name: totals[name] / slots[name] for name in self.histogram.components}

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the histogram, the limits and the patterns, as 64 hexadecimal digits."""
        digest = hashlib.sha256()
        header: list[Any] = [list(self.histogram.components), self.limits.to_dict()]
        header += [] if self.buckets is None else [self.buckets.to_dict()]
        digest.update(json.dumps(header, sort_keys=True).encode())
        for array in (self.histogram.sizes, self.histogram.counts, *self._arrays.values()):
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return digest.hexdigest()

    def validate(self) -> None:
        """Raise PlanError unless every graph is in exactly one pack, and no pack exceeds a limit."""
        self._check_structure()
        wrong = np.flatnonzero(self.patterns.packed(len(self.histogram)) != self.histogram.counts)
        if len(wrong):
            of_size = self.classes == wrong[0]
            repeats = np.repeat(self.repeats, np.diff(self.offsets))
            raise PlanError(
                f"the plan packs {exact_sum(self.multiplicities[of_size], repeats[of_size])} graphs of size "
                f"{tuple(self.histogram.sizes[wrong[0]].tolist())}, but the histogram has "
                f"{self.histogram.counts[wrong[0]]}; a plan must hold every graph exactly once. Make it again."
            )
        if self.buckets is not None and self.buckets.largest != self.limits:
            raise PlanError(
                f"the plan has the limits {self.limits!r}, but its largest shape has {self.buckets.largest!r}; it is "
                "damaged, make it again."
            )
        self.check_limits(self.limits)

    def _check_structure(self) -> None:
        """Raise PlanError if the arrays do not fit together, or other attributes have wrong types or values."""
        fitting = (
            all(array.ndim == 1 for array in self._arrays.values())
            and len(self.offsets) - 1 == len(self.repeats) > 0
            and len(self.multiplicities) == len(self.classes) == self.offsets[-1]
            and self.offsets[0] == 0 and (np.diff(self.offsets) > 0).all()
        )  # fmt: skip
        if not fitting:
            raise PlanError("the arrays of the plan do not fit together; it is damaged, make it again.")
        if (self.classes >= len(self.histogram)).any():
            raise PlanError(
                f"the plan names size class {int(self.classes.max())}, but its histogram has {len(self.histogram)} "
                "size classes; it is damaged, make it again."
            )
        if not self.multiplicities.all() or not self.repeats.all():
            raise PlanError("the plan has a pattern with a multiplicity or repeat of 0; leave such entries out.")
        whole_number(f"lower bound of {self.num_packs} packs", self.lower_bound, 1, self.num_packs, PlanError)
        whole_number("seed of a plan", self.seed, 0, UINT64_MAX, PlanError)
        versions = self.versions.values() if isinstance(self.versions, Mapping) else [None]
        if not all(isinstance(text, str) for text in (self.method, self.heuristic or "", *versions)):
            raise PlanError("method, heuristic and versions of a plan must be strings; it is damaged, make it again.")

    def check_limits(self, limits: Limits) -> None:
        """Raise PlanError if a pack of this plan exceeds `limits`."""
        limits = limits.filled(self.histogram.components, self.histogram.totals())
        # Contents cannot overflow: every graph is in one pack, and the totals of the histogram fit int64.
        exceeded = self.pattern_contents > limits.array
        over_cap = self.pattern_graphs > (INT64_MAX if limits.graphs is None else limits.graphs)
        bad = np.flatnonzero(exceeded.any(axis=1) | over_cap)
        if len(bad):
            content = dict(zip(self.histogram.components, self.pattern_contents[bad[0]].tolist(), strict=True))
            raise PlanError(
                f"pattern {bad[0]} of the plan holds {content} in {self.pattern_graphs[bad[0]]} graphs, "
                f"beyond {limits!r}; no pack may exceed a limit, make the plan again."
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a JSON file; the file is either complete or not written at all."""
        arrays = {name: array.tolist() for name, array in self._arrays.items()}
        others = {name: getattr(self, name) for name in _OTHERS}
        content = {"histogram": self.histogram.to_dict(), "limits": self.limits.to_dict(), **arrays, **others}
        buckets = {} if self.buckets is None else {"buckets": self.buckets.to_dict()}
        PLAN_FILE.write(path, {**content, "versions": dict(self.versions), "fingerprint": self.fingerprint, **buckets})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PackPlan:
        """Read a plan that `save` wrote, and validate it; raise FormatError if the file is missing or was altered."""
        # Errors in this block become a FormatError.
        with PLAN_FILE.reading(path) as document:
            limits = Limits.from_dict(document["limits"])
            others = {name: document[name] for name in _OTHERS}
            if "buckets" in document:
                others["buckets"] = Buckets(list(map(Limits.from_dict, document["buckets"])))
            arrays: dict[str, Any] = {name: np.array(document[name]) for name in _ARRAYS}
            plan = cls(SizeHistogram.from_dict(document["histogram"]), limits, **arrays, **others)
            if plan.fingerprint != document["fingerprint"]:
                raise PlanError("its fingerprint does not match its content")
        return plan

    def __repr__(self) -> str:
        fractions = ", ".join(f"{name} {value:.2%}" for name, value in self.efficiency.items())
        packs = ", ".join(f"{n} of {limits!r}" for n, limits in zip(self.packs_of_shapes, self.shapes, strict=True))
        return (
            f"PackPlan({self.histogram.num_graphs} graphs in {self.num_packs} packs: {packs}, lower bound "
            f"{self.lower_bound}, method {self.method!r}, efficiency: {fractions})"
        )


def static_limits(limits: Limits | Buckets, plans: Sequence[PackPlan]) -> Limits | Buckets:
    """Return `limits` with every missing limit on edges or graphs set to the largest number in any pack of the plans.

    For a shape bucket, packs of larger shapes are ignored.
    """
    components = plans[0].histogram.components
    shapes = np.concatenate([plan.pattern_shapes for plan in plans])
    contents = np.concatenate([plan.pattern_contents for plan in plans])
    graphs = np.concatenate([plan.pattern_graphs for plan in plans])
    found: list[Limits] = []
    for shape, each in enumerate(all_of(limits)):
        most = contents[shapes <= shape].max(axis=0, initial=1).tolist()
        chosen = each.filled(components, dict(zip(components, most, strict=True)))
        if chosen.graphs is None:
            # `Buckets` refuses two equal shapes, and a cap below the cap of the previous shape.
            before = found[-1].graphs or 0 if found else 0
            chosen = chosen.replace_graphs(max(int(graphs[shapes <= shape].max(initial=1)), before))
            chosen = chosen.replace_graphs(before + 1) if found and chosen == found[-1] else chosen
        found.append(chosen)
    return Buckets(found) if isinstance(limits, Buckets) else found[0]


def harmonic_mean(efficiency: Mapping[str, float]) -> float:
    """Return the harmonic mean of the efficiencies above 0, of components that any graph has; 0 if there are none."""
    values = [value for value in efficiency.values() if value > 0]
    return len(values) / sum(1 / value for value in values) if values else 0.0


def slots_of(shapes: Sequence[Limits], packs: Sequence[int]) -> dict[str, int]:
    """Return component -> slots of all packs, without slots reserved for padding; ``packs[i]`` packs have shape i."""
    columns = zip(*(limits.values for limits in shapes), strict=True)
    slots = [sum(map(operator.mul, column, packs)) for column in columns]
    return dict(zip(shapes[0].components, slots, strict=True))


def padded_slots_of(slots: Mapping[str, int], packs: int) -> int:
    """Return the sum of `slots`, plus a reserved node of each node type for each of `packs` batches of one pack."""
    return sum(slots.values()) + packs * len(components_of_kind(tuple(slots), "nodes"))


def summarise(plan: PackPlan) -> dict[str, Any]:
    """Return plain data about a plan, for tables and JSON."""
    totals, of_shapes = plan.histogram.totals(), dict[str, Any]()
    if plan.buckets is not None:
        of_shapes = {"packs_of_shapes": list(plan.packs_of_shapes), "padded_slots": plan.padded_slots}
    return {
        "method": plan.method, "heuristic": plan.heuristic, "graphs": plan.histogram.num_graphs,
        "packs": plan.num_packs, **of_shapes, "lower_bound": plan.lower_bound, "gap": plan.gap,
        "efficiency": plan.efficiency, "effective_limits": plan.effective_limits.to_dict(),
        "effective_efficiency": plan.effective_efficiency, "harmonic_mean": harmonic_mean(plan.efficiency),
        "empty_slots": {name: slots - totals[name] for name, slots in plan.slots.items()},
        "max_graphs": plan.max_graphs,
    }  # fmt: skip
