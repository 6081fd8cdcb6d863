"""Graphs on disk: `GraphStore` is one store, `MultiStore` a dataset of shards, `StoredGraphs` what both can do.

How data flows: `write_graphs` (`write.py`) turns any source into blocks, and appends them to one flat array for each
feature and label, for the offsets of each type, and for the sources and destinations of each edge type. An
`ArrayWriter` (`array_file.py`) makes each file. `metadata.json` (`format.py`), saved last, names the folder of the
arrays: ``store/metadata.json``, ``store/data-.../*.npy``. Plans and the static shape lie next to the arrays.

Opening a store checks headers and samples, and maps its files (`array_file.py`); `verify` reads them all, and compares
their checksums. A `Segment` (`selection.py`) is one opened store. A `Selection`, such as a store, a dataset of shards
or a subset, is one or more segments, and the ids of the chosen graphs. Its own ids count from 0; `original_ids` are the
ids in the whole store, `graph_ids` the ids that batches report. A `BatchView` (`view.py`) finds the rows of the ids of
a batch (`GraphRows`), and hands them to the maker that the store returned: `PaddedBatches` and `PlainBatches` copy the
rows of all graphs in one compiled pass, which checks them again, and a `DeviceStore` (`device.py`) indexes tensors.
With a transform, graphs are read one by one, for `PaddedCollate`.

`preprocessing.py` writes one store with plans. `shards.py` writes many, in processes; a task whose store is complete
only checks it, so a run that was stopped continues; ``dataset/manifest.json`` lists them. `partition.py` and
`chunks.py` write DGL's distributed formats, and `reader.py` makes stores sources again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch

from dgl_tuplepack._core.checks import as_ids, as_path, choice, shown, whole_number
from dgl_tuplepack._core.files import JsonFormat
from dgl_tuplepack._core.progress import DELAY, progress_bar
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.collate import CollatedView, PaddedCollate
from dgl_tuplepack.batches.shape import Coordinates, Fill, PaddedShape
from dgl_tuplepack.errors import FormatError, InputError
from dgl_tuplepack.graphs.build import BatchBuilder
from dgl_tuplepack.graphs.items import Identified
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.relations import Indices, Ties
from dgl_tuplepack.planning.buckets import Buckets, Shapes
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.storage.device import DeviceStore
from dgl_tuplepack.storage.format import Manifest, check_unchanged
from dgl_tuplepack.storage.selection import Segment, Selection
from dgl_tuplepack.storage.view import BatchView, GraphRows, PaddedBatches, PlainBatches, pyg_builder, shapes_of
from dgl_tuplepack.storage.write import WriteSettings, write_graphs


class StoredGraphs(Selection):
    """Base of `GraphStore` and `MultiStore`: a selection with methods that make batches of its graphs."""

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
        """Return a view that maps a list of ids to one `PaddedBatch`, for a loader with ``batch_size=None``.

        Parameters
        ----------
        limits, packs_per_batch, label_fill, feature_fill, cover_padding, idtype, coordinates, sort_edges
            As in `PaddedCollate`, which makes the same batches. With several limits, lists of ids from a
            `PackBatchSampler` carry the shape of their batch; any other batch gets the smallest shape that holds it.
        as_stored
            Keep the stored dtype of integers that ``compact=True`` narrowed, instead of their original dtype.
        separate
            Give each tensor its own memory: for layers that free the storage of their input, such as DGL's GroupRevRes,
            and for tensors that are kept longer than their batch.
        transform, batch_transform, transform_seed
            As in `PaddedCollate`, but `transform` always gets and returns a DGLGraph, also in a store of PyG graphs;
            its random numbers depend on the ids that batches report. It is slow, as graphs are read one by one: if it
            gives the same graphs in every epoch, pass it to `write` as `pre_transform` instead.
        """
        padding: dict[str, Any] = {
            "label_fill": label_fill, "feature_fill": feature_fill, "cover_padding": cover_padding, "idtype": idtype,
            "coordinates": coordinates, "sort_edges": sort_edges,
        }  # fmt: skip
        if transform is not None:
            given = {"as_stored": as_stored, "separate": separate}
            refuse_store_settings([name for name, value in given.items() if value])
            # The example item has an id, so batches have `graph_ids`.
            collate = PaddedCollate(
                limits, Identified(0, self[0]), packs_per_batch, ties=self.schema.ties, indices=self.schema.indices,
                transform=transform, batch_transform=batch_transform, transform_seed=transform_seed, **padding,
            )  # fmt: skip
            return CollatedView(self, collate, self.graph_ids)
        shapes = shapes_of(self.batch_schema(as_stored), limits, packs_per_batch, **padding)
        return BatchView(self, shapes, transform=batch_transform, transform_seed=transform_seed, separate=separate)

    def batched(self, *, as_stored: bool = False, framework: str = "dgl", with_ids: bool = False) -> BatchView:
        """Return a view that maps a list of ids to ``(DGLGraph, labels)`` without padding, or to a PyG batch.

        The batch equals the result of `dgl.batch` and DGL's collate, which take far longer. `tp.GraphDataLoader` and
        `tp.pyg.DataLoader` make and read such a view of a store. Any other loader reads it with
        ``sampler=PackBatchSampler(store, limits), batch_size=None``; then no batch exceeds the limits.

        Parameters
        ----------
        as_stored
            As in `padded`.
        framework
            "dgl" or "pyg". With "pyg", the batch equals the result of `torch_geometric.data.Batch.from_data_list`.
        with_ids
            Add the ids of the graphs, int64 ``[n]``: as the last element of the tuple, or with "pyg" as `graph_ids`.
        """
        framework = choice("framework", framework, ("dgl", "pyg"))
        return BatchView(self, framework=framework, as_stored=as_stored, with_ids=with_ids)

    @property
    def selection(self) -> Selection:
        """The store or subset itself, whose graphs have the ids 0..N-1."""
        return self

    def maker(
        self, shape: PaddedShape | None, *, separate: bool = False, as_stored: bool = False, framework: str = "dgl"
    ) -> Callable[[GraphRows], Any]:
        """Return a function that makes a batch from the `GraphRows` of its graphs; no padding if `shape` is None."""
        if shape is not None:
            return PaddedBatches(self, shape, separate)
        schema = self.batch_schema(as_stored)
        if framework == "dgl":
            builder = BatchBuilder(schema)
            return PlainBatches(self, schema, lambda _, *content: builder.batch(*content), for_pyg=False)
        return PlainBatches(self, schema, pyg_builder(schema), for_pyg=True)

    def item(self, i: int) -> Any:
        """Return graph `i`, with its label."""
        return self[i]

    def to(self, device: torch.device | str) -> DeviceStore:
        """Copy all arrays to a device, to assemble batches there.

        The arrays (of the whole store, even for a subset) need about as much memory there as the files.
        """
        return DeviceStore(self, device)


class GraphStore(StoredGraphs):
    """All graphs of a dataset, in flat, memory-mapped arrays.

    Opening a store takes milliseconds at any size. Items are DGLGraphs, or pairs (DGLGraph, label). `padded` makes
    whole padded batches, far faster than collating items. DGL is needed only for items, for DGL batches without
    padding, and for `PaddedBatch.graph`.

    Parameters
    ----------
    path
        Folder that `GraphStore.write` made; also an attribute.

    Attributes
    ----------
    schema
        Types, features and labels of the graphs.
    original_ids, graph_ids
        int64 ``[N]``: the id of each graph in the whole store, and the id that batches report for it. The ids of a
        subset count from 0, and so do those that its batches report; those of a `split` are the ids before the split.

    Raises
    ------
    FormatError
        There is no store, or header, length or samples of a file have changed (`verify` checks every byte).

    Examples
    --------
    >>> import dgl, tempfile
    >>> from dgl_tuplepack import Limits
    >>> graphs = [dgl.graph(([0, 1], [1, 2])), dgl.graph(([0], [1]))]
    >>> store = GraphStore.write(tempfile.mkdtemp(), graphs)
    >>> store, store[1].num_nodes(), store.padded(Limits(nodes=5, edges=5, graphs=3))[[1, 0]].num_real_nodes
    (GraphStore(2 graphs, 5 nodes, 3 edges), 2, 5)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Worker processes may have another working folder.
        path = as_path(path).absolute()
        super().__init__(path, [Segment.open(path)])

    @property
    def plans(self) -> dict[str, PackPlan]:
        """The plans that `preprocess` made: one for each split, or one plan with an empty name, for all graphs.

        Raises
        ------
        FormatError
            There are no plans, or a plan is damaged or for other graphs.
        """
        return load_plans(self)

    def static_shape(self, batch_size: int) -> Limits | None:
        """Return the limits that `preprocess` stored for shuffled batches of exactly `batch_size` graphs.

        They are stored for one `batch_size`, and for ``store.subset(store.splits["train"])``, or for all graphs if
        there is no such split; None for other graphs, or in another order. `StaticBatchSampler` uses them.

        Raises
        ------
        FormatError
            The file with the limits is damaged.
        """
        return load_static_shape(self, whole_number("batch_size", batch_size, 1, 2**31))

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
        """Write a store, block by block, and open it.

        Parameters
        ----------
        path
            Folder to make, or an empty folder.
        source
            A list, dataset or iterator of DGLGraph or (DGLGraph, label), of named graphs ``({"atoms": g, "bonds": h},
            label)``, or of PyG's Data or HeteroData; an OGB dataset; or the path of a ``.bin`` file of
            `dgl.save_graphs`. Read as arrays, which is much faster than graph by graph: an `OgbFolder`, a
            `ChunkedGraph` (DGL's chunked graph format), a `GraphStore` or a `MultiStore`, or the path of the folder of
            one of these; PyG's `InMemoryDataset`; a subset of a `GraphStore`, `MultiStore` or `InMemoryDataset`.
        splits
            The ids of each split, or a mask or subset, by its name, such as "train"; None: the splits of the source.
        compact
            Store int64 and int32 features and labels in the narrowest dtype that holds their values; graphs are read
            with the original dtype.
        overwrite
            Replace an existing store and its plans. The existing store stays valid until the new one is complete.
        pre_transform
            Applied to each graph before it is written: a transform of `dgl.transforms`, or any callable from a DGLGraph
            to a DGLGraph or a dict of named graphs (for PyG: from a Data to a Data). The store has the returned graphs
            and their sizes.
        transform_seed
            0..2**64-1. Random numbers of `pre_transform` are a function of this seed and the position of the graph.
        transform_name
            A name that identifies `pre_transform` in the store. None: its `repr`, or the qualified name of a function.
            A lambda, a closure, and an object without a stable `repr` need a name.
        ties, indices
            As in `PaddedCollate`, checked for each graph. The store keeps them and uses them in its batches. None: the
            ties and indices of the source, if it is a store.
        levels
            The levels of the attributes of PyG graphs, as in `PaddedCollate`. Required if the graphs do not show
            which attribute has which level.

        Raises
        ------
        FormatError
            The folder has other content or cannot be written, or a file of the source is damaged.
        SchemaError, SizesError
            Graphs differ in types, features or labels, or there are no graphs; values contradict the ties or indices.
        TransformError
            `pre_transform` fails for a graph, does not return a graph, or needs a `transform_name`.
        InputError
            `compact` or `overwrite` is neither True nor False.

        Notes
        -----
        Only one block of graphs is in memory at a time, but a ``.bin`` file is read completely. If the process is
        killed, an earlier store remains; without one, the folder cannot be opened.
        """
        settings = WriteSettings(
            compact, overwrite, pre_transform, transform_seed, transform_name, ties, indices, levels
        )
        write_graphs(path, source, settings, splits=splits)
        return cls(path)


