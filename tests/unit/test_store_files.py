"""Damaged stores are refused, by the name of the file; no damage makes the process crash."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
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
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.store.format import STORE_FILE, StoreMetadata
from tests.messages import refused
from tests.stores import (
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
    """A folder with the stores `plain`, `other` (the same schema and sizes, other values) and `hetero`."""
    folder = tmp_path_factory.mktemp("stores")
    tp.GraphStore.write(folder / "plain", molecules(), splits=SPLITS)
    items = molecules()
    for graph, label in items:
        graph.ndata["feat"] += 1
        label += 1
    tp.GraphStore.write(folder / "other", items, splits=SPLITS)
    tp.GraphStore.write(folder / "hetero", purchases())
    return folder


@pytest.fixture
def store(originals: Path, tmp_path: Path) -> Path:
    """A copy of `plain` to damage."""
    shutil.copytree(originals / "plain", tmp_path / "store")
    return tmp_path / "store"


def test_the_files_are_all_there(originals: Path) -> None:
    """Else the tests below would not damage each of them."""
    assert sorted(files_of(originals / "plain")) == sorted(FILES)
    assert {p.name for p in data_of(originals / "plain").iterdir()} == {
        p.name for p in files_of(originals / "plain").values()
    }


# What is no store --------------------------------------------------------------------------------------------


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
    # What the system cannot tell is no absence.
    with refused(FormatError, "cannot read", "name too long"):
        tp.GraphStore(tmp_path / ("x" * 300))


# The format --------------------------------------------------------------------------------------------------


def test_files_are_read_by_numpy_alone(originals: Path) -> None:
    """As docs/format.md describes them: flat arrays of all graphs, one after the other."""
    items = molecules()
    graphs, labels = [graph for graph, _ in items], [label for _, label in items]
    found = {name: np.load(path, allow_pickle=False) for name, path in files_of(originals / "plain").items()}
    nodes, edges = [g.num_nodes() for g in graphs], [g.num_edges() for g in graphs]
    assert found["node_offsets"].tolist() == [0, *np.cumsum(nodes)]
    assert found["edge_offsets"].tolist() == [0, *np.cumsum(edges)]
    for end, name in enumerate(("sources", "destinations")):
        assert found[name].tolist() == torch.cat([g.edges()[end] for g in graphs]).tolist()
        assert found[name].dtype == np.uint8
    for name, right in {
        "node_feature feat": torch.cat([g.ndata["feat"] for g in graphs]),
        "node_feature x": torch.cat([g.ndata["x"] for g in graphs]),
        "edge_feature feat": torch.cat([g.edata["feat"] for g in graphs]),
        "label": torch.stack(labels),
    }.items():
        assert found[name].dtype == right.numpy().dtype
        assert np.array_equal(found[name], right.numpy())
    assert {name: found[f"split {name}"].tolist() for name in SPLITS} == SPLITS
    sizes, counts = np.unique(np.stack([nodes, edges], axis=1), axis=0, return_counts=True)
    classes = found["size_classes"].tolist()
    assert sorted(classes) == sorted(
        [*size, count] for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)
    )


def test_values_start_aligned(originals: Path) -> None:
    """Headers take whole cache lines, so that mapped values can be used as they lie."""
    for file in (*files_of(originals / "plain").values(), *files_of(originals / "hetero").values()):
        with file.open("rb") as opened:
            np.lib.format.read_magic(opened)
            np.lib.format.read_array_header_1_0(opened)
            assert opened.tell() % 64 == 0


def test_nothing_is_pickled(originals: Path) -> None:
    for file in originals.rglob("*"):
        if file.is_file() and file.name != ".lock":
            assert file.suffix in (".npy", ".json"), file
            assert b"|O" not in file.read_bytes()[:200]


def test_the_checksum_is_that_of_the_document(originals: Path) -> None:
    """Anyone can compute it, with json and hashlib."""
    document = json.loads((originals / "plain" / "metadata.json").read_text())
    assert document["checksum"] == checksum_of(document)
    assert (document["format"], document["version"]) == ("dgl_tuplepack.store", 1)


# Damaged arrays ----------------------------------------------------------------------------------------------


def cut(number: int) -> Callable[[Path, Path], None]:
    """Take `number` bytes off the end."""

    def damage(file: Path, _: Path) -> None:
        file.write_bytes(file.read_bytes()[:-number])

    return damage


def edit_header(old: bytes, new: bytes) -> Callable[[Path, Path], None]:
    def damage(file: Path, _: Path) -> None:
        data = file.read_bytes()
        assert old in data[:128]
        file.write_bytes(data.replace(old, new, 1))

    return damage


def drop_a_row(file: Path, _: Path) -> None:
    """A valid .npy file of another shape."""
    np.save(file, np.load(file)[:-1])


def as_floats(file: Path, _: Path) -> None:
    """A valid .npy file of another dtype, as long as before where that is possible."""
    array = np.load(file)
    np.save(file, array.view({1: np.int8, 4: np.int32, 8: np.float64}[array.dtype.itemsize]))


def as_fortran(file: Path, _: Path) -> None:
    array = np.load(file)
    np.save(file, np.asfortranarray(array) if array.ndim > 1 else array[::-1])


def of_another_store(file: Path, originals: Path) -> None:
    """The file of the same name of a store with equal types, sizes and shapes."""
    shutil.copyfile(data_of(originals / "other") / file.name, file)


DAMAGES: dict[str, Callable[[Path, Path], Any]] = {
    "cut by a byte": cut(1),
    "cut by a value": cut(8),
    "emptied": lambda file, _: file.write_bytes(b""),
    "header alone": lambda file, _: file.write_bytes(file.read_bytes()[:128]),
    "half a header": lambda file, _: file.write_bytes(file.read_bytes()[:40]),
    "extended by a byte": lambda file, _: file.write_bytes(file.read_bytes() + b"\0"),
    "extended by a value": lambda file, _: file.write_bytes(file.read_bytes() + bytes(8)),
    "removed": lambda file, _: file.unlink(),
    "a folder": lambda file, _: (file.unlink(), file.mkdir()),
    "a dangling link": lambda file, _: (file.unlink(), file.symlink_to("nowhere")),
    "a loop of links": lambda file, _: (file.unlink(), file.symlink_to(file.name)),
    "foreign": lambda file, _: file.write_text("something else entirely, and long enough" * 20),
    "all zero": lambda file, _: file.write_bytes(bytes(file.stat().st_size)),
    "order in the header": edit_header(b"'fortran_order': False", b"'fortran_order': True "),
    "byte order in the header": edit_header(b"'descr': '", b"'descr':' "),
    "version in the header": edit_header(b"NUMPY\x01", b"NUMPY\x02"),
    "a row less": drop_a_row,
    "another dtype": as_floats,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_damage_is_refused_at_opening(store: Path, originals: Path, name: str, damage: str) -> None:
    file = files_of(store)[name]
    DAMAGES[damage](file, originals)
    with refused(FormatError, file.name, str(store)):
        tp.GraphStore(store)


@pytest.mark.parametrize("name", ["node_feature feat", "label"])
def test_files_of_another_store_are_refused(store: Path, originals: Path, name: str) -> None:
    """Of equal dtype and shape, but with other values."""
    file = files_of(store)[name]
    of_another_store(file, originals)
    with refused(FormatError, file.name):
        tp.GraphStore(store)


@pytest.mark.parametrize(
    "pair",
    [("sources", "destinations"), ("node_offsets", "edge_offsets"), ("node_feature feat", "edge_feature feat"),
     ("split train", "split test"), ("label", "size_classes")],
    ids=str,
)  # fmt: skip
def test_swapped_files_are_refused(store: Path, pair: tuple[str, str]) -> None:
    """Also those of equal dtype and shape, which a look at headers cannot tell apart."""
    first, second = (files_of(store)[name] for name in pair)
    contents = first.read_bytes(), second.read_bytes()
    assert contents[0] != contents[1]
    second.write_bytes(contents[0])
    first.write_bytes(contents[1])
    with pytest.raises(FormatError) as caught:
        tp.GraphStore(store)
    assert first.name in str(caught.value) or second.name in str(caught.value)


def test_the_data_of_another_store_is_refused(store: Path, originals: Path) -> None:
    data = data_of(store)
    shutil.rmtree(data)
    with refused(FormatError, str(data), "missing"):
        tp.GraphStore(store)
    shutil.copytree(data_of(originals / "hetero"), data)
    with refused(FormatError, str(data)):
        tp.GraphStore(store)


@given(data=st.data())
def test_verify_finds_any_flipped_bit(data: st.DataObject, originals: Path) -> None:
    """Of any file, header and values, seen by a store that was opened before; the message names the file."""
    which = data.draw(st.sampled_from(["plain", "hetero"]))
    path = originals / which
    opened = tp.GraphStore(path)
    file = data.draw(st.sampled_from(sorted(data_of(path).iterdir())))
    intact = file.read_bytes()
    position, bit = data.draw(st.integers(0, len(intact) - 1)), data.draw(st.integers(0, 7))
    try:
        with file.open("r+b") as damaged:
            damaged.seek(position)
            damaged.write(bytes([intact[position] ^ (1 << bit)]))
        with refused(FormatError, file.name):
            opened.verify()
    finally:
        with file.open("r+b") as damaged:
            damaged.write(intact)
    opened.verify()


def test_verify_finds_a_flip_between_the_samples(tmp_path: Path) -> None:
    """Opening looks at samples of large files, `verify` at every byte."""
    store = tp.GraphStore.write(tmp_path / "store", [(g, y) for g, y in molecules(4, most=60_000)])
    file = files_of(tmp_path / "store")["node_feature feat"]
    assert file.stat().st_size > 500_000
    with file.open("r+b") as opened:
        opened.seek(128 + (file.stat().st_size - 128) // 14)
        byte = opened.read(1)[0]
        opened.seek(-1, 1)
        opened.write(bytes([byte ^ 1]))
    with refused(FormatError, file.name, "checksum"):
        tp.GraphStore(tmp_path / "store").verify()
    with refused(FormatError, file.name, "checksum"):
        store.verify()


# Damaged metadata --------------------------------------------------------------------------------------------


def test_truncated_metadata_is_refused(store: Path) -> None:
    file = store / "metadata.json"
    text = file.read_text()
    for length in range(0, len(text) - 2, 97):
        file.write_text(text[:length])
        with refused(FormatError, str(file)):
            tp.GraphStore(store)


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
    try:
        same = json.loads(changed) == json.loads(intact)
    except ValueError:
        same = False
    if not same:
        with refused(FormatError, "metadata.json"):
            StoreMetadata.load(path)


@pytest.mark.parametrize(
    "key",
    [
        "format",
        "version",
        "data",
        "num_graphs",
        "node_types",
        "edge_types",
        "idtype",
        "arrays",
        "written_by",
        "checksum",
    ],
)
def test_missing_keys_are_refused(store: Path, key: str) -> None:
    """Also where the checksum is right."""
    file = store / "metadata.json"
    document = json.loads(file.read_text())
    del document[key]
    if key != "checksum":
        document["checksum"] = checksum_of(document)
    file.write_text(json.dumps(document))
    with refused(FormatError, str(file)):
        tp.GraphStore(store)


@pytest.mark.parametrize("key", ["file", "content", "type", "name", "dtype", "stored", "shape", "sample", "sha256"])
def test_missing_keys_of_arrays_are_refused(store: Path, key: str) -> None:
    rewrite_metadata(store, lambda document: document["arrays"][3].pop(key))
    with refused(FormatError, str(store / "metadata.json")):
        tp.GraphStore(store)


def test_newer_and_foreign_documents_are_refused(store: Path) -> None:
    file = store / "metadata.json"
    rewrite_metadata(store, lambda document: document.update(version=3))
    with refused(FormatError, str(file), "version 3", "version 1 and 2"):
        tp.GraphStore(store)
    rewrite_metadata(store, lambda document: document.update(version=1, format="dgl_tuplepack.plan"))
    with refused(FormatError, str(file), STORE_FILE.kind, "dgl_tuplepack.plan"):
        tp.GraphStore(store)
    for text in ("[]", "null", "{}", "3", '"text"', "[" * 100_000):
        file.write_text(text)
        with refused(FormatError, str(file)):
            tp.GraphStore(store)
    file.write_bytes(b"\xff\xfe\x00")
    with refused(FormatError, str(file)):
        tp.GraphStore(store)


def test_altered_values_are_refused(store: Path) -> None:
    """Valid in themselves; the checksum tells."""
    file = store / "metadata.json"
    text = file.read_text()
    for old, new in (('"num_graphs": 12', '"num_graphs": 11'), ('"idtype": "int64"', '"idtype": "int32"'),
                     ('"name": "x"', '"name": "y"')):  # fmt: skip
        assert old in text
        file.write_text(text.replace(old, new, 1))
        with refused(FormatError, str(file)):
            tp.GraphStore(store)


def entry(document: dict[str, Any], content: str, name: str | None = None) -> dict[str, Any]:
    return next(e for e in document["arrays"] if e["content"] == content and (name is None or e["name"] == name))


def resized(content: str, shape: list[Any], name: str | None = None) -> Callable[[dict[str, Any]], None]:
    return lambda document: entry(document, content, name).update(shape=shape)


def changed(of_content: str, /, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: entry(document, of_content).update(values)


def without(content: str) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["arrays"].remove(entry(document, content))


def twice(document: dict[str, Any]) -> None:
    document["arrays"].append({**entry(document, "label"), "file": "more.npy"})


CONTRADICTIONS: dict[str, Callable[[dict[str, Any]], None]] = {
    "fewer graphs": lambda document: document.update(num_graphs=11),
    "no graphs": lambda document: document.update(num_graphs=0),
    "graphs by text": lambda document: document.update(num_graphs="12"),
    "negative graphs": lambda document: document.update(num_graphs=-1),
    "fewer offsets": resized("node_offsets", [12]),
    "offsets in two dimensions": resized("edge_offsets", [13, 1]),
    "no offsets": without("edge_offsets"),
    "no sources": without("sources"),
    "no size classes": without("size_classes"),
    "fewer destinations": resized("destinations", [1]),
    "endpoints in two dimensions": resized("sources", [40, 1]),
    "features of unequal length": resized("node_feature", [1, 3], "feat"),
    "fewer labels": resized("label", [11, 2]),
    "a label without graphs": resized("label", []),
    "a feature without nodes": resized("node_feature", [], "x"),
    "an edge feature without edges": resized("edge_feature", []),
    "endpoints without edges": resized("sources", []),
    "size classes without classes": resized("size_classes", []),
    "too few columns of size classes": resized("size_classes", [12, 2]),
    "a split in two dimensions": resized("split", [2, 2], "train"),
    "a split without ids": resized("split", [], "train"),
    "negative shape": resized("label", [12, -2]),
    "fractional shape": resized("label", [12, 2.5]),
    "shape by text": resized("label", "12"),
    "too many dimensions": resized("label", [12, 2] + [1] * 100),
    "far too many dimensions": resized("label", [12, 2] + [1] * 40_000),
    "enormous shape": resized("label", [12, 2**62]),
    "unknown dtype": changed("label", dtype="float8", stored="float8"),
    "dtype of torch that is none": changed("label", dtype="nn", stored="nn"),
    "dtype that is not stored so": changed("label", stored="int32"),
    "floating-point offsets": changed("node_offsets", dtype="float64", stored="float64"),
    "unknown content": changed("label", content="labels"),
    "path with slashes": changed("label", file="../label.npy"),
    "absolute path": changed("label", file="/etc/passwd"),
    "hidden path": changed("label", file=".label.npy"),
    "path of the folder": changed("label", file=".."),
    "file by number": changed("label", file=7),
    "one file for two": changed("label", file="00_node_offsets.npy"),
    "feature of no type": changed("node_feature", type="atom"),
    "feature of a nested type": changed("node_feature", type=["_N"]),
    "feature of a type that is no text": changed("node_feature", type={"a": 1}),
    "feature without a name": changed("node_feature", name=None),
    "label of a type": changed("label", type="_N"),
    "an array twice": twice,
    "data elsewhere": lambda document: document.update(data="../plain"),
    "data by number": lambda document: document.update(data=3),
    "unknown index type": lambda document: document.update(idtype="int16"),
    "index type by number": lambda document: document.update(idtype=64),
    "types by text": lambda document: document.update(node_types="_N"),
    "a type twice": lambda document: document.update(node_types=["_N", "_N"]),
    "no types": lambda document: document.update(node_types=[], edge_types=[]),
    "edges of unknown nodes": lambda document: document.update(node_types=["_M"]),
    "edge type of two words": lambda document: document.update(edge_types=[["_N", "_E"]]),
    "arrays by name": lambda document: document.update(arrays={"a": 1}),
    "no arrays": lambda document: document.update(arrays=[]),
    "something more": lambda document: document.update(more=1),
    "arrays with more": changed("label", more=1),
}


@pytest.mark.parametrize("change", CONTRADICTIONS)
def test_contradictions_are_refused(store: Path, change: str) -> None:
    """Where the checksum is right, so that it does not tell."""
    rewrite_metadata(store, CONTRADICTIONS[change])
    with refused(FormatError, str(store)):
        tp.GraphStore(store)


def test_edges_of_unknown_node_types_are_refused(originals: Path, tmp_path: Path) -> None:
    """All arrays of the types that are named are there, but an edge type names another one."""
    path = tmp_path / "store"
    shutil.copytree(originals / "plain", path)

    def rename(document: dict[str, Any]) -> None:
        document["edge_types"] = [["_N", "_E", "_M"]]
        for found in document["arrays"]:
            if isinstance(found["type"], list):
                found["type"] = ["_N", "_E", "_M"]

    rewrite_metadata(path, rename)
    with refused(FormatError, str(path / "metadata.json")):
        tp.GraphStore(path)


# Reading what was damaged after opening ----------------------------------------------------------------------


@pytest.mark.parametrize("value", [5, 2**31 - 1, 2**33, 2**62, 2**63 - 1])
def test_nodes_without_features_are_bounded_too(tmp_path: Path, value: int) -> None:
    """No other array tells how many there can be, and DGL makes graphs of any number."""
    store = tp.GraphStore.write(tmp_path, [dgl.graph(([0], [0])).int() for _ in range(4)])
    with files_of(tmp_path)["node_offsets"].open("r+b") as opened:
        opened.seek(128 + 2 * 8)
        opened.write(value.to_bytes(8, "little"))
    for read in (lambda: store[1], lambda: store.batch([1], LIMITS), store.verify):
        with refused(FormatError, "node_offsets"):
            read()


FLIPPED = """
import random, sys
import numpy as np
import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, GraphTooLargeError, SizesError
from tests.stores import LIMITS, data_of
from pathlib import Path

