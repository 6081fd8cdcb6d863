"""Draw the picture of the README: shuffled and packed batches of ogbg-molhiv, in light and in dark colours.

    python scripts/draw_batches.py [--out FOLDER]

The sizes are those of the packaged example, and the seed is fixed, so every run writes the same files.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

import dgl_tuplepack as tp
from dgl_tuplepack.tools.plots import save_picture

SHOWN, GRAPHS = 12, 70
# Eight packs hold 70 graphs on average.
LIMITS, PACKS = tp.Limits(nodes=222, edges=502), 8
# Colours of the graphs in a bar, in turn; they also differ in greyscale.
SLICES = ("#0f4c81", "#2f93b5", "#8fd0c6")
WIDTH = 0.8
# Variant -> text and padding.
COLOURS = {"light": ("#1f2328", "#8c959f"), "dark": ("#e6edf3", "#9198a1")}


def main() -> None:
    """Write packs-light.svg and packs-dark.svg."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "docs" / "images")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    histogram = tp.load_example("ogbg-molhiv")
    sizes = np.random.default_rng(0).permutation(np.repeat(histogram.sizes, histogram.counts, axis=0))
    nodes = sizes[:, 0]
    shuffled = [nodes[first : first + GRAPHS].tolist() for first in range(0, SHOWN * GRAPHS, GRAPHS)]
    sampler = tp.PackBatchSampler(tp.GraphSizes(sizes), LIMITS, packs_per_batch=PACKS)
    packed = [nodes[ids].tolist() for _, ids in zip(range(SHOWN), sampler, strict=False)]
    for name, (text, padding) in COLOURS.items():
        draw(shuffled, packed, text, padding, folder / f"packs-{name}.svg")


def draw(shuffled: list[list[int]], packed: list[list[int]], text: str, padding: str, path: Path) -> None:
    """Write one variant."""
    colours = {name: text for name in ("text.color", "ytick.color", "axes.labelcolor")}
    with matplotlib.rc_context(colours | {"font.size": 15, "axes.titlesize": 15}):
        figure = Figure(figsize=(9, 4), layout="constrained", facecolor="none")
        pairs = zip(figure.subplots(1, 2, sharey=True), (shuffled, packed), strict=True)
        for ax, batches in pairs:
            slots = max(map(sum, shuffled)) if batches is shuffled else PACKS * LIMITS.nodes + 1
            draw_bars(ax, batches, slots, padding)
            share = 1 - sum(map(sum, batches)) / (slots * SHOWN)
            kind = "shuffled" if batches is shuffled else "packed"
            ax.set(title=f"{kind}: {share:.1%} padding", xticks=[], facecolor="none")
            ax.spines[:].set_visible(False)
            ax.tick_params(length=0)
        figure.axes[0].set(ylabel="nodes", ylim=(0, 1920), yticks=range(0, 2000, 500))
        save_picture(ax, path)
    # More decimals would only enlarge the file.
    path.write_text(re.sub(r"(\d\d\.\d\d)\d+", r"\1", path.read_text(encoding="utf-8")), encoding="utf-8")


def draw_bars(ax: Any, batches: Sequence[Sequence[int]], slots: int, padding: str) -> None:
    """Draw each batch as a bar that stacks the sizes of its graphs, with padding up to `slots`."""
    for number, batch in enumerate(batches):
        fill(ax, number, [0], [slots], padding)
        # Filling the whole bar first, and then covering some graphs, keeps vector files small.
        fill(ax, number, [0], [sum(batch)], SLICES[0])
        ends = np.cumsum(batch)
        for first, colour in enumerate(SLICES[1 : len(batch)], 1):
            chosen = slice(first, None, len(SLICES))
            fill(ax, number, (ends - batch)[chosen], ends[chosen], colour)
    ax.set(xlim=(-0.6, len(batches) - 0.4), ylim=(0, 1.02 * slots))


def fill(ax: Any, number: int, lows: Any, highs: Any, colour: str) -> None:
    """Fill bar `number` from ``lows[i]`` to ``highs[i]`` for each i, as one path."""
    left, right = number - WIDTH / 2, number + WIDTH / 2
    corners = [
        [(left, low), (left, high), (right, high), (right, low), (left, low)]
        for low, high in zip(lows, highs, strict=True)
    ]
    codes = [Outline.MOVETO, *[Outline.LINETO] * 3, Outline.CLOSEPOLY] * len(corners)
    ax.add_patch(PathPatch(Outline(np.reshape(corners, (-1, 2)), codes), color=colour, linewidth=0))


if __name__ == "__main__":
    main()
