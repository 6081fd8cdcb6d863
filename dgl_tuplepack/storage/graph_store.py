"""A dataset of graphs on the disk, read through memory maps."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import as_ids, as_path, choice, true_or_false
from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.collate import PaddedCollate
from dgl_tuplepack.batches.coordinates import Coordinates
from dgl_tuplepack.batches.shape import Fill, PaddedShape
from dgl_tuplepack.batches.view import CollatedView
from dgl_tuplepack.errors import InputError, SizesError
from dgl_tuplepack.graphs.blocks import GraphBlock
from dgl_tuplepack.graphs.items import Identified
from dgl_tuplepack.graphs.pyg_layout import Levels, checked_levels
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.graphs.relations import Indices, Ties
from dgl_tuplepack.planning.buckets import Shapes, all_of, as_shapes
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.device import DeviceStore
from dgl_tuplepack.storage.folder import fresh_data
from dgl_tuplepack.storage.padded import PaddedBatches
from dgl_tuplepack.storage.part import Part
from dgl_tuplepack.storage.plain import DglFace, PlainBatches
from dgl_tuplepack.storage.plans import load_plans
from dgl_tuplepack.storage.pre_transform import Transformed
from dgl_tuplepack.storage.rows import GraphRows
from dgl_tuplepack.storage.selection import Selection
from dgl_tuplepack.storage.sources import blocks_of
from dgl_tuplepack.storage.view import BatchView
from dgl_tuplepack.storage.write import write_store


class StoredGraphs(Selection):
    """Base of `GraphStore` and `MultiStore`: a selection, and the ways to its batches."""

    def padded(
        self,
        limits: Shapes,
        packs_per_batch: int = 1,
        *,
        label_fill: Fill = 0,
        feature_fill: Fill = 0,
        cover_padding: bool = False,
        idtype: torch.dtype = torch.int64,
        coordinates: Coordinates = (),
        sort_edges: bool = False,
        as_stored: bool = False,
        separate: bool = False,
        transform: Callable[[Any], Any] | None = None,
        batch_transform: Callable[[PaddedBatch], Any] | None = None,
        transform_seed: int = 0,
    ) -> BatchView | CollatedView:
        """Return a view whose item for a list of ids is one `PaddedBatch`, for a loader with ``batch_size=None``.

        Parameters
        ----------
        limits, packs_per_batch, label_fill, feature_fill, cover_padding, idtype, coordinates, sort_edges
            As in `PaddedCollate`; the batches are equal. With several limits, the ids of a `PackBatchSampler` carry the
            shape; other ids get the smallest one that holds them.
        as_stored
            Hand out integers that were narrowed by ``compact=True`` as they are stored.
        separate
            Give each tensor of a batch its own memory, instead of one for all tensors of a dtype: for layers that free
            the storage of their input, such as DGL's GroupRevRes, and for tensors that outlive their batch.
        transform, batch_transform, transform_seed
            As in `PaddedCollate`. With `transform`, graphs are read one by one, which takes much longer than without;
            random numbers are those of their ids here. What is the same in every epoch belongs into the `pre_transform`
            of `GraphStore.write`.
        """
        named: dict[str, Any] = {
            "label_fill": label_fill, "feature_fill": feature_fill, "cover_padding": cover_padding, "idtype": idtype,
            "coordinates": coordinates, "sort_edges": sort_edges,
        }  # fmt: skip
        if transform is not None:
            given = {"as_stored": as_stored, "separate": separate}
            refuse_those_of_stores([name for name, value in given.items() if value])
            collate = PaddedCollate(
                limits, Identified(0, self[0]), packs_per_batch, ties=self.schema.ties, indices=self.schema.indices,
                transform=transform, batch_transform=batch_transform, transform_seed=transform_seed, **named,
            )  # fmt: skip
            return CollatedView(self, collate, "positions")
        schema = self.batch_schema(as_stored)
        shapes = [PaddedShape(schema, each, packs_per_batch, **named) for each in all_of(as_shapes(limits))]
        separate = true_or_false("separate", separate)
        return BatchView(self, shapes, transform=batch_transform, transform_seed=transform_seed, separate=separate)

    def batch(
        self, ids: Sequence[int] | IntArray | Tensor, limits: Shapes, packs_per_batch: int = 1, **settings: Any
    ) -> PaddedBatch:
        """Return one padded batch of the graphs `ids`; settings as in `padded`, which is faster for many batches."""
        batch: PaddedBatch = self.padded(limits, packs_per_batch, **settings)[ids]
        return batch

    def batched(self, *, as_stored: bool = False, framework: str = "dgl") -> BatchView:
        """Return a view whose item for a list of ids is ``(DGLGraph, labels)`` without padding, or a batch of PyG.

        It equals what `dgl.batch` and DGL's collate make of the items, and is made far faster. In a training script,
        ``tp.GraphDataLoader(store, batch_size=64, shuffle=True)`` uses it. In any loader with
        ``sampler=PackBatchSampler(store, limits), batch_size=None``, no batch exceeds the limits.

        Parameters
        ----------
        as_stored
            Hand out integers that were narrowed by ``compact=True`` as they are stored.
        framework
            "dgl", or "pyg": the item equals what `torch_geometric.data.Batch.from_data_list` makes of the graphs, and
            ``tp.pyg.DataLoader(store, batch_size=64)`` uses it.
        """
        return BatchView(self, framework=choice("framework", framework, ("dgl", "pyg")), as_stored=as_stored)

    @property
    def selection(self) -> Selection:
        """The graphs, by ids."""
        return self

    def maker(
        self,
        shape: PaddedShape | None,
        *,
        separate: bool = False,
        as_stored: bool = False,
        framework: str = "dgl",
    ) -> Callable[[GraphRows], Any]:
        """Return a function from rows of graphs to their batch, for a `BatchView`."""
        if shape is not None:
            return PaddedBatches(self, shape, separate)
        schema = self.batch_schema(as_stored)
        if framework == "dgl":
            return PlainBatches(self, schema, DglFace(schema))
        load("torch_geometric")
        from dgl_tuplepack.storage.pyg import PygFace

        return PlainBatches(self, schema, PygFace(schema))

    def item(self, i: int, framework: str = "dgl") -> Any:
        """Return one graph with its label: a DGLGraph or (DGLGraph, label), or a `Data` or `HeteroData` of PyG."""
        if framework == "dgl":
            return self[i]
        number = int(i)
        return self.batched(framework="pyg")[[number + len(self) if -len(self) <= number < 0 else number]].get_example(
            0
        )

    def to(self, device: torch.device | str) -> DeviceStore:
        """Copy all arrays to a device, to assemble batches there.

        They take as much memory there as the files, or somewhat more (endpoints of 16 bits take 32, and all parts have
        the widest dtype of any part). The arrays of the whole store are copied, also for a subset.
        """
        return DeviceStore(self, device)

    def as_pyg_dataset(self, transform: Callable[[Any], Any] | None = None) -> Any:
        """Return the store as a `torch_geometric.data.Dataset` of `Data` or `HeteroData`.

        Its graphs are read one by one; ``batched(framework="pyg")`` and `padded` give whole batches far faster.

        Parameters
        ----------
        transform
            Applied to each graph when it is read, as in PyG's own datasets.
        """
        load("torch_geometric")
        from dgl_tuplepack.storage.pyg import PygStoreDataset

        return PygStoreDataset(self, transform)


class GraphStore(StoredGraphs):
    """All graphs of a dataset, in flat, memory-mapped arrays.

    Opening takes milliseconds at any size. Items are DGLGraphs, or pairs (DGLGraph, label), as they were written.
    `padded` returns whole padded batches, far faster. DGL is needed for items and for `PaddedBatch.graph` only.

    Parameters
    ----------
    path
        Folder that `GraphStore.write` made.

    Attributes
    ----------
    path
        The folder.
    schema
        Types, features and labels of the graphs.
    original_ids
        int64 ``[N]``, the id of each graph in the store. Ids of a subset count from 0.

    Raises
    ------
    FormatError
        There is no store, or it is not as it was written: header, length and samples of every file are checked
        (`verify` checks every byte).

    Examples
    --------
    >>> import dgl, tempfile
    >>> from dgl_tuplepack import Limits
    >>> graphs = [dgl.graph(([0, 1], [1, 2])), dgl.graph(([0], [1]))]
    >>> store = GraphStore.write(tempfile.mkdtemp(), graphs)
    >>> store, store[1].num_nodes(), store.batch([1, 0], Limits(nodes=5, edges=5, graphs=3)).num_real_nodes
    (GraphStore(2 graphs, 5 nodes, 3 edges), 2, 5)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Workers may have another working folder.
        path = as_path(path).absolute()
        super().__init__(path, [Part.open(path)])

    @property
    def plans(self) -> dict[str, PackPlan]:
        """The plans that `preprocess` made: one for each split, or one for all graphs under an empty name.

        Raises
        ------
        FormatError
            There are none, or one is damaged or for other graphs.
        """
        return load_plans(self)

    @classmethod
    def write(
        cls,
        path: str | os.PathLike[str],
        source: Any,
        *,
        splits: Mapping[str, Sequence[int] | IntArray] | None = None,
        compact: bool = False,
        overwrite: bool = False,
        pre_transform: Callable[[Any], Any] | None = None,
        transform_seed: int = 0,
        transform_name: str | None = None,
        ties: Ties | None = None,
        indices: Indices | None = None,
        levels: Levels | None = None,
    ) -> GraphStore:
        """Write a store, block after block, and open it.

        Parameters
        ----------
        path
            Folder to make, or an empty folder.
        source
            A list, dataset or iterator of DGLGraph or (DGLGraph, label), of named graphs ``({"atoms": g, "bonds": h},
            label)``, or of Data or HeteroData of PyG; an OGB dataset; an `OgbFolder`, a `GraphStore`, a `MultiStore`,
            an `InMemoryDataset` of PyG or a subset of one of these, or a path, which are read directly and much faster;
            the path of a ``.bin`` file of `dgl.save_graphs`.
        splits
            Ids by name of the split, such as "train"; None: the splits of the source.
        compact
            Store int64 and int32 features and labels in the narrowest dtype that holds their values; they are handed
            out in their own dtype.
        overwrite
            Replace an existing store, which stays valid until the new one is complete, and its plans.
        pre_transform
            Applied to each graph before it is written: a transform of `dgl.transforms`, or any callable that takes and
            returns a DGLGraph (of PyG: a Data), or returns a dict of named ones. Sizes are those of the graphs that it
            returns.
        transform_seed
            0..2**64-1. Random numbers of `pre_transform` are a function of it and of the position of the graph.
        transform_name
            A name by which the store remembers `pre_transform`, to be told from another one. None: its `repr`, or the
            qualified name of a function. A lambda, a closure, and an object without a lasting `repr` need a name.
        ties, indices
            As in `PaddedCollate`; the store keeps them, and its batches need not be told. Checked for each graph. None:
            those of the source, if it is a store.
        levels
            What attributes of graphs of PyG belong to, as in `PaddedCollate`. It is needed where the graphs do not tell
            it.

        Raises
        ------
        FormatError
            The folder holds something else or cannot be written, or a file of the source is damaged.
        SchemaError, SizesError
            Graphs differ in types, features or labels, or there are none; ties or indices do not hold.
        TransformError
            `pre_transform` fails for a graph, does not return one, or needs a `transform_name`.
        InputError
            `compact` or `overwrite` is neither True nor False.

        Notes
        -----
        Memory is bounded by a block of graphs (a ``.bin`` file is read completely). A process that is killed at any
        moment leaves the earlier store, or nothing that opens.
        """
        write_graphs(
            path, source, splits=splits, compact=compact, overwrite=overwrite, pre_transform=pre_transform,
            transform_seed=transform_seed, transform_name=transform_name, ties=ties, indices=indices, levels=levels,
        )  # fmt: skip
        return cls(path)


