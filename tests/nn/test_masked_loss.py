"""`masked_loss` and its gradients are those of a loop over the labels that are there."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.nn import functional

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn import masked_loss
from tests.support.messages import refused
from tests.support.pyg import stored
from tests.support.tensors import generator

from torch_geometric.data import Data  # isort: skip

NAN = math.nan
# Losses by element; of each, one for a single label.
ELEMENTWISE: dict[str, Any] = {
    "mse": nn.MSELoss(reduction="none"),
    "l1": functools.partial(functional.l1_loss, reduction="none"),
    "huber": functools.partial(functional.huber_loss, reduction="none", delta=0.5),
    "bce with logits": nn.BCEWithLogitsLoss(reduction="none"),
    "poisson": nn.PoissonNLLLoss(reduction="none"),
    # Its derivative at 0 is infinite.
    "root": lambda outputs, labels: (outputs - labels).abs().sqrt(),
}
CROSS_ENTROPY = nn.CrossEntropyLoss(reduction="none")


def reference(
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    outputs: Tensor,
    labels: Tensor,
    mask: Tensor,
    count: float | None,
    is_missing: Callable[[float], bool],
) -> Tensor:
    """The mean over the labels that are there, one by one."""
    has_classes = outputs.shape != labels.shape
    total, number = outputs.new_zeros(()), 0
    for index in torch.cartesian_prod(*(torch.arange(n) for n in labels.shape)).reshape(-1, labels.ndim).tolist():
        label = labels[tuple(index)]
        if not mask[tuple(index[: mask.ndim])] or is_missing(label.item()):
            continue
        output = outputs[(index[0], slice(None), *index[1:])] if has_classes else outputs[tuple(index)]
        total, number = total + loss_fn(output[None], label[None]).sum(), number + 1
    return total / (max(number, 1) if count is None else count)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Tensor, Tensor, Tensor, float | None]:
    """A loss, outputs, labels, a mask and a count; some labels are missing, and padding holds anything."""
    gen = generator(draw(st.integers(0, 2**31)))
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    graphs = draw(st.integers(0, 5))
    rows = (graphs, *shape)
    mask = torch.rand(rows[: draw(st.integers(1, len(rows)))], generator=gen) < 0.7
    name = draw(st.sampled_from([*ELEMENTWISE, "cross entropy"]))
    if name == "cross entropy":
        outputs = torch.randn(graphs, 4, *shape, generator=gen, dtype=torch.float64)
        labels = torch.randint(0, 4, rows, generator=gen)
        # Torch refuses or crashes on classes that are not there.
        labels[torch.rand(rows, generator=gen) < 0.3] = -1
        padding = ~mask.reshape(mask.shape + (1,) * (len(rows) - mask.ndim)).expand(rows)
        labels, padding = labels.masked_fill(padding, 99), padding.unsqueeze(1)
    else:
        outputs = torch.randn(rows, generator=gen, dtype=torch.float64)
        labels = torch.rand(rows, generator=gen, dtype=torch.float64)
        labels[torch.rand(rows, generator=gen) < 0.3] = NAN
        padding = ~mask.reshape(mask.shape + (1,) * (len(rows) - mask.ndim)).expand(rows)
        labels = torch.where(padding, draw(st.sampled_from([NAN, math.inf, 7.0])), labels)
    outputs = torch.where(padding, draw(st.sampled_from([0.0, NAN, math.inf, -math.inf])), outputs)
    loss_fn = CROSS_ENTROPY if name == "cross entropy" else ELEMENTWISE[name]
    return loss_fn, outputs, labels, mask, draw(st.none() | st.floats(0.5, 20))


@given(cases())
def test_the_loss_and_its_gradients_are_those_of_the_labels_that_are_there(case: Any) -> None:
    loss_fn, outputs, labels, mask, count = case
    missing = NAN if labels.is_floating_point() else -1
    is_missing = math.isnan if labels.is_floating_point() else lambda value: value == -1
    one, other = (outputs.clone().requires_grad_() for _ in range(2))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = masked_loss(loss_fn, one, labels, mask, count=count, missing=missing)
    assert len(seen) == (not outputs.isfinite().all()), "only outputs of padding are not finite here"
    expected = reference(loss_fn, other, labels, mask, count, is_missing)
    torch.testing.assert_close(found, expected)
    found.backward()
    assert one.grad is not None
    if expected.requires_grad:
        expected.backward()
    gradient = torch.zeros_like(one) if other.grad is None else other.grad
    torch.testing.assert_close(one.grad, gradient)


def gaussian(outputs: Tensor, labels: Tensor) -> Tensor:
    """A mean and a logarithm of the variance for each label, on the last axis, or in halves of it."""
    mean, log_variance = outputs.unbind(-1) if outputs.ndim > labels.ndim else outputs.chunk(2, dim=-1)
    return functional.gaussian_nll_loss(mean, labels, log_variance.exp(), reduction="none")


def on_axis_1(outputs: Tensor, labels: Tensor) -> Tensor:
    return gaussian(outputs.movedim(1, -1), labels)


def quantiles(outputs: Tensor, labels: Tensor) -> Tensor:
    """One loss for each row, of outputs that are quantiles of its only label."""
    below = labels.reshape(-1, 1) - outputs
    return torch.maximum(0.1 * below, -0.9 * below).mean(dim=1)


# Loss, shape of a row of the labels, and of the outputs.
SEVERAL: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "a label": (gaussian, (), (2,)),
    "labels, axis after them": (gaussian, (3,), (3, 2)),
    "labels, axis before them": (on_axis_1, (3,), (2, 3)),
    "labels, in halves": (gaussian, (3,), (6,)),
    "quantiles": (quantiles, (), (5,)),
    "as many quantiles as rows": (quantiles, (1,), (6,)),
}


@pytest.mark.filterwarnings("ignore:outputs that the loss leaves out")
@pytest.mark.parametrize("name", SEVERAL)
def test_several_outputs_for_a_label(name: str) -> None:
    loss_fn, of_labels, of_outputs = SEVERAL[name]
    gen, mask = generator(0), torch.arange(6) < 4
    labels, outputs = (torch.randn(6, *shape, generator=gen).double() for shape in (of_labels, of_outputs))
    labels[1] = NAN
    if labels.ndim > 1:
        labels[2, -1] = NAN
    outputs[~mask] = NAN
    one, other = (outputs.clone().requires_grad_() for _ in range(2))
    found = masked_loss(loss_fn, one, labels, mask, count=5.0)
    expected = torch.zeros((), dtype=torch.float64)
    for row in range(4):
        # The label 0 in the place of a missing label, whose loss is dropped.
        losses = loss_fn(other[row : row + 1], labels[row : row + 1].nan_to_num())
        there = ~labels[row : row + 1].isnan()
        expected = expected + losses[there if losses.ndim > 1 else there.reshape(1, -1).all(1)].sum()
    torch.testing.assert_close(found, expected / 5)
    found.backward()
    (expected / 5).backward()
    assert one.grad is not None
    torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")
def test_outputs_in_a_shape_that_torch_would_broadcast_are_refused() -> None:
    for outputs, labels in (((5, 1), (5,)), ((5,), (5, 1)), ((5, 3, 1), (5, 3)), ((5, 6), (5, 2, 3))):
        for loss_fn in (ELEMENTWISE["mse"], quantiles):
            with refused(SchemaError, f"outputs of shape {outputs} do not fit labels of shape {labels}"):
                masked_loss(loss_fn, torch.zeros(outputs), torch.zeros(labels), torch.ones(5, dtype=torch.bool))
    # More outputs than labels fit some losses.
    for outputs, labels in (((5, 2), (5, 1)), ((5, 5), (5,)), ((1, 2), (1,))):
        with refused(SchemaError, "the loss function returns shape", f"outputs of shape {outputs}", str(labels)):
            masked_loss(ELEMENTWISE["mse"], torch.zeros(outputs), torch.zeros(labels), torch.ones(labels[0]).bool())


def test_a_loss_that_may_mix_rows_unnoticed_is_told() -> None:
    """Without ``unsqueeze``, torch compares the label of row i with output i of every row, if there are as many."""
    labels, outputs, mask = torch.arange(5.0), torch.rand(5, 5), torch.ones(5, dtype=torch.bool)
    for loss_fn in (lambda out, y: (out - y).abs().mean(1), lambda out, y: (out - y.unsqueeze(-1)).abs().mean(1)):
        with pytest.warns(UserWarning, match=r"may mix rows without an error; in the loss, use labels.unsqueeze\(-1\)"):
            masked_loss(loss_fn, outputs, labels, mask)
    # These cannot be mixed; the tests take warnings for errors.
    masked_loss(quantiles, outputs[:, :4], labels, mask)


def test_outputs_of_padding_that_are_not_finite_are_said_once() -> None:
    """Only where gradients can become NaN, and where the values can be read at once."""
    labels, mask, loss_fn = torch.zeros(5, 1), torch.arange(5) < 3, ELEMENTWISE["mse"]
    weight = torch.ones((), requires_grad=True)
    values = torch.tensor([[1.0], [2.0], [3.0], [NAN], [1.0]])

    def loss_of(weight: Tensor, values: Tensor = values) -> Tensor:
        return masked_loss(loss_fn, weight * values, labels, mask)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            (gradient,) = torch.autograd.grad(loss_of(weight), weight)
            assert gradient.isnan()
    (warning,) = seen
    assert warning.filename == __file__
    for part in ("padding", "Empty graph slots", "clamp(min=1)", "label_fill=", "coordinates="):
        assert part in str(warning.message)
    # Errors of the suite, from here on: no gradients, and finite padding.
    loss_of(weight.detach())
    loss_of(weight, torch.tensor([[1.0], [NAN], [3.0], [0.0], [1.0]]))
    loss_of(weight, torch.full((5, 1), 3e38))
    assert torch.func.vmap(loss_of)(torch.ones(4, requires_grad=True)).shape == (4,)


def test_probabilities_of_classes_are_one_label() -> None:
    outputs, labels = torch.randn(2, 3, 4, generator=generator(0)).unbind()
    labels = labels.softmax(1)
    labels[1, 2] = NAN
    found = masked_loss(CROSS_ENTROPY, outputs, labels, torch.tensor([True, True, False]))
    assert found == CROSS_ENTROPY(outputs, labels)[0]


def test_any_form_of_the_batch() -> None:
    graphs = [Data(x=torch.ones(n, 1), edge_index=torch.zeros(2, n).long(), y=torch.tensor([[n, NAN]])) for n in (2, 3)]
    batch = stored(graphs).padded(tp.Limits(nodes=9, edges=9, graphs=4))[[0, 1]]
    labels = batch.pyg.y
    assert labels.shape == (5, 2)
    outputs = torch.ones(labels.shape)
    for each in (batch, batch.tensors, batch.pyg, batch.graph_mask):
        assert masked_loss(ELEMENTWISE["mse"], outputs, labels, each) == (1 + 4) / 2
        # The count is one of labels.
        assert masked_loss(ELEMENTWISE["mse"], outputs, labels, each, count=torch.tensor(4.0)) == (1 + 4) / 4


@pytest.mark.usefixtures("forget")
def test_compiled_code_is_one_graph_for_all_labels() -> None:
    loss_fn, counted = ELEMENTWISE["bce with logits"], CompileCounter()

    def loss_of(outputs: Tensor, labels: Tensor, mask: Tensor, count: Tensor) -> Tensor:
        return masked_loss(loss_fn, outputs, labels, mask, count=count)

    compiled = torch.compile(loss_of, backend=counted, fullgraph=True, dynamic=False)
    for seed in range(4):
        gen = generator(seed)
        labels = torch.rand(5, 2, generator=gen)
        labels[torch.rand(5, 2, generator=gen) < 0.2 * seed] = NAN
        mask, count = torch.arange(5) < seed, torch.tensor(1.0 + seed)
        one, other = (torch.randn(5, 2, generator=generator(seed)).requires_grad_() for _ in range(2))
        found, expected = compiled(one, labels, mask, count), loss_of(other, labels, mask, count)
        torch.testing.assert_close(found, expected)
        for loss in (found, expected):
            loss.backward()
        torch.testing.assert_close(one.grad, other.grad)
    assert counted.frame_count == 1


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"outputs": [1.0]}, ("the outputs must be a tensor", "list")),
        ({"batch_or_mask": "x"}, ("masked_loss() needs", "str")),
        ({"batch_or_mask": torch.ones(3)}, ("the mask must be bool", "float32")),
        ({"missing": "none"}, ("missing must be", "'none'")),
        ({"loss_fn": lambda out, labels: None}, ('reduction="none"',)),
        ({"loss_fn": nn.MSELoss()}, ('reduction="none"',)),
    ],
)
def test_other_arguments_are_refused(changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    arguments: dict[str, Any] = {
        "loss_fn": ELEMENTWISE["mse"], "outputs": torch.zeros(3), "labels": torch.zeros(3),
        "batch_or_mask": torch.ones(3, dtype=torch.bool),
    }  # fmt: skip
    with refused(SchemaError, *parts):
        masked_loss(**(arguments | changes))


@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")
def test_errors_of_the_loss_get_a_hint() -> None:
    outputs, labels, mask = torch.zeros(3), torch.ones(3, dtype=torch.int64), torch.tensor([True, True, False])
    floats, bce = labels.float(), ELEMENTWISE["bce with logits"]
    assert masked_loss(bce, outputs, floats, mask) > 0
    for arguments, notes in (
        ((bce, outputs, labels), ["The labels are torch.int64. If the loss needs floats, pass labels.float()."]),
        ((ELEMENTWISE["mse"], torch.zeros(3, 2), floats), ["The outputs have shape (3, 2), the labels (3,)."]),
        ((lambda a, b: torch.zeros(2) + torch.zeros(3), outputs, floats), []),
    ):
        with pytest.raises(RuntimeError) as found:
            masked_loss(*arguments, mask)
        assert getattr(found.value, "__notes__", []) == notes
