"""Dataset objects of OGB for PyG and for DGL give equal stores."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import dgl_tuplepack as tp
from tests.support.ogb_folder import write_ogb_folder
from tests.support.pyg import assert_same


def by_pyg_name(store: tp.GraphStore) -> dict[Any, str]:
    """Checksums of all arrays by the names that PyG has for them."""
    names = {("node_feature", "feat"): "x", ("edge_feature", "feat"): "edge_attr"}
    return {
        (e.content, str(e.type), names.get((e.content, str(e.name)), e.name)): e.sha256
        for e in store.segments[0].metadata.arrays
    }


def test_ogb_datasets_of_both_frameworks_give_equal_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ogb = pytest.importorskip("ogb.graphproppred", reason="the optional package ogb is not installed")
    load = torch.load
    # OGB 1.3.6 loads its own files as torch did before 2.6.
    monkeypatch.setattr(torch, "load", lambda *args, **settings: load(*args, **{"weights_only": False, **settings}))
    for name in ("pyg", "dgl"):
        write_ogb_folder(tmp_path / name, tp.GraphSizes([[3 + i % 5, 2 * (i % 4)] for i in range(40)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = ogb.PygGraphPropPredDataset("ogbg-molhiv", root=str(tmp_path / "pyg"))
    pyg = tp.GraphStore.write(tmp_path / "pyg_store", dataset)
    dgl = tp.GraphStore.write(
        tmp_path / "dgl_store", ogb.DglGraphPropPredDataset("ogbg-molhiv", root=str(tmp_path / "dgl"))
    )
    folder = tp.GraphStore.write(tmp_path / "folder_store", tmp_path / "dgl" / "ogbg_molhiv")
    assert by_pyg_name(pyg) == by_pyg_name(dgl) == by_pyg_name(folder)
    assert set(pyg.splits) == {"train", "valid", "test"}
    assert len(pyg) == 40
    limits = tp.Limits(nodes=200, edges=450, graphs=6)
    found, expected = (store.padded(limits)[[0, 5, 3]].pyg for store in (pyg, dgl))
    assert_same(found, expected)
    assert_same(found[1], dataset[5], {"num_nodes"})
