"""Three ways to a masked norm (kernels, torch's norm of the front, masked sums) agree, under transforms too."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

import dgl_tuplepack as tp
import dgl_tuplepack.nn.norm as layers
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn import MaskedBatchNorm1d
from dgl_tuplepack.nn.masks import RowMask
from tests.messages import refused
from tests.tensors import generator

TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-9}


class Rows:
    """A batch of one component."""

    def __init__(self, mask: Tensor, num_real: int | None) -> None:
        self.mask = RowMask(mask, num_real)

    def row_masks(self) -> dict[str, RowMask]:
        return {"nodes": self.mask}


@contextmanager
def without_kernel() -> Iterator[None]:
    """Take the other ways, as on a device or with many threads."""
    has_kernel = layers.has_kernel
    layers.has_kernel = lambda input, mask, parameters: False
    try:
        yield
    finally:
        layers.has_kernel = has_kernel


def results(layer: nn.Module, x: Tensor, gradient: Tensor, call: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """What a layer gives: its result, its gradients, its state."""
    x = x.clone().requires_grad_()
    out = call(x)
    out.backward(gradient)
    assert x.grad is not None
    gradients = {name: each.grad for name, each in layer.named_parameters() if each.grad is not None}
    return {"out": out.detach(), "input": x.grad, **gradients, **{k: v.clone() for k, v in layer.state_dict().items()}}


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Rows, channels, mask, settings."""
    rows = draw(st.integers(2, 40))
    front = draw(st.booleans())
    real = draw(st.integers(2, rows))
    mask = torch.arange(rows) < real
    if not front:
        mask = mask[torch.tensor(draw(st.permutations(range(rows))))]
    return {
        "mask": mask, "front": front, "channels": draw(st.integers(1, 19)), "seed": draw(st.integers(0, 99)),
        "dtype": draw(st.sampled_from([torch.float32, torch.float64])), "training": draw(st.booleans()),
        "settings": {
            "affine": draw(st.booleans()), "track_running_stats": draw(st.booleans()),
            "momentum": draw(st.sampled_from([None, 0.1, 0.6])), "bias": draw(st.booleans()),
        },
    }  # fmt: skip


@given(cases())
def test_all_ways_give_what_torch_gives_on_the_real_rows(case: dict[str, Any]) -> None:
    mask, channels, dtype = case["mask"], case["channels"], case["dtype"]
    random = generator(case["seed"])
    x = torch.randn(len(mask), channels, generator=random, dtype=dtype) * 2 + 3
    x[~mask] = float("nan")
    gradient = torch.randn(len(mask), channels, generator=random, dtype=dtype)
    masked = MaskedBatchNorm1d(channels, dtype=dtype, **case["settings"]).train(case["training"])
    for each in (*masked.parameters(), masked.running_mean, masked.running_var):
        if each is not None:
            each.data.uniform_(0.5, 2.0, generator=random)
    plain = nn.BatchNorm1d(channels, dtype=dtype, **case["settings"]).train(case["training"])
    plain.load_state_dict(masked.state_dict())
    expected = results(plain, x[mask], gradient[mask], plain)
    batch = Rows(mask, int(mask.sum()) if case["front"] else None)
    for way in ("kernel", "other"):
        layer = copy.deepcopy(masked)
        with tp.nn.masked(batch):
            if way == "kernel":
                found = results(layer, x, gradient, layer)
            else:
                with without_kernel():
                    found = results(layer, x, gradient, layer)
        assert found.keys() == expected.keys()
        for name in ("out", "input"):
            assert not found[name][~mask].any()
            found[name] = found[name][mask]
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], msg=name)


@given(st.integers(2, 500), st.sampled_from([1e3, 1e6, -1e8]), st.booleans())
@example(500, 1e8, True)
def test_an_outlier_in_the_first_row_costs_no_digits(rows: int, outlier: float, alternating: bool) -> None:
    """Variances are taken of differences to the first row."""
    x = torch.full((rows, 1), 0.1, dtype=torch.float32)
    x[1::2] = 0.1 if not alternating else 0.3
    x[0] = outlier
    norm = MaskedBatchNorm1d(1, momentum=1.0)
    norm(x, torch.ones(rows, dtype=torch.bool))
    assert norm.running_var is not None
    assert norm.running_mean is not None
    exact = x.double()
    torch.testing.assert_close(norm.running_var.double(), exact.var(0), rtol=1e-6, atol=0)
    torch.testing.assert_close(norm.running_mean.double(), exact.mean(0), rtol=1e-6, atol=0)


