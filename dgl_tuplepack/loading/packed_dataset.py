"""A DGLDataset whose items are the padded packs of an epoch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from dgl.data import DGLDataset
from torch import Tensor

from dgl_tuplepack._core.checks import UINT64_MAX, shown, whole_number
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.coordinates import Coordinates
from dgl_tuplepack.batches.shape import Fill
from dgl_tuplepack.errors import SamplerError, SchemaError, SizesError, TransformError
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.graphs.transform import check_callable
from dgl_tuplepack.loading.pack_labels import PackLabels
from dgl_tuplepack.planning.limits import Limits, as_limits
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.sampling.batches import PackBatchSampler
from dgl_tuplepack.sampling.dealing import EpochBatches
from dgl_tuplepack.sampling.ranks import compared, in_process_group, replicas
from dgl_tuplepack.storage.graph_store import StoredGraphs
from dgl_tuplepack.storage.kind import Stored
from dgl_tuplepack.storage.temporary import temporary_store


class PackedDataset(DGLDataset):  # type: ignore[misc]
    """A `dgl.data.DGLDataset` whose item i is pack i of the epoch, padded: ``(DGLGraph, PackLabels)``.

    Of named graphs it is ``(dict of DGLGraphs, PackLabels)``.

    DGL's own loader and collate make batches of one static shape of it, and the loop stays as it was::

        packed = tp.PackedDataset(dataset, tp.Limits(nodes=128, edges=256))
        for graph, labels in GraphDataLoader(packed, batch_size=4, shuffle=True):
            flat = tp.flatten_packs(graph, labels)  # masks, and labels of all slots

    An item has nodes + 1, edges and graphs + 1 slots of `limits`; a batch of p items has p times as many, with the
    padding of each pack behind its graphs. Labels are stacked, ``[p, graphs + 1, ...]``. Call `set_epoch` before each
    epoch: other graphs share a pack then. Split the graphs before they are packed, not the packs, since a pack holds
    other graphs in each epoch.

    Parameters
    ----------
    source
        Everything that `GraphStore.write` takes. A store, a subset of one, and shards are used where they are; other
        graphs are read once, into a temporary store that is removed with the dataset.
    limits
        Inclusive maxima of one pack.
    plan, content, shuffle, seed, num_replicas, rank, oversize, replan_every
        As in `PackBatchSampler`. Each rank has packs of its own, equally many, so a loader must not split them again:
        with ``use_ddp=True``, or Lightning's ``use_distributed_sampler=True``, graphs would be lost without an error.
        With `shuffle` packs come in random order by themselves.
    multiple_of
        Packs in a batch of the loader: the last packs are followed by empty ones, so that there is a multiple of this
        and the last batch has the shape of the others.
    label_fill, feature_fill, cover_padding, idtype, coordinates
        As in `PaddedCollate`.
    transform
        Applied to each graph when a pack is made, as in `PaddedCollate`: nodes and edges may become fewer.
    batch_transform
        Applied to each pack when it is made, as in `PaddedCollate`.
    transform_seed
        0..2**64-1. Random numbers of transforms are a function of it, the epoch, and the graphs.

    Attributes
    ----------
    sampler
        The sampler of one pack a batch, whose batches are the items.
    limits
        The limits of an item, with a cap on graphs.
    store
        The graphs.
    multiple_of
        As given.

    Raises
    ------
    FormatError, GraphTooLargeError, LimitsError, SamplerError, SchemaError, SizesError, TransformError
        As in `PackBatchSampler` and `GraphStore.write`; for an item, as in `PaddedCollate`.

    Notes
    -----
    Items of workers, persistent ones too, are those of the epoch that was set last in the main process: set it when no
    iteration is running.

    Examples
    --------
    >>> import dgl
    >>> graphs = [dgl.rand_graph(n, n) for n in (3, 2, 1, 2)]
    >>> packed = PackedDataset(graphs, Limits(nodes=4, edges=4))
    >>> graph, labels = packed[0]
    >>> len(packed), graph.num_nodes(), graph.num_edges(), labels.graph_mask
    (2, 5, 4, tensor([ True,  True, False]))
    """

    def __init__(
        self,
        source: Any,
        limits: Limits,
        *,
        plan: PackPlan | None = None,
        content: str | None = None,
        shuffle: bool = True,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
        oversize: str = "error",
        replan_every: int | None = None,
        multiple_of: int = 1,
        label_fill: Fill = 0,
        feature_fill: Fill = 0,
        cover_padding: bool = False,
        idtype: torch.dtype = torch.int64,
        coordinates: Coordinates = (),
        transform: Callable[[Any], Any] | None = None,
        batch_transform: Callable[[PaddedBatch], Any] | None = None,
        transform_seed: int = 0,
    ) -> None:
        among_ranks = num_replicas is None and in_process_group()
        settings: dict[str, Any] = {
            "content": content, "shuffle": shuffle, "seed": seed, "oversize": oversize, "replan_every": replan_every,
        }  # fmt: skip
        with compared("its packed dataset", among_ranks) as facts:
            limits = as_limits(limits)
            # Before graphs are written, which may take long.
            replicas(num_replicas, rank)
            _check_settings(limits, settings)
            self.multiple_of = whole_number("multiple_of", multiple_of, 1, error=SamplerError)
            transforms = {"transform": transform, "batch_transform": batch_transform}
            facts |= {"multiple_of": self.multiple_of, **_named(transforms, transform_seed)}
            self.store = _opened(source, limits if oversize == "error" else None)
        super().__init__("packed", raw_dir=str(self.store.path))
        if self.store.schema.indices:
            raise SchemaError(
                f"{list(self.store.schema.indices)} hold indices, which DGL's collate would not shift when it joins "
                "packs; use store.padded(...) with a PackBatchSampler, or packed_loader."
            )
        self.sampler = PackBatchSampler(self.store, limits, plan=plan, num_replicas=num_replicas, rank=rank, **settings)
        self._view = self.store.padded(
            self.sampler.limits, label_fill=label_fill, feature_fill=feature_fill, cover_padding=cover_padding,
            idtype=idtype, coordinates=coordinates, transform=transform, batch_transform=batch_transform,
            transform_seed=transform_seed,
        )  # fmt: skip
        # Workers, which have copies of all else, see what is written here.
        self._epoch: Tensor = torch.zeros(1, dtype=torch.int64, device="cpu")
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]
        self._epoch_batches: tuple[int, EpochBatches] | None = None
        self.set_epoch(0)

    def has_cache(self) -> bool:
        """Return True: there is nothing to download or to process when DGL loads the dataset."""
        return True

    def process(self) -> None:
        """Do nothing: graphs are read before DGL loads the dataset."""

    @property
    def limits(self) -> Limits:
        """The limits of an item, with a cap on graphs."""
        limits: Limits = self.sampler.limits
        return limits

    @property
    def epoch(self) -> int:
        """The epoch of the items, 0 at first; see `set_epoch`."""
        # Two's complement: epochs go up to 2**64 - 1.
        return int(self._epoch.item()) % 2**64

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, 0..2**64-1, whose packs the items are, in this process and in its workers."""
        self.sampler.set_epoch(epoch)
        epoch = self.sampler.epoch
        self._epoch.fill_(epoch if epoch < 2**63 else epoch - 2**64)
        # Workers that are forked later need not deal the graphs again.
        self._batches_of(epoch)

    def _batches_of(self, epoch: int) -> EpochBatches:
        """Graphs of each pack of this rank in an epoch."""
        if self._epoch_batches is None or self._epoch_batches[0] != epoch:
            self._epoch_batches = epoch, self.sampler._batches_of(epoch)
        return self._epoch_batches[1]

    def __len__(self) -> int:
        """Packs of this rank in the epoch, with the empty ones that make it a multiple of `multiple_of`."""
        return self._length(self.epoch)

    def _length(self, epoch: int) -> int:
        return -(-len(self._batches_of(epoch)) // self.multiple_of) * self.multiple_of

    def __getitem__(self, index: int) -> tuple[Any, PackLabels]:
        """Return pack `index` of the epoch, padded; a last one may be empty."""
        epoch = self.epoch
        batches, number = self._batches_of(epoch), self._length(epoch)
        try:
            position = operator.index(index)
        except TypeError as error:
            raise SizesError(f"a PackedDataset is indexed by one integer, but got {shown(index)}; give one.") from error
        if not -number <= position < number:
            raise SizesError(f"pack {position} does not exist: epoch {epoch} has the packs 0..{number - 1}.")
        position %= number
        batch = self._view[batches[position] if position < len(batches) else []]
        assert batch.graph_ids is not None
        # DGL's collate takes an empty dict, but not None.
        labels = {} if batch.labels is None else batch.labels
        # Not `batch.graph`, which also keeps track of features that are written later.
        return batch._build_graph(), PackLabels(labels, batch.graph_mask, batch.graph_ids)

    def __iter__(self) -> Iterator[tuple[Any, PackLabels]]:
        return (self[i] for i in range(self._length(self.epoch)))

    def graphs_per_batch(self, batch_size: int) -> float:
        """Mean number of graphs in batches of `batch_size` packs, over all batches and ranks of the current epoch.

        The number to divide by in training, ``tp.nn.masked_mean(losses, flat.graph_mask, count=...)``, so that all
        graphs weigh the same; see `PackBatchSampler.graphs_per_batch`.
        """
        return self.sampler.graphs_per_batch * self._packs_of_batch(batch_size)

    def labels_per_batch(self, label_mask: Any, batch_size: int) -> float:
        """Mean number of labels in batches of `batch_size` packs; see `PackBatchSampler.labels_per_batch`."""
        return self.sampler.labels_per_batch(label_mask) * self._packs_of_batch(batch_size)

    def _packs_of_batch(self, batch_size: int) -> float:
        """Mean number of packs in a batch, without those that only complete the last batch."""
        size = whole_number("batch_size", batch_size, 1, error=SamplerError)
        return len(self.sampler) / -(-self._length(self.epoch) // size)

    def __getstate__(self) -> dict[str, Any]:
        # Each process deals the graphs by itself.
        return {**self.__dict__, "_epoch_batches": None}

    def __repr__(self) -> str:
        epoch = self.epoch
        packs = f"{self._length(epoch)} packs of {self.limits!r}"
        return f"PackedDataset({packs}, {len(self.store)} graphs, epoch {epoch})"


def _check_settings(limits: Limits, settings: dict[str, Any]) -> None:
    """Refuse settings of a sampler that contradict each other."""
    number = len(limits.components)
    PackBatchSampler(
        GraphSizes(np.ones((1, number), np.int64), limits.components), limits, num_replicas=1, rank=0, **settings
    )


def _opened(source: Any, limits: Limits | None) -> StoredGraphs:
    """Return the store of the graphs. Graphs that are not stored yet must fit the limits, if there are any."""
    opened = resolve(source)
    if isinstance(opened, Stored):
        store: StoredGraphs = opened.by_position()
        return store
    if limits is not None and opened.knows_sizes:
        limits.check(opened.sizes())
    return temporary_store(opened)


def _named(transforms: dict[str, Any], seed: int) -> dict[str, str]:
    """Return what ranks must have in common, by argument; TransformError if something cannot be a transform."""
    given = {argument: transform for argument, transform in transforms.items() if transform is not None}
    seed = whole_number("transform_seed", seed, 0, UINT64_MAX, TransformError)
    kinds = {"transform": "a DGLGraph", "batch_transform": "a PaddedBatch"}
    return {
        argument: f"{check_callable(transform, kinds[argument])} (seed {seed})" for argument, transform in given.items()
    }
