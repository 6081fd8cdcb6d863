"""Masked norms and means: exactly what torch gives on the real part alone, whatever the padding holds."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import dgl_tuplepack as tp
import dgl_tuplepack.nn.norm as nn_of_ranks
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn import MaskedBatchNorm1d, distributed_masked_mean, masked_mean
from dgl_tuplepack.nn.masks import RowMask
from tests.support.messages import refused
from tests.support.tensors import assert_close, generator, padded

C = 3


class Rows:
    """A batch of one component, whose real rows come first."""

    def __init__(self, mask: Tensor) -> None:
        self.mask = RowMask(mask, int(mask.sum()))

    def row_masks(self) -> dict[str, RowMask]:
        return {"nodes": self.mask}


class Counted(MaskedBatchNorm1d):
    """A norm that reads its mask from a batch, as in a model."""

    def forward(self, input: Tensor, mask: Tensor | None = None) -> Tensor:
        assert mask is not None
        with tp.nn.masked(Rows(mask)):
            return super().forward(input)


# By the number of real rows, which torch's norm takes, and by a mask given by hand.
WAYS = (Counted, MaskedBatchNorm1d)


def rows(seed: int, number: int, length: int | None = None) -> Tensor:
    """Random rows ``[N, C]`` or ``[N, C, L]``, with a mean and scale of their own."""
    shape = (number, C) if length is None else (number, C, length)
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64) * 3 + 5


def both(way: type[MaskedBatchNorm1d] = MaskedBatchNorm1d, **settings: Any) -> tuple[Any, MaskedBatchNorm1d]:
    """Torch's layer and ours with equal parameters, none of them at its initial value."""
    masked = way(C, dtype=torch.float64, **settings)
    bias = settings.pop("bias", True)
    plain = nn.BatchNorm1d(C, dtype=torch.float64, **settings)
    if not bias:
        # Older releases of torch have no argument `bias`.
        plain.register_parameter("bias", None)
    for number, parameter in enumerate(plain.parameters()):
        parameter.data.copy_(torch.tensor([0.5, -2.0, 3.0]) + number)
    masked.load_state_dict(plain.state_dict())
    return plain, masked


def assert_same_state(masked: nn.Module, plain: nn.Module) -> None:
    assert masked.state_dict().keys() == plain.state_dict().keys()
    for name, value in plain.state_dict().items():
        assert_close(masked.state_dict()[name], value)


SETTINGS = st.fixed_dictionaries(
    {
        "affine": st.booleans(), "track_running_stats": st.booleans(), "bias": st.booleans(),
        "momentum": st.sampled_from([None, 0.1, 0.7]), "eps": st.sampled_from([1e-5, 0.1]),
    }
)  # fmt: skip
FILLS = st.sampled_from([0.0, 1e3, float("inf"), float("nan")])


@pytest.mark.parametrize("way", WAYS)
@given(SETTINGS, st.sampled_from([None, 1, 4]), FILLS, st.lists(st.integers(2, 11), min_size=1, max_size=4))
def test_real_rows_come_out_as_from_torch(
    way: type[MaskedBatchNorm1d], settings: dict[str, Any], length: int | None, fill: float, numbers: list[int]
) -> None:
    """Several batches in training, then one in evaluation: outputs, statistics and gradients."""
    plain, masked = both(way, **settings)
    for seed, number in enumerate(numbers):
        if seed == len(numbers) - 1:
            plain.eval(), masked.eval()
        real = rows(seed, number, length).requires_grad_()
        full, mask = padded(real.detach(), 11, fill)
        if way is MaskedBatchNorm1d:
            order = torch.randperm(11, generator=generator(seed))
            full, mask = full[order], mask[order]
            real = full[mask].requires_grad_()
        full.requires_grad_()
        found, expected = masked(full, mask), plain(real)
        # Weights that differ, since the gradient of a plain sum through a normalisation is 0.
        weights = rows(seed + 10, number, length)
        for model, out in ((plain, expected), (masked, found[mask])):
            model.zero_grad()
            (out * weights).sum().backward()
        assert full.grad is not None
        for ours, theirs in ((found[mask], expected), (full.grad[mask], real.grad)):
            tolerance = 0 if way is Counted else 1e-10
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
        assert not found[~mask].any()
        assert not full.grad[~mask].any()
        for ours, theirs in zip(masked.parameters(), plain.parameters(), strict=True):
            assert_close(ours.grad, theirs.grad)
        assert_same_state(masked, plain)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("training", [True, False])
