"""Compiled code computes what uncompiled code does: random networks through the pass, two through the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import dgl_tuplepack as tp
from dgl_tuplepack import Limits, PaddedCollate
from tests.support.compiled import Backend, assert_close_and_equal_where_special, same_bits
from tests.support.graphs import generator, ring_with_chords

pytestmark = pytest.mark.compile

# `other` is a second matrix.
ACTIVATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda x, other: torch.relu(x),
    "leaky_relu": lambda x, other: functional.leaky_relu(x, 0.25),
    "relu6": lambda x, other: functional.relu6(x),
    "hardtanh": lambda x, other: functional.hardtanh(x),
    "threshold": lambda x, other: functional.threshold(x, 0.5, -1.0),
    "where above": lambda x, other: torch.where(x > 0.5, x, 0.25 * x),
    "where larger": lambda x, other: torch.where(x >= other, 2 * x, other),
    "where both": lambda x, other: torch.where((x > 0) & ~(other < 0), x, other),
    "where not nan": lambda x, other: torch.where(torch.isnan(x) | (x == other), other, x),
    "masked_fill": lambda x, other: x.masked_fill(other > 1, 0.0),
    "absolute": lambda x, other: x.abs(),
    "times mask": lambda x, other: x * (other > 0),
    "row mask": lambda x, other: torch.where(other[:, :1] > 0, x, 0.0),
    "gathered": lambda x, other: torch.relu(x[torch.arange(len(x)).flip(0)]),
    "dropout of nothing": lambda x, other: functional.dropout(x, 0.0, training=True),
}  # fmt: skip
# Torch's own decompositions make 0 of relu6(-0), and have other gradients of these two at NaN.
DIFFERENT_IN_TORCH = {"relu6", "hardtanh"}
SPECIAL = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1.0, 0.5], dtype=torch.float64)


def matrices(seed: int, number: int, special: bool) -> list[Tensor]:
    """Random matrices ``[6, 5]``; with `special`, a third of the values are inf, NaN, 0 or -0."""
    gen = generator(seed)
    drawn = [torch.randn(6, 5, dtype=torch.float64, generator=gen) for _ in range(number)]
    for each in drawn if special else ():
        chosen = torch.rand(each.shape, generator=gen) < 0.35
        each[chosen] = SPECIAL[torch.randint(0, len(SPECIAL), (int(chosen.sum()),), generator=gen)]
    return drawn


def gradients(function: Any, inputs: list[Tensor], upstream: Tensor) -> list[Tensor]:
    leaves = [each.clone().requires_grad_() for each in inputs]
    result = function(*leaves)
    found = torch.autograd.grad(result, leaves, upstream, allow_unused=True)
    return [
        result.detach(),
        *(torch.zeros_like(each) if g is None else g for g, each in zip(found, leaves, strict=True)),
    ]


@settings(max_examples=12)
@given(
    names=st.lists(st.sampled_from(sorted(ACTIVATIONS)), min_size=1, max_size=4),
    linear=st.booleans(),
    special=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_pass_changes_no_bit_and_keeps_no_matrix_of_bools(
    names: list[str], linear: bool, special: bool, seed: int
) -> None:
    def network(x: Tensor, other: Tensor, weight: Tensor) -> Tensor:
        for name in names:
            x = ACTIVATIONS[name](x @ weight if linear else x, other)
        return x

    x, other, upstream = matrices(seed, 3, special)
    weight = torch.randn(5, 5, dtype=torch.float64, generator=generator(seed))
    ours, torchs = Backend(True), Backend(False)
    found, expected = (
        gradients(torch.compile(network, backend=backend, dynamic=False, fullgraph=True), [x, other, weight], upstream)
        for backend in (ours, torchs)
    )
    torch.compiler.reset()
    assert ours.calls == torchs.calls == 1
    assert all(map(same_bits, found, expected))
    assert ours.matrices_of_bools() == 0


@pytest.mark.parametrize("probability", [0.25, 0.5])
def test_dropout_draws_by_torch_with_a_mask_for_each_layer(probability: float) -> None:
    def twice(x: Tensor) -> Tensor:
        return torch.stack([functional.dropout(x, probability), functional.dropout(x, probability)])

    backend = Backend(True)
    compiled = torch.compile(twice, backend=backend, dynamic=False, fullgraph=True)
    ones = torch.ones(300, 20, dtype=torch.float64)
    torch.manual_seed(3)
    result, gradient = gradients(compiled, [ones], torch.ones(2, 300, 20, dtype=torch.float64))
    torch.manual_seed(3)
    again = compiled(ones)
    torch.compiler.reset()
    # The gradient uses the masks of the forward pass, and equal seeds give equal masks.
    assert torch.equal(gradient, result.sum(0))
    assert torch.equal(again, result)
    first, second = result != 0
    assert set(result.unique().tolist()) == {0.0, 1 / (1 - probability)}
    for mask in (first, second):
        assert abs(mask.double().mean() - (1 - probability)) < 0.03
    assert abs((first & second).double().mean() - (1 - probability) ** 2) < 0.03
    assert backend.matrices_of_bools() == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_mask_of_dropout_is_the_same_forward_and_backward(dtype: torch.dtype) -> None:
    """Generated code compares numbers before it rounds them to half precision, and the backward pass has them rounded.

    It takes the whole compiler: what runs uncompiled rounds everywhere.
    """

    def network(x: Tensor) -> Tensor:
        return functional.dropout(torch.relu(x), 0.3)

    ones = torch.ones(2000, 20, dtype=dtype, requires_grad=True)
    # Uncompiled code draws other numbers in half precision, so there is nothing to compare.
    result = tp.compile(network, check=dtype is torch.float32)(ones)
    (gradient,) = torch.autograd.grad(result.sum(), ones)
    assert torch.equal(gradient != 0, result != 0)


def test_policies_of_the_user_stay() -> None:
    """Nodes inside ``torch.utils.checkpoint`` are computed again as torch wants it."""

    def network(x: Tensor, other: Tensor) -> Tensor:
        inner = torch.utils.checkpoint.checkpoint(ACTIVATIONS["where both"], x, other, use_reentrant=False)
        return torch.relu(torch.sin(inner)) * inner

    x, other, upstream = matrices(1, 3, special=True)
    found, expected = (
        gradients(torch.compile(network, backend=Backend(with_pass), fullgraph=True), [x, other], upstream)
        for with_pass in (True, False)
    )
    torch.compiler.reset()
    assert all(map(same_bits, found, expected))


def test_all_activations_through_the_whole_compiler_equal_uncompiled_ones() -> None:
    """Gradients to 1e-12 in float64, and the same places of inf, NaN, 0 and -0."""

    names = sorted(ACTIVATIONS.keys() - DIFFERENT_IN_TORCH)

    def network(x: Tensor, other: Tensor) -> Tensor:
        return torch.stack([ACTIVATIONS[name](x, other) for name in names])

    x, other = matrices(2, 2, special=True)
    upstream = torch.stack(matrices(3, len(names), special=True))
    found = gradients(tp.compile(network), [x, other], upstream)
    for one, expected in zip(found, gradients(network, [x, other], upstream), strict=True):
        assert_close_and_equal_where_special(one, expected)


class Gine(nn.Module):
    """GINE with norms, in operations of torch alone."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.nodes, self.edges = nn.Linear(3, width), nn.ModuleList(nn.Linear(2, width) for _ in range(layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)) for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        x, src, dst = self.nodes(batch["x"]), batch["src"], batch["dst"]
        for edges, mlp, norm in zip(self.edges, self.mlps, self.norms, strict=True):
            messages = torch.relu(x.index_select(0, src) + edges(batch["e"]))
            total = torch.zeros_like(x).index_add_(0, dst, messages)
            x = x + functional.leaky_relu(norm(mlp(x + total), batch["node_mask"]))
        slots = len(batch["graph_mask"])
        return self.head(x.new_zeros(slots, x.shape[1]).index_add_(0, batch["slots"], x))


