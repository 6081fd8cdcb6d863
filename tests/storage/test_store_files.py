"""Damaged stores are refused, by the name of the file; no damage makes the process crash."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, GraphTooLargeError, SizesError
from dgl_tuplepack.storage.format import STORE_FILE, StoreMetadata
from tests.support.messages import refused
from tests.support.stores import (
    LIMITS,
    SPLITS,
    checksum_of,
    data_of,
    files_of,
    molecules,
    purchases,
    rewrite_metadata,
    write_shards,
)

FILES = [
    "node_offsets", "edge_offsets", "sources", "destinations", "node_feature feat", "node_feature x",
    "edge_feature feat", "label", "split train", "split test", "size_classes",
]  # fmt: skip


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stores `plain` and `hetero`."""
    folder = tmp_path_factory.mktemp("stores")
    tp.GraphStore.write(folder / "plain", molecules(), splits=SPLITS)
    tp.GraphStore.write(folder / "hetero", purchases())
    return folder


@pytest.fixture
def store(originals: Path, tmp_path: Path) -> Path:
    """A copy of `plain` to damage."""
    shutil.copytree(originals / "plain", tmp_path / "store")
    return tmp_path / "store"


LINUX = pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="this system does not list its maps")


def maps_of(folder: Path) -> int:
    """The number of files in a folder that are mapped into memory."""
    return Path("/proc/self/maps").read_text().count(str(folder))


