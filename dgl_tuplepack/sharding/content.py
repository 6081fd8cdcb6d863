"""A checksum of an object in memory, such as a list of graphs, that is the same in every process."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack.graphs.joining import edges_by_id
from dgl_tuplepack.graphs.named import is_graph
from dgl_tuplepack.graphs.values import as_array


def checksum_of(value: Any) -> str:
    """Return the SHA-256 of a pickle of the object, in which graphs and tensors are their values alone.

    Their own pickles differ from one time to the next: they tell formats that DGL has made meanwhile, too. Errors are
    those of pickle.
    """
    hashed = _Hashed()
    _Pickler(hashed, protocol=5).dump(value)
    return hashed.digest.hexdigest()


class _Hashed:
    """A file that keeps only the checksum of what is written."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return memoryview(data).nbytes


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.layout == torch.strided and not value.is_meta:
            return _values, (str(value.dtype), tuple(value.shape), as_array(value).tobytes())
        if is_graph(value) and not value.is_block:
            return _values, _parts_of(value)
        return NotImplemented


def _parts_of(graph: Any) -> tuple[Any, ...]:
    """Return types, numbers, endpoints and features of a graph."""
    # Texts are made again: pickle tells whether two names are one object.
    nodes = [(repr(t), graph.num_nodes(t), _named(graph.nodes[t].data)) for t in graph.ntypes]
    edges = [(repr(e), *edges_by_id(graph, e), _named(graph.edges[e].data)) for e in graph.canonical_etypes]
    return str(graph.idtype), graph.batch_size, nodes, edges


def _named(data: Any) -> list[tuple[str, Tensor]]:
    return [(repr(name), data[name]) for name in data]


def _values(*parts: Any) -> tuple[Any, ...]:
    """Stand for a tensor or graph in a pickle that nobody reads."""
    return parts
