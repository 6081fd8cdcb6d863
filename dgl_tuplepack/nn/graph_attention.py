"""Softmax attention among the nodes of each graph.

How data flows: `node_graphs` reads which nodes belong to which graph. `_planned` sorts the graphs by size and cuts them
into a few blocks of similar sizes, by their sizes or by bounds of them: the k-th largest of graphs with N nodes has at
most N / k. `_attended` copies the rows of nodes to these blocks, each of which is one dense attention, and back.

In compiled code, sizes can only be read inside an operation that the compiler does not look into, and without waiting
only on a CPU. Other devices use bounds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn.node_graphs import checked_max_nodes, node_graphs

# Sizes in a block differ by less than this factor. More blocks have less padding, but more operations.
_RATIO = 1.4
# Narrower blocks are slower: torch's softmax then has no vectors.
_LEAST = 16
# Up to this width, a CPU is faster with the weights of a block in memory than with torch's attention.
_NARROW = 256
# Pairs of nodes in a block with several graphs, which bound its memory.
_MOST_PAIRS = 2**20


def attention(
    query: Tensor, key: Tensor, value: Tensor, batch: Any, max_nodes: int | None = None, *, scale: float | None = None,
    num_graphs: int | None = None, ntype: str | None = None,
) -> Tensor:  # fmt: skip
    """Return softmax attention of each node to all nodes of its graph, ``[N, heads, width]``.

    Shapes are static, so models compile in one graph.

    Parameters
    ----------
    query, key, value
        Rows of nodes ``[N, heads, width]``, in the order of the batch. The width of values may differ.
    batch
        A batched DGLGraph, `TensorGraph` or PyG `Batch`; a `PaddedBatch` or its `tensors`; or the index of the graph of
        each node, int64 ``[N]``, ascending.
    max_nodes
        At least the number of nodes of the largest graph: ``loader.max_nodes``. Saves time in compiled code on a GPU.
    scale
        Factor of the products of queries and keys; default: 1 / sqrt(width).
    num_graphs
        Number of graphs, if `batch` is an index.
    ntype
        Node type of the rows, if there are several.

    Returns
    -------
    Tensor
        The means of `value`, weighted by ``softmax(scale * query @ key.T)``; 0 for nodes of padding.

    Raises
    ------
    GraphTooLargeError
        A real graph has more than `max_nodes` nodes. In compiled code, its results are NaN.
    SchemaError
        Arguments do not fit together.

    Notes
    -----
    Time and memory are O(sum of n²) for graphs with n nodes; in compiled code on a GPU, where sizes cannot be read,
    O(N max_nodes), however many graphs there are. Padding takes no time on a CPU. Second derivatives need
    `dense` and the MATH backend of torch's attention. For dropout of weights or a bias, too, use `dense`.

    Examples
    --------
    >>> import torch
    >>> zeros, x = torch.zeros(3, 1, 1), torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)
    >>> attention(zeros, zeros, x, torch.tensor([0, 0, 1]), num_graphs=2).flatten()
    tensor([1.5000, 1.5000, 3.0000])
    """
    _check(query, key, value)
    if max_nodes is not None:
        max_nodes = checked_max_nodes(max_nodes)
    nodes = node_graphs(batch, num_graphs, ntype)
    nodes.check_rows("query", query)
    number, starts, counts = query.shape[0], nodes.offsets[:-1], nodes.offsets.diff()
    if nodes.real is not None:
        counts = torch.where(nodes.real, counts, 0)
    too_large = None
    if max_nodes is not None:
        too_large = nodes.too_large(max_nodes)
        counts = torch.where(too_large, 0, counts)
    scale = query.shape[2] ** -0.5 if scale is None else scale
    if not isinstance(scale, int | float):
        raise SchemaError(f"scale is {shown(scale)}, but must be a number; the default is 1 / sqrt(width).")
    # Side by side, they are copied by one operation; the last row is for slots without a node.
    rows, width = pad(torch.cat([query, key, value], 2), (0, 0, 0, 0, 0, 1)), query.shape[2]
    if _opaque is not None and query.device.type == "cpu":
        result = _opaque(rows, starts, counts, width, scale)
    else:
        bounds = None
        if is_traced():
            most = number if max_nodes is None else max_nodes
            bounds = [min(most, number // (k + 1)) for k in range(counts.shape[0])]
        result = _attended(rows, _planned(query.shape[:2], starts, counts, query.dtype, bounds), width, scale)
    if too_large is not None and is_traced():
        result = result.masked_fill(too_large[nodes.of_nodes][:, None, None], float("nan"))
    return result


class _Plan(NamedTuple):
    """How rows of nodes and heads are copied to blocks of graphs of similar sizes, and back."""

    # The row in each slot of all blocks ``[slots]``: node * heads + head, or N * heads if there is no node.
    rows: Tensor
    # The slot of each row ``[N * heads]``, or the number of slots for a node without a slot.
    slots: Tensor
    # Of each block, the mask ``[graphs * heads, 1, width]``: 0 for slots with a node, else -inf. Graphs without nodes
    # have a 0, too, since a softmax over no slots is NaN.
    masks: list[Tensor]

    def to_blocks(self, rows: Tensor) -> list[Tensor]:
        """Return ``[graphs * heads, width, ...]`` for each block, of rows ``[N + 1, heads, ...]``, the last one 0."""
        found = torch.split(rows.flatten(0, 1).index_select(0, self.rows), [mask.numel() for mask in self.masks])
        return [each.view(mask.shape[0], mask.shape[2], -1) for each, mask in zip(found, self.masks, strict=True)]

    def to_nodes(self, blocks: Sequence[Tensor], rows: Tensor, width: int) -> Tensor:
        """Return ``[N, heads, width]`` of the values of all blocks, given the rows of `to_blocks`."""
        # The 0 is for nodes without a slot. It has gradients, even if there is no block.
        zeros = rows[-1, :1, :1].expand(1, width)
        found = torch.cat([*(each.flatten(0, 1) for each in blocks), zeros])
        return found.index_select(0, self.slots).view(-1, rows.shape[1], width)


def _planned(
    shape: Sequence[int], starts: Tensor, counts: Tensor, dtype: torch.dtype, bounds: Sequence[int] | None
) -> _Plan:
    """Return the plan for graphs with these first nodes and numbers of nodes, and for rows of ``shape``, [N, heads].

    The k-th number in `bounds` is at least the number of nodes of the k-th largest graph; by default, it is read.
    """
    number, heads = shape
    counts, order = counts.sort(descending=True)
    starts, head = starts[order], torch.arange(heads, device=counts.device)[:, None]
    rows, masks = [starts[:0]], []
    for first, last, width in _cuts(counts.tolist() if bounds is None else bounds):
        place, sizes = torch.arange(width, device=counts.device), counts[first:last, None, None]
        nodes = torch.where(place < sizes, starts[first:last, None, None] + place, number)
        rows.append((nodes * heads + head).flatten())
        mask = torch.zeros(last - first, 1, width, dtype=dtype, device=counts.device)
        masks.append(mask.masked_fill(place >= sizes.clamp(min=1), -torch.inf).repeat_interleave(heads, 0))
    of_slots = torch.cat(rows)
    numbers = torch.arange(of_slots.shape[0], device=counts.device)
    # Slots without a node overwrite each other in rows that are left out.
    slots = numbers.new_full(((number + 1) * heads,), of_slots.shape[0]).index_copy(0, of_slots, numbers)
    return _Plan(of_slots, slots[: number * heads], masks)


def _attended(rows: Tensor, plan: _Plan, width: int, scale: float) -> Tensor:
    """Return the results of all nodes, given their queries, keys and values side by side."""
    found = []
    for each, mask in zip(plan.to_blocks(rows), plan.masks, strict=True):
        q, k, v = each.tensor_split((width, 2 * width), 2)
        if each.shape[1] <= _NARROW and each.device.type == "cpu":
            found.append(_weights(q, k, mask, scale) @ v)
        else:
            q, k, v = (x.contiguous()[None] for x in (q, k, v))
            found.append(scaled_dot_product_attention(q, k, v, mask[None], scale=scale)[0])
    return plan.to_nodes(found, rows, rows.shape[2] - 2 * width)


def _gradients(rows: Tensor, grads: Tensor, plan: _Plan, width: int, scale: float) -> Tensor:
    """Return the gradients of queries, keys and values side by side.

    Next to the gradients of results, `grads` has their negative products with the results: the mean, by the weights, of
    the gradients of weights.
    """
    found = []
    for each, grad, mask in zip(plan.to_blocks(rows), plan.to_blocks(grads), plan.masks, strict=True):
        q, k, v = each.tensor_split((width, 2 * width), 2)
        g, mean = grad[:, :, :-1], grad[:, :, -1:]
        weights = _weights(q, k, mask, scale)
        changes = torch.baddbmm(mean.expand(-1, -1, each.shape[1]), g, v.mT).mul_(weights).mul_(scale)
        found.append(torch.cat([changes @ k, changes.mT @ q, weights.mT @ g], 2))
    return plan.to_nodes(found, rows, rows.shape[2])


def _weights(query: Tensor, key: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Return the weights of all pairs of nodes of the graphs of a block."""
    return torch.baddbmm(mask.expand(-1, query.shape[1], -1), query, key.mT, alpha=scale).softmax(2)


