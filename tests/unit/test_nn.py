"""Masked normalisation and means: exactly what torch gives on the real part alone, whatever the padding holds."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import dgl_tuplepack as tp
import dgl_tuplepack.nn.norm as nn_of_ranks
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn import MaskedBatchNorm1d, distributed_masked_mean, masked_mean
from tests.messages import refused
from tests.tensors import generator

C = 3


def rows(seed: int, number: int, length: int | None = None) -> Tensor:
    """Random rows ``[N, C]`` or ``[N, C, L]``, with a mean and scale of their own."""
    shape = (number, C) if length is None else (number, C, length)
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64) * 3 + 5


def padded(real: Tensor, slots: int, fill: float = 1e3) -> tuple[Tensor, Tensor]:
    """Rows with padding behind them, and the mask."""
    filling = torch.full((slots - len(real), *real.shape[1:]), fill, dtype=real.dtype)
    return torch.cat([real, filling]), torch.arange(slots) < len(real)


def both(**settings: Any) -> tuple[nn.BatchNorm1d, MaskedBatchNorm1d]:
    """Torch's layer and ours with equal parameters, none of them at its initial value."""
    plain = nn.BatchNorm1d(C, dtype=torch.float64, **settings)
    masked = MaskedBatchNorm1d(C, dtype=torch.float64, **settings)
    if plain.affine:
        with torch.no_grad():
            plain.weight.copy_(torch.tensor([0.5, -2.0, 3.0]))
            plain.bias.copy_(torch.tensor([1.0, 0.0, -4.0]))
    masked.load_state_dict(plain.state_dict())
    return plain, masked


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def assert_same_state(masked: nn.Module, plain: nn.Module) -> None:
    assert masked.state_dict().keys() == plain.state_dict().keys()
    for name, value in plain.state_dict().items():
        assert_close(masked.state_dict()[name], value)


SETTINGS = [
    {},
    {"momentum": None},
    {"momentum": 0.7, "eps": 0.1},
    {"affine": False},
    {"track_running_stats": False},
    {"affine": False, "track_running_stats": False},
]


@pytest.mark.parametrize("fill", [0.0, 1e3, float("inf"), float("nan")])
@pytest.mark.parametrize("length", [None, 1, 4])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_real_rows_come_out_as_from_torch(settings: dict[str, Any], length: int | None, fill: float) -> None:
    """Several batches in training, then one in evaluation: outputs, statistics and gradients."""
    plain, masked = both(**settings)
    for seed, number in enumerate((5, 2, 9)):
        real = rows(seed, number, length).requires_grad_()
        full, mask = padded(real.detach(), 11, fill)
        full.requires_grad_()
        found, expected = masked(full, mask), plain(real)
        assert_close(found[:number], expected)
        assert not found[number:].any()
        assert_same_state(masked, plain)

        # Weights that differ, since the gradient of a plain sum through a normalisation is 0.
        weights = rows(seed + 10, number, length)
        (expected * weights).sum().backward()
        (found[:number] * weights).sum().backward()
        assert_close(full.grad[:number], real.grad)
        assert not full.grad[number:].any()
        if plain.affine:
            assert_close(masked.weight.grad, plain.weight.grad)
            assert_close(masked.bias.grad, plain.bias.grad)
    plain.eval(), masked.eval()
    real = rows(20, 4, length)
    full, mask = padded(real, 7, fill)
    assert_close(masked(full, mask)[:4], plain(real))
    assert not masked(full, mask)[4:].any()
    assert_same_state(masked, plain)


def test_mask_need_not_be_a_prefix() -> None:
    plain, masked = both()
    real = rows(0, 4)
    mask = torch.tensor([False, True, True, False, True, False, True])
    full = torch.full((7, C), float("nan"), dtype=torch.float64)
    full[mask] = real
    assert_close(masked(full, mask)[mask], plain(real))
    assert_same_state(masked, plain)


def test_without_padding_it_is_torchs_layer() -> None:
    plain, masked = both()
    real = rows(0, 6)
    assert_close(masked(real, torch.ones(6, dtype=torch.bool)), plain(real))
    assert_same_state(masked, plain)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_no_real_row_changes_nothing(settings: dict[str, Any], training: bool) -> None:
    _, masked = both(**settings)
    masked(*padded(rows(0, 5), 6))
    masked.train(training)
    before = copy.deepcopy(masked.state_dict())
    full, mask = padded(rows(0, 0), 4, float("nan"))
    full.requires_grad_()
    out = masked(full, mask)
    assert not out.any()
    out.sum().backward()
    assert not full.grad.any()
    if masked.affine:
        assert not masked.weight.grad.any()
        assert not masked.bias.grad.any()
    for name, value in masked.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_empty_first_batch_with_cumulative_average() -> None:
    """Momentum None divides by the number of batches, which an empty first batch leaves at 0."""
    plain, masked = both(momentum=None)
    masked(*padded(rows(0, 0), 4))
    real = rows(1, 5)
    masked(*padded(real, 8))
    plain(real)
    assert_same_state(masked, plain)