def batches(number: int) -> list[dict[str, Tensor]]:
    """Equal shapes, other graphs; the last one is empty."""
    gen = generator(5)
    graphs = [ring_with_chords(gen, 3 + i % 5, i % 3) for i in range(12)]
    for graph in graphs:
        graph.ndata["x"] = torch.randn(graph.num_nodes(), 3, generator=gen, dtype=torch.float64)
        graph.edata["e"] = torch.randn(graph.num_edges(), 2, generator=gen, dtype=torch.float64)
    items = [(graph, torch.randn((), generator=gen, dtype=torch.float64)) for graph in graphs]
    collate = PaddedCollate(Limits(nodes=24, edges=90, graphs=5), example=items[0])
    drawn = [[items[int(i)] for i in torch.randint(0, 12, (3,), generator=gen)] for _ in range(number - 1)] + [[]]
    return [
        {
            "x": batch.node_features["x"], "e": batch.edge_features["e"], "src": batch.src, "dst": batch.dst,
            "slots": batch.node_graph_slots, "node_mask": batch.node_mask, "graph_mask": batch.graph_mask,
            "y": batch.labels,
        }
        for batch in map(collate, drawn)
    ]  # fmt: skip


def test_fifty_compiled_steps_train_as_uncompiled_ones() -> None:
    """Losses, weights and running statistics, with padding in each batch; compiled for training once."""
    found = {}
    for compiles in (True, False):
        torch.manual_seed(1)
        model = tp.nn.convert(Gine(6, 1).double(), verbose=False)
        count = torch.tensor(2.5, dtype=torch.float64)

        def loss_of(batch: dict[str, Tensor], count: Tensor, model: Gine = model) -> Tensor:
            losses = (model(batch)[:, 0] - batch["y"]).square()
            return tp.nn.masked_mean(losses, batch["graph_mask"], count=count)

        step = tp.compile(loss_of) if compiles else loss_of
        # Adam divides gradients that are 0 but for rounding by their own size.
        optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.5)
        losses = []
        for batch in batches(5) * 10:
            optimizer.zero_grad()
            loss = step(batch, count)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found[compiles] = losses, [each.detach().clone() for each in model.state_dict().values()]
    torch.testing.assert_close(found[True], found[False], rtol=1e-10, atol=1e-12)
    assert found[True][0][-2] < found[True][0][3]