def _cuts(bounds: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return the first and last graph, and the width, of each block of graphs of descending numbers of nodes."""
    cuts, first = [], 0
    while first < len(bounds) and bounds[first] > 0:
        width, last = max(bounds[first], _LEAST), first
        least = 0 if width == _LEAST else width / _RATIO
        most = first + max(1, _MOST_PAIRS // width**2)
        while last < min(most, len(bounds)) and bounds[last] > least:
            last += 1
        cuts.append((first, last, width))
        first = last
    return cuts


def _check(query: Any, key: Any, value: Any) -> None:
    """Raise SchemaError unless the tensors are rows of the same nodes and heads."""
    given = (query, key, value)
    if not all(isinstance(x, Tensor) and x.ndim == 3 for x in given):
        shapes = [tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__ for x in given]
        raise SchemaError(
            f"query, key and value must be tensors [N, heads, width], but are {shapes}; give one row for each node, "
            "such as linear(x).view(N, heads, -1)."
        )
    if query.shape != key.shape or query.shape[:2] != value.shape[:2]:
        shapes = [tuple(x.shape) for x in given]
        raise SchemaError(
            f"query, key and value must have the same nodes and heads, and query and key the same width, but have the "
            f"shapes {shapes}; give rows of the same nodes."
        )
    kinds = [f"{x.dtype} on {x.device}" for x in given]
    if len({*kinds}) > 1 or not query.dtype.is_floating_point:
        raise SchemaError(
            f"query, key and value must be floats of one dtype on one device, but are {kinds}; convert them."
        )


@functools.lru_cache(maxsize=4)
def _read(shape: tuple[int, int], starts: tuple[int, ...], counts: tuple[int, ...], dtype: torch.dtype) -> _Plan:
    """Return the plan of a batch on a CPU; all layers share it."""
    of_graphs = torch.tensor([starts, counts], dtype=torch.int64)
    return _planned(shape, of_graphs[0], of_graphs[1], dtype, None)


def _made_opaque() -> Callable[..., Tensor] | None:
    """Return attention as an operation that the compiler does not look into; None if torch is too old for it.

    So compiled code can read the sizes of graphs, if they are on a CPU.
    """
    if not hasattr(torch.library, "custom_op"):
        return None

    def plan(rows: Tensor, starts: Tensor, counts: Tensor) -> _Plan:
        shape = rows.shape[0] - 1, rows.shape[1]
        return _read(shape, tuple(starts.tolist()), tuple(counts.tolist()), rows.dtype)

    def forward(rows: Tensor, starts: Tensor, counts: Tensor, width: int, scale: float) -> Tensor:
        return _attended(rows, plan(rows, starts, counts), width, scale)

    def backward(grads: Tensor, rows: Tensor, starts: Tensor, counts: Tensor, width: int, scale: float) -> Tensor:
        return _gradients(rows, grads, plan(rows, starts, counts), width, scale)

    def save(ctx: Any, inputs: Any, output: Tensor) -> None:
        *tensors, ctx.width, ctx.scale = inputs
        ctx.save_for_backward(*tensors, output)

    def gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        *tensors, output = ctx.saved_tensors
        grads = pad(torch.cat([grad, -(grad * output).sum(2, keepdim=True)], 2), (0, 0, 0, 0, 0, 1))
        found = of_rows(grads, *tensors, ctx.width, ctx.scale)
        return pad(found, (0, 0, 0, 0, 0, 1)), None, None, None, None

    name, given = "dgl_tuplepack::attention", "Tensor rows, Tensor starts, Tensor counts, int width, float scale"
    op = torch.library.custom_op(name, forward, mutates_args=(), schema=f"({given}) -> Tensor")
    op.register_fake(
        lambda rows, s, c, width, _: rows.new_empty(rows.shape[0] - 1, rows.shape[1], rows.shape[2] - 2 * width)
    )
    op.register_autograd(gradients, setup_context=save)
    of_rows = torch.library.custom_op(
        f"{name}_backward", backward, mutates_args=(), schema=f"(Tensor grads, {given}) -> Tensor"
    )
    of_rows.register_fake(lambda grads, rows, *_: rows.new_empty(rows.shape[0] - 1, *rows.shape[1:]))
    return op


_opaque = _made_opaque()
