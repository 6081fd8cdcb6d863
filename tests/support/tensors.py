"""Random tensors for the tests, of every dtype and of usual shapes; nothing here needs DGL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

# Tensors here are tiny; starting threads for them costs more than the work.
torch.set_num_threads(1)

# All that a store holds.
DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
SHAPES = ((), (1,), (3,), (2, 3), (0,), (2, 0))
# Magnitudes of integers, of every width.
_MAGNITUDES = (1, 100, 200, 30_000, 60_000, 2**31 - 1, 2**31, 2**62)

Spec = dict[str, tuple[tuple[int, ...], torch.dtype]]
# Settings of padded batches that suit any graphs.
PADDING = st.fixed_dictionaries(
    {"cover_padding": st.booleans(), "idtype": st.sampled_from([torch.int64, torch.int32]), "sort_edges": st.booleans()}
)


def generator(seed: int) -> torch.Generator:
    """Torch's generator, seeded."""
    return torch.Generator().manual_seed(seed)


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A float64 model with parameters of that seed; the global generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().double()


def random_tensor(gen: torch.Generator, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Values that no padding value equals by accident only: never all zero for want of range, never NaN."""
    if dtype == torch.bool:
        return torch.randint(0, 2, tuple(shape), generator=gen).bool()
    if dtype.is_floating_point:
        return torch.randn(tuple(shape), generator=gen, dtype=torch.float64).to(dtype)
    if dtype.is_complex:
        return torch.randn(tuple(shape), generator=gen, dtype=torch.complex128).to(dtype)
    info = torch.iinfo(dtype)
    most = min(_MAGNITUDES[int(torch.randint(len(_MAGNITUDES), (), generator=gen))], info.max)
    low = max(-most, info.min) if torch.randint(2, (), generator=gen) else 0
    return torch.randint(low, most + 1, tuple(shape), generator=gen).to(dtype)


def specs() -> st.SearchStrategy[Spec]:
    """No feature, or a few of any usual dtype and shape."""
    one = st.tuples(st.sampled_from(SHAPES), st.sampled_from(DTYPES))
    return st.dictionaries(st.sampled_from(["feat", "h", "pos"]), one, max_size=3)


def assert_equal_tensors(found: Tensor, expected: Tensor, what: str = "") -> None:
    """Same dtype, shape and values."""
    assert found.dtype == expected.dtype, what
    assert found.shape == expected.shape, what
    assert torch.equal(found, expected), what


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Equal to ten digits."""
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def padded(real: Tensor, slots: int, fill: float = 1e3) -> tuple[Tensor, Tensor]:
    """Rows with padding behind them, and the mask."""
    filling = torch.full((slots - len(real), *real.shape[1:]), fill, dtype=real.dtype)
    return torch.cat([real, filling]), torch.arange(slots) < len(real)
