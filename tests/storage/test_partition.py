"""Partitions for `dgl.distributed`: DGL opens them, every graph is in one part, and a killed run goes on."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, InputError, SchemaError, SizesError
from tests.support.graphs import Content, contents, split_item
from tests.support.messages import refused
from tests.support.partitions import divided, ids_of
from tests.support.stores import molecules, purchases


def checksums(store: tp.GraphStore) -> dict[Any, str]:
    return {key: entry.sha256 for key, entry in store.segments[0].entries.items()}


@settings(max_examples=10)
@given(contents(), st.integers(1, 4))
def test_every_graph_is_in_one_part_as_it_was(content: Content, parts: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        # The first graph shows all features.
        items = [content.example, *content.items]
        number = len(items)
        store = tp.GraphStore.write(Path(name, "store"), items, splits={"train": [number - 1, 0], "none": []})
        done = divided(store, Path(name, "out"), parts)
        ids = ids_of(done, parts)
        assert sorted(itertools.chain(*ids)) == list(range(number))
        assert np.load(Path(name, "out", "graph_parts.npy")).tolist() == [
            next(p for p in range(parts) if i in ids[p]) for i in range(number)
        ]
        for part, own in enumerate(ids):
            folder = Path(name, "out", f"part{part}")
            assert tp.sizes_of(folder).array.tolist() == store.sizes.array[own].tolist()
            if not own:
                with refused(SizesError, "no graphs"):
                    tp.GraphStore.write(Path(name, "back"), folder, overwrite=True)
                continue
            splits = {"train": [own.index(i) for i in (number - 1, 0) if i in own], "none": []}
            expected = tp.GraphStore.write(Path(name, "right"), store.subset(own), splits=splits, overwrite=True)
            found = tp.GraphStore.write(Path(name, "back"), folder, overwrite=True)
            assert found.schema == store.schema
            assert checksums(found) == checksums(expected)
        numbers = store.sizes.array
        totals = np.array([numbers[own].sum(axis=0) for own in ids])
        for column, value in enumerate(done.imbalance.values()):
            mean = totals[:, column].mean()
            assert value == pytest.approx(totals[:, column].max() / mean if mean else 1)


@pytest.mark.parametrize(("items", "parts"), [(molecules(12), 3), (purchases(9), 2), (molecules(2), 4)])
def test_dgl_opens_each_part_and_its_graph_is_what_dgl_would_cut_out(
    items: list[Any], parts: int, tmp_path: Path
) -> None:
    done = divided(items, tmp_path / "out", parts)
    graphs = [split_item(item)[0] for item in items]
    types, large = graphs[0], dgl.batch(graphs)
    if len(types.ntypes) > 1:
        large = dgl.to_homogeneous(large)
    totals = [sum(graph.num_nodes(t) for graph in graphs) for t in types.ntypes]
    first = dict(zip(types.ntypes, np.cumsum([0, *totals]).tolist(), strict=False))
    assigned = [np.loadtxt(tmp_path / "out" / f"{t}.txt", np.int64, ndmin=1) for t in types.ntypes]
    # Nodes of a homogeneous graph of several types run type by type, as these files do.
    right, new_to_old, _ = dgl.partition_graph_with_halo(
        large, torch.from_numpy(np.concatenate(assigned)), 1, reshuffle=True
    )
    assert len(new_to_old) == large.num_nodes()
    seen: dict[str, list[torch.Tensor]] = {}
    for part in range(parts):
        graph, nodes, edges, book, name, node_types, edge_types = dgl.distributed.load_partition(str(done.config), part)
        assert (name, node_types, edge_types) == ("graphs", types.ntypes, types.canonical_etypes)
        assert book.num_partitions() == parts
        expected = right.get(part)
        number = 0 if expected is None else expected.num_nodes()
        assert (graph.num_nodes(), graph.num_edges()) == (number, 0 if expected is None else expected.num_edges())
        folder = tmp_path / "out" / f"part{part}"
        originals = _tensors(folder / "orig_nids.dgl")
        old = torch.cat([originals[t] + first[t] for t in types.ntypes])
        if expected is not None:
            assert bool(expected.ndata["inner_node"].all())
            theirs = expected.ndata["orig_id"]
            assert sorted(old.tolist()) == sorted(theirs.tolist())
            assert _pairs(graph, old) == _pairs(expected, theirs)
        for t in types.ntypes:
            own = graph.ndata[dgl.NID]
            if len(types.ntypes) > 1:
                own = own[graph.ndata["_TYPE"] == types.get_ntype_id(t)]
            assert torch.equal(book.partid2nids(part, t), book.map_to_per_ntype(own)[1])
            seen.setdefault(t, []).append(originals[t])
        features = {f"{t}/{n}": value.dtype for t in types.ntypes for n, value in types.nodes[t].data.items()}
        assert {key: value.dtype for key, value in nodes.items()} == features
        assert all(len(value) == len(originals[key.split("/")[0]]) for key, value in nodes.items())
        assert edges.keys() == {f"{':'.join(e)}/{n}" for e in types.canonical_etypes for n in types.edges[e].data}
    for ids, total in zip(seen.values(), totals, strict=True):
        assert sorted(torch.cat(ids).tolist()) == list(range(total))


def _tensors(file: Path) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = dgl.data.load_tensors(str(file))
    return tensors


def _pairs(graph: Any, old: torch.Tensor) -> list[tuple[int, int]]:
    src, dst = graph.edges()
    return sorted(zip(old[src].tolist(), old[dst].tolist(), strict=True))


@pytest.mark.parametrize("hetero", [False, True])
def test_the_files_and_fields_are_those_of_dgl(hetero: bool, tmp_path: Path) -> None:
    items = purchases(6) if hetero else [graph for graph, _ in molecules(6)]
    done = divided(items, tmp_path / "ours", 2)
    dgl.distributed.partition_graph(dgl.batch(items), "graphs", 2, str(tmp_path / "dgl"), part_method="random")
    ours, theirs = (json.loads((tmp_path / name / "graphs.json").read_text()) for name in ("ours", "dgl"))
    assert ours.keys() == theirs.keys()
    for key in ours.keys() - {"part_method", "node_map", "edge_map"}:
        assert ours[key] == theirs[key]
    for key in ("node_map", "edge_map"):
        assert ours[key].keys() == theirs[key].keys()
    assert done.config == tmp_path / "ours" / "graphs.json"
    for part in range(2):
        (a,), (b,) = (dgl.load_graphs(str(tmp_path / n / f"part{part}" / "graph.dgl"))[0] for n in ("ours", "dgl"))
        for left, right in ((a.ndata, b.ndata), (a.edata, b.edata)):
            assert {n: v.dtype for n, v in left.items()} == {n: v.dtype for n, v in right.items()}
        for file in ("node_feat.dgl", "edge_feat.dgl"):
            pair = (_tensors(tmp_path / n / f"part{part}" / file) for n in ("ours", "dgl"))
            left, right = ({n: (v.dtype, v.shape[1:]) for n, v in found.items()} for found in pair)
            assert left == right


def test_masks_and_splits_are_balanced_and_others_refused(tmp_path: Path) -> None:
    items = molecules(200)
    rng = np.random.default_rng(0)
    for graph, _ in items:
        graph.ndata["train_mask"] = torch.from_numpy(rng.random(graph.num_nodes()) < 0.2)
    store = tp.GraphStore.write(tmp_path / "s", items, splits={"test": rng.choice(200, 40, replace=False)})
    done = divided(store, tmp_path / "out", 4, balance=["train_mask", "test"])
    assert list(done.imbalance) == ["nodes", "edges", "train_mask", "test"]
    assert max(done.imbalance.values()) < 1.05
    marked = [sum(int(items[i][0].ndata["train_mask"].sum()) for i in own) for own in ids_of(done, 4)]
    assert done.imbalance["train_mask"] == pytest.approx(max(marked) / np.mean(marked))
    for balance, parts in ((["x"], ("'x'", "one bool")), (["valid"], ("'valid'", "'test'", "train_mask"))):
        with refused(SizesError, *parts):
            divided(store, tmp_path / "other", 4, balance=balance)
    both = tp.GraphStore.write(tmp_path / "both", items, splits={"train_mask": [0]})
    with refused(SizesError, "'train_mask'", "both a split and a node feature"):
        divided(both, tmp_path / "other", 4, balance=["train_mask"])
    with refused(SizesError, "'nodes'", "always balanced"):
        divided(store, tmp_path / "other", 4, balance=["nodes"])
    with refused(InputError, "balance is 'test'"):
        divided(store, tmp_path / "other", 4, balance="test")


def test_folders_with_other_content_and_wrong_settings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").touch()
    with refused(FormatError, "x.txt", "empty folder"):
        divided(molecules(), tmp_path, 2)
    with refused(FormatError, "not a folder"):
        divided(molecules(), tmp_path / "x.txt", 2)
    for wrong in ({"name": "a/b"}, {"name": "partition"}, {"workers": 0}, {"parts": 0}):
        with refused(InputError, *wrong):
            divided(molecules(), tmp_path / "out", **{"parts": 2, **wrong})
    graph = dgl.graph(([0], [1]))
    with refused(SchemaError, "one large graph"):
        divided([({"a": graph, "b": graph}, 1)], tmp_path / "out", 2)
    with refused(SizesError, "no graphs"):
        divided([], tmp_path / "out", 2)
    assert not (tmp_path / "out").exists()


def test_a_part_is_told_from_other_folders_and_damage_is_named(tmp_path: Path) -> None:
    divided(molecules(12), tmp_path / "out", 2)
    part = tmp_path / "out" / "part0"
    content = (part / "graph.dgl").read_bytes()
    for other in (content[: len(content) // 2], (tmp_path / "out" / "part1" / "graph.dgl").read_bytes()):
        (part / "graph.dgl").write_bytes(other)
        with refused(FormatError, "part0/graph.dgl has changed", "again"):
            tp.GraphStore.write(tmp_path / "s", part)
    (part / "graphs.npz").unlink()
    with refused(FormatError, "graphs.npz"):
        tp.sizes_of(part)
    (part / "part.json").unlink()
    with refused(FormatError, "without the file part.json", "dgl_tuplepack.partition"):
        tp.sizes_of(part)


@pytest.mark.processes
def test_scripts_over_dist_graph_and_over_parts_train_on_every_marked_node(tmp_path: Path) -> None:
    program = Path(__file__).parents[1] / "programs" / "dist_graph.py"
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, cwd=tmp_path, timeout=300,
        env={**os.environ, "PYTHONPATH": str(program.parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected, of_dist_graph, of_parts = map(int, done.stdout.splitlines()[-1].split())
    assert expected == of_dist_graph == of_parts > 0
