"""OGB's raw folders: a store of one holds the items that OGB's own code makes of it; damaged ones are refused."""

from __future__ import annotations

import collections
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from dgl_tuplepack.graphs.readers import ogb_folder
from dgl_tuplepack.graphs.readers.ogb_folder import OgbFolder
from tests.support.graphs import assert_same_item
from tests.support.messages import refused
from tests.support.ogb_folder import write_ogb_folder, write_raw_folder, write_table
from tests.support.stores import assert_same_items, molecules

# Nodes and edges of the graphs of a dataset. The first has no edges: it must not decide what the others look like.
NODES = [1, 3, 5, 2, 4, 1]
EDGES = [0, 4, 3, 0, 6, 0]


def raw_parts(seed: int = 0, features: str = "int") -> dict[str, Any]:
    """What `write_raw_folder` needs; features are "int", "float", "none", or "more": several of both."""
    rng = np.random.default_rng(seed)
    edges = [rng.integers(0, n, (m, 2)) for n, m in zip(NODES, EDGES, strict=True)]
    of_nodes, of_edges = rng.integers(-5, 1000, (sum(NODES), 4)), rng.integers(0, 9, (sum(EDGES), 3))
    tables = {
        "none": {},
        "int": {"node-feat": of_nodes, "edge-feat": of_edges},
        "float": {"node-feat": of_nodes + rng.random(of_nodes.shape), "edge-feat": rng.standard_normal(of_edges.shape)},
        "more": {
            "node-feat": of_nodes, "edge-feat": of_edges / 4,
            "node_depth": of_nodes[:, :1] % 7, "node_weight": rng.random((sum(NODES), 2)), "edge_kind": of_edges[:, :2],
        },
    }  # fmt: skip
    labels = rng.integers(0, 2, (len(NODES), 2))
    return {"nodes": NODES, "edges": edges, "labels": labels, "tables": tables[features]}


def lists(splits: Any) -> dict[str, list[int]]:
    return {name: ids.tolist() for name, ids in splits.items()}


def by_ogb(
    folder: Path, task: str = "classification", inverse: bool = False, more: str = "None,None", **meta: Any
) -> Any:
    """The dataset object that OGB's own code makes of a folder."""
    ogb = pytest.importorskip("ogb.graphproppred", reason="the optional package ogb is not installed")
    of_nodes, _, of_edges = more.rpartition(",")
    known = {
        "dir_path": str(folder), "version": 1, "download_name": "own", "num tasks": 2, "eval metric": "rocauc",
        "task type": task, "num classes": 2, "binary": str((folder / "raw" / "data.npz").exists()),
        "add_inverse_edge": str(inverse), "additional node files": of_nodes, "additional edge files": of_edges,
        "split": "random", "url": "none",
    }  # fmt: skip
    return ogb.DglGraphPropPredDataset("ogbg-own", meta_dict=known)