@pytest.fixture
def example_rows() -> tuple[MaskedBatchNorm1d, Tensor, Tensor, Tensor]:
    norm = MaskedBatchNorm1d(3, dtype=torch.float64)
    x = torch.randn(7, 3, generator=generator(0), dtype=torch.float64)
    mask = torch.tensor([True, True, False, True, True, False, True])
    with without_kernel():
        expected = copy.deepcopy(norm)(x, mask)
    return norm, x, mask, expected.detach()


def test_transforms_of_functions_see_the_norm(example_rows: Any) -> None:
    norm, x, mask, _ = example_rows
    norm.eval()
    weights = torch.randn(7, 3, generator=generator(1), dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        return (norm(x, mask).square() * weights).sum()

    leaf = x.clone().requires_grad_()
    loss(leaf).backward()
    assert leaf.grad is not None
    torch.testing.assert_close(torch.func.grad(loss)(x), leaf.grad)
    torch.testing.assert_close(torch.func.jacfwd(loss)(x), leaf.grad)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(torch.stack([x, x]))[1], leaf.grad)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, weights)
        tangent = torch.autograd.forward_ad.unpack_dual(loss(dual)).tangent
    torch.testing.assert_close(tangent, (leaf.grad * weights).sum())


def test_a_trace_holds_the_norm(example_rows: Any) -> None:
    norm, x, mask, expected = example_rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(norm, (x, mask), check_trace=False)
    found = traced(x + 1, mask)
    torch.testing.assert_close(found, expected)
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: norm(x, mask))(x)
    torch.testing.assert_close(graph(x + 1), expected)


def test_fake_tensors_have_no_memory(example_rows: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    norm, x, mask, expected = example_rows
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert norm(mode.from_tensor(x), mode.from_tensor(mask)).shape == expected.shape


def test_inference_mode(example_rows: Any) -> None:
    norm, x, mask, expected = example_rows
    with torch.inference_mode():
        torch.testing.assert_close(norm(x, mask), expected)
        MaskedBatchNorm1d(3, dtype=torch.float64)(x, mask)


def test_torch_knows_that_running_statistics_were_moved(example_rows: Any) -> None:
    norm, x, mask, _ = example_rows
    loss = (norm.running_mean * norm.weight).sum()
    norm(x, mask)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_parameters_that_do_not_fit_are_not_read(example_rows: Any) -> None:
    """A kernel would read beyond them."""
    norm, x, mask, _ = example_rows
    norm.running_mean = torch.zeros(2, dtype=torch.float64)
    with pytest.raises(RuntimeError):
        norm(x, mask)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_any_number_of_threads(example_rows: Any, threads: int) -> None:
    norm, x, mask, expected = example_rows
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.testing.assert_close(norm(x, mask), expected)
    finally:
        torch.set_num_threads(before)


# What an attack found -------------------------------------------------------------------------------------------------


def test_a_norm_used_twice_under_create_graph(example_rows: Any) -> None:
    norm, x, mask, _ = example_rows
    x.requires_grad_()
    weights = torch.randn(7, 3, generator=generator(2), dtype=torch.float64)
    out = torch.tanh(norm(torch.tanh(norm(x, mask)), mask))
    wanted = (x, norm.weight, norm.bias)
    once = torch.autograd.grad(out, wanted, weights, retain_graph=True)
    again = torch.autograd.grad(out, wanted, weights, create_graph=True)
    for first, second in zip(once, again, strict=True):
        torch.testing.assert_close(second.detach(), first)


@pytest.mark.filterwarnings("ignore:Using backward")
def test_hooks_run_once_under_create_graph(example_rows: Any) -> None:
    norm, x, mask, _ = example_rows
    x.requires_grad_()
    calls = []
    y = x * 2
    weights = torch.randn(7, 3, generator=generator(2), dtype=torch.float64)
    (expected,) = torch.autograd.grad(norm(y, mask), y, weights, create_graph=True)
    y.register_hook(lambda gradient: calls.append(1))
    y.retain_grad()
    norm(y, mask).backward(weights, create_graph=True)
    assert len(calls) == 1
    torch.testing.assert_close(y.grad, expected)


def test_many_gradients_at_once(example_rows: Any) -> None:
    norm, x, mask, _ = example_rows
    jacobian = torch.autograd.functional.jacobian
    loop, vectorised = (jacobian(lambda x: norm(x, mask), x, vectorize=vectorize) for vectorize in (False, True))
    torch.testing.assert_close(vectorised, loop)


def test_a_mask_on_another_device_is_refused(example_rows: Any) -> None:
    norm, x, mask, _ = example_rows
    with refused(SchemaError, "meta", "cpu"):
        norm(x, mask.to("meta"))
    with refused(SchemaError, "meta", "cpu"):
        tp.nn.masked_mean(x, mask.to("meta"))


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.float64])
def test_a_number_of_batches_of_another_dtype(example_rows: Any, dtype: torch.dtype) -> None:
    _, x, mask, _ = example_rows
    norm = MaskedBatchNorm1d(3, momentum=None, dtype=torch.float64)
    norm.num_batches_tracked = torch.tensor(4, dtype=dtype)
    norm(x, mask)
    assert norm.num_batches_tracked == 5
    torch.testing.assert_close(norm.running_mean, x[mask].mean(0) / 5)


