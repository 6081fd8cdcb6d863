"""A packed dataset keeps its graphs and its plan, finds them again, and never mixes them up with others."""

from __future__ import annotations

import copy
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, InputError, LimitsError, SamplerError, SchemaError
from tests.graphs import assert_same_item
from tests.messages import refused
from tests.ogb_folder import write_ogb_folder
from tests.stores import molecules, purchases, write_shards

LIMITS = tp.Limits(nodes=12, edges=14)


class Counted:
    """A dataset that counts how often items are fetched."""

    def __init__(self, items: list[Any]) -> None:
        self.items, self.fetched = items, 0

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        self.fetched += 1
        return self.items[index]


def files_in(folder: Path) -> dict[str, str]:
    """Checksum of each file below a folder, apart from locks."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.endswith(".lock")
    }


def ids_of(packed: Any) -> list[list[int]]:
    return [labels.graph_ids[labels.graph_mask].tolist() for _, labels in packed]


def changed(items: list[Any], change: Any) -> list[Any]:
    """A deep copy of labelled graphs, with one change."""
    copies = [(copy.deepcopy(graph), label.clone()) for graph, label in items]
    change(copies)
    return copies


def test_a_second_start_reads_samples_alone_and_has_the_same_packs(tmp_path: Path) -> None:
    first, second = Counted(molecules(100)), Counted(molecules(100))
    packed = tp.PackedDataset(first, LIMITS, save_dir=tmp_path)
    assert first.fetched == 100
    before = files_in(tmp_path)
    assert {name.split("/")[1] for name in before} == {"store", "plan.json"}
    again = tp.PackedDataset(second, LIMITS, save_dir=tmp_path)
    assert second.fetched <= 18
    assert files_in(tmp_path) == before
    assert ids_of(again) == ids_of(packed)
    assert again.has_cache()
    assert again.save_path == str(tmp_path / "packed")
    for found, expected in zip(again.store, molecules(100), strict=True):
        assert_same_item(found, expected)


def test_dgl_says_what_it_does_if_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tp.PackedDataset(molecules(5), LIMITS, save_dir=tmp_path)
    assert capsys.readouterr().out == ""
    tp.PackedDataset(molecules(5), LIMITS, save_dir=tmp_path, verbose=True)
    assert "Done loading data from cached files." in capsys.readouterr().out
    tp.PackedDataset(molecules(5), LIMITS, save_dir=tmp_path, verbose=True, force_reload=True)
    assert "Done saving data into cached files." in capsys.readouterr().out


def _other_edges(items: list[Any]) -> None:
    graph, label = items[0]
    ends = torch.zeros_like(graph.edges()[0]), graph.edges()[0]
    other = dgl.graph(ends, num_nodes=graph.num_nodes())
    other.ndata.update(graph.ndata)
    other.edata.update(graph.edata)
    items[0] = other, label


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda items: items[-1][1].add_(1), "labels '' differ"),
        (lambda items: items[0][0].ndata["x"].add_(1), "node features of type '_N' 'x' differ"),
        (_other_edges, "of edges ('_N', '_E', '_N') differ"),
        (lambda items: items.__setitem__(slice(None), [(g, label.double()) for g, label in items]), "float64"),
        (lambda items: items.__setitem__(-1, items[0]), "differ"),
        (lambda items: items.pop(), "19 graphs are given, and 20 are there"),
        (lambda items: items.append(items[0]), "21 graphs are given, and 20 are there"),
    ],
)
def test_a_cache_of_other_graphs_is_refused_and_left_as_it_is(tmp_path: Path, change: Any, says: str) -> None:
    items = molecules(20)
    tp.PackedDataset(items, LIMITS, save_dir=tmp_path)
    before, others = files_in(tmp_path), changed(items, change)
    with refused(FormatError, "caches other graphs", says, "force_reload=True"):
        tp.PackedDataset(others, LIMITS, save_dir=tmp_path)
    assert files_in(tmp_path) == before
    # It serves its own graphs still, and others under another name.
    assert len(tp.PackedDataset(items, LIMITS, save_dir=tmp_path).store) == 20
    assert len(tp.PackedDataset(others, LIMITS, save_dir=tmp_path, name="others").store) == len(others)
    replaced = tp.PackedDataset(others, LIMITS, save_dir=tmp_path, force_reload=True)
    for found, expected in zip(replaced.store, others, strict=True):
        assert_same_item(found, expected)


def test_a_cache_for_other_limits_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    items = molecules(20)
    tp.PackedDataset(items, LIMITS, save_dir=tmp_path)
    before = files_in(tmp_path)
    for limits in (tp.Limits(13, 14), tp.Limits(12, 14, graphs=3), tp.Limits(12)):
        with refused(FormatError, "caches packs for Limits(nodes=12, edges=14", repr(limits)[:16], "force_reload=True"):
            tp.PackedDataset(items, limits, save_dir=tmp_path)
    assert files_in(tmp_path) == before
    packed = tp.PackedDataset(items, tp.Limits(13, 14), save_dir=tmp_path, force_reload=True)
    assert (packed.limits.nodes, packed.limits.edges) == (13, 14)
    with refused(FormatError, "caches packs for Limits(nodes=13"):
        tp.PackedDataset(items, LIMITS, save_dir=tmp_path)


def test_a_cache_without_dropped_graphs_is_not_one_with_them(tmp_path: Path) -> None:
    graphs = [dgl.graph(([0], [0]), num_nodes=number) for number in (3, 50, 2, 1)]
    with pytest.warns(UserWarning, match="1 of 4 graphs exceed"):
        packed = tp.PackedDataset(graphs, LIMITS, save_dir=tmp_path, oversize="drop")
    with pytest.warns(UserWarning, match="1 of 4 graphs exceed"):
        again = tp.PackedDataset(graphs, LIMITS, save_dir=tmp_path, oversize="drop")
    assert ids_of(again) == ids_of(packed)


@pytest.mark.parametrize("content", ["resample", "repack"])
def test_packs_do_not_depend_on_what_was_cached_before(tmp_path: Path, content: str) -> None:
    items = molecules(60)
    for seed in (0, 7, 0, 7):
        cached = tp.PackedDataset(items, LIMITS, save_dir=tmp_path, seed=seed, content=content)
        fresh = tp.PackedDataset(items, LIMITS, seed=seed, content=content)
        for epoch in (0, 1):
            cached.set_epoch(epoch)
            fresh.set_epoch(epoch)
            assert ids_of(cached) == ids_of(fresh)


def test_a_plan_that_is_given_is_followed_and_not_kept(tmp_path: Path) -> None:
    items = molecules(20)
    plan = tp.pack(items, LIMITS, method="none")
    packed = tp.PackedDataset(items, LIMITS, plan=plan, save_dir=tmp_path)
    assert len(packed) == 20
    assert not (tmp_path / "packed" / "plan.json").exists()


def test_an_interrupted_start_is_completed(tmp_path: Path) -> None:
    items = molecules(20)
    packed = tp.PackedDataset(items, LIMITS, save_dir=tmp_path)
    (tmp_path / "packed" / "plan.json").unlink()
    assert ids_of(tp.PackedDataset(items, LIMITS, save_dir=tmp_path)) == ids_of(packed)
    assert (tmp_path / "packed" / "plan.json").exists()
    # Metadata is written last.
    (tmp_path / "packed" / "store" / "metadata.json").unlink()
    again = tp.PackedDataset(items, LIMITS, save_dir=tmp_path)
    assert ids_of(again) == ids_of(packed)


def test_a_damaged_cache_is_refused_and_can_be_replaced(tmp_path: Path) -> None:
    items = molecules(20)
    tp.PackedDataset(items, LIMITS, save_dir=tmp_path)
    for file in ("plan.json", "store/metadata.json"):
        path = tmp_path / "packed" / file
        path.write_bytes(path.read_bytes()[:-20])
        before = files_in(tmp_path)
        with refused(FormatError, file, "force_reload=True"):
            tp.PackedDataset(items, LIMITS, save_dir=tmp_path)
        assert files_in(tmp_path) == before
        tp.PackedDataset(items, LIMITS, save_dir=tmp_path, force_reload=True)
        tp.PackedDataset(items, LIMITS, save_dir=tmp_path)


def test_other_things_are_never_overwritten(tmp_path: Path) -> None:
    place = tmp_path / "packed" / "store"
    place.mkdir(parents=True)
    (place / "thesis.txt").write_text("mine")
    for force_reload in (False, True):
        with refused(FormatError, "holds other things (thesis.txt"):
            tp.PackedDataset(molecules(5), LIMITS, save_dir=tmp_path, force_reload=force_reload)
    assert (place / "thesis.txt").read_text() == "mine"
    with refused(FormatError, "cannot"):
        tp.PackedDataset(molecules(5), LIMITS, save_dir=place / "thesis.txt")
    assert (place / "thesis.txt").read_text() == "mine"


def sources(folder: Path) -> Iterator[tuple[str, Any, int]]:
    """A source of every kind that has graphs, and their number."""
    items = molecules(20)
    store = tp.GraphStore.write(folder / "stored", items)
    sharded = write_shards(folder / "shards", [items[:8], items[8:]])
    dgl.save_graphs(str(folder / "graphs.bin"), [graph for graph, _ in items])
    sizes = tp.GraphSizes([[3, 4], [2, 2], [5, 3]])
    yield "list", items, 20
    yield "heterographs", purchases(), 8
    yield "with ids", tp.with_ids(items), 20
    yield "own ids", [(*item, i) for i, item in enumerate(items)], 20
    yield "DGLDataset", store.as_dgl_dataset(), 20
    yield "subset of torch", torch.utils.data.Subset(items, [3, 1, 2]), 3
    yield "store", store, 20
    yield "path of a store", folder / "stored", 20
    yield "subset", store.subset([5, 3, 3, 7]), 4
    yield "shards", sharded, 20
    yield "path of shards", str(folder / "shards"), 20
    yield "bin file", folder / "graphs.bin", 20
    yield "OGB folder", write_ogb_folder(folder / "ogb", sizes) / "ogbg_molhiv", 3


@pytest.mark.parametrize("kept", [False, True])
def test_every_kind_of_source_can_be_packed(tmp_path: Path, kept: bool) -> None:
    for name, source, number in sources(tmp_path / "given"):
        limits = tp.Limits.from_components({each: 20 for each in tp.sizes_of(source).components})
        given = {"save_dir": tmp_path / "kept", "name": name} if kept else {}
        packed = tp.PackedDataset(source, limits, **given)
        assert sorted(i for pack in ids_of(packed) for i in pack) == list(range(number)), name
        if kept:
            before = files_in(tmp_path / "kept")
            assert ids_of(tp.PackedDataset(source, limits, **given)) == ids_of(packed), name
            assert files_in(tmp_path / "kept") == before, name


def test_a_generator_is_read_once_and_then_found(tmp_path: Path) -> None:
    packed = tp.PackedDataset(iter(molecules(20)), LIMITS, save_dir=tmp_path)
    assert ids_of(tp.PackedDataset(iter(molecules(20)), LIMITS, save_dir=tmp_path)) == ids_of(packed)
    with refused(FormatError, "caches other graphs", "differ"):
        tp.PackedDataset(iter(molecules(20, seed=1)), LIMITS, save_dir=tmp_path)


def test_a_store_is_not_copied(tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "given", molecules(20))
    before = files_in(tmp_path)
    packed = tp.PackedDataset(store, LIMITS)
    assert files_in(tmp_path) == before
    assert packed.store is store
    tp.PackedDataset(store, LIMITS, save_dir=tmp_path / "kept")
    assert sorted(files_in(tmp_path / "kept")) == ["packed/plan.json"]
    others = tp.GraphStore.write(tmp_path / "others", molecules(21))
    with refused(FormatError, "caches packs of 20 graphs", "21 graphs"):
        tp.PackedDataset(others, LIMITS, save_dir=tmp_path / "kept")


def test_a_temporary_folder_goes_with_the_dataset_and_not_with_its_workers() -> None:
    packed = tp.PackedDataset(molecules(20), LIMITS)
    folder = Path(packed.save_dir)
    assert files_in(folder)
    child = os.fork()
    if not child:
        try:
            del packed
            os._exit(0 if folder.exists() else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(ids_of(packed)) == len(packed)
    del packed
    assert not folder.exists()


class Slow(Counted):
    """A dataset in whose first reading another process asks for the same cache."""

    def __init__(self, items: list[Any], program: str, folder: Path) -> None:
        super().__init__(items)
        self.command = [sys.executable, "-c", program, str(folder)]
        self.other: subprocess.Popen[str] | None = None

    def __getitem__(self, index: int) -> Any:
        if self.other is None:
            self.other = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
            assert self.other.stdout is not None
            assert self.other.stdout.readline() == "ready\n"
            # Without a lock it would fail meanwhile: a store is written by one process at a time.
            time.sleep(2)
        return super().__getitem__(index)


def test_a_process_waits_for_the_one_that_writes_and_reads_its_cache(tmp_path: Path) -> None:
    program = (
        "import sys, dgl_tuplepack as tp\n"
        "from tests.stores import molecules\n"
        "from tests.unit.test_packed_cache import LIMITS, ids_of\n"
        "tp.PackedDataset(molecules(5), LIMITS)\n"
        "print('ready', flush=True)\n"
        "packed = tp.PackedDataset(molecules(30), LIMITS, save_dir=sys.argv[1])\n"
        "print(ids_of(packed), packed.store.checksum)\n"
    )
    source = Slow(molecules(30), program, tmp_path)
    packed = tp.PackedDataset(source, LIMITS, save_dir=tmp_path)
    assert source.other is not None
    output = source.other.communicate(timeout=300)[0]
    assert source.other.returncode == 0
    assert output == f"{ids_of(packed)} {packed.store.checksum}\n"


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"content": "resampled"}, SamplerError, "resampled"),
        ({"content": "repack", "shuffle": False}, SamplerError, "shuffle=False"),
        ({"seed": -1}, InputError, "seed"),
        ({"rank": 0}, SamplerError, "num_replicas and rank"),
        ({"num_replicas": 2, "rank": 2}, SamplerError, "rank"),
        ({"oversize": "ignore"}, InputError, "oversize"),
        ({"multiple_of": 0}, SamplerError, "multiple_of"),
        ({"multiple_of": 1.5}, SamplerError, "multiple_of"),
        ({"replan_every": 0}, SamplerError, "replan_every"),
        ({"name": ""}, FormatError, "name"),
        ({"name": "a/b"}, FormatError, "name"),
        ({"name": ".."}, FormatError, "name"),
        ({"name": 3}, FormatError, "name"),
        ({"save_dir": 3}, FormatError, "path"),
        ({"force_reload": 1}, FormatError, "force_reload"),
        ({"limits": (12, 14)}, LimitsError, "Limits"),
        ({"limits": tp.Limits({"a": 3}, {"b": 3})}, InputError, "limit"),
        ({"source": ([3, 2], [4, 2])}, SchemaError, "sizes only"),
        ({"source": 3}, InputError, "int"),
        ({"source": []}, InputError, "no graphs"),
        ({"source": "nowhere"}, FormatError, "there is no nowhere"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(
    tmp_path: Path, settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    given: dict[str, Any] = {"source": molecules(5), "limits": LIMITS, "save_dir": tmp_path, **settings}
    with pytest.raises(error, match=says):
        tp.PackedDataset(**given)
    if "limits" not in settings or not isinstance(settings["limits"], tp.Limits):
        assert files_in(tmp_path) == {}


def test_no_folder_is_left_behind_by_a_dataset_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SchemaError):
        tp.PackedDataset([(graph, label) for graph, label in molecules(5)] + [(molecules(1)[0][0], "name")], LIMITS)
    assert list(tmp_path.iterdir()) == []
