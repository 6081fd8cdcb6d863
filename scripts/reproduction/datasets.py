"""Find the paper's datasets: OGB's raw folders, saved histograms and the packaged example."""

from __future__ import annotations

from pathlib import Path

import dgl_tuplepack as tp
from dgl_tuplepack.graphs.readers.ogb_folder import OgbFolder


def find(name: str, root: Path | None, saved: Path | None) -> tuple[tp.SizeHistogram, str] | None:
    """Return the histogram of the training split and its source; None if it is not available.

    `root` has OGB's dataset folders, `saved` has histograms: ``NAME.json``, ``NAME.csv`` or ``NAME-train.json``.
    """
    for file in () if saved is None else (f"{name}.json", f"{name}.csv", f"{name}-train.json"):
        if (saved / file).is_file():
            return tp.SizeHistogram.load(saved / file), "a saved histogram"
    if root is not None and (root / name.replace("-", "_")).is_dir():
        folder = OgbFolder(root, name, labels=False)
        return tp.SizeHistogram.from_sizes(folder.sizes.take(folder.splits["train"])), "OGB's raw folder"
    return (tp.load_example(name), "the histogram that comes with the package") if name == "ogbg-molhiv" else None
