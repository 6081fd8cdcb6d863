"""Chunks and back: every graph, feature, label, id and split exactly once; no graph in two chunks."""

from __future__ import annotations

import itertools
import json
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, InputError, SchemaError, SizesError
from dgl_tuplepack.storage.chunks import chunk_bounds, write_chunks
from tests.support.chunked import change
from tests.support.graphs import Content, contents
from tests.support.messages import refused
from tests.support.stores import SPLITS, assert_same_items, flip, molecules, purchases

FORMS = ["csv", "numpy", *(["parquet"] if find_spec("pyarrow") else [])]


def arrays_of(store: tp.GraphStore) -> dict[Any, str]:
    """Checksums of all arrays."""
    return {(e.content, e.type, e.name, e.dtype): e.sha256 for e in store.segments[0].metadata.arrays}


@settings(max_examples=15)
@given(contents(), st.integers(1, 4), st.sampled_from(FORMS), st.sampled_from(FORMS[1:]), st.booleans())
def test_chunks_give_back_the_store_bit_for_bit(
    content: Content, chunks: int, edges_as: str, features_as: str, as_items: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        # The first graph shows all features.
        items = [content.example, *content.items]
        number, folder = len(items), Path(name, "chunks")
        splits = {"train": [number - 1, 0], "none": []}
        store = tp.GraphStore.write(Path(name, "store"), items, splits=splits)
        source: Any = store
        if as_items:
            source, store = items, tp.GraphStore.write(Path(name, "bare"), items)
        made = write_chunks(source, folder, chunks, edges_as=edges_as, features_as=features_as)
        assert len(made) == number
        back = tp.GraphStore.write(Path(name, "back"), folder)
        assert arrays_of(back) == arrays_of(store)
        assert back.schema == store.schema
        again = write_chunks(back, Path(name, "again"), chunks)
        assert arrays_of(tp.GraphStore.write(Path(name, "last"), again)) == arrays_of(store)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(1, 25))
def test_chunks_are_runs_of_graphs_of_about_equal_weight(weights: list[int], chunks: int) -> None:
    bounds = chunk_bounds(np.array(weights), chunks)
    assert bounds[0] == 0
    assert bounds[-1] == len(weights)
    assert len(bounds) == min(chunks, len(weights)) + 1
    assert (np.diff(bounds) > 0).all()
    if chunks <= len(weights):
        # A chunk that has more than its share ends with the graph that exceeds it.
        sums = [sum(weights[a : b - 1]) for a, b in itertools.pairwise(bounds)]
        assert max(sums) <= sum(weights) / chunks + max(weights)


def test_the_files_are_those_of_the_format_and_hold_whole_graphs(tmp_path: Path) -> None:
    items = purchases(8)
    write_chunks(items, tmp_path / "c", 3, name="shop")
    document = json.loads((tmp_path / "c" / "metadata.json").read_text())
    assert document["graph_name"] == "shop"
    assert document["node_type"] == ["item", "user"]
    assert document["edge_type"] == ["item:pleases:user", "user:buys:item", "user:follows:user"]
    for i, (name, counts) in enumerate(zip(document["edge_type"], document["num_edges_per_chunk"], strict=True)):
        source, _, destination = name.split(":")
        spec = document["edges"][name]
        assert spec["format"] == {"name": "csv", "delimiter": " "}
        first = {
            t: np.cumsum([0, *document["num_nodes_per_chunk"][document["node_type"].index(t)]])
            for t in ("item", "user")
        }
        for chunk, (file, count) in enumerate(zip(spec["data"], counts, strict=True)):
            pairs = np.loadtxt(tmp_path / "c" / file, np.int64, ndmin=2)
            assert len(pairs) == count
            for column, t in enumerate((source, destination)):
                assert pairs[:, column].min() >= first[t][chunk]
                assert pairs[:, column].max() < first[t][chunk + 1]
        assert sum(counts) == sum(graph.num_edges(items[0].canonical_etypes[i]) for graph in items)
    ids = [np.load(tmp_path / "c" / file) for file in document["node_data"]["user"]["graph_id"]["data"]]
    assert np.concatenate(ids).tolist() == [i for i, graph in enumerate(items) for _ in range(graph.num_nodes("user"))]
    assert not set.intersection(*(set(each.tolist()) for each in ids))


def test_every_source_is_written_and_an_existing_folder_only_on_request(tmp_path: Path) -> None:
    items = molecules(12)
    store = tp.GraphStore.write(tmp_path / "store", items, splits=SPLITS)
    write_chunks(store.subset([3, 1, 1]), tmp_path / "subset", 2)
    assert_same_items(tp.GraphStore.write(tmp_path / "back", tmp_path / "subset"), [items[i] for i in (3, 1, 1)])
    write_chunks(iter(items), tmp_path / "subset", overwrite=True)
    assert len(tp.sizes_of(tmp_path / "subset")) == 12
    # Nothing of the old chunks remains, nor of the temporary store.
    assert len([path for path in (tmp_path / "subset").iterdir() if path.is_dir()]) == 1
    assert not list((tmp_path / "subset").rglob("source"))
    # A failing source leaves the chunks as they are.
    with refused(SizesError, "no graphs"):
        write_chunks(iter([]), tmp_path / "subset", overwrite=True)
    assert len(tp.sizes_of(tmp_path / "subset")) == 12
    assert tp.GraphStore.write(tmp_path / "last", tmp_path / "subset").splits == {}