@pytest.fixture(params=[1, 4096])
def graphs_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one graph, some without any edge; and the usual ones."""
    monkeypatch.setattr(ogb_folder, "_GRAPHS", request.param)


@pytest.mark.usefixtures("graphs_at_once")
@pytest.mark.parametrize(("features", "inverse"), [("int", False), ("float", True), ("none", True), ("more", False)])
def test_a_csv_folder_is_what_ogb_makes_of_it(tmp_path: Path, features: str, inverse: bool) -> None:
    """Also the first graphs without edges, whose features are then known by the width of the table alone."""
    parts = raw_parts(features=features)
    parts = {**parts, "nodes": NODES, "splits": {"random": {"train": [0, 3, 4], "valid": [1], "test": [5, 2]}}}
    folder = write_raw_folder(tmp_path / "own", **parts)
    more = "node_depth,node_weight,edge_kind" if features == "more" else "None,None"
    expected = by_ogb(folder, inverse=inverse, more=more)
    source = OgbFolder(folder, add_inverse_edge=inverse)
    store = tp.GraphStore.write(tmp_path / "store", source)
    assert_same_items(store, expected)
    assert lists(store.splits) == {p: ids.tolist() for p, ids in expected.get_idx_split().items()}
    assert source.sizes.array.tolist() == tp.sizes_of(expected).array.tolist() == store.sizes.array.tolist()
    # The object itself is a source too.
    same = tp.GraphStore.write(tmp_path / "same", expected)
    assert_same_items(same, expected)
    assert lists(same.splits) == lists(store.splits)


def test_tables_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    parts = {**raw_parts(), "splits": {"random": {"train": [0, 3, 4], "valid": [1], "test": [5, 2]}}}
    folders = [write_raw_folder(tmp_path / name, **parts) for name in ("plain", "marked")]
    for path in folders[1].rglob("*.csv.gz"):
        path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + gzip.decompress(path.read_bytes())))
    plain, marked = (
        tp.GraphStore.write(tmp_path / f"store {folder.name}", OgbFolder(folder, add_inverse_edge=False))
        for folder in folders
    )
    # Integers stay integers.
    assert marked.schema == plain.schema
    assert_same_items(marked, list(plain))
    assert lists(marked.splits) == parts["splits"]["random"]


@pytest.mark.parametrize("kind", ["whole", "missing", "fraction", "nan"])
def test_labels_are_as_ogb_has_them(tmp_path: Path, kind: str) -> None:
    """Integers unless some are missing; float32 in regression."""
    parts = raw_parts(features="none")
    labels = parts["labels"].astype(float)
    if kind in ("missing", "nan"):
        labels[2, 0] = labels[4, 1] = np.nan
    parts["labels"] = {"whole": parts["labels"], "fraction": labels + 0.25}.get(kind, labels)
    folder = write_raw_folder(tmp_path / "own", **parts)
    if kind == "nan":
        named = rewritten(lambda t: "\n".join(",".join(field or "NA" for field in row.split(",")) for row in t.split()))
        named(folder / "raw" / "graph-label.csv.gz")
    expected = by_ogb(folder, task="regression" if kind == "fraction" else "classification")
    store = tp.GraphStore.write(tmp_path / "store", OgbFolder(folder, add_inverse_edge=False))
    for i in range(len(store)):
        found, right = store[i][1], expected[i][1]
        assert found.dtype == right.dtype
        assert torch.equal(found.nan_to_num(7), right.nan_to_num(7))
    bare = tp.GraphStore.write(tmp_path / "bare", OgbFolder(folder, add_inverse_edge=False, labels=False))
    assert not isinstance(bare[0], tuple)


@pytest.mark.parametrize("is_missing", [False, True])
def test_the_folder_of_a_known_dataset(tmp_path: Path, is_missing: bool) -> None:
    """Its name tells the inverse edges, the task and the usual split."""
    ogb = pytest.importorskip("ogb.graphproppred", reason="the optional package ogb is not installed")
    root = write_ogb_folder(tmp_path, tp.GraphSizes(tp.load_example("ogbg-molhiv").sizes[::40]))
    if is_missing:
        file = root / "ogbg_molhiv" / "raw" / "graph-label.csv.gz"
        file.write_bytes(gzip.compress(b"nan\n" + gzip.decompress(file.read_bytes()).partition(b"\n")[2]))
    expected = ogb.DglGraphPropPredDataset("ogbg-molhiv", root=str(root))
    for source in (root, root / "ogbg_molhiv", str(root), OgbFolder(root, "ogbg-molhiv")):
        store = tp.GraphStore.write(tmp_path / "store", source, overwrite=True)
        assert len(store) == len(expected)
        for i in range(0, len(store), 7):
            assert_same_item(store[i][0], expected[i][0])
        assert store[3][1].dtype == expected[3][1].dtype
    split = expected.get_idx_split()
    assert lists(store.splits) == lists(split)


@pytest.mark.usefixtures("graphs_at_once")
@pytest.mark.parametrize(("features", "fortran"), [("int", True), ("float", False), ("none", False), ("more", True)])
def test_a_binary_folder_is_what_ogb_makes_of_it(tmp_path: Path, features: str, fortran: bool) -> None:
    parts = raw_parts(features=features)
    parts["tables"] = {n: t if t.dtype.kind == "i" else t.astype(np.float32) for n, t in parts["tables"].items()}
    splits = {"random": {"train": [0, 3], "valid": [1, 2], "test": [5]}}
    folder = write_raw_folder(tmp_path / "own", **parts, splits=splits, binary=True, fortran=fortran)
    more = "node_depth,node_weight,edge_kind" if features == "more" else "None,None"
    store = tp.GraphStore.write(tmp_path / "store", folder)
    assert_same_items(store, by_ogb(folder, more=more))
    assert lists(store.splits) == splits["random"]
    with refused(FormatError, "both directions"):
        OgbFolder(folder, add_inverse_edge=True)


def test_several_splits(tmp_path: Path) -> None:
    """One must be chosen, unless it is known which is usual."""
    first, second = {"train": [0], "valid": [1], "test": [2]}, {"train": [5, 4], "valid": [3], "test": [1]}
    parts = raw_parts(features="none")
    folder = write_raw_folder(tmp_path / "own", **parts, splits={"random": first, "time": second})
    with refused(FormatError, "random, time", "split="):
        OgbFolder(folder, add_inverse_edge=False).splits  # noqa: B018
    with refused(FormatError, "'scaffold'", "random, time"):
        OgbFolder(folder, add_inverse_edge=False, split="scaffold").splits  # noqa: B018
    store = tp.GraphStore.write(tmp_path / "store", OgbFolder(folder, add_inverse_edge=False, split="time"))
    assert lists(store.splits) == second
    named = write_raw_folder(tmp_path / "ogbg_molbace", **parts, splits={"scaffold": first, "time": second})
    assert lists(OgbFolder(named).splits) == first


def rewritten(change: Callable[[str], str]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with gzip.open(path, "rt") as file:
            text = file.read()
        with gzip.open(path, "wt") as file:
            file.write(change(text))

    return damage


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "removed": lambda path: path.unlink(),
    "too few rows": rewritten(lambda text: text[: text.rindex("\n", 0, -1) + 1]),
    "too many rows": rewritten(lambda text: text + text[text.rindex("\n", 0, -1) + 1 :]),
    "empty": rewritten(lambda text: ""),
    "a row that is wider": rewritten(lambda text: text.rstrip() + ",1,1\n"),
    "text": rewritten(lambda text: text.replace(text[0], "x", 1)),
}
TABLES = ["edge", "node-feat", "graph-label", "num-node-list"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_tables_are_refused(tmp_path: Path, damage: str) -> None:
    """By name; a list of sizes with other numbers lets the tables disagree."""
    for table in TABLES:
        if table.endswith("feat") and damage == "removed":
            continue  # a dataset need not have features
        folder = write_raw_folder(tmp_path / table / "own", **raw_parts())
        path = folder / "raw" / f"{table}.csv.gz"
        DAMAGES[damage](path)
        with pytest.raises(FormatError) as caught:
            tp.GraphStore.write(tmp_path / "store", OgbFolder(folder, add_inverse_edge=False))
        # If rows are missing, another table may have too many.
        assert str(folder / "raw") in str(caught.value)
        if not table.startswith("num") or damage in ("truncated", "removed", "text"):
            assert path.name in str(caught.value)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("change", "error", "part"),
    [
        (lambda rows: np.where(np.arange(13)[:, None] == 5, 99, rows), SchemaError, "graph 2 has an edge at node"),
        (lambda rows: rows - [[9, 0]], SchemaError, "graph 1 has an edge at node"),
        (lambda rows: rows + 0.5, FormatError, "edge.csv.gz"),
        (lambda rows: rows[:, [0, 1, 1]], FormatError, "edge.csv.gz"),
    ],
)
def test_impossible_edges_are_refused(tmp_path: Path, change: Any, error: Any, part: str) -> None:
    parts = raw_parts()
    folder = write_raw_folder(tmp_path / "own", **parts)
    write_table(folder / "raw" / "edge.csv.gz", change(np.concatenate(parts["edges"])))
    with refused(error, part):
        tp.GraphStore.write(tmp_path / "store", OgbFolder(folder, add_inverse_edge=False))
    assert not (tmp_path / "store").exists()


def test_impossible_sizes_and_splits_are_refused(tmp_path: Path) -> None:
    splits = {"random": {"train": [0, 99], "valid": [1], "test": [2]}}
    folder = write_raw_folder(tmp_path / "own", **raw_parts(), splits=splits)
    with refused(SizesError, "99"):
        tp.GraphStore.write(tmp_path / "store", OgbFolder(folder, add_inverse_edge=False))
    (folder / "split" / "random" / "valid.csv.gz").unlink()
    with refused(FormatError, "valid.csv.gz"):
        tp.GraphStore.write(tmp_path / "store", OgbFolder(folder, add_inverse_edge=False))
    path = folder / "raw" / "num-node-list.csv.gz"
    write_table(path, np.array([[1], [-3], [5], [2], [4], [1]]))
    with refused(FormatError, path.name):
        tp.sizes_of(OgbFolder(folder, add_inverse_edge=False))
    write_table(path, np.array(NODES[:-1])[:, None])
    with refused(FormatError, str(folder / "raw"), "5", "6"):
        tp.sizes_of(OgbFolder(folder, add_inverse_edge=False))
    empty = write_raw_folder(tmp_path / "empty", **raw_parts())
    for name in ("num-node-list", "num-edge-list"):
        write_table(empty / "raw" / f"{name}.csv.gz", np.empty((0, 1)))
    with refused(FormatError, "more rows"):
        tp.GraphStore.write(tmp_path / "store", OgbFolder(empty, add_inverse_edge=False))
    for name in ("edge", "node-feat", "edge-feat", "graph-label"):
        write_table(empty / "raw" / f"{name}.csv.gz", np.empty((0, 1)))
    with refused(SizesError, "no graphs"):
        tp.GraphStore.write(tmp_path / "store", OgbFolder(empty, add_inverse_edge=False))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("damage", ["cut", "member", "short", "long", "objects", "strings"])
def test_damaged_archives_are_refused(tmp_path: Path, damage: str) -> None:
    folder = write_raw_folder(tmp_path / "own", **raw_parts(), binary=True)
    path = folder / "raw" / "data.npz"
    with np.load(path) as opened:
        arrays = dict(opened)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-30])
    elif damage == "member":
        del arrays["num_edges_list"]
        np.savez(path, **arrays)
    else:
        feat = arrays["node_feat"]
        arrays["node_feat"] = {"short": feat[:-1], "long": np.concatenate([feat, feat]),
                               "objects": feat.astype(object), "strings": feat.astype(str)}[damage]  # fmt: skip
        np.savez(path, **arrays)
    error, part = (SchemaError, "type") if damage == "strings" else (FormatError, path.name)
    with refused(error, part):
        tp.GraphStore.write(tmp_path / "store", folder)
    assert not (tmp_path / "store").exists()


def test_splits_are_not_unpickled(tmp_path: Path) -> None:
    """A file of saved splits may hold arrays of integers, and nothing that runs."""
    splits = {"random": {"train": [0], "valid": [1], "test": [2]}}
    folder = write_raw_folder(tmp_path / "own", **raw_parts(), splits=splits, binary=True)
    path = folder / "split" / "random" / "split_dict.pt"
    for content in ({"train": collections.Counter}, [1, 2], {"train": "text"}):
        torch.save(content, path)
        with refused(FormatError, str(path)):
            OgbFolder(folder).splits  # noqa: B018
    path.write_bytes(b"no file of torch")
    with refused(FormatError, str(path)):
        OgbFolder(folder).splits  # noqa: B018


def test_places_without_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("text")
    for path in (tmp_path, tmp_path / "file.txt"):
        with refused(FormatError, str(path), "raw"):
            tp.GraphStore.write(tmp_path / "store", path)
    with refused(FormatError, f"there is no {tmp_path / 'nothing'}", "OGB folder"):
        tp.GraphStore.write(tmp_path / "store", tmp_path / "nothing")
    stored = tp.GraphStore.write(tmp_path / "stored", molecules(7))
    with refused(FormatError, str(stored.path), "raw", "GraphStore(path)"):
        OgbFolder(stored.path)
    for name in ("one", "two"):
        write_raw_folder(tmp_path / "both" / name, **raw_parts(features="none"))
    with refused(FormatError, "one", "two"):
        tp.GraphStore.write(tmp_path / "store", tmp_path / "both")
    with refused(FormatError, "own", "add_inverse_edge"):
        OgbFolder(write_raw_folder(tmp_path / "own", **raw_parts()))
    with refused(FormatError, "text", "labels=False"):
        code = write_raw_folder(tmp_path / "ogbg_code2", **raw_parts())
        tp.GraphStore.write(tmp_path / "store", code)
