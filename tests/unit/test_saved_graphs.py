"""Files of `dgl.save_graphs` as sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError
from tests.graphs import assert_same_item
from tests.messages import refused
from tests.stores import molecules, purchases


@pytest.mark.parametrize("items", [molecules(), purchases()])
def test_stores_come_from_such_files(tmp_path: Path, items: list[Any]) -> None:
    labels = {"y": torch.stack([item[1] for item in items])} if isinstance(items[0], tuple) else None
    path = str(tmp_path / "graphs.bin")
    dgl.save_graphs(path, [item[0] if labels else item for item in items], labels)
    assert tp.sizes_of(path).array.tolist() == tp.sizes_of(items).array.tolist()
    for found, item in zip(tp.GraphStore.write(tmp_path / "store", path), items, strict=True):
        assert_same_item(found, item)


def test_several_labels_are_one_mapping(tmp_path: Path) -> None:
    path = str(tmp_path / "graphs.bin")
    dgl.save_graphs(path, [dgl.rand_graph(3, 4)] * 2, {"y": torch.arange(2), "z": torch.ones(2, 3)})
    _, label = tp.GraphStore.write(tmp_path / "store", path)[1]
    assert (label["y"].item(), label["z"].tolist()) == (1, [1.0] * 3)
    dgl.save_graphs(path, [dgl.rand_graph(3, 4)] * 2, {"y": torch.arange(3)})
    with refused(FormatError, path, "2 graphs, but another number of labels 'y'"):
        tp.sizes_of(path)


@pytest.mark.parametrize("length", [0, 100, 5000])
def test_a_damaged_file_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "graphs.bin"
    dgl.save_graphs(str(path), [dgl.rand_graph(300, 400)] * 2)
    path.write_bytes(path.read_bytes()[:length])
    with refused(FormatError, str(path), "cannot be read as a file of dgl.save_graphs"):
        tp.sizes_of(path)