def test_graphs_without_nodes_keep_their_places(tmp_path: Path) -> None:
    import dgl

    items = [dgl.graph(([], []), num_nodes=n) for n in (0, 2, 0, 0)]
    made = write_chunks(items, tmp_path / "c", 2)
    assert tp.sizes_of(made).array.tolist() == [[0, 0], [2, 0], [0, 0], [0, 0]]


def test_what_the_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    import dgl

    graph = dgl.graph(([0], [1]))
    named = {"a": graph, "b": graph}
    with refused(SchemaError, "['a', 'b']", "one large graph"):
        write_chunks([(named, 1)], tmp_path / "c")
    for name in ("a/b", "a:b"):
        odd = dgl.heterograph({(name, "r", name): ([0], [0])})
        with refused(SchemaError, "the type", repr(name), "rename"):
            write_chunks([odd], tmp_path / "c")
    odd = dgl.graph(([0], [1]))
    odd.edata["x/y"] = torch.ones(1)
    with refused(SchemaError, "the feature 'x/y'", "rename"):
        write_chunks([odd], tmp_path / "c")
    graph.ndata["graph_id"] = torch.zeros(2)
    with refused(SchemaError, "graph_id", "rename"):
        write_chunks([graph], tmp_path / "c")
    assert not (tmp_path / "c").exists()
    for wrong, part in (
        ({"edges_as": "xml"}, "edges_as"),
        ({"features_as": "csv"}, "features_as"),
        ({"name": ""}, "name"),
    ):
        with refused(InputError, part):
            write_chunks(molecules(), tmp_path / "c", **wrong)
    with refused(InputError, "number of chunks"):
        write_chunks(molecules(), tmp_path / "c", 0)


def test_a_record_that_contradicts_the_files_is_refused(tmp_path: Path) -> None:
    folder, store = tmp_path / "c", tp.GraphStore.write(tmp_path / "s", molecules())

    def written(edit: Any) -> Path:
        write_chunks(store, folder, 2, overwrite=True)
        change(folder, edit)
        return folder

    def record(document: dict[str, Any] | None = None, **arrays: np.ndarray) -> Any:
        """Change values of the record's document, or its arrays."""

        def edit(metadata: dict[str, Any]) -> None:
            file = folder / metadata["dgl_tuplepack"]
            with np.load(file) as saved:
                content = {**saved, **arrays}
            text = json.dumps(json.loads(content["document"].item()) | (document or {}))
            np.savez(file, **{**content, "document": np.array(text)})

        return edit

    def flipped(metadata: dict[str, Any]) -> None:
        flip(folder / metadata["dgl_tuplepack"], 150)

    for edit, part in (
        (record({"version": 9}), "version"),
        (record({"node_types": ["a"]}), "damaged"),
        (record(sizes=store.sizes.array[:3]), "labels or ids"),
        (record(sizes=store.sizes.array[:3], ids=np.arange(3), label0=np.zeros((3, 1))), "graph_id outside 0..2"),
        (flipped, "damaged"),
        (lambda document: document.update(dgl_tuplepack="../x.npz"), "outside the folder"),
        (lambda document: document.update(dgl_tuplepack="x.npz"), "does not exist"),
        (lambda document: document["node_data"]["_N"].pop("x"), "other types, features"),
    ):
        with pytest.raises(FormatError, match=part):
            tp.GraphStore.write(tmp_path / "out", written(edit), overwrite=True)
    # Without the record it is a folder like that of any other program.
    bare = tp.GraphStore.write(tmp_path / "out", written(lambda document: document.pop("dgl_tuplepack")))
    assert len(bare) == 12
    assert not bare.schema.labels
    # With ids of one's own, graphs are others, so nothing recorded applies.
    write_chunks(store, folder, 2, overwrite=True)
    merged = tp.ChunkedGraph(folder, graph_ids=np.zeros(store.sizes.totals()["nodes"], int))
    assert merged.sizes.array.tolist() == [store.sizes.array.sum(axis=0).tolist()]
    assert not merged.splits


def test_stores_and_chunks_do_not_replace_each_other(tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "store", molecules())
    for overwrite in (False, True):
        with refused(FormatError, "holds a store", "no chunks", "choose another folder"):
            write_chunks(molecules(), tmp_path / "store", overwrite=overwrite)
    assert arrays_of(tp.GraphStore(tmp_path / "store")) == arrays_of(store)
    chunks = write_chunks(molecules(), tmp_path / "chunks")
    with refused(FormatError, "holds chunks already", "overwrite=True"):
        write_chunks(molecules(), tmp_path / "chunks")
    with refused(FormatError, "holds chunks", "no store", "choose another folder"):
        tp.GraphStore.write(tmp_path / "chunks", molecules(), overwrite=True)
    assert len(chunks) == len(tp.sizes_of(tmp_path / "chunks"))