def test_single_real_row_is_finite() -> None:
    """Torch refuses a single row in training; documented here as variance 0."""
    _, masked = both()
    full, mask = padded(rows(0, 1), 4)
    full.requires_grad_()
    out = masked(full, mask)
    assert_close(out[0], masked.bias.detach())
    out.sum().backward()
    assert full.grad.isfinite().all()
    assert masked.running_var.isfinite().all()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_state_dicts_are_exchanged_both_ways(settings: dict[str, Any]) -> None:
    plain, masked = both(**settings)
    masked(*padded(rows(0, 5), 8))
    fresh = nn.BatchNorm1d(C, dtype=torch.float64, **settings)
    fresh.load_state_dict(masked.state_dict())
    assert_same_state(fresh, masked)
    plain(rows(1, 5))
    masked.load_state_dict(plain.state_dict())
    assert_same_state(masked, plain)


def test_across_ranks_alone() -> None:
    """Without a process group; with one, see tests/programs/ranks.py."""
    plain = both()[0]
    masked = MaskedBatchNorm1d(C, dtype=torch.float64, across_ranks=True)
    masked.load_state_dict(plain.state_dict())
    real = rows(0, 5)
    full, mask = padded(real, 8)
    assert_close(masked(full, mask)[:5], plain(real))
    assert_same_state(masked, plain)
    with refused(SchemaError, "across_ranks must be True or False", "'yes'"):
        MaskedBatchNorm1d(C, across_ranks="yes")  # type: ignore[arg-type]


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
    norm = MaskedBatchNorm1d(C, dtype=torch.float64, across_ranks=True, track_running_stats=tracked).eval()
    norm(rows(0, 4), torch.ones(4, dtype=torch.bool))
    assert doubled == []
    norm.train()(rows(0, 4), torch.ones(4, dtype=torch.bool))
    assert len(doubled) == 2


def test_gradients_that_others_use_are_not_summed_over_ranks(doubled: list[Any]) -> None:
    """Autograd hands one tensor to all who have a part in a sum."""
    x, y = (torch.ones(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    total = nn_of_ranks._SumOverRanks.apply(x, None)  # type: ignore[no-untyped-call]
    gradient = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    (total + y).backward(gradient)
    assert gradient.tolist() == [1, 2, 3]
    assert y.grad is not None
    assert x.grad is not None
    assert y.grad.tolist() == [1, 2, 3]
    assert x.grad.tolist() == [2, 4, 6]


def test_what_is_summed_over_ranks_stays(doubled: list[Any]) -> None:
    x = torch.ones(3)
    assert nn_of_ranks._SumOverRanks.apply(x, None).tolist() == [2, 2, 2]  # type: ignore[no-untyped-call]
    assert x.tolist() == [1, 1, 1]


def test_a_conversion_to_torchs_layer_for_ranks_is_not_silent() -> None:
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(nn.ModuleList([MaskedBatchNorm1d(C)]))
    with pytest.raises(TypeError, match="positional argument"):
        converted[0](torch.ones(2, C), torch.ones(2, dtype=torch.bool))


def test_settings_are_those_of_torch() -> None:
    names = ("num_features", "eps", "momentum", "affine", "track_running_stats")
    for settings in ((7,), (7, 0.1, None, False, False)):
        masked, plain = MaskedBatchNorm1d(*settings), nn.BatchNorm1d(*settings)
        assert [getattr(masked, name) for name in names] == [getattr(plain, name) for name in names]


def test_it_is_a_batch_norm() -> None:
    """What looks for BatchNorm layers (freezing, weight decay groups) finds it."""
    assert isinstance(MaskedBatchNorm1d(C), nn.BatchNorm1d)
    assert tp.nn.MaskedBatchNorm1d is MaskedBatchNorm1d


def test_gradients_by_differences() -> None:
    masked = both()[1]
    full, mask = padded(rows(0, 4), 6, 2.0)
    assert torch.autograd.gradcheck(lambda x: masked(x, mask), (full.requires_grad_(),))


def test_float32_stays_float32() -> None:
    masked = MaskedBatchNorm1d(C)
    full, mask = padded(rows(0, 4).float(), 6)
    assert masked(full, mask).dtype == torch.float32
    assert masked.running_mean.dtype == torch.float32


@pytest.mark.parametrize(
    ("mask", "parts"),
    [
        (torch.ones(4), ["must be bool", "torch.float32"]),
        (torch.ones(5, dtype=torch.bool), ["leading part of the shape (4, 3)", "(5,)"]),
        (torch.ones(4, 3, 1, dtype=torch.bool), ["leading part of the shape (4, 3)", "(4, 3, 1)"]),
    ],
)
def test_wrong_masks(mask: Tensor, parts: list[str]) -> None:
    with refused(SchemaError, "the mask", *parts, "batch.node_mask"):
        masked_mean(torch.ones(4, 3), mask)
    with refused(SchemaError, "the mask", *parts, "batch.node_mask"):
        MaskedBatchNorm1d(3)(torch.ones(4, 3), mask)


def test_mask_of_the_norm_has_one_entry_for_each_row() -> None:
    """A mask of the whole input's shape suits masked_mean, but says nothing about rows."""
    with refused(SchemaError, "the mask", "(4, 3)"):
        MaskedBatchNorm1d(3)(torch.ones(4, 3), torch.ones(4, 3, dtype=torch.bool))


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2, 2)])
def test_inputs_of_other_dimensions(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="2D or 3D input"):
        MaskedBatchNorm1d(2)(torch.ones(shape), torch.ones(shape[0], dtype=torch.bool))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("channels", "found"), [(1, 4), (4, 1), (4, 5)])
