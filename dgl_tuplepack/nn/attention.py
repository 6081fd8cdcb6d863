"""Node rows as one dense tensor with a row of slots for each graph, and back: attention inside graphs.

How data flows: `_graphs_of` reads the graph of each node, and where graphs begin, from any batch. `dense` copies node
rows ``[N, ...]`` to ``[G, M, ...]``, and `Dense.to_nodes` copies results back to ``[N, ...]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import shown, whole_number
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.errors import GraphTooLargeError, SchemaError
from dgl_tuplepack.nn.masks import current_graph_mask


class Dense(NamedTuple):
    """Node rows of a batch in ``[G, M, ...]``, made by `dense`: G graphs with M slots for nodes each.

    Attributes
    ----------
    values
        The rows ``[G, M, ...]``; 0 in slots without a node.
    mask
        Bool ``[G, M]``, True = the slot has a node.
    slots
        Slot of each node in ``values.flatten(0, 1)``, int64 ``[N]``: G * M for nodes of padding that have no slot, and
        G * M + 1 for all nodes of a real graph that is too large.
    """

    values: Tensor
    mask: Tensor
    slots: Tensor

    @property
    def attn_mask(self) -> Tensor:
        """Bool ``[G, 1, 1, M]``, for `scaled_dot_product_attention`: True for slots that each slot of the graph sees.

        These are the slots with nodes. Graphs without nodes see all their slots, which hold 0, since a softmax over no
        slots is NaN.
        """
        return (self.mask | ~self.mask.any(1, keepdim=True))[:, None, None]

    def to_nodes(self, values: Tensor) -> Tensor:
        """Return the rows of the nodes ``[N, ...]`` of any values ``[G, M, ...]``, in the order of the batch.

        Nodes of padding that have no slot get 0. Nodes of real graphs with more than M nodes get NaN.

        Raises
        ------
        SchemaError
            `values` are no tensor, or have another shape.
        """
        if not isinstance(values, Tensor) or values.shape[:2] != self.mask.shape:
            given = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else f"type {type(values).__name__}"
            raise SchemaError(
                f"values must be a tensor of shape [{self.mask.shape[0]}, {self.mask.shape[1]}, ...], one row for each "
                f"slot, but have {given}; give the result of attention over dense(...).values."
            )
        flat = values.flatten(0, 1)
        rows = flat[self.slots.clamp(max=max(flat.shape[0] - 1, 0))]
        beyond = self.slots.reshape(-1, *(1,) * (rows.ndim - 1)) - flat.shape[0]
        return rows.masked_fill(beyond == 0, 0).masked_fill(beyond > 0, _mark_of(rows.dtype))


def dense(x: Tensor, batch: Any, max_nodes: int, *, num_graphs: int | None = None, ntype: str | None = None) -> Dense:
    """Copy node rows ``[N, ...]`` to ``[G, M, ...]``, one row of M = `max_nodes` slots for each graph.

    All shapes are static, and no value is read from a device in compiled code, so models compile in one graph. If the
    batch is padded, graphs of padding may have more than M nodes, which are left out.

    Parameters
    ----------
    x
        Rows of nodes ``[N, ...]`` of any dtype, in the order of the batch.
    batch
        A batched DGLGraph, `TensorGraph` or PyG `Batch`; a `PaddedBatch` or its `tensors`; or the index of the graph of
        each node, int64 ``[N]``, ascending.
    max_nodes
        M, at least the number of nodes of the largest graph: ``loader.max_nodes``.
    num_graphs
        G, if `batch` is an index. A larger number adds graphs without nodes.
    ntype
        Node type of the rows, if there are several.

    Returns
    -------
    Dense
        `values` ``[G, M, ...]`` and `mask` ``[G, M]``; `attn_mask`, and the way back, `to_nodes`. Gradients of `values`
        reach `x`.

    Raises
    ------
    GraphTooLargeError
        A real graph has more than M nodes. In compiled code, where values cannot be read, all values of this graph are
        NaN (of integers: the smallest number), and so are its rows from `to_nodes`.
    SchemaError
        Arguments do not fit together.

    Notes
    -----
    Time and memory O(G M) for each column of `x`. Attention takes O(G M²), however many nodes the batch has.

    Examples
    --------
    >>> import torch
    >>> from torch.nn.functional import scaled_dot_product_attention
    >>> x = torch.tensor([[1.0], [2.0], [3.0]])
    >>> rows = dense(x, torch.tensor([0, 0, 2]), max_nodes=2, num_graphs=3)
    >>> rows.values.squeeze(2)
    tensor([[1., 2.],
            [0., 0.],
            [3., 0.]])
    >>> means = scaled_dot_product_attention(0 * rows.values, 0 * rows.values, rows.values, rows.attn_mask[:, 0])
    >>> rows.to_nodes(means).flatten()
    tensor([1.5000, 1.5000, 3.0000])
    """
    if not isinstance(x, Tensor) or not x.ndim:
        given = "has no rows" if isinstance(x, Tensor) else f"is {type(x).__name__}"
        raise SchemaError(f"x must be a tensor [N, ...] with one row for each node, but {given}; give node features.")
    # Traced code follows no more than a comparison.
    if not isinstance(max_nodes, int) or isinstance(max_nodes, bool) or not 1 <= max_nodes <= 2**31:
        max_nodes = whole_number("max_nodes", max_nodes, 1, 2**31, SchemaError)
    graphs, offsets, real = _graphs_of(batch, num_graphs, ntype)
    if graphs.shape[0] != x.shape[0]:
        raise SchemaError(
            f"x has {x.shape[0]} rows, but the batch has {graphs.shape[0]} nodes; give one row for each node of the "
            "same batch, with the padding of a padded batch."
        )
    counts = offsets.diff()
    number, too_large = counts.shape[0], counts > max_nodes
    if real is not None:
        too_large = too_large & real
    place = torch.arange(x.shape[0], device=graphs.device) - offsets[graphs]
    slots = torch.where(place < max_nodes, graphs * max_nodes + place, number * max_nodes)
    # Rows without a slot overwrite each other in one more slot; the backward pass of this copy only gathers.
    filled = x.new_zeros(number * max_nodes + 1, *x.shape[1:]).index_copy(0, slots, x)
    values = filled[:-1].view(number, max_nodes, *x.shape[1:])
    if is_traced():
        slots = torch.where(too_large[graphs], number * max_nodes + 1, slots)
        values = values.masked_fill(too_large.reshape(-1, *(1,) * x.ndim), _mark_of(x.dtype))
    elif bool(too_large.any()):
        raise _too_large(counts, too_large, max_nodes, real is None)
    return Dense(values, torch.arange(max_nodes, device=counts.device) < counts[:, None], slots)


def same_graph(
    batch: Any, *, num_graphs: int | None = None, ntype: str | None = None
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return a `mask_mod` for `torch.nn.attention.flex_attention`, by which each node sees the nodes of its graph.

    Parameters
    ----------
    batch, num_graphs, ntype
        As in `dense`. Queries, keys and values have the node rows of this batch as their length, ``[1, H, N, D]``.

    Returns
    -------
    callable
        ``mask_mod(b, h, query, key)``, for ``create_block_mask(mask_mod, None, None, N, N)``.

    Raises
    ------
    SchemaError
        As in `dense`.

    Examples
    --------
    >>> import torch
    >>> from torch.nn.attention.flex_attention import create_mask
    >>> mask_mod = same_graph(torch.tensor([0, 0, 1]), num_graphs=2)
    >>> create_mask(mask_mod, None, None, 3, 3, device="cpu")[0, 0].int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    slots = _graphs_of(batch, num_graphs, ntype)[0]
    return lambda b, h, query, key: slots[query] == slots[key]


def _graphs_of(batch: Any, number: int | None, ntype: str | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the graph of each node ``[N]``, the first node of each graph ``[G + 1]``, and which graphs are real.

    The last is bool ``[G]``, or None if the batch has no padding that is known.
    """
    if isinstance(batch, Tensor):
        _check_type(ntype, [])
        slots, number = batch, _checked_index(batch, number)
        offsets = torch.searchsorted(slots, torch.arange(number + 1, device=slots.device))
        return slots, offsets, current_graph_mask(number)
    if number is not None:
        raise SchemaError(
            f"num_graphs={shown(number)} is for an index of graphs, but batch is {type(batch).__name__}, which has "
            "its number of graphs; leave num_graphs out."
        )
    real = getattr(batch, "graph_mask", None)
    if hasattr(batch, "nodes_per_graph"):
        counts, slots = batch.nodes_per_graph, batch.node_graph_slots
        _check_type(ntype, [*counts] if isinstance(counts, dict) else [])
        if isinstance(counts, dict):
            counts, slots = counts[ntype], slots[ntype]
    elif hasattr(batch, "batch_num_nodes"):
        _check_type(ntype, batch.ntypes)
        counts = batch.batch_num_nodes(ntype)
        if hasattr(batch, "node_graph_slots"):
            slots = batch.node_graph_slots(ntype)
        else:
            graphs = torch.arange(counts.shape[0], device=counts.device)
            slots = graphs.repeat_interleave(counts, output_size=batch.num_nodes(ntype))
    else:
        is_hetero = hasattr(batch, "node_types")
        _check_type(ntype, batch.node_types if is_hetero else [])
        index = getattr(batch[ntype] if is_hetero else batch, "batch", None)
        if not isinstance(index, Tensor) or isinstance(batch, type):
            raise SchemaError(
                f"batch must be a batched DGLGraph, TensorGraph or PyG Batch, a PaddedBatch or its tensors, or an "
                f"index of graphs, but is {shown(batch)}; give what the model gets, or the index of its nodes."
            )
        slots, offsets, of_scope = _graphs_of(index, batch.num_graphs, None)
        return slots, offsets, of_scope if real is None else real
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return slots, offsets, current_graph_mask(counts.shape[0]) if real is None else real