@given(settings=SETTINGS, number=st.integers(0, 1))
def test_no_real_row_and_a_single_one(
    way: type[MaskedBatchNorm1d], training: bool, settings: dict[str, Any], number: int
) -> None:
    """Torch refuses a single row in training; documented here as variance 0."""
    _, masked = both(way, **settings)
    masked(*padded(rows(0, 5), 6))
    masked.train(training)
    before = copy.deepcopy(masked.state_dict())
    full, mask = padded(rows(0, number), 4, float("nan"))
    full.requires_grad_()
    out = masked(full, mask)
    out.sum().backward()
    assert full.grad is not None
    assert not out[number:].any()
    assert not full.grad[number:].any()
    for each in (out, full.grad, *(parameter.grad for parameter in masked.parameters()), *masked.state_dict().values()):
        assert each.isfinite().all()
    if number and training:
        assert_close(out[0], torch.zeros(C, dtype=torch.float64) if masked.bias is None else masked.bias.detach())
    if not number:
        assert not full.grad.any()
        assert not any(parameter.grad.any() for parameter in masked.parameters())
        for name, value in masked.state_dict().items():
            assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("way", WAYS)
def test_empty_first_batch_with_cumulative_average(way: type[MaskedBatchNorm1d]) -> None:
    """Momentum None divides by the number of batches, which an empty first batch leaves at 0."""
    plain, masked = both(way, momentum=None)
    masked(*padded(rows(0, 0), 4))
    real = rows(1, 5)
    masked(*padded(real, 8))
    plain(real)
    assert_same_state(masked, plain)


@pytest.mark.parametrize("way", WAYS)
def test_one_backward_over_batches_of_many_rows_and_of_few(way: type[MaskedBatchNorm1d]) -> None:
    """Torch's norm keeps the running statistics for its backward pass; masked sums then move them in place."""
    norm = way(C, dtype=torch.float64)
    x = rows(0, 5).requires_grad_()
    for few in (0, 1):
        loss = sum(norm(x, torch.arange(5) < number).square().sum() for number in (4, few))
        loss.backward()  # type: ignore[union-attr]
        assert x.grad is not None
        assert x.grad.isfinite().all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("training", [True, False])
def test_first_and_second_derivatives(way: type[MaskedBatchNorm1d], training: bool) -> None:
    """Forces are gradients, and their losses differentiate them again."""
    masked = both(way)[1].train(training)
    full, mask = padded(rows(0, 4), 6, 2.0)
    weights = rows(1, 6)

    def loss(x: Tensor) -> Tensor:
        return masked(x, mask).square() * weights

    assert torch.autograd.gradcheck(loss, (full.requires_grad_(),))
    assert torch.autograd.gradgradcheck(loss, (full,))


@pytest.mark.parametrize("momentum", [0.3, None])
@pytest.mark.parametrize("way", WAYS)
def test_statistics_that_are_switched_off_stay(way: type[MaskedBatchNorm1d], momentum: float | None) -> None:
    plain, masked = both(way, momentum=momentum)
    plain.track_running_stats = masked.track_running_stats = False
    real = rows(0, 5)
    masked(*padded(real, 7))
    plain(real)
    assert_same_state(masked, plain)


def test_an_outlier_in_the_first_row_costs_no_digits() -> None:
    """Masked sums are of differences to the mean."""
    x = torch.full((500, 1), 0.1)
    x[1::2], x[0] = 0.3, 1e6
    norm = MaskedBatchNorm1d(1, momentum=1.0)
    norm(x, torch.ones(500, dtype=torch.bool))
    assert norm.running_var is not None
    torch.testing.assert_close(norm.running_var.double(), x.double().var(0), rtol=1e-5, atol=0)


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A process group in which a second rank holds the same as this one; the groups that sums were taken over."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    groups: list[Any] = []

    def all_reduce(values: Tensor, group: Any = None) -> None:
        groups.append(group)
        values.mul_(2)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    yield groups
    dist.destroy_process_group()


def test_sums_are_taken_over_the_group_alone(doubled: list[Any]) -> None:
    group = dist.new_group([0])
    norm = MaskedBatchNorm1d(C, dtype=torch.float64, across_ranks=True, group=group)
    x = rows(0, 4).requires_grad_()
    norm(x, torch.ones(4, dtype=torch.bool)).square().sum().backward()
    # Two sums forwards, and two backwards.
    assert doubled == [group] * 4
    doubled.clear()
    distributed_masked_mean(x, torch.ones(4, dtype=torch.bool), group=group)
    assert doubled == [group]