def test_other_numbers_of_channels(settings: dict[str, Any], training: bool, channels: int, found: int) -> None:
    """They would be broadcast, and so would the statistics that are kept."""
    norm = MaskedBatchNorm1d(channels, **settings).train(training)
    kept = {name: value.clone() for name, value in norm.state_dict().items()}
    for shape in ((6, found), (6, found, 2)):
        with refused(SchemaError, f"{channels} channels", str(shape)):
            norm(torch.ones(shape), torch.ones(6, dtype=torch.bool))
    assert all(kept[name].equal(value) for name, value in norm.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_the_norm_is_of_real_floats_alone(dtype: torch.dtype) -> None:
    with refused(SchemaError, "the input must be real floats", str(dtype), "input.float()"):
        MaskedBatchNorm1d(3)(torch.ones(4, 3, dtype=dtype), torch.ones(4, dtype=torch.bool))


# masked_mean --------------------------------------------------------------------------------------------------


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
    assert_close(full.grad[:number], real.grad)
    assert not full.grad[number:].any()


@pytest.mark.parametrize("shape", [(3,), (3, 2), (0,)])
def test_mean_of_nothing(shape: tuple[int, ...]) -> None:
    values = torch.full(shape, float("nan"), requires_grad=True)
    mean = masked_mean(values, torch.zeros(shape[0], dtype=torch.bool))
    assert mean.item() == 0.0
    mean.backward()
    assert not values.grad.any()


def test_mask_of_several_dimensions() -> None:
    """Labels that are missing for some tasks, as in multi-task molecules."""
    values = torch.arange(6.0).reshape(3, 2)
    mask = torch.tensor([[True, False], [True, True], [False, False]])
    assert masked_mean(values, mask).item() == pytest.approx((0 + 2 + 3) / 3)
    deeper = values[:, :, None].expand(3, 2, 4)
    assert masked_mean(deeper, mask).item() == pytest.approx((0 + 2 + 3) / 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_mean_keeps_the_dtype(dtype: torch.dtype) -> None:
    assert masked_mean(torch.ones(3, dtype=dtype), torch.tensor([True, True, False])).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_normalised_as_by_torch(dtype: torch.dtype) -> None:
    # Sums over 5,000 rows of about 200 overflow float16, and a mean of them has no digits left in bfloat16.
    x = (200 + torch.randn(5000, 3, generator=torch.Generator().manual_seed(0))).to(dtype)
    mask = torch.ones(5003, dtype=torch.bool)
    mask[5000:] = False
    ours, theirs = MaskedBatchNorm1d(3), torch.nn.BatchNorm1d(3)
    result = ours(torch.cat([x, x[:3]]), mask)
    expected = theirs(x)
    assert result.dtype == expected.dtype == dtype
    assert torch.allclose(result[:5000].float(), expected.float(), atol=0.05)
    assert torch.allclose(ours.running_mean, theirs.running_mean, rtol=1e-4)
    assert torch.allclose(ours.running_var, theirs.running_var, rtol=1e-2)


def test_under_autocast_the_norm_keeps_the_dtype_of_its_input() -> None:
    linear, norm = torch.nn.Linear(4, 3), MaskedBatchNorm1d(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = linear(torch.randn(6, 4))
        result = norm(hidden, torch.tensor([True] * 5 + [False]))
    assert hidden.dtype == result.dtype == torch.bfloat16
    assert norm.running_mean is not None
    assert norm.running_mean.dtype == torch.float32


def test_a_mean_of_many_halves_does_not_overflow() -> None:
    ones = torch.ones(70_000, dtype=torch.float16)
    assert masked_mean(ones, torch.ones(70_000, dtype=torch.bool)).item() == 1


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


def test_a_mask_must_be_a_tensor() -> None:
    with refused(SchemaError, "the mask must be a bool tensor", "list", "batch.graph_mask"):
        masked_mean(torch.ones(1), [True])  # type: ignore[arg-type]


def test_a_distributed_mean_of_one_process_is_the_mean() -> None:
    """Without a process group; with one, see tests/programs/ranks.py."""
    values = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    for real in (0, 1, 4):
        mask = torch.arange(5) < real
        found, expected = distributed_masked_mean(values, mask), masked_mean(values, mask)
        assert torch.equal(found, expected)
        for left, right in zip(torch.autograd.grad(found, values), torch.autograd.grad(expected, values), strict=True):
            assert torch.equal(left, right)


def test_a_distributed_mean_refuses_what_a_mean_refuses() -> None:
    with refused(SchemaError, "the mask must be bool", "torch.float32"):
        distributed_masked_mean(torch.ones(2), torch.ones(2))


# masked_mean(count=) ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
@pytest.mark.parametrize("fill", [0.0, float("inf"), float("nan")])
def test_the_real_number_as_count_gives_the_mean(shape: tuple[int, ...], fill: float) -> None:
    real = torch.randn((5, *shape), generator=generator(1), dtype=torch.float64)
    full, mask = padded(real, 9, fill)
    for count in (5, 5.0, torch.tensor(5), torch.tensor(5.0, dtype=torch.float64)):
        assert_close(masked_mean(full, mask, count=count), real.mean())
    assert_close(masked_mean(full, mask, count=2.5), 2 * real.mean())


def test_a_full_mask_counts_entries() -> None:
    values = torch.arange(6.0).reshape(2, 3)
    mask = torch.tensor([[True, False, True], [False, True, False]])
    assert masked_mean(values, mask, count=2).item() == (0 + 2 + 4) / 2
    assert masked_mean(values, mask[:, 0], count=2).item() == (0 + 1 + 2) / 6


def test_an_empty_batch_has_no_part_in_the_epoch() -> None:
    x = torch.full((4,), float("nan"), requires_grad=True)
    loss = masked_mean(x, torch.zeros(4, dtype=torch.bool), count=7.0)
    assert loss.item() == 0
    loss.backward()
    assert x.grad is not None
    assert not x.grad.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64])
def test_the_count_keeps_the_dtype(dtype: torch.dtype) -> None:
    values = torch.ones(4, dtype=dtype)
    for count in (2.0, torch.tensor(2.0, dtype=torch.float64)):
        found = masked_mean(values, torch.ones(4, dtype=torch.bool), count=count)
        assert found.dtype == dtype
        assert found.ndim == 0
        assert found == 2


@pytest.mark.parametrize(
    ("count", "part"),
    [
        (0, "0"),
        (-1.5, "-1.5"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (True, "True"),
        ("8", "'8'"),
        (torch.ones(1), "(1,)"),
        (torch.tensor(True), "torch.bool"),
        (torch.tensor(1j), "torch.complex64"),
    ],
)
def test_a_count_must_be_positive_and_finite(count: Any, part: str) -> None:
    with refused(SchemaError, "count", part, "sampler.graphs_per_batch"):
        masked_mean(torch.ones(2), torch.ones(2, dtype=torch.bool), count=count)


def test_fractions_and_entries_without_values() -> None:
    mask = torch.ones(3, dtype=torch.bool)
    assert masked_mean(torch.ones(3), mask, count=Fraction(3, 2)) == 2  # type: ignore[arg-type]
    assert masked_mean(torch.zeros(3, 0), mask, count=2.0) == 0
