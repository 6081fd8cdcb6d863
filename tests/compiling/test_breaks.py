"""What is said where a function cannot be compiled: the line, and a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dgl_tuplepack as tp
from dgl_tuplepack.errors import CompileError
from tests.support.compiled import traced
from tests.support.messages import refused
from tests.support.stores import molecules

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("forget")]


def branch(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x
    return -x


def number_of_real(x: Tensor) -> Tensor:
    return x if torch.bincount((x > 0).long()).shape[0] > 1 else -x


def as_list(x: Tensor) -> list[float]:
    return x.tolist()


def printing(x: Tensor) -> Tensor:
    print(x.sum())
    return x


def with_backward(x: Tensor) -> Tensor:
    loss = (x * x.detach().requires_grad_()).sum()
    loss.backward()
    return loss


def opening(x: Tensor) -> Any:
    with open("/dev/null"):
        return x


@pytest.mark.parametrize(
    ("function", "line", "remedy"),
    [
        (opening, "(with open(", "move this code out of the compiled function"),
        (lambda x: 2 * branch(x), "(if x.sum() > 0:)", "torch.where"),
        (number_of_real, "(return x if torch.bincount", "must not depend on values"),
        (as_list, "(return x.tolist())", "0-dimensional tensor"),
        (printing, "(print(x.sum()))", "print outside"),
        (with_backward, "(loss.backward())", "call backward() and the optimiser outside"),
    ],
)
def test_a_graph_break_names_the_line_and_the_remedy(function: Callable[..., Any], line: str, remedy: str) -> None:
    with refused(CompileError, f"{function.__name__} cannot be compiled", "test_breaks.py, line ", line, remedy):
        traced(function)(torch.randn(4))


def test_a_sparse_argument_is_left_to_torch() -> None:
    """Such tensors have no strides; torch compiles around them, or says why not."""

    def neighbours(adjacency: Tensor, x: Tensor) -> Tensor:
        return adjacency @ x

    eye = torch.eye(4).to_sparse()
    with refused(CompileError, "neighbours cannot be compiled", "sparse"):
        traced(neighbours)(eye, torch.ones(4, 2))
    assert traced(neighbours, fullgraph=False)(eye, torch.ones(4, 2)).sum() == 8


def test_a_graph_of_dgl_in_a_closure_is_named_with_the_users_line() -> None:
    graph = molecules(1)[0][0]

    def sum_of_neighbours(x: Tensor) -> Tensor:
        return x * graph.in_degrees().sum()

    with refused(CompileError, "(return x * graph.in_degrees().sum())", "batch.tensors"):
        traced(sum_of_neighbours)(torch.randn(4))


def test_errors_of_the_function_itself_stay_as_they_are() -> None:
    def failing(x: Tensor) -> Tensor:
        raise ValueError("no such molecule")

    with pytest.raises(ValueError, match="no such molecule"):
        traced(failing)(torch.zeros(3))
    with pytest.raises(NameError, match="no_such_name"):
        traced(lambda x: no_such_name)(torch.zeros(3))  # type: ignore[name-defined] # noqa: F821
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        traced(lambda x: x @ x)(torch.zeros(4, 3))
    with pytest.raises(TypeError, match="unexpected keyword"):
        traced(branch)(torch.zeros(3), no=1)


def test_graphs_are_refused_where_tensors_are_needed() -> None:
    items = molecules(3)
    batch = tp.PaddedCollate(tp.Limits(nodes=40, edges=200, graphs=4), example=items[0])(items)

    def loss_of(batch: Any, more: Any = None) -> Any:
        return batch

    with refused(CompileError, "batch of ", "loss_of is a DGLGraph", "pass batch.tensors", ".graph"):
        traced(loss_of)(items[0][0])
    with refused(CompileError, "more['here'][0] of ", "loss_of is a PaddedBatch", "more['here'][0].tensors"):
        traced(loss_of)(torch.zeros(3), more={"here": [batch]})