@pytest.mark.parametrize("tracked", [True, False])
def test_ranks_meet_in_training_alone(doubled: list[Any], tracked: bool) -> None:
    """In evaluation one rank may be alone, and would wait for the others for ever."""
    norm = MaskedBatchNorm1d(C, dtype=torch.float64, across_ranks=True, track_running_stats=tracked)
    norm.eval()(rows(0, 4), torch.ones(4, dtype=torch.bool))
    assert doubled == []


def test_values_and_gradients_that_others_use_are_not_summed_over_ranks(doubled: list[Any]) -> None:
    """Autograd hands one tensor to all who have a part in a sum."""
    x, y = (torch.ones(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    total = nn_of_ranks._SumOverRanks.apply(x, None)  # type: ignore[no-untyped-call]
    gradient = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    (total + y).backward(gradient)
    assert total.tolist() == [2, 2, 2]
    assert x.tolist() == [1, 1, 1]
    assert gradient.tolist() == [1, 2, 3]
    assert y.grad is not None
    assert x.grad is not None
    assert y.grad.tolist() == [1, 2, 3]
    assert x.grad.tolist() == [2, 4, 6]


def test_it_is_torchs_layer_for_others() -> None:
    """What looks for BatchNorm layers (freezing, weight decay groups) finds it."""
    settings = (C, 0.1, None, False, False)
    masked, plain = MaskedBatchNorm1d(*settings), nn.BatchNorm1d(*settings)
    assert isinstance(masked, nn.BatchNorm1d)
    for name in ("num_features", "eps", "momentum", "affine", "track_running_stats"):
        assert getattr(masked, name) == getattr(plain, name)
    with refused(SchemaError, "across_ranks must be True or False", "'yes'"):
        MaskedBatchNorm1d(C, across_ranks="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mask", "parts"),
    [
        (torch.ones(4), ["must be bool", "torch.float32"]),
        (torch.ones(5, dtype=torch.bool), ["leading part of the shape (4, 3)", "(5,)"]),
        ([True], ["must be a bool tensor", "list", "batch.graph_mask"]),
    ],
)
def test_wrong_masks(mask: Any, parts: list[str]) -> None:
    for call in (masked_mean, MaskedBatchNorm1d(3), distributed_masked_mean):
        with refused(SchemaError, "the mask", *parts):
            call(torch.ones(4, 3), mask)
    # A mask of the whole input's shape suits masked_mean, but says nothing about rows.
    with refused(SchemaError, "the mask", "(4, 3)"):
        MaskedBatchNorm1d(3)(torch.ones(4, 3), torch.ones(4, 3, dtype=torch.bool))


@pytest.mark.parametrize("training", [True, False])
def test_other_inputs_are_refused_and_change_nothing(training: bool) -> None:
    """Other numbers of channels would be broadcast, and so would the statistics that are kept."""
    norm = MaskedBatchNorm1d(4).train(training)
    kept = {name: value.clone() for name, value in norm.state_dict().items()}
    for shape in ((6, 1), (6, 5), (6, 1, 2), (4,), (6, 4, 2, 2)):
        with refused(SchemaError, "4 channels", str(shape), "[N, C] or [N, C, L]"):
            norm(torch.ones(shape), torch.ones(shape[0], dtype=torch.bool))
    for dtype in (torch.int64, torch.complex64):
        with refused(SchemaError, "the input must be real floats", str(dtype), "input.float()"):
            norm(torch.ones(6, 4, dtype=dtype), torch.ones(6, dtype=torch.bool))
    assert all(kept[name].equal(value) for name, value in norm.state_dict().items())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_normalised_as_by_torch(dtype: torch.dtype, way: type[MaskedBatchNorm1d]) -> None:
    # Sums over 5,000 rows of about 200 overflow float16, and a mean of them has no digits left in bfloat16.
    x = (200 + torch.randn(5000, 3, generator=torch.Generator().manual_seed(0))).to(dtype)
    ours, theirs = way(3), torch.nn.BatchNorm1d(3)
    # Also under autocast, a norm keeps the dtype of its input.
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
        result, expected = ours(torch.cat([x, x[:3]]), torch.arange(5003) < 5000), theirs(x)
    assert result.dtype == expected.dtype == dtype
    assert ours.running_mean.dtype == torch.float32
    torch.testing.assert_close(result[:5000].float(), expected.float(), rtol=0, atol=0.05)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean, rtol=1e-4, atol=0)
    torch.testing.assert_close(ours.running_var, theirs.running_var, rtol=1e-2, atol=0)


