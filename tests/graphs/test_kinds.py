"""Every kind of source at every entrance: equal graphs give equal sizes, plans, batches and stores, however given."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError, SizesError
from dgl_tuplepack.graphs.readers import kinds
from dgl_tuplepack.graphs.readers.kinds import Counted, Numbers, resolve
from dgl_tuplepack.storage.preprocessing import preprocess
from tests.support.messages import refused
from tests.support.ogb_folder import write_ogb_folder
from tests.support.stores import purchases, write_shards

ROWS = [[n, 2 * (n - 1)] for n in (3, 9, 4, 7, 5, 8, 6, 3)]
LIMITS = tp.Limits(nodes=12, edges=20)
# The same limits for the command line.
OF_A_PACK = ("--limits", "12,20")
# The order in which shards hold the graphs whose subset has the order above.
MIXED = [5, 2, 7, 0, 4, 1, 6, 3]
BACK = np.argsort(MIXED)
Run = Callable[..., Any]


class Lazy(torch.utils.data.Dataset[Any]):
    """A dataset as users write them; its own iterator never ends, and is not what counts."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index % len(self.items)]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same graphs of every kind that has graphs."""
    folder = tmp_path_factory.mktemp("kinds")
    root = write_ogb_folder(folder / "root", tp.GraphSizes(np.array(ROWS)))
    store = tp.GraphStore.write(folder / "store", tp.OgbFolder(root))
    items = list(store)
    labels = torch.stack([label for _, label in items])
    dgl.save_graphs(str(folder / "graphs.bin"), [graph for graph, _ in items], {"y": labels})
    sharded = write_shards(folder / "shards", [items[:3], items[3:4], items[4:]])
    mixed = [items[i] for i in MIXED]
    apart = write_shards(folder / "apart", [mixed[:3], mixed[3:5], mixed[5:]], compact=True)
    tp.write_chunks(store, folder / "chunks", 3)
    tp.partition(store, folder / "parts", 1, workers=1)
    return {
        "chunks": folder / "chunks", "ChunkedGraph": tp.ChunkedGraph(folder / "chunks"),
        "part": folder / "parts" / "part0",
        "OGB folder": root / "ogbg_molhiv", "root of an OGB folder": str(root), "OgbFolder": tp.OgbFolder(root),
        ".bin file": folder / "graphs.bin", "path of a store": store.path, "store": store,
        "subset of a store": tp.GraphStore.write(folder / "mixed", mixed).subset(BACK),
        "path of shards": sharded.path, "shards": sharded, "subset of shards": apart.subset(BACK),
        "list": items, "tuple": tuple(items), "dataset": Lazy(items),
        "subset": torch.utils.data.Subset(items, range(8)),
        "array of objects": _objects(items),
        "list with ids": tp.with_ids(items), "path with ids": tp.with_ids(str(store.path)),
        "shards with ids": tp.with_ids(sharded), "opened source": resolve(root),
    }  # fmt: skip


WITH_GRAPHS = [
    "OGB folder", "root of an OGB folder", "OgbFolder", ".bin file", "path of a store", "store", "subset of a store",
    "path of shards", "shards", "subset of shards", "list", "tuple", "dataset", "subset",
    "array of objects", "list with ids", "path with ids", "shards with ids", "opened source", "chunks",
    "ChunkedGraph", "part",
]  # fmt: skip
PATHS = [
    "OGB folder", "root of an OGB folder", ".bin file", "path of a store", "path of shards", "chunks", "part",
]  # fmt: skip
SIZES: dict[str, Any] = {
    "GraphSizes": tp.GraphSizes(np.array(ROWS)), "array": np.array(ROWS), "rows": ROWS, "tensor": torch.tensor(ROWS),
    "arrays in a list": [np.array(row) for row in ROWS],
    "columns": ([n for n, _ in ROWS], [e for _, e in ROWS]), "sizes with ids": tp.with_ids(ROWS),
}  # fmt: skip


def _objects(items: list[Any]) -> Any:
    objects = np.empty(len(items), object)
    objects[:] = items
    return objects


def counted(given: Any) -> list[Any]:
    """What planning makes of the sizes of a source."""
    search = tp.search_limits(given, graphs_per_batch=3)
    return [tp.pack(given, LIMITS).fingerprint, tp.lower_bound(given, LIMITS), search.best]


def told(given: Any) -> list[Any]:
    """Sizes of single graphs, and what comes from them."""
    batches = list(tp.PackBatchSampler(given, LIMITS, shuffle=False))
    return [tp.sizes_of(given).array.tolist(), batches, *counted(given)]


