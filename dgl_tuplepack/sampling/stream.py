"""Pack the graphs of a stream of any length."""

from __future__ import annotations

import itertools
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from dgl_tuplepack._core.checks import INT64_MAX, OVERSIZE, choice, shown, true_or_false, whole_number
from dgl_tuplepack._core.kernels.online_fit import NO_SIZE, OVERDUE, SMALLEST, TOO_LARGE, offer
from dgl_tuplepack.errors import GraphTooLargeError, SamplerError, SizesError
from dgl_tuplepack.graphs.items import is_iterable
from dgl_tuplepack.graphs.readers.datasets import SizeReader
from dgl_tuplepack.planning.limits import Limits, as_limits
from dgl_tuplepack.sampling.ranks import replicas

Item = TypeVar("Item")

# Initial number of open packs for which arrays have room.
_FIRST_CAPACITY = 256
# A pack stays open for at most this many times `lookahead` graphs.
_PATIENCE = 4


class StreamPacker(IterableDataset[list[Item]]):
    """Packs of graphs from an iterable that may have no length; no pack ever exceeds a limit.

    Each graph goes into the fullest open pack that has room for it (best fit, online). A pack is yielded when it is
    full, or when ``4 * lookahead`` graphs have been packed since it was opened; the fullest open pack, when open packs
    hold `lookahead` graphs together; and all open packs, at the end of the source.

    Parameters
    ----------
    source
        Graphs, pairs (graph, label) or, with `size_of`, anything. Each iteration calls ``iter(source)``; an iterator,
        such as a generator, can be iterated only once.
    limits
        Inclusive maxima of one pack. `PaddedCollate` needs limits with a cap on graphs.
    lookahead
        Most graphs in all open packs together, >= 1. More make fuller packs; a few hundred are enough.
    size_of
        Function of an item that returns its size, a sequence of k integers in the order of ``limits.maxima``.
        None: items are graphs, or tuples that begin with a graph.
    oversize
        What to do with a graph that is too large for any pack: "error", or "drop" (with one warning per iteration).
    shard
        Whether to divide the items among the ranks and their workers, so that each item is packed once. Each of R ranks
        packs every R-th item, and its workers take these items in turn. Each worker reads the whole source, which must
        yield the same items in the same order in every process: to shuffle, use a fixed seed, not the global random
        state. False: each worker packs all items, for a source that yields different items in every process.
    num_replicas, rank
        Number of processes, and the rank of this process, for `shard`; by default from torch.distributed, if it is
        initialised.

    Raises
    ------
    LimitsError, SamplerError
        A setting has a wrong type or value; or several processes run, but the rank of this process is unknown. While
        iterating: `source` is an iterator and is iterated a second time.

    Notes
    -----
    Time O(lookahead) for each graph at worst, in compiled code; memory O(lookahead). Packs depend only on the limits,
    `lookahead`, and the items of this worker, in their order. GraphTooLargeError and SizesError name the item.

    Use a StreamPacker as the dataset of a loader with ``batch_size=None``; each pack is then one batch. Ranks may end
    after unequal numbers of packs: see `in_step`.

    Examples
    --------
    >>> from dgl_tuplepack import Limits
    >>> sizes = [(3, 3), (2, 2), (1, 1), (2, 1)]
    >>> list(StreamPacker(sizes, Limits(nodes=4, edges=4), size_of=lambda size: size))
    [[(3, 3), (1, 1)], [(2, 2), (2, 1)]]
    """

    def __init__(
        self,
        source: Iterable[Item],
        limits: Limits,
        *,
        lookahead: int = 1000,
        size_of: Callable[[Item], Sequence[int]] | None = None,
        oversize: str = "error",
        shard: bool = True,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        if not is_iterable(source):
            raise SamplerError(f"source must be an iterable of graphs, but is {shown(source)}; give a list or dataset.")
        if not (size_of is None or callable(size_of)):
            raise SamplerError(f"size_of must be a function of an item, but is {shown(size_of)}; give one, or None.")
        choice("oversize", oversize, OVERSIZE, SamplerError)
        self.source, self.limits, self.size_of = source, as_limits(limits), size_of
        self.lookahead = whole_number("lookahead", lookahead, 1, error=SamplerError)
        self.oversize, self.shard = oversize, true_or_false("shard", shard, SamplerError)
        self.num_replicas, self.rank = replicas(num_replicas, rank) if self.shard else (1, 0)
        self._iterated = False

    def __iter__(self) -> Iterator[list[Item]]:
        if self._iterated and isinstance(self.source, Iterator):
            raise SamplerError(
                f"the source is an iterator ({type(self.source).__name__}), which can be iterated only once, but this "
                "is another iteration; give a list, a dataset, or an object whose __iter__ begins again."
            )
        self._iterated = True
        # The items of a rank do not depend on its number of workers, so ranks may have different numbers of workers.
        worker = get_worker_info() if self.shard else None
        workers, number = (worker.num_workers, worker.id) if worker is not None else (1, 0)
        share, shares = number * self.num_replicas + self.rank, self.num_replicas * workers
        # Pairs (index in the stream, item) of this worker.
        items = zip(itertools.count(share, shares), itertools.islice(self.source, share, None, shares), strict=False)
        first = next(items, None)
        if first is None:
            return
        limits, size_of = self.limits, self.size_of
        if size_of is None:
            read = SizeReader(first[1], f"item {first[0]} of the stream")
            limits = limits.aligned(read.components)
        packing: _OpenPacks[Item] = _OpenPacks(limits, self.lookahead)
        dropped = False
        for number, item in itertools.chain([first], items):
            size = read(item, f"item {number} of the stream") if size_of is None else size_of(item)
            outcome, pack = packing.add(item, size)
            # OVERDUE: a pack was open for too long, so `add` closed that pack and did not add the item.
            while outcome == OVERDUE and pack is not None:
                yield pack
                outcome, pack = packing.add(item, size)
            if pack is not None:
                yield pack
            elif outcome == TOO_LARGE:
                content = ", ".join(f"{value} {name}" for value, name in zip(size, limits.components, strict=True))
                message = f"item {number} of the stream ({content}) exceeds {limits!r} on its own"
                if self.oversize == "error":
                    raise GraphTooLargeError(
                        f"{message}; raise the limits, or leave such graphs out with oversize='drop'."
                    )
                if not dropped:
                    warnings.warn(f"{message} and is dropped; further such graphs are dropped silently.", stacklevel=2)
                dropped = True
            elif outcome == NO_SIZE:
                raise SizesError(
                    f"the size of item {number} of the stream is {shown(size)}, but must be {len(limits.components)} "
                    f"integers in 0..2**63-1 for {list(limits.components)}; correct size_of."
                )
        yield from packing.contents


class _OpenPacks(Generic[Item]):
    """Open packs, which may still grow; ``contents[i]`` has the items of pack i. `offer` describes the arrays."""

    def __init__(self, limits: Limits, lookahead: int) -> None:
        self.contents: list[list[Item]] = []
        k = len(limits.values)
        self._lookahead, self._patience = lookahead, min(_PATIENCE * lookahead, INT64_MAX)
        self._limits = np.array([*limits.values, INT64_MAX if limits.graphs is None else limits.graphs])
        self._packs = np.empty((min(lookahead, _FIRST_CAPACITY), k + 2), dtype=np.int64)
        self._state = np.zeros(SMALLEST + k, dtype=np.int64)
        self._state[SMALLEST:] = INT64_MAX
        self._totals, self._weights, self._size = np.zeros(k), np.empty(k), np.empty(k, dtype=np.int64)
        # For a few numbers, struct is far faster than numpy; and it accepts only integers.
        self._write_size = struct.Struct(f"={k}q").pack_into

    def add(self, item: Item, size: Sequence[int]) -> tuple[int, list[Item] | None]:
        """Put an item into a pack; return the index of the pack or a reason, and the pack to yield now or None.

        The reasons are TOO_LARGE, NO_SIZE, and OVERDUE (then add the item again).
        """
        contents = self.contents
        if len(contents) == len(self._packs) < self._lookahead:
            self._packs = np.concatenate([self._packs, np.empty_like(self._packs)])
        try:
            self._write_size(self._size.data, 0, *size)
        except (struct.error, TypeError):
            return NO_SIZE, None
        chosen, closed = offer(
            self._size, self._limits, self._lookahead, self._patience,
            self._packs, self._state, self._totals, self._weights,
        )  # fmt: skip
        if chosen == len(contents):
            contents.append([])
        if chosen >= 0:
            contents[chosen].append(item)
        if closed < 0:
            return chosen, None
        # As in the kernel, the last open pack gets the index of the closed pack.
        pack, last = contents[closed], contents.pop()
        if closed < len(contents):
            contents[closed] = last
        return chosen, pack
