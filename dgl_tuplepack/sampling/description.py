"""What the batches of a sampler are like, before training: their shape, their padding and its causes, the balance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dgl_tuplepack.planning.buckets import all_of, as_shapes
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.search.strategies import AUTO
from dgl_tuplepack.planning.sizes import IntArray, components_of_kind
from dgl_tuplepack.sampling.epoch_batches import NONE
from dgl_tuplepack.sampling.pack_sampler import Balance, PackBatchSampler
from dgl_tuplepack.sampling.static_sampler import StaticBatchSampler

# So many batches are listed graph by graph, for a picture.
_LISTED = 12
# If limits are this much larger than a mean full batch, a graph that takes as much of a batch is to blame.
_MUCH = 0.1


@dataclass(frozen=True)
class Description:
    """The batches of an epoch, as plain values; ``str(description)`` is a text for people.

    Attributes
    ----------
    graphs, batches, ranks, graphs_per_batch
        Graphs of the epoch, batches of each rank, ranks; the least, mean and largest number of graphs in a batch.
    shapes, num_bytes
        The slots of each static shape, by component and for "graphs". Bytes of all tensors of a padded batch of the
        largest shape; None if the features are unknown.
    padding, causes
        Component -> fraction of its slots that is padding; cause -> fraction of all node and edge slots.
    largest
        The graph that takes the largest part of a batch: "id" in the source, "size" by component, "part", and whether
        it is "to_blame" for a shape that is more than 10 % larger than a mean batch.
    balance
        Of several ranks: "spread" (largest minus smallest work of a step, relative to the mean), "largest_spread", and
        "idle" (the fraction of time that ranks wait); None for one rank.
    code
        The two lines to copy, without settings that change no sizes, such as transforms. `dataset` (for a mixture,
        `sources`) and `weights` are yours; of several splits, `dataset` is one.
    first
        The first twelve batches of this rank: the nodes of each graph, and the node slots of the batch.
    """

    graphs: int
    batches: int
    ranks: int
    graphs_per_batch: tuple[int, float, int]
    shapes: tuple[dict[str, int], ...]
    padding: dict[str, float]
    causes: dict[str, float]
    largest: dict[str, Any]
    num_bytes: int | None
    balance: dict[str, float] | None
    code: str
    first: tuple[tuple[list[int], int], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        least, mean, most = self.graphs_per_batch
        number = (
            f"{most:,} graph{'s' * (most > 1)}"
            if least == most
            else f"{least:,} to {most:,} graphs, {mean:,.1f} on average"
        )
        ranks = f" on each of {self.ranks} ranks" if self.ranks > 1 else ""
        rows = [("batches", f"{self.batches:,} of {number}{ranks}; an epoch has {self.graphs:,} graphs")]
        rows += [("shape", _listed(shape)) for shape in self.shapes]
        size = "unknown, since only sizes are known" if self.num_bytes is None else f"{self.num_bytes:,} of a batch"
        rows += [
            ("bytes", size),
            ("padding", ", ".join(f"{part:.2%} of {name}" for name, part in self.padding.items())),
        ]
        rows += [("", f"{part:.2%} {cause}") for cause, part in self.causes.items() if part]
        graph = "the largest graph" if self.largest["id"] is None else f"graph {self.largest['id']}"
        blame = ", which makes the shape so large" if self.largest["to_blame"] else ""
        rows.append(
            ("largest", f"{graph} ({_listed(self.largest['size'])}) takes {self.largest['part']:.1%} of a batch{blame}")
        )
        if self.balance is not None:
            spread, highest, idle = self.balance.values()
            rows.append(
                ("ranks", f"their work differs by {spread:.2%} on average, {highest:.2%} at most; idle {idle:.2%}")
            )
        return "\n".join([*(f"{name:<8} {text}" for name, text in rows), self.code])


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items())


def _code_of(sampler: Any, padded: bool, multiple_of: int, aim: Mapping[str, Any]) -> str:
    is_exact, shapes = isinstance(sampler, StaticBatchSampler), len(all_of(as_shapes(sampler.limits)))
    drops = len(sampler.dropped_ids) > 0
    settings = {"batch_size": sampler.batch_size} if is_exact else {n: v for n, v in aim.items() if v != AUTO}
    if drops and is_exact:
        settings, multiple_of = settings | {"limits": sampler.limits}, 1
    elif not settings:
        # Limits are rounded already.
        limits = sampler.plan.made_for
        settings, multiple_of = {
            "limits": list(limits) if shapes > 1 else limits, "packs_per_batch": sampler.packs_per_batch
        }, 1  # fmt: skip
    every = {
        "padded": padded, "multiple_of": multiple_of, "shuffle": sampler.shuffle, "drop_last": sampler.drop_last,
        "seed": sampler.seed, "oversize": "drop" if drops else "error",
    }  # fmt: skip
    usual = {
        "padded": not is_exact, "multiple_of": 1, "shuffle": True, "drop_last": False, "seed": 0, "oversize": "error",
    }  # fmt: skip
    settings |= {name: value for name, value in every.items() if value != usual[name]}
    given = [f"{name}={value!r}".replace("Limits(", "tp.Limits(") for name, value in settings.items()]
    given += [sampler.drawn_by] if sampler.drawn_by else []
    source = "sources" if sampler.drawn_by.startswith("shares") else "dataset"
    compiled = f"step = tp.compile(step{f', shapes={shapes}' * (shapes > 1)})"
    compiled = compiled if padded else "model = tp.compile(model, loader)"
    return f"loader = tp.packed_loader({source}, {', '.join(given)})\n{compiled}"


def described(
    sampler: PackBatchSampler | StaticBatchSampler, shapes: Sequence[Limits], num_bytes: int | None, padded: bool,
    multiple_of: int = 1, aim: Mapping[str, Any] = MappingProxyType({}), ids: IntArray | None = None,
) -> Description:  # fmt: skip
    """Return the description of the current epoch of a sampler; the other arguments are those of its loader.

    Batches are padded to `shapes`; `aim` is that of the search for the limits, if there was one. `ids` are positions of
    the graphs in their source, if these differ.
    """
    epoch, graph_sizes = sampler.all_batches(), sampler.sizes_by_id()
    sizes, components = graph_sizes.array, graph_sizes.components
    most_packs = getattr(sampler, "packs_per_batch", 1)
    # [S, R, p]: whether there is a pack; [S, R], [S, R, k]: number of graphs and content of each batch.
    there = epoch.dealt != NONE
    numbers = np.where(there, np.diff(epoch.offsets)[epoch.dealt], 0).sum(axis=2)
    of_packs = np.add.reduceat(sizes[epoch.graphs], epoch.offsets[:-1], axis=0)
    contents = np.where(there[..., None], of_packs[epoch.dealt], 0).sum(axis=2)
    is_exact = isinstance(sampler, StaticBatchSampler)
    # Graphs or packs of each batch, and of a full one.
    units, most = (
        (numbers, sampler.batch_size) if isinstance(sampler, StaticBatchSampler) else (there.sum(axis=2), most_packs)
    )
    is_full = units == most
    # For each step, [S, k]: the slots, the limits, and the largest content of a batch of the same shape.
    shape_of = np.zeros(len(numbers), dtype=np.int64) if epoch.shapes is None else epoch.shapes
    slots = np.array([each.aligned(components).array for each in shapes], dtype=np.float64)[shape_of]
    limits = most_packs * np.array(
        [each.aligned(components).array for each in all_of(as_shapes(sampler.limits))], dtype=np.float64
    )
    tops = np.array([contents[shape_of == i].max(axis=(0, 1), initial=0) for i in range(len(shapes))])[shape_of]
    ranks, below = numbers.shape[1], (tops[:, None] - contents).sum(axis=2)
    # What absent graphs would fill: of the room below the fullest batch, or of all room if no batch is full.
    room = below + (limits[shape_of] - tops).sum(axis=1)[:, None]
    absent = (most - units) * (contents.sum() / max(units.sum(), 1))
    rest = np.minimum(below if is_full.any() else room, absent).sum()
    fullest = max(below.sum() - np.minimum(below, absent).sum(), 0.0)
    total = max(float(slots.sum()) * ranks, 1.0)
    causes = {
        "slots reserved for padding": (slots - limits[shape_of]).sum() * ranks / total,
        "room for other epochs, and rounding": max(room.sum() - rest - fullest, 0.0) / total,
        "batches that hold less than the fullest": fullest / total,
        f"batches with fewer {'graphs' if is_exact else 'packs'}": rest / total,
    }
    # Graphs that are never drawn need no room.
    parts = np.zeros(len(sizes))
    parts[epoch.graphs] = (sizes[epoch.graphs] / limits[-1]).max(axis=1)
    worst, work = int(parts.argmax()), contents.sum(axis=2)
    above = limits[shape_of].sum() * ranks * units.sum() / max(contents.sum() * most * units.size, 1) - 1
    nodes = components_of_kind(components, "nodes") or [0]
    largest = {
        "id": worst if ids is None else int(ids[worst]),
        "size": dict(zip(components, sizes[worst].tolist(), strict=True)), "part": float(parts[worst]),
        "to_blame": bool(above > _MUCH <= parts[worst]),
    }  # fmt: skip
    balance, own = Balance(np.asarray(work, dtype=np.float64)), epoch.of_rank(sampler.rank)
    padding = 1 - contents.sum(axis=(0, 1)) / np.maximum(slots.sum(axis=0) * ranks, 1)
    spreads = {"spread": balance.mean_spread, "largest_spread": balance.largest_spread, "idle": balance.idle}
    return Description(
        graphs=int(numbers.sum()), batches=len(numbers), ranks=ranks,
        graphs_per_batch=(int(numbers.min()), float(numbers.mean()), int(numbers.max())),
        shapes=tuple({**shape.maxima, "graphs": shape.graphs or 0} for shape in shapes),
        padding=dict(zip(components, padding.tolist(), strict=True)),
        causes={cause: float(part) for cause, part in causes.items()},
        largest=largest, num_bytes=num_bytes, balance=spreads if ranks > 1 else None,
        code=_code_of(sampler, padded, multiple_of, aim),
        first=tuple(
            (sizes[own[i]][:, nodes].sum(axis=1).tolist(), int(slots[i, nodes].sum()))
            for i in range(min(len(own), _LISTED))
        ),
    )  # fmt: skip
