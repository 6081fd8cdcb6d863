"""Intact files of every kind that the package reads; each case works on a copy of one of them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import dgl_tuplepack as tp
from dgl_tuplepack.preprocessing import preprocess
from dgl_tuplepack.sharding import preprocess_shards
from tests.ogb_folder import write_ogb_folder, write_raw_folder
from tests.shards import write_bin
from tests.stores import SPLITS, molecules, purchases

LIMITS = tp.Limits(nodes=40, edges=40)
COUNTS = {(3, 4): 5, (2, 2): 4, (6, 10): 1}


@dataclass(frozen=True)
class Specimen:
    """A file or folder, by its path below the folder of all specimens, and what may be asked of it."""

    name: str
    path: str
    is_dataset: bool
    is_store: bool = False


SPECIMENS = (
    Specimen("store", "store", is_dataset=True, is_store=True),
    Specimen("heterogeneous store", "hetero", is_dataset=True, is_store=True),
    Specimen("shards", "shards", is_dataset=True, is_store=True),
    Specimen("OGB folder", "csv/ogbg_molhiv", is_dataset=True),
    Specimen("binary OGB folder", "binary/ogbg_code2", is_dataset=True),
    Specimen("histogram", "histogram.json", is_dataset=False),
    Specimen("histogram as CSV", "histogram.csv", is_dataset=False),
    Specimen("plan", "plan.json", is_dataset=False),
    Specimen("graphs of DGL", "graphs.bin", is_dataset=True),
    Specimen("archive", "archive.zip", is_dataset=False),
)


def make_specimens(folder: Path) -> None:
    """Write one of each kind into `folder`."""
    histogram = tp.SizeHistogram.from_counts(COUNTS)
    makers: dict[str, Callable[[], object]] = {
        "store": lambda: _preprocessed(folder / "store"),
        "hetero": lambda: preprocess(purchases(), folder / "hetero"),
        "shards": lambda: preprocess_shards(
            {"one": molecules(6, 1), "two": molecules(5, 2)}, folder / "shards", workers=1
        ),
        "csv": lambda: write_ogb_folder(folder / "csv", tp.GraphSizes([[3, 4], [2, 2], [4, 6], [1, 0], [5, 8]] * 2)),
        "binary": lambda: _binary(folder / "binary" / "ogbg_code2"),
        "histogram.json": lambda: histogram.save(folder / "histogram.json"),
        "histogram.csv": lambda: histogram.save(folder / "histogram.csv"),
        "plan.json": lambda: tp.pack(histogram, LIMITS).save(folder / "plan.json"),
        "graphs.bin": lambda: write_bin(folder / "graphs.bin", molecules(4, 3)),
        "archive.zip": lambda: _archive(folder / "archive.zip", folder / "csv" / "ogbg_molhiv"),
    }
    for make in makers.values():
        make()


def _preprocessed(path: Path) -> None:
    # With a split, so that there are several plans.
    tp.GraphStore.write(path.with_name("unplanned"), molecules(), splits=SPLITS)
    preprocess(path.with_name("unplanned"), path)


def _binary(path: Path) -> None:
    nodes = [3, 2, 4]
    edges = [np.array([[0, 1], [1, 2]]), np.array([[0, 1]]), np.array([[3, 0], [1, 1]])]
    tables = {"node-feat": np.arange(sum(nodes))[:, None], "edge-feat": np.ones((5, 2), np.float32)}
    write_raw_folder(
        path, nodes, edges, np.array([[0], [1], [0]]), tables, {"project": {"train": [0, 2], "test": [1]}}, binary=True
    )


def _archive(path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, f"{folder.name}/{file.relative_to(folder)}")
