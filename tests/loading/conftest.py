"""The sources that `tests/support/loading.py` names."""

from __future__ import annotations

from pathlib import Path

import pytest

import dgl_tuplepack as tp


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, shards, a file of saved graphs, and an OGB folder; all of `NUMBER` graphs."""
    # Imported here, so that the other tests of this folder run without DGL.
    from tests.support.loading import ITEMS, SIZES
    from tests.support.ogb_folder import write_ogb_folder
    from tests.support.shards import write_bin, write_bins

    path = tmp_path_factory.mktemp("sources")
    tp.GraphStore.write(
        path / "store", ITEMS, splits={"train": range(40), "valid": range(40, 50), "test": range(50, 60)}
    )
    tp.preprocess_shards(write_bins(path, 3), path / "shards", workers=1)
    write_bin(path / "graphs.bin", ITEMS)
    write_ogb_folder(path, SIZES)
    return path
