"""A padded batch as JAX arrays, under jraph's names and in its layout. Imports JAX: `PaddedBatch.jraph` loads this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import Array
from dgl_tuplepack.graphs.values import as_array

if TYPE_CHECKING:
    from dgl_tuplepack.padding.batch import PaddedBatch

# What JAX has without 64 bits, its default -> what it makes of it.
_NARROWED = {torch.int64: torch.int32, torch.float64: torch.float32, torch.complex128: torch.complex64}
_AS_THEY_ARE = {torch.float32, torch.int32, torch.int16, torch.uint8, torch.bool}
_MOST = 2**31 - 1
# Bytes.
_LARGE = 2**18

_Type = TypeVar("_Type")


class _GraphsTuple(NamedTuple):
    """The fields of ``jraph.GraphsTuple``."""

    nodes: Any
    edges: Any
    receivers: Any
    senders: Any
    globals: Any
    n_node: Any
    n_edge: Any


if TYPE_CHECKING:
    _Base = _GraphsTuple
else:
    try:
        from jraph import GraphsTuple as _Base
    except Exception:
        # Nothing needs jraph, which is not maintained and may fail beside a newer JAX in any way.
        _Base = _GraphsTuple


class JaxGraphs(_Base):
    """The arrays of a `PaddedBatch`, made by its `jraph`; a ``jraph.GraphsTuple`` where jraph is installed.

    A pytree of static shape: a function under ``jax.jit`` is compiled once for all batches of a sampler. Letters: V
    node slots, E edge slots, G graph slots. All fields and masks are one value for homogeneous graphs, and a dict keyed
    by node type or by canonical edge type for heterographs, and by name for named graphs (jraph's own functions take
    neither), except `globals` and `graph_mask`.

    Real graphs come first, then the padding graph, then empty ones: the layout of ``jraph.pad_with_graphs``, so that
    jraph's functions for masks and ``jraph.unpad_with_graphs`` work. In the batch itself, the padding graph is last.

    Attributes
    ----------
    nodes, edges
        Feature name -> array ``[V, ...]`` or ``[E, ...]``.
    receivers, senders
        Destination and source node of each edge, ``[E]``.
    globals
        A dict with ``"labels"``, ``[G, ...]`` or a dict of these, and ``"graph_ids"``, ``[G]``, -1 in padding; what a
        batch does not have is left out.
    n_node, n_edge
        Nodes and edges of each graph, int32 ``[G]``.
    """

    __slots__ = ()

    @property
    def graph_mask(self) -> Any:
        """Bool ``[G]``, True = real."""
        counts = next(iter(self.n_node.values())) if isinstance(self.n_node, dict) else self.n_node
        return jnp.arange(len(counts)) < _padding_graph(counts)

    @property
    def node_mask(self) -> Any:
        """Bool ``[V]``, True = real. Needs a node feature, which tells V; a type without features is left out."""
        if isinstance(self.n_node, dict):
            return {t: _node_mask(self.n_node[t], features) for t, features in self.nodes.items() if features}
        return _node_mask(self.n_node, self.nodes)

    @property
    def edge_mask(self) -> Any:
        """Bool ``[E]``, True = real."""
        # The padding graph is told by its nodes: it may have no edge.
        if isinstance(self.n_edge, dict):
            # The nodes and edges of a named graph have its name.
            sources = {t: t if isinstance(t, str) else t[0] for t in self.n_edge}
            return {t: _mask(n, len(self.senders[t]), self.n_node[sources[t]]) for t, n in self.n_edge.items()}
        return _mask(self.n_edge, len(self.senders), self.n_node)


def jax_graphs(batch: PaddedBatch) -> JaxGraphs:
    """Return the arrays of a batch; see `PaddedBatch.jraph`."""
    convert = _Conversion(jax.config.jax_enable_x64)
    ids, labels = batch.graph_ids, batch.labels
    of_graphs = {} if labels is None else {"labels": convert(labels, "labels")}
    if ids is not None:
        of_graphs["graph_ids"] = convert(ids, "graph_ids")
    real = batch.num_real_graphs
    graphs = JaxGraphs(
        nodes=convert(batch.node_features, "node feature"),
        edges=convert(batch.edge_features, "edge feature"),
        receivers=convert(batch.dst, "dst"),
        senders=convert(batch.src, "src"),
        globals=of_graphs,
        n_node=_each(batch.nodes_per_graph, lambda counts: _in_layout(counts, real)),
        n_edge=_each(batch.edges_per_graph, lambda counts: _in_layout(counts, real)),
    )
    return _sent(graphs)


# From arrays of numpy to arrays of JAX.
_taken: Any = jax.jit(lambda arrays: list(map(jnp.asarray, arrays)))


def _sent(graphs: JaxGraphs) -> JaxGraphs:
    """Return arrays of numpy as arrays of JAX, the large ones without a copy."""
    leaves, structure = jax.tree_util.tree_flatten(graphs)
    large: list[int] = []
    small: list[int] = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, np.ndarray):
            (large if leaf.nbytes >= _LARGE else small).append(i)
    # Arguments of compiled code are copied, in a few microseconds each; `device_put` takes thirty and more.
    given = [leaves[i] for i in small]
    try:
        sent = _taken(given)
    except jax.errors.JaxRuntimeError:
        # The caller allows no transfers but explicit ones, as this is. To say so each time would take as long again.
        with jax.transfer_guard("allow"):
            sent = _taken(given)
    if large:
        sent += jax.device_put([leaves[i] for i in large], may_alias=True)
    for i, array in zip(small + large, sent, strict=True):
        leaves[i] = array
    result: JaxGraphs = structure.unflatten(leaves)
    return result


class _Conversion:
    """Convert tensors, and dicts of them, to what JAX takes over as it is."""

    def __init__(self, has_64_bits: bool) -> None:
        self.has_64_bits = has_64_bits

    def __call__(self, value: Any, what: str) -> Any:
        if isinstance(value, Mapping):
            return {name: self(inner, f"{what} {name!r}") for name, inner in value.items()}
        # Nearly all tensors, in a few microseconds; it fails where something must be done first.
        with suppress(RuntimeError, TypeError):
            if value.dtype in _AS_THEY_ARE:
                return value.numpy()
            if value.dtype == torch.int64 and not self.has_64_bits:
                given = value.numpy()
                if given.min(initial=0) >= -_MOST - 1 and given.max(initial=0) <= _MOST:
                    return given.astype(np.int32)
        tensor = value.detach()
        if tensor.is_complex():
            tensor = tensor.resolve_conj()
        if not self.has_64_bits and tensor.dtype in _NARROWED:
            tensor = _narrowed(tensor, what)
        if not tensor.is_cpu:
            return _on_device(tensor)
        tensor = tensor.resolve_neg()
        return as_array(tensor).view(jnp.bfloat16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _narrowed(tensor: Tensor, what: str) -> Tensor:
    """Return values in 32 bits (complex: twice that); SchemaError where these cannot hold them."""
    result = tensor.to(_NARROWED[tensor.dtype])
    if tensor.dtype == torch.int64:
        # A third of the time of a comparison of both.
        low, high = (end.item() for end in torch.aminmax(tensor)) if tensor.numel() else (0, 0)
        lost = None if low >= -_MOST - 1 and high <= _MOST else result != tensor
        most = "2**31 - 1"
    else:
        lost = result.isinf() & ~tensor.isinf()
        most = str(torch.finfo(result.dtype).max)
    if lost is not None and lost.any():
        raise SchemaError(
            f"{what} holds {tensor[lost][0].item()}, but JAX keeps numbers in 32 bits, of magnitude {most} at most; "
            'let JAX have 64 bits, jax.config.update("jax_enable_x64", True), or store smaller numbers.'
        )
    return result


def _on_device(tensor: Tensor) -> Any:
    """Return an array on the accelerator of a tensor, in its memory."""
    try:
        # The memory must not be written while JAX reads it in a stream of its own; `__dlpack__` sees to that.
        return jax.dlpack.from_dlpack(tensor.contiguous())
    except Exception as error:
        # Which class it is differs between devices.
        raise SchemaError(
            f"JAX cannot take over a tensor on {tensor.device} ({str(error)[:200]}); use batch.to('cpu').jraph, which "
            "goes to JAX's own device."
        ) from error


def _in_layout(counts: Tensor, real: int) -> Array:
    """Return counts by graph as int32, those of the padding graph directly behind the `real` graphs."""
    given = counts.numpy(force=True)
    moved = np.zeros(len(given), np.int32)
    moved[:real], moved[real] = given[:real], given[-1]
    return moved


def _padding_graph(counts: Any) -> Any:
    """Return the position of the padding graph, the last one with a node."""
    return len(counts) - 1 - jnp.argmax(counts[::-1] != 0)


def _mask(counts: Any, slots: int, num_nodes: Any) -> Any:
    """Return the mask of nodes or edges, whose numbers by graph are `counts`."""
    return jnp.arange(slots) < slots - counts[_padding_graph(num_nodes)]


def _node_mask(counts: Any, features: Mapping[str, Any]) -> Any:
    if not features:
        raise SchemaError(
            "without node features the number of node slots is not known; use jax.numpy.asarray(batch.node_mask)."
        )
    return _mask(counts, len(next(iter(features.values()))), counts)


def _each(value: Any, function: Callable[[Any], _Type]) -> _Type | dict[Any, _Type]:
    """Apply a function, to the value of each type where there are several."""
    return {t: function(inner) for t, inner in value.items()} if isinstance(value, dict) else function(value)
