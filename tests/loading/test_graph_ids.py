"""`graph_ids` are positions in what the user passed, in every loader, split, subset and rank."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
from torch.utils.data import Subset

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError
from tests.support.graphs import assert_same_graph
from tests.support.messages import refused
from tests.support.stores import molecules

# A machine with one core makes torch remark on two workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

ITEMS = molecules(40)
SPLITS = {"train": [*range(1, 40, 2)], "test": [38, 0, 4, 12]}


def source_of(kind: str, folder: Path) -> Any:
    """What the user passes; each has the graph i at position i."""
    if kind == "list":
        return ITEMS
    if kind == "Subset of a list":
        return Subset([*ITEMS[20:], *ITEMS[:20]], [*range(20, 40), *range(20)])
    if kind == "items one by one":
        return Subset(ITEMS, range(40))
    store = tp.GraphStore.write(folder / "store", ITEMS if kind != "subset" else [*ITEMS[20:], *ITEMS[:20]])
    return {"store": store, "path": folder / "store"}.get(kind) or store.subset([*range(20, 40), *range(20)])


KINDS = ["list", "Subset of a list", "items one by one", "store", "path", "subset"]
CASES = [(kind, padded, 0) for kind in KINDS for padded in (True, False)]


@pytest.mark.parametrize(("kind", "padded", "workers"), [*CASES, ("items one by one", True, 2), ("store", False, 2)])
def test_ids_in_splits_are_positions_in_the_whole(kind: str, padded: bool, workers: int, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"padded": padded, "with_ids": True, "num_workers": workers}
    settings |= {"in_memory": False if kind == "items one by one" else None}
    loaders = tp.packed_loader(source_of(kind, tmp_path), 6, splits=SPLITS, **settings)
    for name, loader in loaders.items():
        seen = []
        for batch in loader:
            ids = batch.graph_ids[batch.graph_mask] if padded else batch[2]
            seen += ids.tolist()
            graphs = tp.unpad(batch) if padded else dgl.unbatch(batch[0])
            for graph, i in zip(graphs, ids.tolist(), strict=True):
                assert_same_graph(graph[0] if isinstance(graph, tuple) else graph, ITEMS[i][0])
        assert sorted(seen) == sorted(SPLITS[name])


@pytest.mark.parametrize("kind", ["list", "items one by one", "store"])
def test_ranks_of_a_split_have_all_ids_once(kind: str, tmp_path: Path) -> None:
    source, ids = source_of(kind, tmp_path), []
    for rank in range(3):
        loader = tp.packed_loader(source, 4, splits=SPLITS, num_replicas=3, rank=rank)["train"]
        ids += [i for batch in loader for i in batch.graph_ids[batch.graph_mask].tolist()]
    assert sorted(ids) == SPLITS["train"]


def test_a_loader_of_dgl_graphs_gives_positions_in_its_dataset(tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "store", ITEMS)
    chosen = [30, 2, 2, 17, 5]
    for dataset in (Subset(ITEMS, chosen), Subset(store, chosen), store.subset(chosen), store.subset(chosen).to("cpu")):
        for settings in ({}, {"in_memory": False}):
            batches = list(tp.GraphDataLoader(dataset, batch_size=2, with_ids=True, **settings))
            assert [ids.tolist() for _, _, ids in batches] == [[0, 1], [2, 3], [4]]
            assert [len(batch) for batch in batches] == [3] * 3
    with refused(InputError, "with_ids=True", "collate_fn"):
        tp.GraphDataLoader(store, collate_fn=list, with_ids=True)
    with refused(InputError, "with_ids=True", "collate_fn"):
        tp.packed_loader(ITEMS, 4, padded=False, collate_fn=list, with_ids=True)


def test_graphs_without_labels_have_ids_as_the_second_element() -> None:
    graphs = [graph for graph, _ in ITEMS]
    for in_memory in (None, False):
        batch = next(iter(tp.GraphDataLoader(graphs, batch_size=3, with_ids=True, in_memory=in_memory)))
        assert [type(each) for each in batch] == [dgl.DGLGraph, torch.Tensor]
        assert batch[1].tolist() == [0, 1, 2]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_evaluation_leaves_the_position_of_the_training(workers: int) -> None:
    """Before a loaded state is resumed; only a loader that never trained counts it."""

    def ids_of(batches: Any) -> list[int]:
        return [i for batch in batches for i in batch.graph_ids[batch.graph_mask].tolist()]

    loader, resumed, predicting, again = (tp.packed_loader(ITEMS, 5, num_workers=workers) for _ in range(4))
    seen = ids_of(itertools.islice(loader, 3))
    resumed.load_state_dict(loader.state_dict())
    with torch.no_grad():
        assert len(ids_of(resumed)) == 40
        next(iter(resumed))
    assert sorted(seen + ids_of(resumed)) == list(range(40))
    with torch.no_grad():
        first = ids_of(itertools.islice(predicting, 3))
        again.load_state_dict(predicting.state_dict())
        assert sorted(first + ids_of(again)) == list(range(40))


def test_evaluating_the_training_loader_between_epochs_gives_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    loader = tp.packed_loader(ITEMS, 8)
    for epoch in range(3):
        loader.set_epoch(epoch)
        list(loader)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                assert sum(batch.num_real_graphs for batch in loader) == 40
    assert not [w for w in recwarn if "iterated again" in str(w.message)]
    with pytest.warns(UserWarning, match="epoch 2 is iterated again"):
        list(loader)
