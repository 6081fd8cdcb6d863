"""Folders in DGL's chunked graph format, by other programs: every small graph is found, and damage is reported."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, InputError, SchemaError, SizesError
from tests.support.chunked import Large, change, items_of, random_large, with_components, write_large
from tests.support.graphs import assert_same_item
from tests.support.messages import refused
from tests.support.shards import make_shards
from tests.support.stores import assert_same_items

SMALL = Large(
    {"_N": 5},
    {("_N", "_E", "_N"): np.array([[3, 4], [0, 2], [2, 0], [1, 1]])},
    {"_N": {"x": np.arange(5.0)}},
    {("_N", "_E", "_N"): {"w": np.arange(4)}},
    {"_N": np.array([0, 1, 0, 2, 2])},
)
HOW = st.sampled_from(["graph_id", "components", "array"])


@given(
    st.integers(0, 2**31),
    st.booleans(),
    HOW,
    st.integers(1, 3),
    st.sampled_from(["csv", "numpy"]),
    st.sampled_from(" ,|"),
)
def test_graphs_are_found_wherever_their_nodes_and_edges_lie(
    seed: int, hetero: bool, how: str, chunks: int, edges_as: str, delimiter: str
) -> None:
    large = random_large(seed, hetero)
    if how == "components":
        large = with_components(large)
    with tempfile.TemporaryDirectory() as name:
        settings = {"edges_as": edges_as, "with_ids": how == "graph_id", "delimiter": delimiter}
        files = (seed % 4 + 1, seed % 3 + 1)
        folder = write_large(Path(name, "theirs"), large, chunks, files=files, **settings)
        given_ids = large.graph_of if hetero else large.graph_of["_N"]
        source: Any = tp.ChunkedGraph(folder, graph_ids=given_ids) if how == "array" else folder
        expected = items_of(large)
        assert tp.sizes_of(source).array.tolist() == tp.sizes_of(expected).array.tolist()
        store = tp.GraphStore.write(Path(name, "store"), source)
        assert len(store) == len(expected)
        assert not store.splits
        for found, right in zip(store, expected, strict=True):
            assert_same_item(found, right)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_large(tmp_path / "theirs", SMALL, 2)


def test_a_folder_is_a_source_of_preprocess_and_shards(folder: Path, tmp_path: Path) -> None:
    limits = tp.Limits(30, 30)
    assert_same_items(tp.preprocess(folder, tmp_path / "one", limits=limits).store, items_of(SMALL))
    for expected in (("a",), ()):
        assert make_shards({"a": folder}, tmp_path / "many").written == expected
    assert make_shards({"a": tp.ChunkedGraph(folder)}, tmp_path / "other").written == ("a",)
    loader = tp.packed_loader(tp.ChunkedGraph(folder), 2)
    assert sum(batch.num_real_graphs for batch in loader) == 3


def test_absolute_paths_may_leave_the_folder_only_if_allowed(tmp_path: Path) -> None:
    folder = write_large(tmp_path / "theirs", SMALL, absolute=True)
    assert len(tp.sizes_of(folder)) == 3
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(folder / "metadata.json", elsewhere)
    with refused(FormatError, "outside the folder", "absolute_paths=True"):
        tp.sizes_of(elsewhere)
    assert len(tp.sizes_of(tp.ChunkedGraph(elsewhere, absolute_paths=True))) == 3


def _set(*keys: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def edit(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = to

    return edit


EDGES = ("edges", "_N:_E:_N")


@pytest.mark.parametrize(
    ("edit", "parts"),
    [
        (_set("num_nodes_per_chunk", to=[[3, 1]]), ("hold 5 rows", "counts 4")),
        (_set("num_edges_per_chunk", to=[[3, -1]]), ("number of a chunk", "-1")),
        (_set("edge_type", to=["_N:_E"]), ("metadata.json", "unpack")),
        (_set("edge_type", to=["_N:_E:_M"]), ("_N:_E:_M", "source:relation:destination")),
        (_set(*EDGES, "data", 0, to="../secret.csv"), ("secret", "outside the folder")),
        (_set(*EDGES, "data", 0, to="/etc/hosts"), ("/etc/hosts", "absolute_paths")),
        (_set(*EDGES, "data", 0, to="gone.csv"), ("gone.csv", "does not exist")),
        (_set(*EDGES, "data", to="x.csv"), ("x.csv", "a list of files")),
        (_set(*EDGES, "format", to={"name": "xml"}), ("xml", "csv or numpy or parquet")),
        (_set(*EDGES, "format", "delimiter", to=";"), ("_N__E__N-0.csv",)),
        (lambda document: document.update(edge_type=[], num_edges_per_chunk=[], edges={}), ("no edge types",)),
        (_set("node_data", "_M", to={"x": {}}), ("node_data", "'_M'", "correct it")),
        (_set("edges", to={}), ("'_N:_E:_N' is missing",)),
    ],
)
def test_metadata_that_contradicts_the_files_is_refused(
    folder: Path, edit: Callable[[dict[str, Any]], None], parts: tuple[str, ...]
) -> None:
    (folder.parent / "secret.csv").write_text("0 0\n")
    change(folder, edit)
    with refused(FormatError, *parts):
        tp.sizes_of(folder)


@pytest.mark.parametrize(
    ("file", "content", "parts"),
    [
        ("_N__E__N-1.csv", b"2 5\n", ("edge 2", "the node 5", "0..4")),
        ("_N__E__N-1.csv", b"0 1\n", ("edge 2", "connects the graphs 0 and 1", "graph_ids")),
        ("_N__E__N-1.csv", b"2 0.5\n", ("_N__E__N-1.csv", "another format")),
        ("_N__E__N-1.csv", b"", ("hold 3 rows",)),
        ("_N__E__N-1.csv", b"7\n", ("_N__E__N-1.csv", "two integers")),
        ("_N_x-1.npy", b"\x93NUMPY", ("_N_x-1.npy", "truncated")),
        ("_N_x-1.npy", None, ("_N_x-1.npy", "does not exist")),
        ("metadata.json", b'{"graph_name": ', ("metadata.json", "not valid JSON")),
    ],
)
def test_damaged_files_are_named(folder: Path, file: str, content: bytes | None, parts: tuple[str, ...]) -> None:
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with refused(FormatError, *parts):
        tp.sizes_of(folder)


def test_files_of_edges_may_have_different_integers(tmp_path: Path) -> None:
    """Numbers of nodes that only the second file's dtype can hold were reduced to the dtype of the first file."""
    ends = np.array([[0, 1], [300, 301], [1, 0], [301, 300]])
    large = Large({"_N": 302}, {("_N", "_E", "_N"): ends}, graph_of={"_N": np.arange(302) // 2})
    folder = write_large(tmp_path / "theirs", large, 2, edges_as="numpy", files=(2, 1))
    first, second = sorted(folder.glob("*_E_*.npy"))
    ends[[1, 2]] = ends[[2, 1]]
    np.save(first, ends[:2].astype(np.uint8))
    np.save(second, ends[2:].astype(np.uint16))
    large.ends[("_N", "_E", "_N")] = ends
    for found, right in zip(tp.GraphStore.write(tmp_path / "store", folder), items_of(large), strict=True):
        assert_same_item(found, right)


def test_files_of_two_dtypes_are_refused(folder: Path) -> None:
    np.save(folder / "_N_x-1.npy", np.zeros(2, np.float32))
    with refused(FormatError, "float32", "float64", "same dtype and shape"):
        tp.sizes_of(folder)


def test_ids_of_graphs_must_be_integers_for_all_nodes(folder: Path) -> None:
    for ids, parts in (
        ([0, 1], ("2 graph ids", "5 nodes")),
        ({}, ("0 graph ids", "'_N'")),
        ([0.5] * 5, ("graph_id of '_N'", "float64", "integers")),
        ([True] * 5, ("graph_id of '_N'", "bool", "integers")),
    ):
        with refused(SizesError, *parts):
            tp.sizes_of(tp.ChunkedGraph(folder, graph_ids=ids))
    # Given ids take precedence over those in the folder.
    assert len(tp.ChunkedGraph(folder, graph_ids=[7, 7, 7, 7, 7])) == 1
    with refused(InputError, "absolute_paths"):
        tp.ChunkedGraph(folder, absolute_paths="yes")  # type: ignore[arg-type]


def test_a_graph_id_for_some_types_only_is_refused(tmp_path: Path) -> None:
    folder = write_large(tmp_path / "theirs", random_large(0, True))
    change(folder, lambda document: document["node_data"]["a"].pop("graph_id"))
    with refused(FormatError, "graph_id", "['b']", "graph_ids="):
        tp.sizes_of(folder)


def test_a_text_feature_is_named(folder: Path, tmp_path: Path) -> None:
    np.save(folder / "_N_x-0.npy", np.array(["a", "b", "c"]))
    np.save(folder / "_N_x-1.npy", np.array(["d", "e"]))
    with refused(SchemaError, "'x'", "<U1", "convert it to numbers"):
        tp.GraphStore.write(tmp_path / "store", folder)


def test_the_index_of_pandas_is_not_a_feature(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = pytest.importorskip("pandas").DataFrame({"a": [4.0, 2.0, 0.0, 1.0, 3.0]}).sort_values("a")
    table.to_parquet(folder / "x.parquet")
    change(folder, _set("node_data", "_N", "x", to={"format": {"name": "parquet"}, "data": ["x.parquet"]}))
    first = tp.GraphStore.write(tmp_path / "store", folder)[0]
    # Nodes 0 and 2 are those of graph 0.
    assert first.ndata["x"].flatten().tolist() == [0.0, 2.0]
