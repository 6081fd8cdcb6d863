"""Copy node rows ``[N, ...]`` to ``[G, M, ...]``, a row of M slots for each graph, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn.node_graphs import checked_max_nodes, node_graphs


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
    max_nodes, nodes = checked_max_nodes(max_nodes), node_graphs(batch, num_graphs, ntype)
    nodes.check_rows("x", x)
    graphs, offsets, _ = nodes
    counts, too_large = offsets.diff(), nodes.too_large(max_nodes)
    number = counts.shape[0]
    place = torch.arange(x.shape[0], device=graphs.device) - offsets[graphs]
    slots = torch.where(place < max_nodes, graphs * max_nodes + place, number * max_nodes)
    # Rows without a slot overwrite each other in one more slot; the backward pass of this copy only gathers.
    filled = x.new_zeros(number * max_nodes + 1, *x.shape[1:]).index_copy(0, slots, x)
    values = filled[:-1].view(number, max_nodes, *x.shape[1:])
    if is_traced():
        slots = torch.where(too_large[graphs], number * max_nodes + 1, slots)
        values = values.masked_fill(too_large.reshape(-1, *(1,) * x.ndim), _mark_of(x.dtype))
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
    slots = node_graphs(batch, num_graphs, ntype).of_nodes
    return lambda b, h, query, key: slots[query] == slots[key]


def _mark_of(dtype: torch.dtype) -> float:
    """Return the value that marks graphs that are too large: NaN, or for integers the smallest number."""
    if dtype == torch.bool:
        return False
    return float("nan") if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype).min
