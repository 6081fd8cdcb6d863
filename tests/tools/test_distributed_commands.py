"""``dgl-tuplepack chunk`` and ``partition``."""

from __future__ import annotations

import json
from pathlib import Path

import dgl
import numpy as np
import pytest

import dgl_tuplepack as tp
from tests.support.command import Run
from tests.support.stores import SPLITS, molecules


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tp.GraphStore.write(tmp_path / "store", molecules(12), splits=SPLITS).path


def test_a_store_becomes_chunks_and_these_a_partition_that_dgl_opens(run: Run, source: Path, tmp_path: Path) -> None:
    done = run("chunk", source, "-o", tmp_path / "chunks", "--chunks", 3, "--edges-as", "numpy", "--graph-name", "mine")
    sizes = tp.sizes_of(source)
    totals = sizes.totals()
    assert (done.code, done.err) == (0, "")
    assert f"12 graphs, {totals['nodes']} nodes, {totals['edges']} edges" in done.out
    assert json.loads((tmp_path / "chunks" / "metadata.json").read_text())["graph_name"] == "mine"
    arguments = ("partition", tmp_path / "chunks", "-o", tmp_path / "parts", "--parts", 2, "--workers", 1)
    done = run(*arguments, "--balance", "train", "--balance", "test")
    assert done.code == 0, done.err
    for text in ("nodes", "edges", "train", "test", "2 parts written, 0 already there", "no edge is cut"):
        assert text in done.out
    document = json.loads(run(*arguments, "--json", "--balance", "train", "--balance", "test").out)
    assert (document["written"], document["kept"]) == ([], [0, 1])
    assert [*document["bound"]] == ["nodes", "edges", "train", "test"]
    numbers = [dgl.distributed.load_partition(document["config"], part)[0].num_nodes() for part in range(2)]
    assert sum(numbers) == totals["nodes"]
    assert document["imbalance"]["nodes"] == pytest.approx(max(numbers) / np.mean(numbers))


def test_bad_usage_is_refused(run: Run, source: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "out")
    for arguments, part in (
        (("chunk", source, *out, "--edges-as", "xml"), "csv, numpy, parquet"),
        (("chunk", source, *out, "--chunks", 0), "--chunks"),
        (("partition", source, *out), "--parts"),
    ):
        done = run(*arguments)
        assert (done.code, part in done.err) == (2, True)
    for arguments, part in (
        (("partition", source, *out, "--parts", 2, "--balance", "valid"), "'valid'"),
        (("partition", "example:ogbg-molhiv", *out, "--parts", 2), "only sizes"),
    ):
        done = run(*arguments)
        assert (done.code, part in done.err) == (1, True)