@LINUX
def test_open_stores_keep_no_file_open_and_go_with_their_last_array(store: Path, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    opened = [tp.GraphStore(store) for _ in range(3)]
    shards = write_shards(tmp_path / "shards", [molecules(2), molecules(3)])
    assert len(os.listdir("/proc/self/fd")) == before
    assert maps_of(tmp_path / "shards") == sum(len(segment.entries) for segment in shards.segments)
    values = opened[0].segments[0].array("label", None, "")
    expected, batch = values.copy(), opened[1].padded(LIMITS)[[0, 1]]
    shutil.rmtree(store)
    assert np.array_equal(values, expected)
    assert opened[1].subset([0, 1]).padded(LIMITS)[[0, 1]].labels.equal(batch.labels)
    assert opened[1][1][1].equal(batch.labels[1])
    # The first map lives as long as a slice of its array.
    values = values[1:][:2]
    del opened
    gc.collect()
    assert maps_of(store) == 1
    assert np.array_equal(values, expected[1:3])
    del values
    assert maps_of(store) == 0


def test_arrays_of_a_store_cannot_be_written(store: Path) -> None:
    (segment,) = tp.GraphStore(store).segments
    for key in segment.entries:
        array = segment.array(*key)
        assert type(array) is np.ndarray
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
            array.flags.writeable = True


def test_what_holds_no_store_is_called_so(originals: Path, tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    for name in ("nothing", "nothing/below", "file.json", "empty"):
        with refused(FormatError, f"{tmp_path / name} is not a store", "metadata.json"):
            tp.GraphStore(tmp_path / name)
        with refused(FormatError, f"{tmp_path / name} is not a dataset of shards", "manifest.json"):
            tp.MultiStore(tmp_path / name)
    write_shards(tmp_path / "shards", [molecules()])
    with refused(FormatError, f"{tmp_path / 'shards'} is a dataset of shards", "MultiStore"):
        tp.GraphStore(tmp_path / "shards")
    with refused(FormatError, f"{originals / 'plain'} is a single store", "GraphStore"):
        tp.MultiStore(originals / "plain")


def test_files_are_read_by_numpy_alone(originals: Path) -> None:
    """As docs/reference/format.md describes them: flat arrays of all graphs, one after the other."""
    items = molecules()
    graphs, labels = [graph for graph, _ in items], [label for _, label in items]
    found = {name: np.load(path, allow_pickle=False) for name, path in files_of(originals / "plain").items()}
    nodes, edges = [g.num_nodes() for g in graphs], [g.num_edges() for g in graphs]
    assert found["node_offsets"].tolist() == [0, *np.cumsum(nodes)]
    assert found["edge_offsets"].tolist() == [0, *np.cumsum(edges)]
    for end, name in enumerate(("sources", "destinations")):
        assert found[name].tolist() == torch.cat([g.edges()[end] for g in graphs]).tolist()
        assert found[name].dtype == np.uint8
    features = {f"node_feature {name}": torch.cat([g.ndata[name] for g in graphs]) for name in ("feat", "x")}
    features |= {"edge_feature feat": torch.cat([g.edata["feat"] for g in graphs]), "label": torch.stack(labels)}
    for name, right in features.items():
        assert found[name].dtype == right.numpy().dtype
        assert np.array_equal(found[name], right.numpy())
    assert {name: found[f"split {name}"].tolist() for name in SPLITS} == SPLITS
    classes, counts = np.unique(np.stack([nodes, edges], axis=1), axis=0, return_counts=True)
    assert sorted(found["size_classes"].tolist()) == sorted(np.column_stack([classes, counts]).tolist())
    # Anyone can compute the checksum, with json and hashlib.
    document = json.loads((originals / "plain" / "metadata.json").read_text())
    assert document["checksum"] == checksum_of(document)
    assert (document["format"], document["version"]) == ("dgl_tuplepack.store", 1)


def edited(change: Callable[[bytes], bytes]) -> Callable[[Path], Any]:
    return lambda file: file.write_bytes(change(file.read_bytes()))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "cut by a byte": edited(lambda data: data[:-1]),
    "half a header": edited(lambda data: data[:40]),
    "order in the header": edited(lambda data: data.replace(b"'fortran_order': False", b"'fortran_order': True ")),
    "removed": lambda file: file.unlink(),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_refused_at_opening(store: Path, damage: str) -> None:
    """Of each file in turn."""
    files = files_of(store)
    assert sorted(files) == sorted(FILES)
    for file in files.values():
        intact = file.read_bytes()
        DAMAGES[damage](file)
        with refused(FormatError, file.name, str(store)):
            tp.GraphStore(store)
        if file.is_dir():
            file.rmdir()
        file.unlink(missing_ok=True)
        file.write_bytes(intact)


@given(data=st.data())
def test_verify_finds_any_flipped_bit(data: st.DataObject, originals: Path) -> None:
    """Of any file, header and values, seen by a store that was opened before; the message names the file."""
    which = data.draw(st.sampled_from(["plain", "hetero"]))
    path = originals / which
    opened = tp.GraphStore(path)
    file = data.draw(st.sampled_from(sorted(data_of(path).iterdir())))
    intact = file.read_bytes()
    changed = bytearray(intact)
    changed[data.draw(st.integers(0, len(intact) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    # The store maps the file, so its bytes are written in place.
    with file.open("r+b") as damaged:
        damaged.write(changed)
    try:
        with refused(FormatError, file.name):
            opened.verify()
    finally:
        with file.open("r+b") as damaged:
            damaged.write(intact)
    opened.verify()


@given(data=st.data())
def test_any_flipped_bit_of_the_metadata_is_refused(
    data: st.DataObject, originals: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    intact = (originals / "plain" / "metadata.json").read_bytes()
    position, bit = data.draw(st.integers(0, len(intact) - 1)), data.draw(st.integers(0, 7))
    changed = bytearray(intact)
    changed[position] ^= 1 << bit
    path = tmp_path_factory.mktemp("flipped")
    (path / "metadata.json").write_bytes(changed)
    with contextlib.suppress(ValueError):
        if json.loads(changed) == json.loads(intact):
            return
    with refused(FormatError, "metadata.json"):
        StoreMetadata.load(path)


def test_newer_foreign_and_cut_documents_are_refused(store: Path) -> None:
    file = store / "metadata.json"
    text = file.read_text()
    rewrite_metadata(store, lambda document: document.update(version=3))
    with refused(FormatError, str(file), "version 3", "reads version 1"):
        tp.GraphStore(store)
    rewrite_metadata(store, lambda document: document.update(version=1, format="dgl_tuplepack.plan"))
    with refused(FormatError, str(file), STORE_FILE.kind, "dgl_tuplepack.plan"):
        tp.GraphStore(store)
    for content in ("[]", "{}", "\xff", text[: len(text) // 2]):
        file.write_text(content, "latin-1")
        with refused(FormatError, str(file)):
            tp.GraphStore(store)


def of(content: str, /, **values: Any) -> Callable[[dict[str, Any]], None]:
    """Change the entry of the first array of a content."""
    return lambda document: next(e for e in document["arrays"] if e["content"] == content).update(values)


def without(content: str) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(arrays=[e for e in document["arrays"] if e["content"] != content])


# What would let compiled code read outside of an array, or lead to other files.
CONTRADICTIONS: dict[str, Callable[[dict[str, Any]], None]] = {
    "fewer graphs": lambda document: document.update(num_graphs=11),
    "data elsewhere": lambda document: document.update(data="../plain"),
    "no size classes": without("size_classes"),
    "fewer offsets": of("node_offsets", shape=[12]),
    "endpoints in two dimensions": of("sources", shape=[40, 1]),
    "features of unequal length": of("node_feature", shape=[1, 3]),
    "fewer labels": of("label", shape=[11, 2]),
    "too few columns of size classes": of("size_classes", shape=[12, 2]),
    "dtype that is not stored so": of("label", stored="int32"),
    "path with slashes": of("label", file="../label.npy"),
}


@pytest.mark.parametrize("change", CONTRADICTIONS)
def test_contradictions_are_refused(store: Path, change: str) -> None:
    """Where the checksum is right, so that it does not tell."""
    rewrite_metadata(store, CONTRADICTIONS[change])
    with refused(FormatError, str(store)):
        tp.GraphStore(store)


@pytest.mark.parametrize("value", [5, 2**33, 2**63 - 1])
def test_nodes_without_features_are_bounded_too(tmp_path: Path, value: int) -> None:
    """No other array tells how many there can be, and DGL makes graphs of any number."""
    store = tp.GraphStore.write(tmp_path, [dgl.graph(([0], [0])).int() for _ in range(4)])
    with files_of(tmp_path)["node_offsets"].open("r+b") as opened:
        opened.seek(128 + 2 * 8)
        opened.write(value.to_bytes(8, "little"))
    for read in (lambda: store[1], lambda: store.padded(LIMITS)[[1]], store.verify):
        with refused(FormatError, "node_offsets"):
            read()


def flipped(intact: bytes, rng: random.Random) -> bytes:
    """Change some bytes behind the header of a file, or whole numbers."""
    data = bytearray(intact)
    for _ in range(rng.choice([1, 1, 4, 50])):
        at = rng.randrange(128, len(data))
        data[at] = rng.choice([data[at] ^ (1 << rng.randrange(8)), 0xFF, 0x7F, 0x80])
        if rng.random() < 0.3:
            at -= at % 8
            data[at : at + 8] = rng.choice([2**63 - 1, 2**32, 2**63, 2**64 - 1, 1000]).to_bytes(8, "little")
    return bytes(data[: len(intact)])


def reads_of(store: tp.GraphStore) -> list[Callable[[], Any]]:
    """Each graph apart, then all at once; items as well as batches."""
    limits = tp.Limits.from_components(dict.fromkeys(store.schema.components, 10_000), 60)
    padded, everything = store.padded(limits), list(range(len(store)))
    reads: list[Callable[[], Any]] = [functools.partial(padded.__getitem__, [i]) for i in everything]
    reads += [functools.partial(store.__getitem__, i) for i in everything]
    reads += [lambda: padded[everything[::-1]], lambda: repr(store), store.verify]
    # The ids of a split come from a file of the store.
    reads += [lambda: store.subset(store.splits.get("train", [1, 0])).padded(limits)[[0, 1]]]
    return [*reads, lambda: store.to("cpu").padded(limits)[everything]]


@pytest.mark.parametrize("kind", ["plain", "hetero"])
def test_reading_a_flipped_store_never_crashes(originals: Path, tmp_path: Path, kind: str) -> None:
    """A crash would end the process of the tests; what is read is right or refused, and there is some of both."""
    path, rng, counts = tmp_path / kind, random.Random(1), {True: 0, False: 0}
    shutil.copytree(originals / kind, path)
    intact = {file: file.read_bytes() for file in sorted(data_of(path).iterdir())}
    # Offsets and endpoints are what could lead astray.
    astray = [f for f in intact if any(name in f.name for name in ("offsets", "sources", "destinations"))]
    files = [*intact, *3 * astray]
    for _ in range(40):
        store = tp.GraphStore(path)
        chosen = rng.sample(files, rng.choice([1, 1, 3]))
        tries = reads_of(store)
        for file in chosen:
            with file.open("r+b") as opened:
                opened.write(flipped(intact[file], rng))
        for read in tries:
            refusal = None
            try:
                read()
            except (FormatError, GraphTooLargeError, SizesError) as error:
                refusal = error
            assert not isinstance(refusal, FormatError) or str(path) in str(refusal)
            counts[refusal is None] += 1
        for file in chosen:
            with file.open("r+b") as opened:
                opened.write(intact[file])
    assert min(counts.values()) > 100, counts