# --- means


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3)])
@pytest.mark.parametrize("fill", [0.0, -7.0, float("inf"), float("nan")])
@pytest.mark.parametrize("number", [1, 5])
def test_mean_of_the_real_part(shape: tuple[int, ...], fill: float, number: int) -> None:
    """Divided by what is real: jraph's example divides by all slots."""
    real = torch.randn((number, *shape), generator=generator(1), dtype=torch.float64).requires_grad_()
    full, mask = padded(real.detach(), 9, fill)
    full.requires_grad_()
    found, expected = masked_mean(full, mask), real.mean()
    assert_close(found, expected)
    assert found.shape == ()
    found.backward()
    expected.backward()
    assert full.grad is not None
    assert_close(full.grad[:number], real.grad)
    assert not full.grad[number:].any()
    for count in (number, float(number), torch.tensor(number), torch.tensor(number, dtype=torch.float64)):
        assert_close(masked_mean(full, mask, count=count), expected)
    assert_close(masked_mean(full, mask, count=number / 2), 2 * expected)
    # Without a process group; with one, see tests/programs/ranks.py.
    assert torch.equal(distributed_masked_mean(full, mask), found)


@pytest.mark.parametrize("shape", [(3,), (3, 2), (0,)])
def test_mean_of_nothing(shape: tuple[int, ...]) -> None:
    mask = torch.zeros(shape[0], dtype=torch.bool)
    for settings in ({}, {"count": 7.0}):
        values = torch.full(shape, float("nan"), requires_grad=True)
        mean = masked_mean(values, mask, **settings)  # type: ignore[arg-type]
        mean.backward()
        assert mean.item() == distributed_masked_mean(values, mask).item() == 0
        assert values.grad is not None
        assert not values.grad.any()


def test_mask_of_several_dimensions() -> None:
    """Labels that are missing for some tasks, as in multi-task molecules; a count is of entries of the mask."""
    values = torch.arange(6.0).reshape(3, 2)
    mask = torch.tensor([[True, False], [True, True], [False, False]])
    for each in (values, values[:, :, None].expand(3, 2, 4)):
        assert masked_mean(each, mask).item() == pytest.approx((0 + 2 + 3) / 3)
        assert masked_mean(each, mask, count=2).item() == (0 + 2 + 3) / 2
    assert masked_mean(values, mask[:, 0], count=2).item() == (0 + 1 + 2 + 3) / 4
    assert masked_mean(torch.zeros(3, 0), mask[:, 0], count=2.0) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_means_keep_the_dtype(dtype: torch.dtype) -> None:
    """Of 70,000 ones too, which overflow float16."""
    values, mask = torch.ones(70_000, dtype=dtype), torch.ones(70_000, dtype=torch.bool)
    for settings in ({}, {"count": 70_000.0}, {"count": torch.tensor(70_000.0, dtype=torch.float64)}):
        found = masked_mean(values, mask, **settings)  # type: ignore[arg-type]
        assert found.dtype == dtype
        assert found.ndim == 0
        assert found == 1


@pytest.mark.parametrize("mean", [masked_mean, distributed_masked_mean])
def test_means_are_of_floats_alone(mean: Any) -> None:
    """A mean in the dtype of integers would be cut off, one of bools be False or True."""
    mask = torch.tensor([True, True, False])
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool):
        with refused(SchemaError, "the values must be floats", str(dtype), "values.float()"):
            mean(torch.ones(3, dtype=dtype), mask)
    with refused(SchemaError, "the values must be a tensor of floats", "list"):
        mean([1.0, 2.0, 3.0], mask)
    assert mean(torch.tensor([1, 2, 9]).float(), mask).item() == 1.5
    assert mean(torch.tensor([1j, 3.0, 9.0]), mask).item() == 1.5 + 0.5j


@pytest.mark.parametrize(
    ("count", "part"),
    [
        (0, "0"), (float("inf"), "inf"), (float("nan"), "nan"), (True, "True"), ("8", "'8'"), (torch.ones(1), "(1,)"),
        (torch.tensor(1j), "torch.complex64"),
    ],
)  # fmt: skip
def test_a_count_must_be_positive_and_finite(count: Any, part: str) -> None:
    with refused(SchemaError, "count", part, "sampler.graphs_per_batch"):
        masked_mean(torch.ones(2), torch.ones(2, dtype=torch.bool), count=count)