def _check_type(ntype: Any, types: Sequence[str]) -> None:
    """Raise SchemaError unless `ntype` is one of the node types; None is allowed if there is only one."""
    if (len(types) > 1) if ntype is None else not (isinstance(ntype, str) and ntype in types):
        remedy = f"name one of {[*types]}" if types else "leave it out, since the batch has one node type"
        raise SchemaError(f"ntype is {shown(ntype)}, but must be a node type of the batch; {remedy}.")


def _checked_index(index: Tensor, number: int | None) -> int:
    """Return the number of graphs of an index; SchemaError for other tensors. Traced values are not checked."""
    if number is None:
        raise SchemaError("batch is an index of graphs, but num_graphs is missing; give it, such as data.num_graphs.")
    if index.ndim != 1 or index.dtype != torch.int64:
        raise SchemaError(
            f"the index of graphs must be int64 of shape [N], but is {index.dtype} of shape {tuple(index.shape)}; give "
            "the graph of each node, such as data.batch."
        )
    if is_traced():
        return number
    number = whole_number("num_graphs", number, 0, error=SchemaError)
    if index.shape[0] and not (bool((index.diff() >= 0).all()) and 0 <= int(index[0]) <= int(index[-1]) < number):
        raise SchemaError(
            f"the index of graphs must be ascending and in 0..{number - 1}, but is {shown(index.tolist())}; sort the "
            "nodes by graph, and give the number of graphs as num_graphs."
        )
    return number


def _too_large(counts: Tensor, too_large: Tensor, max_nodes: int, without_mask: bool) -> GraphTooLargeError:
    """Return the error for the first graph that has more than M nodes."""
    graph = int(too_large.nonzero()[0])
    padding = ""
    if without_mask:
        padding = " If it is the padding graph of a padded batch, give the batch itself, or its tensors, as batch."
    return GraphTooLargeError(
        f"graph {graph} of the batch has {int(counts[graph])} nodes, but max_nodes is {max_nodes}; give at least the "
        f"number of nodes of the largest graph of the dataset, loader.max_nodes.{padding}"
    )


def _mark_of(dtype: torch.dtype) -> float:
    """Return the value that marks graphs that are too large: NaN, or for integers the smallest number."""
    if dtype == torch.bool:
        return False
    return float("nan") if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype).min