def write_graphs(
    path: str | os.PathLike[str],
    source: Any,
    *,
    splits: Mapping[str, Sequence[int] | IntArray] | None = None,
    compact: bool,
    overwrite: bool,
    pre_transform: Callable[[Any], Any] | None = None,
    transform_seed: int = 0,
    transform_name: str | None = None,
    ties: Ties | None,
    indices: Indices | None,
    levels: Levels | None,
    prepare: Callable[[StoredGraphs, Path], None] | None = None,
) -> None:
    """Write a store as `GraphStore.write`; `prepare` gets the new graphs and their data folder before they are visible.

    What it saves in that folder becomes visible together with the store.
    """
    path = as_path(path)
    compact, overwrite = true_or_false("compact", compact), true_or_false("overwrite", overwrite)
    # The folder is checked before the source is read, which may take long.
    with fresh_data(path, overwrite) as data:
        opened = resolve(source)
        if levels is not None:
            opened = opened.with_levels(checked_levels(levels))
        if pre_transform is not None:
            opened = Transformed(opened, pre_transform, transform_seed, transform_name)
        schema, blocks = blocks_of(opened, ties, indices)
        number, chosen = opened.num_graphs(), opened.splits() if splits is None else splits
        if not isinstance(chosen, Mapping):
            raise SizesError(f"splits must be a mapping of names to ids, but are {chosen!r:.200}.")
        names = Counter(str(name) for name in chosen)
        if len(names) != len(chosen):
            raise SizesError(
                f"{names.most_common(1)[0][1]} splits are called {names.most_common(1)[0][0]!r:.200} as text; give "
                "each a name of its own."
            )
        if number is not None:
            for ids in chosen.values():
                as_ids(ids, number)
        written = write_store(data, schema, _with_progress(blocks, number), chosen, compact)
        metadata = replace(written, pre_transform=opened.pre_transform)
        if prepare is not None:
            prepare(StoredGraphs(path, [Part(path, metadata)]), data)
        metadata.save(path)


def _with_progress(blocks: Iterable[GraphBlock], total: int | None) -> Iterator[GraphBlock]:
    with progress_bar(desc="graphs", total=total, unit=" graphs") as progress:
        for block in blocks:
            yield block
            progress.update(len(block))


def refuse_those_of_stores(settings: Iterable[str]) -> None:
    """Refuse (InputError) settings of views that copy whole stretches of a store."""
    for name in settings:
        if name in ("as_stored", "separate"):
            raise InputError(
                f"{name} is for batches that are copied from a store, not for a dataset, a transform of graphs or a "
                "collate_fn; leave it out, or write a store (GraphStore.write, also with pre_transform=)."
            )
