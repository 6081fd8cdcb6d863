"""Pack many small graphs into full, static-shape batches for DGL, PyG and JAX."""

from __future__ import annotations

import importlib
import sys

from dgl_tuplepack._core.optional import register as _register
from dgl_tuplepack._version import __version__ as __version__

# Lower rooms (subpackages) must not import these objects of higher rooms, so they find the objects by their role.
_register("histogram_of", "dgl_tuplepack.graphs.readers.kinds:histogram_of")
_register("compile_model", "dgl_tuplepack.loading.static_model:compile_model")
_register("stored", "dgl_tuplepack.storage.reader:Stored")

# Not imported from `typing`: that import is slow, and Ctrl-C during an import shows a traceback on the command line.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dgl_tuplepack import nn as nn
    from dgl_tuplepack import pyg as pyg
    from dgl_tuplepack import tensor_graph as tensor_graph
    from dgl_tuplepack import transforms as transforms
    from dgl_tuplepack.batches.batch import PaddedBatch as PaddedBatch
    from dgl_tuplepack.batches.collate import PaddedCollate as PaddedCollate
    from dgl_tuplepack.batches.collate import unpad as unpad
    from dgl_tuplepack.compiling.compile import compile as compile
    from dgl_tuplepack.compiling.tensor_graph import TensorGraph as TensorGraph
    from dgl_tuplepack.graphs.items import with_ids as with_ids
    from dgl_tuplepack.graphs.readers.chunked import ChunkedGraph as ChunkedGraph
    from dgl_tuplepack.graphs.readers.kinds import sizes_of as sizes_of
    from dgl_tuplepack.graphs.readers.ogb_folder import OgbFolder as OgbFolder
    from dgl_tuplepack.loading.check_padding import check_padding as check_padding
    from dgl_tuplepack.loading.graph_loader import GraphDataLoader as GraphDataLoader
    from dgl_tuplepack.loading.make_loader import packed_loader as packed_loader
    from dgl_tuplepack.loading.packed_dataset import PackedDataset as PackedDataset
    from dgl_tuplepack.loading.packed_dataset import flatten_packs as flatten_packs
    from dgl_tuplepack.loading.predictions import Predictions as Predictions
    from dgl_tuplepack.planning.bounds import lower_bound as lower_bound
    from dgl_tuplepack.planning.histogram import SizeHistogram as SizeHistogram
    from dgl_tuplepack.planning.histogram import load_example as load_example
    from dgl_tuplepack.planning.limits import Limits as Limits
    from dgl_tuplepack.planning.packing import pack as pack
    from dgl_tuplepack.planning.plan import PackPlan as PackPlan
    from dgl_tuplepack.planning.search import search_limits as search_limits
    from dgl_tuplepack.planning.sizes import GraphSizes as GraphSizes
    from dgl_tuplepack.sampling.pack_sampler import PackBatchSampler as PackBatchSampler
    from dgl_tuplepack.sampling.ranks import in_step as in_step
    from dgl_tuplepack.sampling.static_sampler import StaticBatchSampler as StaticBatchSampler
    from dgl_tuplepack.sampling.stream import StreamPacker as StreamPacker
    from dgl_tuplepack.sampling.weights import class_weights as class_weights
    from dgl_tuplepack.storage.chunks import write_chunks as write_chunks
    from dgl_tuplepack.storage.graph_store import GraphStore as GraphStore
    from dgl_tuplepack.storage.graph_store import MultiStore as MultiStore
    from dgl_tuplepack.storage.partition import partition as partition
    from dgl_tuplepack.storage.preprocessing import preprocess as preprocess
    from dgl_tuplepack.storage.shards import preprocess_shards as preprocess_shards

# Public name -> its module, imported when the name is first used, so that planning needs neither torch nor DGL.
_PUBLIC = {
    "sizes_of": "graphs.readers.kinds",
    "GraphSizes": "planning.sizes",
    "SizeHistogram": "planning.histogram",
    "load_example": "planning.histogram",
    "Limits": "planning.limits",
    "pack": "planning.packing",
    "PackPlan": "planning.plan",
    "lower_bound": "planning.bounds",
    "search_limits": "planning.search",
    "PackBatchSampler": "sampling.pack_sampler",
    "StaticBatchSampler": "sampling.static_sampler",
    "StreamPacker": "sampling.stream",
    "class_weights": "sampling.weights",
    "TensorGraph": "compiling.tensor_graph",
    "in_step": "sampling.ranks",
    "PaddedCollate": "batches.collate",
    "PaddedBatch": "batches.batch",
    "unpad": "batches.collate",
    "compile": "compiling.compile",
    "check_padding": "loading.check_padding",
    "with_ids": "graphs.items",
    "OgbFolder": "graphs.readers.ogb_folder",
    "ChunkedGraph": "graphs.readers.chunked",
    "GraphStore": "storage.graph_store",
    "MultiStore": "storage.graph_store",
    "GraphDataLoader": "loading.graph_loader",
    "packed_loader": "loading.make_loader",
    "PackedDataset": "loading.packed_dataset",
    "Predictions": "loading.predictions",
    "flatten_packs": "loading.packed_dataset",
    "preprocess": "storage.preprocessing",
    "preprocess_shards": "storage.shards",
    "write_chunks": "storage.chunks",
    "partition": "storage.partition",
}
# Public submodules; they need torch.
_MODULES = ("nn", "pyg", "tensor_graph", "transforms")
_WITHOUT_TORCH = ("planning", "graphs", "errors")
# Public name -> DGL or PyG, if importing the name needs that package (to subclass one of its classes).
_SUBCLASSES = {"GraphDataLoader": "dgl", "PackedDataset": "dgl", "pyg": "torch_geometric"}


def _offered() -> list[str]:
    """Return the public names; if torch is not installed, only the names that do not need torch."""
    from importlib.util import find_spec

    try:
        has_torch = find_spec("torch") is not None
    except ImportError:
        has_torch = False
    offered = [name for name, module in _PUBLIC.items() if has_torch or module.startswith(_WITHOUT_TORCH)]
    return ["__version__", "errors", *(_MODULES if has_torch else []), *offered]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, and keep it as an attribute of the package."""
    if name == "__all__":
        # A star import reads `__all__`. Leave out a name in _SUBCLASSES if its package is not imported yet.
        return [each for each in _offered() if _SUBCLASSES.get(each, __name__) in sys.modules]
    module = name if name in _MODULES else _PUBLIC.get(name)
    if module is None and name != "errors":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if module is not None and not module.startswith(_WITHOUT_TORCH):
        from dgl_tuplepack._core.optional import load

        load("torch")
        if name in _SUBCLASSES:
            load(_SUBCLASSES[name])
    imported = importlib.import_module(f"{__name__}.{module or name}")
    value = getattr(imported, name) if name in _PUBLIC else imported
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return _offered()
