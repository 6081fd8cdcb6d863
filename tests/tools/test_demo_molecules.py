"""Synthetic molecules have exactly the sizes asked for, and are the same everywhere."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.tools.demo import run as demo
from dgl_tuplepack.tools.demo.run import NUM_ATOM_KINDS, NUM_BOND_KINDS
from tests.support.command import Run
from tests.support.molecules import random_molecules

ROWS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 90)), min_size=1, max_size=8)


@pytest.mark.dgl
@given(rows=ROWS, seed=st.integers(0, 2**64 - 1))
def test_sizes_are_exact_and_bonds_are_pairs(rows: list[tuple[int, int]], seed: int) -> None:
    for (graph, label), (nodes, edges) in zip(random_molecules(GraphSizes(rows), seed), rows, strict=True):
        assert (graph.num_nodes(), graph.num_edges()) == (nodes, edges)
        src, dst = (end.tolist() for end in graph.edges())
        assert dst[1::2] == src[0 : edges // 2 * 2 : 2]
        assert src[1::2] == dst[0 : edges // 2 * 2 : 2]
        assert graph.ndata["kind"].numel() == 0 or graph.ndata["kind"].max() < NUM_ATOM_KINDS
        assert graph.edata["kind"].numel() == 0 or graph.edata["kind"].max() < NUM_BOND_KINDS
        kinds = graph.ndata["kind"].tolist()
        bound = any((kinds[s], kinds[d]) == (1, 2) for s, d in zip(src, dst, strict=True))
        assert label.tolist() == [float(bound)]


@pytest.mark.dgl
def test_equal_seeds_give_equal_molecules() -> None:
    sizes = GraphSizes([[20, 40], [7, 12]])
    first, again, other = (random_molecules(sizes, seed)[0][0] for seed in (3, 3, 4))
    assert torch.equal(first.ndata["kind"], again.ndata["kind"])
    assert torch.equal(first.edges()[0], again.edges()[0])
    assert not torch.equal(first.ndata["kind"], other.ndata["kind"])
    # Pinned: the stream of random numbers must not change unnoticed.
    assert first.edges()[1][:12].tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 2, 6]
    assert first.ndata["kind"][:12].tolist() == [0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 2, 0]


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(SizesError, match="graph 1 has edges but no nodes; give it at least one"):
        random_molecules(GraphSizes([[1, 0], [0, 2]]))
    with pytest.raises(SizesError, match=r"need the components \('nodes', 'edges'\)"):
        random_molecules(GraphSizes(np.ones((1, 1), dtype=np.int64)))


@pytest.mark.dgl
@pytest.mark.compile
@pytest.mark.slow
@pytest.mark.usefixtures("forget")
def test_the_demo_trains_compares_and_draws(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each layer is some calls of the C++ compiler.
    monkeypatch.setattr(demo, "GIN", functools.partial(demo.GIN, num_layers=1))
    done = run("demo", "--graphs", 100, "--json", "--out", tmp_path / "new" / "folder")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert (result["graphs"], result["framework"]) == (100, "dgl")
    rows = {row["name"]: row for row in result["contenders"]}
    assert rows["plain batching"]["packs"] == 100
    assert {"next fit", "best fit, product", "auto"} <= set(rows)
    assert all(row["graphs_per_second"] > 0 for row in rows.values())
    two_lines = rows.pop("batches of 70")
    assert (two_lines["batches"], two_lines["shape"]["graphs"], result["training"]["compiled"]) == (1, 71, True)
    assert 0.5 < two_lines["efficiency"]["nodes"] < 1
    for row in rows.values():
        assert row["lower_bound"] <= row["packs"] <= 100
    assert np.isfinite([result["training"]["first_loss"], result["training"]["last_loss"]]).all()
    for picture in result["pictures"]:
        assert Path(picture).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    # Tables go to standard error then.
    assert "next fit" in done.err


def test_the_demo_leaves_out_compiled_code_if_torch_is_too_old_for_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.1.0+cpu")
    done = run("demo", "--graphs", 20, "--epochs", 1, "--json", "--out", tmp_path)
    assert done.code == 0, done.err
    names = [row["name"] for row in json.loads(done.out)["contenders"]]
    assert "auto" in names
    assert "batches of 70" not in names