class MultiStore(StoredGraphs):
    """All graphs of a dataset that was preprocessed in shards, in the order of the shards.

    It behaves like one `GraphStore` of all graphs, and makes equal batches, hardly slower.

    Parameters
    ----------
    path
        Folder that `preprocess_shards` made.

    Attributes
    ----------
    path, schema, original_ids, graph_ids
        As in `GraphStore`; an id is the position of a graph among the graphs of all shards.
    limits
        Limits of the plans of the shards.

    Raises
    ------
    FormatError
        There is no manifest, or a shard is missing, was written again, or is damaged.
    SchemaError
        The schemas of the shards differ.

    Notes
    -----
    Opening checks each file of each shard, which takes about 2 ms per shard.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise FormatError(
                f"MultiStore opens one folder, which preprocess_shards made, but got {shown(path)}; give its path, or "
                "join stores first: MultiStore(out) after preprocess_shards([store, other], out)."
            )
        # Worker processes may have another working folder.
        path = as_path(path).absolute()
        self.manifest = Manifest.load(path)
        shards = progress_bar(self.manifest.shards, desc="open", unit=" shards", delay=DELAY, leave=False)
        segments = [Segment.open(path / shard.name) for shard in shards]
        for segment, shard in zip(segments, self.manifest.shards, strict=True):
            check_unchanged(segment.metadata.checksum, path, shard)
        super().__init__(path, segments)

    @property
    def limits(self) -> Limits | Buckets:
        """Limits of the plans of the shards."""
        return self.manifest.limits


class JoinedStores(StoredGraphs):
    """The graphs of several stores, datasets of shards or subsets of them, one after another, as one selection."""

    def __init__(
        self, parts: Sequence[StoredGraphs], chosen: IntArray | None = None, kept_ids: IntArray | None = None
    ) -> None:
        super().__init__(parts[0].path, [segment for part in parts for segment in part.segments])
        # Temporary stores are deleted together with the last object that holds them.
        self.parts = [*parts]
        firsts = np.cumsum([0, *(part.first_ids[-1] for part in parts)])
        every = [first + part.original_ids for first, part in zip(firsts, parts, strict=False)]
        self._choose(np.concatenate(every) if chosen is None else chosen, kept_ids)

    def __reduce__(self) -> tuple[Any, ...]:
        return JoinedStores, (self.parts, self.chosen, self.kept_ids)


def refuse_store_settings(settings: Iterable[str]) -> None:
    """Raise InputError if `settings` names a setting that applies only to batches copied from a store."""
    for name in settings:
        if name in ("as_stored", "separate"):
            raise InputError(
                f"{name} applies only to batches copied from a store, not to datasets, transforms of graphs or a "
                "collate_fn; leave it out, or write a store with GraphStore.write, which can apply a pre_transform."
            )


# Plans and static shapes, in the data folder of a store ------------------------------------------------------

SHAPE = "static-shape.json"
_SHAPE_FILE = JsonFormat("dgl_tuplepack.static_shape", 1, "static shape", "preprocess the store again")


def plan_file(data: Path, split: str) -> Path:
    """Return the path, in the data folder `data`, of the plan of a split; an empty name stands for all graphs."""
    name = quote(split, safe="")
    if len(name) > 200:
        # File systems allow 255 bytes. "%-" is in no quoted name, so no two splits share a file.
        name = f"{name[:100]}%-{hashlib.sha256(name.encode()).hexdigest()}"
    return data / (f"plan-{name}.json" if split else "plan.json")


def plan_files(data: Path) -> list[Path]:
    """Return the paths of the plans in a data folder."""
    return sorted(data.glob("plan*.json"))


def split_histograms(store: Selection) -> dict[str, SizeHistogram]:
    """Return the histogram of each split that has graphs; if none has, that of all graphs, under an empty name."""
    splits = {split: ids for split, ids in store.splits.items() if len(ids)}
    if not splits:
        return {"": store.histogram}
    return {split: store.subset(ids).histogram for split, ids in splits.items()}


def load_plans(store: Selection) -> dict[str, PackPlan]:
    """Load the plans of a store; raise FormatError for missing or damaged plans, and for a plan of other graphs."""
    # A dataset of shards is not read here: the store of each shard has its own plans.
    histograms, data = split_histograms(store), store.segments[0].data
    missing = [file.name for split in histograms if not (file := plan_file(data, split)).exists()]
    if missing:
        raise FormatError(f"{store.path} has no {', '.join(missing)}; preprocess the store again.")
    plans = {split: PackPlan.load(plan_file(data, split)) for split in histograms}
    for split, plan in plans.items():
        if plan.histogram != histograms[split]:
            raise FormatError(
                f"{plan_file(data, split)} is for other graphs than {store.path} has; preprocess the store again."
            )
    return plans


def train_sizes(sizes: GraphSizes, splits: Mapping[str, Any]) -> GraphSizes:
    """Return the sizes of the split "train", in its order; if it has no graphs, those of all graphs."""
    train = as_ids(splits.get("train", ()), len(sizes))
    return sizes.take(train) if len(train) else sizes


def save_static_shape(data: Path, limits: Limits, sizes: GraphSizes) -> None:
    """Write limits of shuffled batches of exactly `limits.graphs` of the graphs `sizes` into a data folder."""
    _SHAPE_FILE.write(data / SHAPE, {"limits": limits.to_dict(), "sizes": _fingerprint(sizes)}, indent=1)


def load_static_shape(store: Selection, batch_size: int | None = None) -> Limits | None:
    """Return the stored limits; None if there are none for these graphs in this order, or for another `batch_size`."""
    path = store.segments[0].data / SHAPE
    if not path.exists():
        return None
    with _SHAPE_FILE.reading(path) as document:
        limits = Limits.from_dict(document["limits"]).aligned(store.schema.components)
        stored = whole_number("batch_size", limits.graphs, 1)
        if batch_size not in (None, stored) or document["sizes"] != _fingerprint(store.sizes):
            return None
        limits.check(store.sizes)
        return limits


def _fingerprint(sizes: GraphSizes) -> str:
    return hashlib.sha256(sizes.array.astype("<i8", order="C").data).hexdigest()
