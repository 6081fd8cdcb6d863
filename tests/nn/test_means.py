"""Masked means: exactly the mean of the real part, whatever the padding holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn import distributed_masked_mean, masked_mean
from tests.support.messages import refused
from tests.support.tensors import assert_close, generator, padded


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
