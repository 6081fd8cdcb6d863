"""Dataset classes of PyG itself, on raw files that the tests write: TU, views of datasets, and those of OGB."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.readers.kinds import resolve
from tests.support.messages import refused
from tests.support.ogb_folder import write_ogb_folder
from tests.support.pyg import InMemory, assert_same, batch_of

from torch_geometric.data import Data, HeteroData, InMemoryDataset  # isort: skip
from torch_geometric.datasets import TUDataset  # isort: skip
from torch_geometric.transforms import Constant  # isort: skip

# Nodes and edges (both directions are written) of the graphs of a dataset; the last one has an edge.
SIZES = [(3, 2), (1, 0), (4, 3), (2, 1), (5, 4), (3, 0), (6, 5), (2, 1)]


def tu_dataset(root: Path, contents: tuple[str, ...], **settings: Any) -> Any:
    """A dataset of TU with these files beside the edges: a path through the nodes of each graph."""
    generator, folder = np.random.default_rng(0), root / "TINY" / "raw"
    folder.mkdir(parents=True)
    firsts = np.cumsum([0, *(n for n, _ in SIZES)])
    ends = [(first + j, first + j + 1) for first, (_, e) in zip(firsts, SIZES, strict=False) for j in range(e)]
    edges = np.array([pair for a, b in ends for pair in ((a, b), (b, a))]) + 1
    rows = {"node": firsts[-1], "edge": len(edges), "graph": len(SIZES)}

    def write(name: str, values: Any, form: str) -> None:
        np.savetxt(folder / f"TINY_{name}.txt", values, fmt=form, delimiter=", ")

    write("A", edges, "%d")
    write("graph_indicator", np.repeat(np.arange(len(SIZES)), [n for n, _ in SIZES]) + 1, "%d")
    for name in contents:
        level, kind = name.split("_")
        if kind == "labels":
            # Every class is there, so that one-hot vectors are as wide as the last class tells.
            write(name, np.arange(rows[level]) % 3, "%d")
        else:
            write(name, generator.random((rows[level], 2)), "%.4f")
    return TUDataset(str(root), "TINY", **settings)


def assert_stored(dataset: Any, path: Path) -> tp.GraphStore:
    """The store of a dataset has the graphs that the dataset returns; return it."""
    sizes = tp.sizes_of(dataset)
    items = [dataset[i] for i in range(len(dataset))]
    store = tp.GraphStore.write(path, dataset)
    assert store.sizes.array.tolist() == sizes.array.tolist() == [[d.num_nodes, d.num_edges] for d in items]
    view = store.batched(framework="pyg")
    ids = [*reversed(range(len(items))), 0]
    assert_same(view[ids], batch_of([items[i] for i in ids]))
    for i, data in enumerate(items):
        assert_same(view[i], data)
    most = store.sizes.array.sum(axis=0)
    padded = store.padded(tp.Limits(int(most[0]), int(most[1]), len(items)))[ids[:-1]].pyg
    for found, i in zip(padded.to_data_list(), ids[:-1], strict=True):
        assert_same(found, items[i])
    return store


VIEWS: dict[str, Callable[[Any], Any]] = {
    "all": lambda dataset: dataset,
    "shuffled": lambda dataset: dataset.shuffle(),
    "backwards": lambda dataset: dataset[[-1, 0, 3, 2]],
    "mask": lambda dataset: dataset[torch.arange(len(dataset)) % 2 == 0],
    "view of a view": lambda dataset: dataset[1:][torch.tensor([3, 0, 1])],
    "copy": lambda dataset: dataset.copy([0, 2, 3]),
    "subset of a view": lambda dataset: torch.utils.data.Subset(dataset.shuffle(), [4, -1, 0]),
    "joined": lambda dataset: torch.utils.data.ConcatDataset([dataset[:3], dataset[[5]]]),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("transform", [None, Constant()], ids=["plain", "transform"])
def test_views_of_datasets_of_tu_are_the_graphs_that_they_return(view: str, transform: Any, tmp_path: Path) -> None:
    contents = "node_labels", "edge_labels", "graph_labels"
    dataset = VIEWS[view](tu_dataset(tmp_path / "raw", contents, transform=transform))
    store = assert_stored(dataset, tmp_path / "store")
    assert store.schema.node_features["_N"]["x"].shape == ((3,) if transform is None else (4,))


@pytest.mark.parametrize(
    "contents",
    [
        ("graph_attributes",),
        ("node_labels", "node_attributes", "edge_attributes", "graph_attributes"),
        ("edge_labels", "edge_attributes", "graph_labels"),
    ],
)
@pytest.mark.parametrize("use", [False, True])
def test_datasets_of_tu_with_any_files_are_read(contents: tuple[str, ...], use: bool, tmp_path: Path) -> None:
    """Also without node features, and with features of no column: what is left of attributes that are not used."""
    dataset = tu_dataset(tmp_path / "raw", contents, use_node_attr=use, use_edge_attr=use)
    store = assert_stored(dataset, tmp_path / "store")
    assert len(store) == len(SIZES)
    assert set(store.schema.labels) == {""}


class Saved(InMemoryDataset):
    """A dataset of one's own, as PyG's guide writes it: `process` saves a list, the constructor loads it."""

    def __init__(self, root: str, graphs: list[Any] | None = None, transform: Any = None) -> None:
        self.graphs = graphs
        super().__init__(root, transform)
        self.load(self.processed_paths[0])

    @property
    def processed_file_names(self) -> list[str]:
        return ["data.pt"]

    def process(self) -> None:
        assert self.graphs is not None
        self.save(self.graphs, self.processed_paths[0])


@pytest.mark.parametrize("number", [1, 6])
@pytest.mark.parametrize("transform", [None, Constant()], ids=["plain", "transform"])
def test_datasets_of_ones_own_are_read_from_their_processed_file(number: int, transform: Any, tmp_path: Path) -> None:
    """Those of one graph, too, which PyG does not collate."""
    sizes = [(4, 7), (2, 3), (5, 0), (1, 4), (3, 2), (6, 6)][:number]
    graphs = [
        Data(x=torch.rand(n, 2), edge_index=torch.randint(n, (2, e)), edge_attr=torch.rand(e), y=torch.tensor(n), id=n)
        for n, e in sizes
    ]
    Saved(str(tmp_path / "saved"), graphs)
    dataset = Saved(str(tmp_path / "saved"), transform=transform)
    store = tp.GraphStore.write(tmp_path / "store", dataset)
    # Numbers become tensors when PyG collates them.
    expected = batch_of([dataset[i] for i in range(number)])
    assert_same(store.batched(framework="pyg")[range(number)], expected)


def without_x(number: int) -> list[Any]:
    """Graphs as those of ogbg-ppa, with `num_nodes` and edge features, in order of no size."""
    sizes = [(4, 7), (2, 0), (5, 1), (1, 4), (0, 0), (3, 2)] * number
    return [
        Data(
            edge_index=torch.randint(n, (2, e)) if n else torch.empty(2, 0, dtype=torch.long),
            edge_attr=torch.rand(e, 3), y=torch.tensor([i]), num_nodes=n,
        )
        for i, (n, e) in enumerate(sizes[:number])
    ]  # fmt: skip


@pytest.mark.parametrize("view", ["all", "view of a view"])
@pytest.mark.parametrize("from_file", [True, False])
def test_datasets_with_numbers_of_nodes_but_without_x_are_read_in_blocks(
    view: str, from_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = without_x(20)
    if from_file:
        Saved(str(tmp_path / "saved"), graphs)
    dataset: Any = VIEWS[view](Saved(str(tmp_path / "saved")) if from_file else InMemory(graphs))
    items = [dataset[i] for i in range(len(dataset))]
    right = tp.GraphStore.write(tmp_path / "right", items)
    source = resolve(dataset)
    assert type(source).__name__ == "PygDataset"
    monkeypatch.setattr("dgl_tuplepack.graphs.readers.pyg_dataset._GRAPHS", 7)
    store = assert_stored(dataset, tmp_path / "store")
    arrays = [[array.sha256 for array in s.segments[0].metadata.arrays] for s in (store, right)]
    assert arrays[0] == arrays[1]


def test_nodes_of_a_type_may_have_a_number_and_no_x(tmp_path: Path) -> None:
    graphs = []
    for n, e in [(3, 4), (1, 0), (5, 2)]:
        data = HeteroData()
        data["a"].num_nodes, data["a"].mass, data["b"].x = n, torch.rand(n), torch.rand(2, 3)
        data["a", "to", "b"].edge_index = torch.stack([torch.randint(n, (e,)), torch.randint(2, (e,))])
        graphs.append(data)
    dataset = InMemory(graphs)
    assert type(resolve(dataset)).__name__ == "PygDataset"
    store = tp.GraphStore.write(tmp_path / "store", dataset)
    assert_same(store.batched(framework="pyg")[range(3)], batch_of(graphs))
    # More numbers than graphs, or a number below 0.
    for wrong in ([3, 1, 5, 2], [3, -1, 7]):
        dataset._data["a"]._num_nodes = wrong
        with refused(SchemaError, "slices", "list(dataset)" if len(wrong) > 3 else "'num_nodes'"):
            tp.GraphStore.write(tmp_path / "store", dataset, overwrite=True)
    assert len(tp.GraphStore(tmp_path / "store")) == 3


def test_a_dataset_whose_slices_do_not_fit_is_refused(tmp_path: Path) -> None:
    dataset = tu_dataset(tmp_path / "raw", ("node_labels", "graph_labels"))
    # As PyG's own reader leaves them where the last graphs have no edge.
    dataset.slices["edge_index"] = dataset.slices["edge_index"][:-1]
    with refused(SchemaError, "nodes among 8 graphs", "has 7 graphs", "list(dataset)"):
        tp.sizes_of(dataset)
    assert len(tp.sizes_of(list(dataset))) == 7


# --- OGB's dataset objects


def by_pyg_name(store: tp.GraphStore) -> dict[Any, str]:
    """Checksums of all arrays by the names that PyG has for them."""
    names = {("node_feature", "feat"): "x", ("edge_feature", "feat"): "edge_attr"}
    return {
        (e.content, str(e.type), names.get((e.content, str(e.name)), e.name)): e.sha256
        for e in store.segments[0].metadata.arrays
    }


def test_ogb_datasets_of_both_frameworks_give_equal_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ogb = pytest.importorskip("ogb.graphproppred", reason="the optional package ogb is not installed")
    load = torch.load
    # OGB 1.3.6 loads its own files as torch did before 2.6.
    monkeypatch.setattr(torch, "load", lambda *args, **settings: load(*args, **{"weights_only": False, **settings}))
    for name in ("pyg", "dgl"):
        write_ogb_folder(tmp_path / name, tp.GraphSizes([[3 + i % 5, 2 * (i % 4)] for i in range(40)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = ogb.PygGraphPropPredDataset("ogbg-molhiv", root=str(tmp_path / "pyg"))
    pyg = tp.GraphStore.write(tmp_path / "pyg_store", dataset)
    dgl = tp.GraphStore.write(
        tmp_path / "dgl_store", ogb.DglGraphPropPredDataset("ogbg-molhiv", root=str(tmp_path / "dgl"))
    )
    folder = tp.GraphStore.write(tmp_path / "folder_store", tmp_path / "dgl" / "ogbg_molhiv")
    assert by_pyg_name(pyg) == by_pyg_name(dgl) == by_pyg_name(folder)
    assert set(pyg.splits) == {"train", "valid", "test"}
    assert len(pyg) == 40
    limits = tp.Limits(nodes=200, edges=450, graphs=6)
    found, expected = (store.padded(limits)[[0, 5, 3]].pyg for store in (pyg, dgl))
    assert_same(found, expected)
    assert_same(found[1], dataset[5], {"num_nodes"})