path, seed = Path(sys.argv[1]), int(sys.argv[2])
limits = tp.Limits.from_components(dict.fromkeys(tp.GraphStore(path).sizes.components, 10_000), 60)
random.seed(seed)
read = refused = 0
files = sorted(data_of(path).iterdir())
# Offsets and endpoints are what could lead astray.
files += 3 * [f for f in files if "offsets" in f.name or "sources" in f.name or "destinations" in f.name]
intact = {file: file.read_bytes() for file in files}
patterns = [lambda old: old ^ (1 << random.randrange(8)), lambda old: 0xFF, lambda old: 0x7F, lambda old: 0x80]
for round in range(60):
    store = tp.GraphStore(path)
    padded, everything = store.padded(limits), list(range(len(store)))
    # Its ids come from a file of the store.
    train = store.subset(store.splits.get("train", [1, 0]))
    of_train = train.padded(limits)
    padded[everything]
    chosen = random.sample(files, random.choice([1, 1, 3]))
    for file in chosen:
        data = bytearray(intact[file])
        for _ in range(random.choice([1, 1, 4, 50])):
            at = random.randrange(128, len(data))
            data[at] = random.choice(patterns)(data[at])
            if random.random() < 0.3:
                at -= at % 8
                value = random.choice([2**63 - 1, 2**62, 2**32, 2**31, 2**63, 2**64 - 1, 1000])
                data[at : at + 8] = value.to_bytes(8, "little")
        data = data[: len(intact[file])]
        with open(file, "r+b") as opened:
            opened.write(data)
    def sized():
        # Offsets that grow beyond the store lead nowhere by themselves.
        return store.sizes, store.histogram, repr(store)
    # Each graph apart, then some, then all at once; items as well as batches.
    tries = [lambda i=i: padded[[i]] for i in everything] + [lambda i=i: store[i] for i in everything]
    tries += [lambda: padded[everything], lambda: padded[everything[::-1]], sized, lambda: store.subset([0, 1])[1]]
    tries += [lambda: store.to("cpu").batch(everything, limits), lambda: store.verify()]
    tries += [lambda: of_train[range(len(train))], lambda: train[0], lambda: train.sizes]
    def split():
        try:
            store.subset(store.splits.get("train", [1, 0]))
        except SizesError:
            pass
    tries.append(split)
    for one in tries:
        try:
            one()
            read += 1
        except FormatError as error:
            assert str(path) in str(error), error
            refused += 1
        except GraphTooLargeError:
            refused += 1
    for file in chosen:
        with open(file, "r+b") as opened:
            opened.write(intact[file])
print(read, refused)
"""


@pytest.mark.parametrize("which", ["plain", "hetero"])
def test_reading_a_flipped_store_never_crashes(originals: Path, tmp_path: Path, which: str) -> None:
    """In a process of its own, so that a crash is seen; what is read is right or refused, and there is some of both."""
    shutil.copytree(originals / which, tmp_path / "store")
    command = [sys.executable, "-c", FLIPPED, str(tmp_path / "store"), "1"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr[-3000:]
    read, stopped = map(int, re.fullmatch(r"(\d+) (\d+)\n", found.stdout).groups())  # type: ignore[union-attr]
    assert read > 100
    assert stopped > 100
