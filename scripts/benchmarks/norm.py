"""The masked norm against torch's on the same real rows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn

import dgl_tuplepack as tp
from benchmarks.tables import show
from dgl_tuplepack.nn.masks import RowMask

app = typer.Typer()

SHAPES = ((1777, 64), (1777, 300), (14_200, 64))
# Share of the rows that is real, as in packs of ogbg-molhiv.
REAL = 0.97
# Each way takes so many steps in a round; the second half of them is measured.
_STEPS = 10


class _Rows:
    """Rows whose mask a norm reads, as from a padded batch."""

    def __init__(self, mask: Tensor, num_real: int) -> None:
        self.mask = RowMask(mask, num_real)

    def row_masks(self) -> dict[str, RowMask]:
        return {"nodes": self.mask}


@app.command()
def norm(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each through all ways; medians count.")] = 60,
) -> None:
    """Forward and backward in training, eager, one thread: `MaskedBatchNorm1d` and `torch.nn.BatchNorm1d`.

    "front": the real rows come first, and the batch tells their number; "mask": the same mask given by hand; "mixed":
    real rows in random positions.
    """
    torch.set_num_threads(1)
    rows = []
    for slots, width in SHAPES:
        number = round(REAL * slots)
        generator = torch.Generator().manual_seed(0)
        front = torch.arange(slots) < number
        mixed = front[torch.randperm(slots, generator=generator)]
        x, gradient = (torch.randn(slots, width, generator=generator) for _ in range(2))
        masked, plain = tp.nn.MaskedBatchNorm1d(width), nn.BatchNorm1d(width)
        seconds = _interleaved(
            {
                "torch": (plain, x[:number].clone(), gradient[:number].clone()),
                "front": (_inside(masked, _Rows(front, number)), x.clone(), gradient.clone()),
                "mask": (lambda x, layer=masked, mask=front: layer(x, mask), x.clone(), gradient.clone()),
                "mixed": (lambda x, layer=masked, mask=mixed: layer(x, mask), x.clone(), gradient.clone()),
            },
            rounds,
        )
        ratios = {way: f"{_median_ratio(times, seconds['torch']):.2f}" for way, times in seconds.items()}
        rows.append(
            {"rows x width": f"{slots} x {width}", "torch_ms": f"{1000 * statistics.median(seconds['torch']):.3f}"}
        )
        rows[-1] |= {f"{way} / torch": ratio for way, ratio in ratios.items() if way != "torch"}
    show(f"Batch norm, {REAL:.0%} of the rows real, one thread", rows)


def _inside(layer: nn.Module, batch: Any) -> Callable[[Tensor], Tensor]:
    def apply(x: Tensor) -> Tensor:
        with tp.nn.masked(batch):
            result: Tensor = layer(x)
        return result

    return apply


def _interleaved(ways: dict[str, tuple[Any, Tensor, Tensor]], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (layer, x, gradient) in ways.items():
            # As in training: several steps with tensors of one size, whose memory is used again.
            for number in range(_STEPS):
                x = x.detach().requires_grad_()
                begin = time.perf_counter()
                layer(x).backward(gradient)
                if number >= _STEPS // 2:
                    seconds[way].append(time.perf_counter() - begin)
    return seconds


def _median_ratio(times: list[float], others: list[float]) -> float:
    return statistics.median(own / other for own, other in zip(times, others, strict=True))
