"""What `Groups` compute by kernels on the CPU, each a function that torch can differentiate, any number of times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from dgl_tuplepack._plain_tensors import has_memory, is_transformed
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.kernels import edge_sums
from dgl_tuplepack.kernels.edge_sums import Pairs

if TYPE_CHECKING:
    from dgl_tuplepack.tensor_graph.groups import Groups

_FLOATS = (torch.float32, torch.float64)
# Our kernels run on one thread; with more threads than this, torch's are faster.
_MOST_THREADS = 4


def is_readable(index: Tensor) -> bool:
    """Whether values of a tensor may be read here: it is on the CPU, and nothing traces or transforms operations."""
    if torch.compiler.is_compiling() or not has_memory(index):
        return False
    return not (torch._C._is_tracing() or is_transformed())


def fits(index: Tensor, *values: Tensor) -> bool:
    """Whether kernels take these: plain tensors on the CPU, values of one dtype, float32 or float64.

    What traces or transforms operations of torch does not see our kernels.
    """
    if not is_readable(index) or torch.get_num_threads() > _MOST_THREADS:
        return False
    dtype = values[0].dtype if values else torch.float32
    return dtype in _FLOATS and all(each.dtype == dtype and each.dim() > 0 and has_memory(each) for each in values)


def fit_together(via: Tensor, values: Tensor, weights: Tensor | None) -> bool:
    """Whether weights ``[E, ...]`` begin with the axes of an entry of the values ``[N, ...]``, then have only 1."""
    if not has_memory(via):
        return False
    return weights is None or (weights.dim() == values.dim() and _heads(values, weights) is not None)


def _heads(values: Tensor, weights: Tensor) -> int | None:
    """Number of weights for each row; None where weights and values do not fit together."""
    heads, equal = 1, True
    for of_value, of_weight in zip(values.shape[1:], weights.shape[1:], strict=True):
        if equal and of_weight == of_value:
            heads *= of_value
            continue
        if of_weight != 1:
            return None
        equal = False
    return heads


class Sorted:
    """Rows by group, for kernels."""

    def __init__(self, index: Tensor, pointers: Tensor, order: Tensor | None, number: int) -> None:
        self.pointers = pointers
        self._order = order
        self._number = number
        self._made_of = [(each, _version(each)) for each in (index, pointers)]

    @property
    def groups(self) -> edge_sums.Groups:
        """Addresses, asked for each time: those of a copy, or of tensors moved to shared memory, are others."""
        order = 0 if self._order is None else self._order.data_ptr()
        return edge_sums.Groups(self.pointers.data_ptr(), order, self._number, self._made_of[0][0].shape[0])

    def is_stale(self) -> bool:
        """Whether the tensors that it was made of have other values by now."""
        return any(_version(each) != version for each, version in self._made_of)

    @staticmethod
    def of(index: Tensor, number: int, pointers: Tensor | None) -> Sorted:
        """Sort rows by their group; where `pointers` are given, check that they are sorted."""
        if pointers is not None:
            pointers = pointers.contiguous()
            made = Sorted(index, pointers, None, number)
            bad = edge_sums.check_groups(index.data_ptr(), made.groups)
            if bad >= 0:
                raise SchemaError(
                    f"row_pointers do not fit edge {bad}: edges must be sorted by destination node, and those of node "
                    "v be row_pointers[v]..row_pointers[v + 1] - 1."
                )
            return made
        made = Sorted(index, index.new_empty(number + 1), index.new_empty(index.shape[0]), number)
        bad = edge_sums.sort_groups(index.data_ptr(), made.groups)
        if bad >= 0:
            raise SchemaError(
                f"row {bad} is in group {int(index[bad])} of nodes or graphs, but there are {number}; give "
                "numbers from 0."
            )
        return made


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _check(bad: int) -> None:
    if bad >= 0:
        raise SchemaError(f"the node of edge {bad} is not there; give numbers of nodes from 0.")


def gather(groups: Groups, values: Tensor) -> Tensor:
    """The row of its group for each row."""
    return cast(Tensor, _Gather.apply(groups, values))  # type: ignore[no-untyped-call]


def group_sum(groups: Groups, values: Tensor) -> Tensor:
    """Sums of the rows of each group."""
    if not values.requires_grad:
        return _sum(groups, None, values)
    return cast(Tensor, _Sum.apply(groups, values))  # type: ignore[no-untyped-call]


def weighted_sum(groups: Groups, via: Groups, values: Tensor, weights: Tensor | None) -> Tensor:
    """Sums in each group of the rows that `via` names, times weights."""
    return cast(Tensor, _WeightedSum.apply(groups, via, values, weights))  # type: ignore[no-untyped-call]


def extreme(groups: Groups, values: Tensor, largest: bool, fill: float) -> Tensor:
    """Extremes of the rows of each group."""
    return cast(Tensor, _Extreme.apply(groups, values, largest, fill))  # type: ignore[no-untyped-call]


def softmax(groups: Groups, values: Tensor) -> Tensor:
    """Softmax of the rows of each group."""
    return cast(Tensor, _Softmax.apply(groups, values))  # type: ignore[no-untyped-call]


def _width(values: Tensor) -> int:
    return math.prod(values.shape[1:])


def _is_double(values: Tensor) -> bool:
    return values.dtype == torch.float64


def _sum(groups: Groups, via: Groups | None, values: Tensor) -> Tensor:
    values, address = values.contiguous(), 0 if via is None else via.index.data_ptr()
    out = values.new_empty((groups.number, *values.shape[1:]))
    where = values.data_ptr(), values.shape[0], out.data_ptr()
    _check(edge_sums.sum_groups(groups.sorted().groups, address, *where, _width(values), _is_double(values)))
    return out


def _check_unchanged(ctx: Any) -> None:
    """Let torch refuse a backward pass after a change of the saved index in place."""
    assert ctx.saved_tensors


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, groups: Groups, values: Tensor) -> Tensor:
        ctx.groups = groups
        ctx.save_for_backward(groups.index)
        return values.index_select(0, groups.index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        _check_unchanged(ctx)
        return None, ctx.groups.sum(gradient)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, groups: Groups, values: Tensor) -> Tensor:
        ctx.groups = groups
        ctx.save_for_backward(groups.index)
        return _sum(groups, None, values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        _check_unchanged(ctx)
        return None, ctx.groups.gather(gradient)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, groups: Groups, via: Groups, values: Tensor, weights: Tensor | None) -> Tensor:
        ctx.groups, ctx.via = groups, via
        kept = values if weights is not None and weights.requires_grad else None
        ctx.save_for_backward(kept, weights, groups.index, via.index)
        if weights is None:
            return _sum(groups, via, values)
        values, weights = values.contiguous(), weights.contiguous()
        out = values.new_empty((groups.number, *values.shape[1:]))
        heads = _heads(values, weights) or 0
        shape = heads, _width(values) // max(heads, 1), _is_double(values)
        where = via.index.data_ptr(), values.data_ptr(), values.shape[0], weights.data_ptr(), out.data_ptr()
        _check(edge_sums.weigh_groups(groups.sorted().groups, *where, *shape))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        values, weights, *_ = ctx.saved_tensors
        groups, via = ctx.groups, ctx.via
        of_values = via.sum_of(groups, gradient, weights) if ctx.needs_input_grad[2] else None
        of_weights = _products(via, values, groups, gradient, weights.shape) if ctx.needs_input_grad[3] else None
        return None, None, of_values, of_weights


def _products(via: Groups, values: Tensor, groups: Groups, gradient: Tensor, shape: torch.Size) -> Tensor:
    """Gradient of weights of this shape: products of the two rows of each edge, summed to the shape."""
    if fits(via.index, values, gradient) and has_memory(groups.index):
        return cast(Tensor, _Products.apply(via, values, groups, gradient, shape))  # type: ignore[no-untyped-call]
    return (via.gather(values) * groups.gather(gradient)).sum_to_size(shape)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, via: Groups, left: Tensor, groups: Groups, right: Tensor, shape: torch.Size) -> Tensor:
        ctx.via, ctx.groups = via, groups
        ctx.save_for_backward(left, right, via.index, groups.index)
        left, right = left.contiguous(), right.contiguous()
        out = left.new_empty(shape)
        heads = math.prod(shape[1:])
        first = left.data_ptr(), via.index.data_ptr(), left.shape[0]
        second = right.data_ptr(), groups.index.data_ptr(), right.shape[0]
        width = _width(left) // max(heads, 1)
        pairs = Pairs(*first, *second)
        _check(edge_sums.dot_rows(pairs, out.data_ptr(), shape[0], heads, width, _is_double(left)))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        left, right, *_ = ctx.saved_tensors
        of_left = ctx.via.sum_of(ctx.groups, right, gradient) if ctx.needs_input_grad[1] else None
        of_right = ctx.groups.sum_of(ctx.via, left, gradient) if ctx.needs_input_grad[3] else None
        return None, of_left, None, of_right, None


class _Extreme(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, groups: Groups, values: Tensor, largest: bool, fill: float) -> Tensor:
        values = values.contiguous()
        result = values.new_empty((groups.number, *values.shape[1:]))
        first = torch.empty_like(result, dtype=torch.int64)
        addresses = values.data_ptr(), result.data_ptr(), first.data_ptr()
        edge_sums.extreme_groups(groups.sorted().groups, *addresses, _width(values), largest, fill, _is_double(values))
        ctx.rows = values.shape[0]
        ctx.save_for_backward(first)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (first,) = ctx.saved_tensors
        # One more row takes the gradients of empty groups, and of NaN.
        padded = gradient.new_zeros((ctx.rows + 1, *gradient.shape[1:])).scatter_add(0, first, gradient)
        return None, padded[: ctx.rows], None, None


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, groups: Groups, values: Tensor) -> Tensor:
        values = values.contiguous()
        out = torch.empty_like(values)
        addresses = values.data_ptr(), out.data_ptr()
        edge_sums.softmax_groups(groups.sorted().groups, *addresses, _width(values), _is_double(values))
        ctx.groups = groups
        ctx.save_for_backward(out, groups.index)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        softmax, _ = ctx.saved_tensors
        groups: Groups = ctx.groups
        if torch.is_grad_enabled() or not fits(groups.index, softmax, gradient):
            product = softmax * gradient
            return None, product - softmax * groups.gather(groups.sum(product))
        gradient, out = gradient.contiguous(), torch.empty_like(softmax)
        addresses = softmax.data_ptr(), gradient.data_ptr(), out.data_ptr()
        sorted_groups = groups.sorted().groups
        edge_sums.differentiate_softmax(sorted_groups, *addresses, _width(softmax), _is_double(softmax))
        return None, out
