"""OGB folders that are damaged on purpose: always a message that names the file."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, InputError
from dgl_tuplepack.sources import OgbFolder
from tests.messages import refused
from tests.ogb_folder import write_raw_folder, write_table

NODES = [3, 1, 5, 2]
SPLITS = {"random": {"train": [0], "valid": [1, 2], "test": [3]}}


def parts() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    edges = [rng.integers(0, n, (m, 2)) for n, m in zip(NODES, [4, 0, 3, 6], strict=True)]
    tables = {"node-feat": rng.integers(0, 9, (sum(NODES), 4)), "edge-feat": rng.random((13, 3)).astype(np.float32)}
    return {"nodes": NODES, "edges": edges, "labels": rng.random((4, 2)).astype(np.float32), "tables": tables}


def binary(folder: Path) -> Path:
    return write_raw_folder(folder / "own", **parts(), binary=True, splits=SPLITS)


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path: Path, content: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in content.items():
            archive.writestr(name, data)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def header(shape: str, descr: str = "'<i8'", fortran: str = "False") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text + b"\n" + bytes(64)


HEADERS = {
    "a negative axis": header("(-4,)"),
    "728 TiB": header("(100000000000000,)"),
    "no axis": npy(np.array(4)),
    "a shape that is none": header("4"),
    "an unknown dtype": header("(4,)", "'<q77'"),
    "objects": header("(4,)", "'|O'"),
    "a newer version": b"\x93NUMPY\x09\x00" + bytes(40),
    "nothing": b"",
    "text": b"text" * 30,
    "cut": npy(np.arange(4))[:-3],
}


@pytest.mark.parametrize("member", ["num_nodes_list", "edge_index", "node_feat", "graph_label"])
@pytest.mark.parametrize("kind", HEADERS)
def test_odd_headers_of_arrays_are_refused(tmp_path: Path, kind: str, member: str) -> None:
    folder = binary(tmp_path)
    path = folder / "raw" / ("graph-label.npz" if member == "graph_label" else "data.npz")
    rewrite(path, {**members(path), f"{member}.npy": HEADERS[kind]})
    with pytest.raises(InputError) as caught:
        tp.GraphStore.write(tmp_path / "store", folder)
    assert type(caught.value) is FormatError
    assert not (tmp_path / "store").exists()


def test_arrays_of_the_other_byte_order_are_read(tmp_path: Path) -> None:
    expected = tp.GraphStore.write(tmp_path / "expected", binary(tmp_path / "a"))
    for fortran in (False, True):
        folder = binary(tmp_path / f"b{fortran}")
        for path in (folder / "raw").glob("*.npz"):
            with np.load(path) as opened:
                swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in opened.items()}
            order = np.asfortranarray if fortran else np.ascontiguousarray
            np.savez(path, **{name: order(array) for name, array in swapped.items()})
        found = tp.GraphStore.write(tmp_path / f"found{fortran}", folder)
        assert found.parts[0].metadata.arrays == expected.parts[0].metadata.arrays


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_no_changed_byte_of_an_archive_is_told_otherwise(tmp_path: Path, method: int) -> None:
    folder = binary(tmp_path)
    path = folder / "raw" / "data.npz"
    rewrite(path, members(path), method)
    tp.sizes_of(folder)
    intact, done = path.read_bytes(), []
    for at in range(0, len(intact), 11):
        path.write_bytes(intact[:at] + bytes([intact[at] ^ (0xFF, 1, 0x80)[at % 3]]) + intact[at + 1 :])
        try:
            for _ in OgbFolder(folder).blocks():
                pass
            done.append(True)
        except FormatError as error:
            assert str(folder) in str(error)  # noqa: PT017
            done.append(False)
    assert not all(done)


@pytest.mark.parametrize("table", ["num-node-list", "num-edge-list", "edge", "node-feat", "graph-label"])
@pytest.mark.parametrize("number", [2**63, 10**30, -(10**30), 10**400, 2**62])
def test_numbers_beyond_64_bits_are_refused(tmp_path: Path, table: str, number: int) -> None:
    folder = write_raw_folder(tmp_path / "own", **parts())
    path = folder / "raw" / f"{table}.csv.gz"
    if (table, number) == ("graph-label", 2**62):
        pytest.skip("a label may be of any size")
    write_table(path, np.array([[number] * (2 if table == "edge" else 1)] * 4, dtype=object))
    with pytest.raises(InputError) as caught:
        tp.GraphStore.write(tmp_path / "store", OgbFolder(folder, add_inverse_edge=True))
    assert str(folder / "raw") in str(caught.value) or "edge at node" in str(caught.value)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("saved", [
    {"train": [0.5]}, {"train": torch.tensor([True])}, {"train": ["a"]}, {1: [0], "1": [1]}, {"train": {"a": 1}},
    {"train": None}, [], None, "text", {"train": [[0], [1, 2]]}, {"train": [10**30]},
], ids=repr)  # fmt: skip
def test_splits_that_are_no_lists_of_ids_are_refused(tmp_path: Path, saved: Any) -> None:
    folder = binary(tmp_path)
    path = folder / "split" / "random" / "split_dict.pt"
    torch.save(saved, path)
    with refused(FormatError, str(path)):
        OgbFolder(folder).splits  # noqa: B018
