"""From a stream of graphs, of any length, to packs of them."""

from __future__ import annotations

import itertools
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from dgl_tuplepack._checks import INT64_MAX, check_oversize, true_or_false, whole_number
from dgl_tuplepack.errors import GraphTooLargeError, SamplerError, SizesError
from dgl_tuplepack.kernels.online_fit import NO_SIZE, OVERDUE, SMALLEST, TOO_LARGE, offer
from dgl_tuplepack.limits import Limits, as_limits
from dgl_tuplepack.ranks import replicas
from dgl_tuplepack.sources import SizeReader, is_iterable

Item = TypeVar("Item")

# Rows for open packs at first; more are made as needed.
_ROWS = 256
# Look-aheads of graphs for which a pack may wait to be filled.
_PATIENCE = 4


class StreamPacker(IterableDataset[list[Item]]):
    """Packs of graphs from an iterable that may have no length; none ever exceeds a limit.

    Every graph goes into the fullest open pack that has room for it (best fit, online). A pack comes out as soon as
    nothing fits into it any more, and the fullest one whenever `lookahead` graphs wait; one that is still not full by
    the time that 4 x `lookahead` graphs came behind its first comes out as it is. The rest comes out at the end.

    Parameters
    ----------
    source
        Graphs, pairs (graph, label) or, with `size_of`, anything. Each iteration calls ``iter(source)`` anew; a source
        that is an iterator itself, as a generator is, serves for a single one.
    limits
        Inclusive maxima of one pack. Give a cap on graphs for `PaddedCollate`, which needs one.
    lookahead
        Most graphs held at a time, >= 1. More of them make fuller packs: some hundred are enough.
    size_of
        Function of an item that returns its size, a sequence of k integers in the order of ``limits.components``.
        None: that of a DGLGraph.
    oversize
        What to do with a graph that exceeds the limits alone: "error", or "drop" (with a warning, once an iteration).
    shard
        Whether every rank and every worker of a loader takes every n-th item, so that all of them
        together pack each item once. Each reads the whole source, which must give the same items in the same order
        in every process: shuffle it with a seed of your own, not with the process's. False: the source itself gives
        every process its own items.
    num_replicas, rank
        Number of processes and the number of this one; from torch.distributed where it is initialised. Used
        with `shard` alone.

    Raises
    ------
    LimitsError, SamplerError
        Settings are of the wrong kind, or several processes run and this one does not know its rank; while iterating,
        an iterator as `source` is to serve a second time.

    Notes
    -----
    Time O(lookahead) for each graph at worst, in compiled code; memory O(lookahead). The packs depend on the
    limits, `lookahead`, and the items of this worker of this rank in order, alone. While iterating,
    GraphTooLargeError and SizesError name the item.

    Use it as the dataset of a loader with ``batch_size=None``; a pack is then one batch. Ranks may end after
    unequal numbers of packs: see `in_step`.

    Examples
    --------
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
            raise SamplerError(f"source must be an iterable of graphs, but is {source!r:.100}; give a list or dataset.")
        if not (size_of is None or callable(size_of)):
            raise SamplerError(f"size_of must be a function of an item, but is {size_of!r:.100}; give one, or None.")
        check_oversize(oversize, SamplerError)
        self.source, self.limits, self.size_of = source, as_limits(limits), size_of
        self.lookahead = whole_number("lookahead", lookahead, 1, error=SamplerError)
        self.oversize, self.shard = oversize, true_or_false("shard", shard, SamplerError)
        self.num_replicas, self.rank = replicas(num_replicas, rank) if self.shard else (1, 0)
        self._iterated = False

    def __iter__(self) -> Iterator[list[Item]]:
        if self._iterated and isinstance(self.source, Iterator):
            raise SamplerError(
                f"the source is an iterator ({type(self.source).__name__}), which serves for one iteration, but this "
                "is another one; give a list, a dataset, or an object whose __iter__ begins anew."
            )
        self._iterated = True
        part, parts = self._part()
        items = zip(itertools.count(part, parts), itertools.islice(self.source, part, None, parts), strict=False)
        first = next(items, None)
        if first is None:
            return
        limits, size_of = self._measure(*first)
        packing: _OpenPacks[Item] = _OpenPacks(limits, self.lookahead)
        dropped = False
        for number, item in itertools.chain([first], items):
            size = size_of(number, item)
            found, pack = packing.add(item, size)
            while found == OVERDUE and pack is not None:
                yield pack
                found, pack = packing.add(item, size)
            if pack is not None:
                yield pack
            elif found == TOO_LARGE:
                self._refuse(number, size, limits, dropped)
                dropped = True
            elif found == NO_SIZE:
                raise SizesError(
                    f"the size of item {number} of the stream is {size!r:.100}, but must be {len(limits.components)} "
                    f"integers in 0..2**63-1 for {list(limits.components)}; correct size_of."
                )
        yield from packing.contents

    def _part(self) -> tuple[int, int]:
        """Number of this process among all workers of all ranks, and how many there are."""
        worker = get_worker_info() if self.shard else None
        workers, number = (worker.num_workers, worker.id) if worker is not None else (1, 0)
        # A rank has the same items with any number of workers, so that ranks may have different numbers.
        return number * self.num_replicas + self.rank, self.num_replicas * workers

    def _measure(self, number: int, first: Item) -> tuple[Limits, Callable[[int, Item], Sequence[int]]]:
        """Limits in the order of sizes, and the size of an item of a number."""
        size_of = self.size_of
        if size_of is not None:
            return self.limits, lambda _, item: size_of(item)
        read = SizeReader(first, f"item {number} of the stream")
        return self.limits.aligned(read.components), lambda number, item: read(item, f"item {number} of the stream")

    def _refuse(self, number: int, size: Sequence[int], limits: Limits, dropped: bool) -> None:
        """Raise for a graph that is too large, or warn of the first that is dropped."""
        named = ", ".join(f"{value} {name}" for value, name in zip(size, limits.components, strict=True))
        message = f"item {number} of the stream ({named}) exceeds {limits!r} on its own"
        if self.oversize == "error":
            raise GraphTooLargeError(f"{message}; raise the limits, or leave such graphs out with oversize='drop'.")
        if not dropped:
            warnings.warn(f"{message} and is dropped; others like it are dropped without a word.", stacklevel=3)


class _OpenPacks(Generic[Item]):
    """Packs that may still grow, and what they hold.

    Attributes
    ----------
    contents
        Items of each open pack.
    """

    def __init__(self, limits: Limits, lookahead: int) -> None:
        self.contents: list[list[Item]] = []
        k = len(limits.values)
        self._lookahead, self._patience = lookahead, min(_PATIENCE * lookahead, INT64_MAX)
        self._limits = np.array([*limits.values, INT64_MAX if limits.graphs is None else limits.graphs])
        self._packs = np.empty((min(lookahead, _ROWS), k + 2), dtype=np.int64)
        self._state = np.zeros(SMALLEST + k, dtype=np.int64)
        self._state[SMALLEST:] = INT64_MAX
        self._totals, self._weights, self._size = np.zeros(k), np.empty(k), np.empty(k, dtype=np.int64)
        # Far faster than numpy for a few numbers, and it takes integers alone.
        self._write_size = struct.Struct(f"={k}q").pack_into

    def add(self, item: Item, size: Sequence[int]) -> tuple[int, list[Item] | None]:
        """Take an item in.

        Returns
        -------
        tuple
            The number of its pack, or TOO_LARGE, NO_SIZE, or OVERDUE, which asks to add it again; and the pack that
            comes out, if one does.
        """
        contents = self.contents
        if len(contents) == len(self._packs) < self._lookahead:
            self._packs = np.concatenate([self._packs, np.empty_like(self._packs)])
        try:
            self._write_size(self._size.data, 0, *size)
        except (struct.error, TypeError):
            return NO_SIZE, None
        chosen, going = offer(
            self._size,
            self._limits,
            self._lookahead,
            self._patience,
            self._packs,
            self._state,
            self._totals,
            self._weights,
        )
        if chosen == len(contents):
            contents.append([])
        if chosen >= 0:
            contents[chosen].append(item)
        if going < 0:
            return chosen, None
        pack, last = contents[going], contents.pop()
        if going < len(contents):
            contents[going] = last
        return chosen, pack