def arrays_of(store: tp.GraphStore) -> dict[Any, str]:
    """Checksums of all arrays but those of a split, which not every kind of source can have."""
    entries = store.segments[0].metadata.arrays
    return {(e.content, e.type, e.name): e.sha256 for e in entries if e.content != "split"}


def written(given: Any, folder: Path) -> list[dict[Any, str]]:
    """The stores that each way of writing makes."""
    sharded = tp.preprocess_shards({"only": given}, folder / "sharded", limits=LIMITS, workers=1)
    return [
        arrays_of(tp.GraphStore.write(folder / "written", given)),
        arrays_of(preprocess(given, folder / "preprocessed", limits=LIMITS).store),
        arrays_of(tp.GraphStore(sharded.store.path / "only")),
    ]


def shown(run: Run, source: Path | str, folder: Path) -> list[Any]:
    """What each command that reads only the sizes of a SOURCE makes of it."""
    drawn, page = folder / "drawn.png", folder / "page.html"
    plan = done(run, "plan", source, *OF_A_PACK, "--json")
    done(run, "plot", "sizes", source, "--out", drawn, "--dpi", 30)
    done(run, "report", source, "--out", page, "--name", "these", *OF_A_PACK)
    return [
        done(run, "sizes", source, "--csv"), done(run, "limits", source, "--csv"), without_seconds(plan),
        drawn.read_bytes(), page.read_bytes(),
    ]  # fmt: skip


def done(run: Run, *arguments: Any) -> str:
    """Output of a command, which must succeed."""
    found = run(*arguments)
    assert found.code == 0, found.err
    return str(found.out)


def without_seconds(plan: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(plan).items() if name != "seconds"}


@pytest.mark.parametrize("which", WITH_GRAPHS)
def test_graphs_of_every_kind_are_told_and_written_alike(given: dict[str, Any], which: str, tmp_path: Path) -> None:
    assert told(given[which]) == told(tp.GraphSizes(np.array(ROWS)))
    stores = written(given[which], tmp_path)
    assert stores == [arrays_of(given["store"])] * 3


@pytest.mark.parametrize("which", SIZES)
def test_sizes_of_every_kind_are_told_alike_but_not_written(which: str, tmp_path: Path) -> None:
    assert told(SIZES[which]) == told(tp.GraphSizes(np.array(ROWS)))
    for write in (tp.GraphStore.write, lambda out, source: preprocess(source, out)):
        with refused(SchemaError, "only sizes", "dataset of DGLGraph", "OGB folder", "OgbFolder"):
            write(tmp_path / "out", SIZES[which])
    assert not (tmp_path / "out").exists()


def test_a_histogram_is_enough_to_plan_with(tmp_path: Path) -> None:
    histogram = tp.SizeHistogram.from_sizes(tp.GraphSizes(np.array(ROWS))).without_ids()
    assert counted(histogram) == counted(tp.GraphSizes(np.array(ROWS)))
    for use in (tp.sizes_of, lambda x: tp.PackBatchSampler(x, LIMITS)):
        with refused(SizesError, "a SizeHistogram has no sizes of single graphs", "dataset itself"):
            use(histogram)
    with refused(SchemaError, "a SizeHistogram has only sizes", "dataset of DGLGraph"):
        tp.GraphStore.write(tmp_path / "s", histogram)


def test_an_iterator_is_written_only(given: dict[str, Any], tmp_path: Path) -> None:
    stores = [
        tp.GraphStore.write(tmp_path / "a", iter(given["list"])),
        preprocess(iter(given["list"]), tmp_path / "b").store,
    ]
    assert [arrays_of(store) for store in stores] == [arrays_of(given["store"])] * 2
    for use in (tp.sizes_of, lambda x: tp.pack(x, LIMITS), lambda x: tp.PackBatchSampler(x, LIMITS)):
        with refused(SizesError, "no length or no order"):
            use(iter(given["list"]))


