"""Draw the picture of the README, in light and dark colours: shuffled batches of ogbg-molhiv, and after exchanges.

    python scripts/draw_batches.py [--out FOLDER]

The sizes are those of the packaged example, and the seed is fixed, so every run writes the same files.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import dgl_tuplepack as tp
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.sampling.exact_batches import Cut, ExactBatches
from dgl_tuplepack.tools.drawing import draw_bars
from dgl_tuplepack.tools.plots import save_picture

SHOWN, BATCH_SIZE = 12, 64
# Colour of exchanged graphs; it differs from the others in greyscale, too.
EXCHANGED = "#f2b134"
# Variant -> text and padding.
COLOURS = {"light": ("#1f2328", "#8c959f"), "dark": ("#e6edf3", "#9198a1")}


def main() -> None:
    """Write batches-light.svg and batches-dark.svg."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "docs" / "images")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    histogram = tp.load_example("ogbg-molhiv")
    sizes = np.repeat(histogram.sizes, histogram.counts, axis=0)
    limits = tp.StaticBatchSampler(tp.GraphSizes(sizes), BATCH_SIZE).limits
    # As the sampler makes the order of an epoch.
    key = key_of(0, 0, 0)
    before = shuffled(np.arange(len(sizes)), key)
    after = ExactBatches(sizes, limits.array, Cut.of(len(sizes), BATCH_SIZE, 1, drop_last=False)).repaired(key)
    assert after is not None
    shown = slice(SHOWN * BATCH_SIZE)
    one, other = (sizes[order[shown], 0].reshape(SHOWN, BATCH_SIZE) for order in (before, after))
    is_exchanged = (before != after)[shown].reshape(SHOWN, BATCH_SIZE)
    pairs = [(one, 0 * is_exchanged), (other, is_exchanged)]
    for name, (text, padding) in COLOURS.items():
        draw(pairs, limits.nodes, text, padding, folder / f"batches-{name}.svg")
    print(f"{(before != after).mean():.1%} of the graphs of the epoch are exchanged")


def draw(pairs: list[tuple[Any, Any]], most: int, text: str, padding: str, path: Path) -> None:
    """Write one variant."""
    colours = {name: text for name in ("text.color", "ytick.color", "axes.labelcolor")}
    with matplotlib.rc_context(colours | {"font.size": 15, "axes.titlesize": 15}):
        figure = Figure(figsize=(9, 4), layout="constrained", facecolor="none")
        for ax, (nodes, is_exchanged), slots, kind in zip(
            figure.subplots(1, 2, sharey=True), pairs, (int(pairs[0][0].sum(1).max()), most),
            ("random", "exchanged"), strict=True,
        ):  # fmt: skip
            # Exchanged graphs come last, and are covered.
            batches = np.take_along_axis(nodes, np.argsort(is_exchanged, axis=1, kind="stable"), axis=1)
            draw_bars(ax, batches.tolist(), [slots] * SHOWN, padding)
            covered = (nodes * is_exchanged).sum(1)
            ax.bar(range(SHOWN), covered, bottom=nodes.sum(1) - covered, color=EXCHANGED, width=0.8, linewidth=0)
            share = 1 - nodes.sum() / (slots * SHOWN)
            ax.set(title=f"{kind}: {share:.1%} padding", xticks=[], facecolor="none")
            ax.spines[:].set_visible(False)
            ax.tick_params(length=0)
        figure.axes[0].set(ylabel="nodes", ylim=(0, 1.02 * max(pairs[0][0].sum(1))), yticks=range(0, 2000, 500))
        save_picture(ax, path)
    # More decimals would only enlarge the file.
    path.write_text(re.sub(r"(\d\d\.\d\d)\d+", r"\1", path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