@pytest.mark.parametrize("settings", [{"momentum": 1}, {"momentum": 0}, {"eps": 1}], ids=str)
def test_whole_numbers_as_settings(example_rows: Any, settings: dict[str, Any]) -> None:
    _, x, mask, _ = example_rows
    masked, plain = (kind(3, dtype=torch.float64, **settings) for kind in (MaskedBatchNorm1d, nn.BatchNorm1d))
    torch.testing.assert_close(masked(x, mask)[mask], plain(x[mask]))
    torch.testing.assert_close(masked.running_var, plain.running_var)


def test_a_negative_view_as_weight(example_rows: Any) -> None:
    norm, x, mask, expected = example_rows
    negative = copy.deepcopy(norm)
    negative.weight = nn.Parameter(torch._neg_view(-norm.weight.detach()))
    torch.testing.assert_close(negative(x, mask), expected)


def test_a_bias_may_change_before_the_backward_pass(example_rows: Any) -> None:
    norm, x, mask, _ = example_rows
    out = norm(x, mask)
    with torch.no_grad():
        norm.bias.add_(1)
    out.sum().backward()
    torch.testing.assert_close(norm.bias.grad, torch.full((3,), 5.0, dtype=torch.float64))


@pytest.mark.parametrize("attribute", ["num_batches_tracked", "track_running_stats"])
@pytest.mark.parametrize("momentum", [0.3, None])
@pytest.mark.parametrize("kernel", [True, False])
def test_statistics_are_noted_as_by_torch(
    example_rows: Any, attribute: str, momentum: float | None, kernel: bool
) -> None:
    _, x, mask, _ = example_rows
    masked, plain = (kind(3, momentum=momentum, dtype=torch.float64) for kind in (MaskedBatchNorm1d, nn.BatchNorm1d))
    for norm in (masked, plain):
        setattr(norm, attribute, None if attribute == "num_batches_tracked" else False)
    plain(x[mask])
    if kernel:
        masked(x, mask)
    else:
        with without_kernel():
            masked(x, mask)
    torch.testing.assert_close(masked.running_mean, plain.running_mean)
    torch.testing.assert_close(masked.running_var, plain.running_var)
    assert masked.num_batches_tracked == plain.num_batches_tracked


@pytest.mark.parametrize("missing", ["running_mean", "running_var"])
@pytest.mark.parametrize("training", [True, False])
def test_half_of_the_running_statistics_is_none(example_rows: Any, missing: str, training: bool) -> None:
    norm, x, mask, expected = example_rows
    setattr(norm, missing, None)
    torch.testing.assert_close(norm.train(training)(x, mask), expected)
