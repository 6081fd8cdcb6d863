"""A DGLDataset whose items are the padded packs of an epoch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
import torch
from dgl.data import DGLDataset
from torch import Tensor

from dgl_tuplepack._core.checks import UINT64_MAX, shown, whole_number
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.shape import PadSettings
from dgl_tuplepack.batches.tensors import row_masks_of
from dgl_tuplepack.errors import SamplerError, SchemaError, SizesError, TransformError
from dgl_tuplepack.graphs.blocks import public_type
from dgl_tuplepack.graphs.named import by_name, graph_names, is_graph, located_types
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.graphs.transform import check_callable
from dgl_tuplepack.loading.opened import opened
from dgl_tuplepack.nn.masks import RowMask
from dgl_tuplepack.planning.limits import Limits, as_limits
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.sampling.epoch_batches import EpochBatches
from dgl_tuplepack.sampling.pack_sampler import PackBatchSampler
from dgl_tuplepack.sampling.ranks import compared, in_process_group, replicas
from dgl_tuplepack.storage.graph_store import StoredGraphs

if TYPE_CHECKING:
    from dgl import DGLGraph


class PackedDataset(DGLDataset):  # type: ignore[misc]
    """A `dgl.data.DGLDataset` whose item i is pack i of the epoch, padded: ``(DGLGraph, PackLabels)``.

    For named graphs, an item is ``(dict of DGLGraphs, PackLabels)``. A PackLabels is a named tuple of ``values``,
    ``graph_mask`` and ``graph_ids``, with a row for each graph slot.

    DGL's own loader and collate make batches of one static shape from these items. The training loop gains one line::

        packed = tp.PackedDataset(dataset, tp.Limits(nodes=128, edges=256))
        for graph, labels in dgl.dataloading.GraphDataLoader(packed, batch_size=4, shuffle=True):
            flat = tp.flatten_packs(graph, labels)  # masks, and labels of all slots

    An item has slots for ``nodes + 1`` nodes, ``edges`` edges and ``graphs + 1`` graphs, with the numbers of the
    attribute `limits`. A batch of p items has p times these slots; the padding of each pack follows its graphs. Labels
    are stacked, ``[p, graphs + 1, ...]``. Call `set_epoch` before each epoch; packs then hold other graphs. So for
    training and test data, split the graphs, not this dataset.

    Parameters
    ----------
    source
        Any source that `GraphStore.write` accepts. A store, a subset of one, and a dataset of shards are used directly;
        other graphs are written once to a temporary store, which is deleted together with the dataset.
    limits
        Inclusive maxima of one pack.
    plan, content, shuffle, seed, num_replicas, rank, oversize
        As in `PackBatchSampler`. Each rank has its own packs, and all ranks equally many. A loader must not divide them
        among ranks again: ``use_ddp=True``, or Lightning's ``use_distributed_sampler=True``, would lose graphs without
        an error. With `shuffle`, packs are already in random order.
    multiple_of
        Packs per batch of the loader. Empty packs are added at the end, so that the last batch has as many packs.
    transform
        Applied to each graph when a pack is made: a function from DGLGraph to DGLGraph, also for graphs of PyG. It may
        remove nodes and edges, but must not add any.
    batch_transform, transform_seed
        As in `PaddedCollate`.
    **padding
        label_fill, feature_fill, cover_padding, idtype, coordinates and sort_edges, as in `PaddedCollate`.

    Attributes
    ----------
    sampler
        The sampler, with one pack per batch; its batches are the items.
    store
        The store that holds the graphs.

    Raises
    ------
    FormatError, GraphTooLargeError, LimitsError, SamplerError, SchemaError, SizesError, TransformError
        As in `PackBatchSampler` and `GraphStore.write`; for an item, as in `PaddedCollate`.

    Notes
    -----
    Workers, including persistent workers, make items of the epoch that was last set in the main process. Set the epoch
    only while no iteration is running.

    Examples
    --------
    >>> import dgl
    >>> from dgl_tuplepack import Limits
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
        multiple_of: int = 1,
        transform: Callable[[Any], Any] | None = None,
        batch_transform: Callable[[PaddedBatch], Any] | None = None,
        transform_seed: int = 0,
        **padding: Unpack[PadSettings],
    ) -> None:
        among_ranks = num_replicas is None and in_process_group()
        settings: dict[str, Any] = {
            "content": content, "shuffle": shuffle, "seed": seed, "oversize": oversize,
        }  # fmt: skip
        with compared("its packed dataset", among_ranks) as facts:
            limits = as_limits(limits)
            # Check settings first, since writing the graphs may take long. With two graphs of one size, the sampler
            # reports no default of `content`.
            replicas(num_replicas, rank)
            sizes = GraphSizes(np.ones((2, len(limits.components)), np.int64), limits.components)
            PackBatchSampler(sizes, limits, num_replicas=1, rank=0, **settings)
            self.multiple_of = whole_number("multiple_of", multiple_of, 1, error=SamplerError)
            facts["multiple_of"] = self.multiple_of
            transform_seed = whole_number("transform_seed", transform_seed, 0, UINT64_MAX, TransformError)
            if transform is not None:
                facts["transform"] = f"{check_callable(transform, 'a DGLGraph')} (seed {transform_seed})"
            if batch_transform is not None:
                facts["batch_transform"] = f"{check_callable(batch_transform, 'a PaddedBatch')} (seed {transform_seed})"
            found = resolve(source)
            if oversize == "error" and found.knows_sizes:
                limits.check(found.sizes())
            self.store: StoredGraphs = opened(found, in_memory=True).items
        super().__init__("packed", raw_dir=str(self.store.path))
        if self.store.schema.indices:
            raise SchemaError(
                f"{list(self.store.schema.indices)} hold indices, which DGL's collate would not shift when it joins "
                "packs; use store.padded(...) with a PackBatchSampler, or packed_loader."
            )
        self.sampler = PackBatchSampler(self.store, limits, plan=plan, num_replicas=num_replicas, rank=rank, **settings)
        self._view = self.store.padded(
            self.sampler.limits, transform=transform, batch_transform=batch_transform, transform_seed=transform_seed,
            **padding,
        )  # fmt: skip
        # The epoch is in shared memory, so that workers see each new epoch.
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
        # The int64 tensor holds epochs from 2**63 on as negative numbers (two's complement).
        return int(self._epoch.item()) % 2**64

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the items, 0..2**64-1, in this process and in its workers."""
        self.sampler.set_epoch(epoch)
        epoch = self.sampler.epoch
        self._epoch.fill_(epoch if epoch < 2**63 else epoch - 2**64)
        # Workers that are forked later then have the batches.
        self._batches_of(epoch)

    def _batches_of(self, epoch: int) -> EpochBatches:
        """Return the batches of this rank in an epoch; each batch has the graph ids of one pack."""
        if self._epoch_batches is None or self._epoch_batches[0] != epoch:
            self._epoch_batches = epoch, self.sampler.batches_of(epoch)
        return self._epoch_batches[1]

    def __len__(self) -> int:
        """Return the number of packs of this rank in the epoch, including empty packs (see `multiple_of`)."""
        return self._length(self.epoch)

    def _length(self, epoch: int) -> int:
        """Return the number of packs of this rank in an epoch, rounded up to a multiple of `multiple_of`."""
        return -(-len(self._batches_of(epoch)) // self.multiple_of) * self.multiple_of

    def __getitem__(self, index: int) -> tuple[Any, PackLabels]:
        """Return pack `index` of the epoch, padded; the last packs may be empty."""
        epoch = self.epoch
        batches, num_packs = self._batches_of(epoch), self._length(epoch)
        try:
            position = operator.index(index)
        except TypeError as error:
            raise SizesError(f"a PackedDataset is indexed by one integer, but got {shown(index)}; give one.") from error
        if not -num_packs <= position < num_packs:
            raise SizesError(f"pack {position} does not exist: epoch {epoch} has the packs 0..{num_packs - 1}.")
        position %= num_packs
        # An empty list of ids gives an empty pack.
        batch = self._view[batches[position] if position < len(batches) else []]
        assert batch.graph_ids is not None
        # DGL's collate accepts an empty dict, but not None.
        labels = {} if batch.labels is None else batch.labels
        # `batch.graph` would also note its features, to copy later changes of them to `batch`, which is not kept here.
        return batch.build_graph(), PackLabels(labels, batch.graph_mask, batch.graph_ids)

    def __iter__(self) -> Iterator[tuple[Any, PackLabels]]:
        return (self[i] for i in range(self._length(self.epoch)))

    def graphs_per_batch(self, batch_size: int) -> float:
        """Return the mean number of graphs per batch of `batch_size` packs; see `PackBatchSampler.graphs_per_batch`."""
        return self.sampler.graphs_per_batch * self._packs_of_batch(batch_size)

    def labels_per_batch(self, label_mask: Any, batch_size: int) -> float:
        """Return the mean number of labels per batch of `batch_size` packs; see `PackBatchSampler.labels_per_batch`."""
        return self.sampler.labels_per_batch(label_mask) * self._packs_of_batch(batch_size)

    def _packs_of_batch(self, batch_size: int) -> float:
        """Return the mean number of packs per batch; the empty packs at the end do not count."""
        size = whole_number("batch_size", batch_size, 1, error=SamplerError)
        return len(self.sampler) / -(-self._length(self.epoch) // size)

    def __getstate__(self) -> dict[str, Any]:
        # Each process makes the batches of the epoch itself.
        return {**self.__dict__, "_epoch_batches": None}

    def __repr__(self) -> str:
        epoch = self.epoch
        packs = f"{self._length(epoch)} packs of {self.limits!r}"
        return f"PackedDataset({packs}, {len(self.store)} graphs, epoch {epoch})"


class PackLabels(NamedTuple):
    """Labels of the G graph slots of a pack, with a mask of the real slots. DGL's collate stacks the labels of p packs.

    Attributes
    ----------
    values
        Labels ``[G, ...]``, or a dict of such tensors by name; an empty dict if graphs have no label. After collate,
        ``[p, G, ...]``.
    graph_mask
        Bool ``[G]``, True = real; after collate ``[p, G]``.
    graph_ids
        int64 ``[G]``, positions in the source, -1 in padding; after collate ``[p, G]``.
    """

    values: Tensor | dict[str, Tensor]
    graph_mask: Tensor
    graph_ids: Tensor


class FlatPacks(NamedTuple):
    """Masks and labels of a batch of p packs, with one row for each slot of the batch; made by `flatten_packs`.

    Fields are as in `PaddedBatch`, but `labels` is an empty dict if graphs have no label.
    """

    labels: Tensor | dict[str, Tensor]
    node_mask: Any
    edge_mask: Any
    graph_mask: Tensor
    graph_ids: Tensor
    graph_names: tuple[str, ...] = ()

    def row_masks(self) -> dict[str, RowMask]:
        """Return row masks by component name, for ``tp.nn.masked(flat)``."""
        return row_masks_of(self)


def flatten_packs(graph: DGLGraph | Mapping[str, DGLGraph], labels: PackLabels) -> FlatPacks:
    """Return the masks and labels of a batch of a `PackedDataset`, with one row for each slot of the batch.

    Call it before the graph is changed: DGL forgets the graph of each node if, for instance, edges are added.

    Parameters
    ----------
    graph, labels
        The two values of a batch from a loader of a `PackedDataset`, or of an item of the dataset.

    Returns
    -------
    FlatPacks
        Labels, node_mask, edge_mask, graph_mask and graph_ids, on the device of the graph.

    Raises
    ------
    SchemaError
        The arguments are not a graph and `PackLabels`, or belong to different batches.

    Examples
    --------
    >>> import dgl
    >>> from dgl_tuplepack import Limits, PackedDataset
    >>> packed = PackedDataset([(dgl.graph(([0, 1], [1, 0])), 3)], Limits(3, 2))
    >>> flat = flatten_packs(*packed[0])
    >>> flat.labels, flat.node_mask, flat.edge_mask
    (tensor([3, 0]), tensor([ True,  True, False, False]), tensor([True, True]))
    """
    graphs = by_name(graph)
    if not all(map(is_graph, graphs.values())) or not isinstance(labels, PackLabels):
        raise SchemaError(
            f"flatten_packs needs a DGLGraph and PackLabels, but got {type(graph).__name__} and {shown(labels)}; give "
            "both values of an item of a PackedDataset, or of a batch that DGL's collate makes of such items."
        )
    slots = labels.graph_mask.numel()
    wrong = [each.batch_size for each in graphs.values() if each.batch_size != slots]
    if wrong:
        raise SchemaError(
            f"the graph holds {wrong[0]} graphs, but the labels are for {slots}; give both values of one batch, "
            "before the graph is changed: DGL treats the batch as one graph once nodes or edges are added or removed."
        )

    def flat(values: Any) -> Any:
        # Labels [G, ...] of an item stay, and labels [p, G, ...] of a batch become [p * G, ...].
        if isinstance(values, Mapping):
            return {name: flat(inner) for name, inner in values.items()}
        return values.reshape(slots, *values.shape[labels.graph_mask.ndim :]).to(device)

    device = next(iter(graphs.values())).device
    mask = flat(labels.graph_mask)
    nodes, edges = {}, {}
    for t, owner, type_in_graph in located_types(graph):
        if isinstance(t, str):
            nodes[t] = _spread(mask, owner.batch_num_nodes(type_in_graph), owner.num_nodes(type_in_graph))
        else:
            # The edges of a homogeneous named graph have the name of the graph as their key.
            key = t if graph_names(graph) == () else public_type(t)
            edges[key] = _spread(mask, owner.batch_num_edges(type_in_graph), owner.num_edges(type_in_graph))
    # In `graphs`, a graph without a name has the name "".
    is_homogeneous = len(nodes) == len(edges) == 1 and "" in graphs
    return FlatPacks(
        labels=flat(labels.values),
        node_mask=next(iter(nodes.values())) if is_homogeneous else nodes,
        edge_mask=next(iter(edges.values())) if is_homogeneous else edges,
        graph_mask=mask,
        graph_ids=flat(labels.graph_ids),
        graph_names=graph_names(graph),
    )


def _spread(mask: Tensor, counts: Tensor, total: int) -> Tensor:
    """Return the mask of all `total` nodes (edges): each node (edge) gets the value of its graph slot."""
    return torch.repeat_interleave(mask, counts, output_size=total)
