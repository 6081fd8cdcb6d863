"""Change the joint graph, in which torch holds the operations of a forward pass and of its backward pass.

On the CPU, generated code stores and loads matrices of bools 10 to 35 times slower than matrices of floats. Torch keeps
the mask of every activation as bools for the backward pass. If a mask only compares floats or combines other masks, it
is marked here, so that the backward pass recomputes it from the floats. Gradients are the same to the last bit.

Generated code also draws random numbers one by one. Torch's own function draws them in an eighth of the time, so the
generated code is made to call that function. The mask of dropout compares the random numbers with a probability, so
this mask is recomputed too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils.checkpoint import CheckpointPolicy

_COMPARISONS = "eq ne lt le gt ge isnan isinf"
_LOGIC = "logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor"
_VIEWS = "alias clone expand permute squeeze t unsqueeze view"
_HALVES = (torch.float16, torch.bfloat16)
_CHEAP = frozenset(getattr(torch.ops.aten, name) for name in f"{_COMPARISONS} {_LOGIC} {_VIEWS}".split())


def keep_no_bools(graph: Graph) -> int:
    """Mark masks and replace random numbers in a joint graph, in place; return the number of changed operations.

    Only tensors on the CPU are affected. Masks that already have a recompute policy, as inside
    ``torch.utils.checkpoint``, stay unchanged.
    """
    random = [node for node in graph.nodes if _draws_uniform_numbers(node)]
    for node in random:
        _draw_by_torch(graph, node)
    masks = list(_cheap_masks(graph))
    for node in masks:
        # Nodes with equal `ac_graph_id` belong to one region that is recomputed.
        node.meta.update(recompute=CheckpointPolicy.MUST_RECOMPUTE, ac_graph_id=0)
    return len(random) + len(masks)


def _cheap_masks(graph: Graph) -> Iterator[Node]:
    """Yield each mask of the forward pass that is cheap to recompute, if all masks that it reads are cheap too."""
    of_backward: set[Node] = set()
    cheap: set[Node] = set()
    for node in graph.nodes:
        # The backward pass begins with the gradients of outputs.
        is_tangent = node.op == "placeholder" and "tangents" in str(node.target)
        if is_tangent or any(each in of_backward for each in node.all_input_nodes):
            of_backward.add(node)
        elif _is_bool_on_cpu(node) and _is_cheap(node) and "recompute" not in node.meta:
            # Inputs of the graph (placeholders) exist anyway.
            input_masks = [each for each in node.all_input_nodes if _is_bool_on_cpu(each) and each.op != "placeholder"]
            if cheap.issuperset(input_masks):
                cheap.add(node)
                yield node


def _is_bool_on_cpu(node: Node) -> bool:
    # "val" is a tensor without data, with the dtype, shape and device of the node's result.
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool and value.device.type == "cpu"


def _is_cheap(node: Node) -> bool:
    """Return whether a mask is cheap to recompute, and stays the same when it is recomputed from kept values.

    For inputs in half precision, generated code computes in float32, and rounds only the values that it keeps for the
    backward pass. So recomputing a comparison may change its result. Apart from overflow and underflow, comparisons
    with 0, infinity and NaN do not change.
    """
    if node.op != "call_function" or getattr(node.target, "overloadpacket", None) not in _CHEAP:
        return False
    if not any(map(_is_half, node.all_input_nodes)):
        return True
    # The numbers that the mask compares with must all be 0; isnan and isinf have no such arguments.
    return all(isinstance(each, int | float) and each == 0 for each in node.args[1:])


def _is_half(node: Node) -> bool:
    """Return whether the result of a node is in half precision, or was converted from half precision."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.dtype in _HALVES:
        return True
    return node.target is torch.ops.prims.convert_element_type.default and _is_half(node.all_input_nodes[0])


def _draws_uniform_numbers(node: Node) -> bool:
    value = node.meta.get("val")
    return (
        node.target is torch.ops.aten.rand.default
        and isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and value.dtype in (torch.float32, torch.float64)
        and value.is_contiguous()
    )


def _draw_by_torch(graph: Graph, node: Node) -> None:
    """Replace a node that draws random numbers by a node for which generated code calls torch's own function."""
    with graph.inserting_before(node):
        settings: dict[str, Any] = {name: node.kwargs[name] for name in ("dtype", "device") if name in node.kwargs}
        # Each draw gets its own `memory`, so that torch does not merge two draws of the same shape into one.
        memory = graph.call_function(torch.ops.aten.empty.memory_format, (node.args[0],), settings)
        numbers = graph.call_function(torch.ops.aten.uniform.default, (memory, 0.0, 1.0))
    for each in (memory, numbers):
        each.meta.update(node.meta)
    node.replace_all_uses_with(numbers)
    graph.erase_node(node)
