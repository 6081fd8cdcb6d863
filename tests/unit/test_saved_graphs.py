"""Files of `dgl.save_graphs`, read by our own reader: what DGL reads, and nothing of what is damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, InputError
from dgl_tuplepack.sources.bin_file import BinFile
from tests.graphs import assert_same_item
from tests.messages import refused
from tests.stores import molecules, purchases

FORMATS: list[Any] = [None, "coo", "csr", "csc", ["coo", "csr"], ["coo", "csr", "csc"]]


def items_of(path: Path) -> Any:
    return BinFile(path).items()


def homogeneous() -> list[Any]:
    graph = dgl.graph(([0, 1, 2, 0], [1, 2, 0, 0]), num_nodes=4)
    graph.ndata["x"], graph.edata["w"] = torch.arange(4.0), torch.arange(8).view(4, 2)
    return [graph, dgl.graph(([], []), num_nodes=1)]


def heterogeneous() -> list[Any]:
    ends = {("z", "f", "v"): ([0, 1, 0], [1, 0, 2]), ("v", "g", "z"): ([0], [1]), ("z", "h", "z"): ([1, 0], [0, 0])}
    graph = dgl.heterograph(ends, num_nodes_dict={"z": 3, "v": 7, "alone": 2})
    graph.edges["f"].data["b"] = torch.tensor([1, 2, 3], dtype=torch.int16)
    graph.nodes["alone"].data["half"] = torch.ones(2, 2, dtype=torch.bfloat16)
    return [graph, graph.int()]


def save(path: Path, graphs: list[Any], labels: Any = None, formats: Any = None) -> Path:
    dgl.save_graphs(str(path), graphs, labels, formats)
    return path


@pytest.mark.parametrize("formats", FORMATS, ids=str)
@pytest.mark.parametrize("graphs", [homogeneous, heterogeneous])
def test_what_is_read_is_what_dgl_reads(tmp_path: Path, graphs: Any, formats: Any) -> None:
    path = save(tmp_path / "a.bin", graphs(), {"y": torch.tensor([2.5, 3.5])}, formats)
    expected, labels = dgl.load_graphs(str(path))
    for (found, label), right, y in zip(items_of(path), expected, labels["y"], strict=True):
        assert torch.equal(label, y)
        assert (found.ntypes, found.canonical_etypes) == (right.ntypes, right.canonical_etypes)
        assert found.idtype == right.idtype
        for t in right.ntypes:
            assert found.num_nodes(t) == right.num_nodes(t)
            assert_same_data(found.nodes[t].data, right.nodes[t].data)
        for t in right.canonical_etypes:
            for ours, theirs in zip(found.edges(etype=t, order="eid"), right.edges(etype=t, order="eid"), strict=True):
                assert torch.equal(ours, theirs)
            assert_same_data(found.edges[t].data, right.edges[t].data)


def assert_same_data(found: Any, right: Any) -> None:
    assert set(found) == set(right)
    for name, values in right.items():
        assert found[name].dtype == values.dtype
        assert torch.equal(found[name], values)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
        torch.bfloat16,
    ],
)  # fmt: skip
def test_every_dtype_that_dgl_saves_is_read(tmp_path: Path, dtype: torch.dtype) -> None:
    graph = dgl.rand_graph(3, 4)
    graph.ndata["x"] = torch.arange(6).view(3, 2).to(dtype)
    ((found, label),) = items_of(save(tmp_path / "a.bin", [graph], {"y": torch.ones(1, 3).to(dtype)}))
    assert_same_data(found.ndata, graph.ndata)
    assert label.dtype == dtype


@pytest.mark.parametrize("items", [molecules(), purchases()])
def test_stores_come_from_such_files(tmp_path: Path, items: list[Any]) -> None:
    graphs = [item[0] if isinstance(item, tuple) else item for item in items]
    labels = {"y": torch.stack([item[1] for item in items])} if isinstance(items[0], tuple) else None
    path = save(tmp_path / "a.bin", graphs, labels)
    for found, item in zip(tp.GraphStore.write(tmp_path / "store", path), items, strict=True):
        assert_same_item(found, item)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("saved")
    y = torch.tensor([[1, 2], [3, 4]])
    plain = dgl.graph(([0, 1], [1, 2]))
    return [
        save(folder / "a.bin", homogeneous(), {"y": y}).read_bytes(),
        save(folder / "b.bin", heterogeneous(), {"y": y, "z": y}).read_bytes(),
        save(folder / "c.bin", [plain, plain], formats=["coo", "csr", "csc"]).read_bytes(),
        save(folder / "d.bin", [plain.int()], formats="csc").read_bytes(),
    ]


def read(path: Path) -> bool:
    """Whether what was read can be used; it is refused otherwise, by name."""
    try:
        items = items_of(path)
    except FormatError as error:
        assert str(path) in str(error)  # noqa: PT017
        return False
    for item in items:
        graph = item[0] if isinstance(item, tuple) else item
        for t in graph.canonical_etypes:
            src, dst = graph.edges(etype=t)
            assert not len(src) or (src.max() < graph.num_nodes(t[0]) and dst.max() < graph.num_nodes(t[2]))
    return True


@pytest.mark.parametrize("which", range(4))
def test_no_changed_byte_ends_the_process(files: list[bytes], tmp_path: Path, which: int) -> None:
    """Each byte that is read, in several ways; some values may change unseen, for the file has no checksum."""
    intact, path, done = files[which], tmp_path / "a.bin", []
    for at in [*range(32), *range(4096, len(intact))]:
        change = (0xFF, 0x80, 1)[at % 3]
        path.write_bytes(intact[:at] + bytes([intact[at] ^ change]) + intact[at + 1 :])
        done.append(read(path))
    path.write_bytes(intact)
    assert read(path)
    assert 0.4 < 1 - np.mean(done) < 1


@pytest.mark.parametrize("which", range(4))
def test_a_file_that_is_cut_or_longer_is_refused(files: list[bytes], tmp_path: Path, which: int) -> None:
    path = tmp_path / "a.bin"
    for length in [*range(0, 4200, 97), *range(4096, len(files[which]), 13)]:
        path.write_bytes(files[which][:length])
        with refused(FormatError, str(path), "write it again"):
            items_of(path)
    path.write_bytes(files[which] + b"\0")
    with refused(FormatError, "more follows"):
        items_of(path)


@given(data=st.data())
def test_several_changed_numbers_end_no_process(
    files: list[bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(data.draw(st.sampled_from(files)))
    numbers = [0, 1, 2, 7, 2**31, 2**32, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4096, len(content) - 8))
        content[at : at + 8] = data.draw(st.sampled_from(numbers)).to_bytes(8, "little")
    path = tmp_path_factory.mktemp("changed") / "a.bin"
    path.write_bytes(bytes(content))
    if read(path):
        try:
            tp.GraphStore.write(path.parent / "store", path)
        except InputError:
            # Graphs of very many nodes, say.
            assert not (path.parent / "store").exists()


def test_labels_are_one_for_each_graph(tmp_path: Path) -> None:
    for labels in (torch.ones(3), torch.tensor(1.0)):
        with refused(FormatError, "labels 'y'", "2 graphs"):
            items_of(save(tmp_path / "a.bin", homogeneous(), {"y": labels}))


def test_the_command_line_outlives_a_damaged_file(files: list[bytes], tmp_path: Path) -> None:
    """One byte of the number of labels ends the process inside DGL."""
    path = tmp_path / "a.bin"
    path.write_bytes(files[0][:4111] + b"\x10" + files[0][4112:])
    for command in (["sizes", str(path)], ["preprocess", str(path), str(tmp_path / "out")]):
        done = subprocess.run(
            [sys.executable, "-m", "dgl_tuplepack", *command], capture_output=True, text=True, timeout=300, check=False,
            env={**os.environ},
        )  # fmt: skip
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert str(path) in done.stderr
    assert not (tmp_path / "out").exists()