def test_every_command_takes_a_path_and_histograms(given: dict[str, Any], run: Run, tmp_path: Path) -> None:
    """All commands open a SOURCE in the same way, so one path with graphs stands for all."""
    histogram, path = tp.SizeHistogram.from_sizes(tp.GraphSizes(np.array(ROWS))), given["root of an OGB folder"]
    for name in ("h.json", "h.csv"):
        histogram.save(tmp_path / name)
    assert shown(run, tmp_path / "h.json", tmp_path) == shown(run, path, tmp_path)
    assert done(run, "sizes", tmp_path / "h.csv", "--csv") == done(run, "sizes", path, "--csv")
    done(run, "preprocess", path, "-o", tmp_path / "one", *OF_A_PACK)
    done(run, "preprocess", path, "-o", tmp_path / "shards", *OF_A_PACK, "--workers", 1)
    done(run, "chunk", path, "-o", tmp_path / "chunk", "--chunks", 2, "--json")
    done(run, "partition", path, "-o", tmp_path / "parts", "--parts", 2, "--json", "--workers", 1)
    (name,) = (shard.name for shard in tp.MultiStore(tmp_path / "shards").manifest.shards)
    for store in (tmp_path / "one", tmp_path / "shards" / name):
        assert arrays_of(tp.GraphStore(store)) == arrays_of(given["store"])
    for folders in (["chunk"], ["parts/part0", "parts/part1"]):
        found = [row for folder in folders for row in tp.sizes_of(tmp_path / folder).array.tolist()]
        assert sorted(found) == sorted(ROWS)


@pytest.mark.parametrize("which", PATHS)
def test_commands_take_every_path(given: dict[str, Any], which: str, run: Run, tmp_path: Path) -> None:
    """One command that reads sizes, and one that reads graphs."""
    histogram = tp.SizeHistogram.from_sizes(tp.GraphSizes(np.array(ROWS)))
    histogram.save(tmp_path / "h.json")
    assert done(run, "sizes", given[which], "--csv") == done(run, "sizes", tmp_path / "h.json", "--csv")
    assert json.loads(done(run, "inspect", given[which], "--batch-size", 2, "--json"))["num_bytes"] > 0
    done(run, "preprocess", given[which], "-o", tmp_path / "one", *OF_A_PACK)
    assert arrays_of(tp.GraphStore(tmp_path / "one")) == arrays_of(given["store"])


def test_splits_come_along(given: dict[str, Any], tmp_path: Path) -> None:
    parts = {part: ids.tolist() for part, ids in given["store"].splits.items()}
    assert set(parts) == {"train", "valid", "test"}
    for i, which in enumerate(
        ("OGB folder", "OgbFolder", "path of a store", "store", "path with ids", "chunks", "ChunkedGraph", "part")
    ):
        found = tp.GraphStore.write(tmp_path / str(i), given[which]).splits
        assert {part: ids.tolist() for part, ids in found.items()} == parts


def test_a_subset_of_heterographs_in_several_stores_is_read_in_its_order(tmp_path: Path) -> None:
    items = purchases(9)
    shards = write_shards(tmp_path / "shards", [items[:4], items[4:5], items[5:]])
    ids = [8, 0, 4, 4, 2, 7, 0]
    expected = tp.GraphStore.write(tmp_path / "one", [items[i] for i in ids])
    assert arrays_of(tp.GraphStore.write(tmp_path / "two", shards.subset(ids))) == arrays_of(expected)
    dgl.save_graphs(str(tmp_path / "graphs.bin"), items)
    from_file, from_items = tp.sizes_of(tmp_path / "graphs.bin"), tp.sizes_of(items)
    assert from_file.components == from_items.components
    assert from_file.array.tolist() == from_items.array.tolist()


def test_a_kind_that_needs_an_absent_package_leaves_objects_of_other_kinds_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = kinds.Kind(
        lambda: pytest.fail("the absent kind was loaded"),
        signs=("absent.json",),
        may_be_object=lambda: False,
        needs="absent",
    )
    monkeypatch.setattr(kinds, "KINDS", [ours, *kinds.KINDS])
    assert tp.sizes_of([dgl.rand_graph(3, 4)]).array.tolist() == [[3, 4]]


def test_every_kind_is_in_the_lists_that_are_written_by_hand() -> None:
    def names(texts: Iterable[str]) -> set[str]:
        return set(re.findall(r"\b[A-Z]\w+|\.[a-z]\w+|num_nodes", " ".join(texts)))

    numbers = [known for known in kinds.KINDS if known.load() in (Numbers, Counted)]
    with_graphs = names(f"{known.path} {known.object}" for known in kinds.KINDS if known not in numbers)
    sizes = names(known.object for known in numbers)
    concepts = (Path(__file__).parents[2] / "docs" / "reference" / "glossary.md").read_text()
    assert {"GraphStore", "MultiStore", "OGB", ".bin", "OgbFolder", "ChunkedGraph", "DGLGraph"} <= with_graphs
    for text, expected in ((tp.GraphStore.write, with_graphs), (tp.sizes_of, with_graphs | sizes)):
        assert not [name for name in expected if name not in text.__doc__]
    assert not [name for name in with_graphs | sizes if name not in concepts]
