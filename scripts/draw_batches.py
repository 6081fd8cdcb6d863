"""Draw the picture of the README: shuffled and packed batches of ogbg-molhiv, in light and in dark colours.

    python scripts/draw_batches.py [--out FOLDER]

The sizes are those of the packaged example, and the seed is fixed, so every run writes the same files.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import dgl_tuplepack as tp
from dgl_tuplepack.tools.drawing import draw_bars
from dgl_tuplepack.tools.plots import save_picture

SHOWN, GRAPHS = 12, 70
# Eight packs hold 70 graphs on average.
LIMITS, PACKS = tp.Limits(nodes=222, edges=502), 8
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
            draw_bars(ax, batches, [slots] * len(batches), padding)
            share = 1 - sum(map(sum, batches)) / (slots * SHOWN)
            kind = "shuffled" if batches is shuffled else "packed"
            ax.set(title=f"{kind}: {share:.1%} padding", xticks=[], facecolor="none")
            ax.spines[:].set_visible(False)
            ax.tick_params(length=0)
        figure.axes[0].set(ylabel="nodes", ylim=(0, 1920), yticks=range(0, 2000, 500))
        save_picture(ax, path)
    # More decimals would only enlarge the file.
    path.write_text(re.sub(r"(\d\d\.\d\d)\d+", r"\1", path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
