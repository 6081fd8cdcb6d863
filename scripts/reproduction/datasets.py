"""Which of the paper's datasets are at hand: OGB's raw folders, saved histograms, and the embedded example."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError

# Dataset -> folder in an OGB root, and whether OGB adds the opposite of every edge while reading.
_FOLDERS = {
    "ogbg-molhiv": ("ogbg_molhiv", True),
    "ogbg-molpcba": ("ogbg_molpcba", True),
    "ogbg-code2": ("ogbg_code2", False),
    "ogbg-ppa": ("ogbg_ppa", True),
}


def find(name: str, root: Path | None, saved: Path | None) -> tuple[tp.SizeHistogram, str] | None:
    """Histogram of the training split and a word on where it is from; None where it is not at hand.

    Parameters
    ----------
    name
        As in the paper: ogbg-molhiv, say.
    root
        Folder of OGB's dataset folders, or None.
    saved
        Folder of histogram files, ``NAME.json``, ``NAME.csv`` or ``NAME-train.json``; or None.
    """
    for file in () if saved is None else (f"{name}.json", f"{name}.csv", f"{name}-train.json"):
        if (saved / file).is_file():
            return tp.SizeHistogram.load(saved / file), "a saved histogram"
    folder, doubled = _FOLDERS.get(name, (None, False))
    if root is not None and folder is not None and (root / folder).is_dir():
        return _from_ogb(root / folder, doubled), "OGB's raw folder"
    return (tp.load_example(name), "the histogram that comes with the package") if name == "ogbg-molhiv" else None


def _from_ogb(folder: Path, doubled: bool) -> tp.SizeHistogram:
    splits = sorted(folder.glob("split/*/train.csv.gz"))
    if not splits:
        raise FormatError(f"{folder} has no split/*/train.csv.gz; it is no complete OGB dataset.")
    try:
        nodes, edges = (
            np.loadtxt(folder / "raw" / f"{what}.csv.gz", dtype=np.int64, ndmin=1)
            for what in ("num-node-list", "num-edge-list")
        )
        train = np.loadtxt(splits[0], dtype=np.int64, ndmin=1)
        sizes = np.stack([nodes, edges * (2 if doubled else 1)], axis=1)[train]
    except (OSError, ValueError, IndexError) as error:
        raise FormatError(f"{folder} cannot be read as an OGB dataset: {error}; download it again.") from error
    return tp.SizeHistogram.from_sizes(sizes)
