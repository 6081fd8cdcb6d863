"""Items whose sizes differ from the sizes that were counted when the loader was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Subset

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError
from tests.support.messages import refused

# Nodes of each graph; each graph has one edge more.
NODES = [3 + i % 5 for i in range(24)]


def ring(nodes: int) -> Any:
    return dgl.graph((torch.arange(nodes + 1) % nodes, torch.zeros(nodes + 1, dtype=torch.int64)), num_nodes=nodes)


def typed(nodes: int) -> Any:
    src = torch.arange(nodes + 1) % nodes
    return dgl.heterograph({("u", "r", "v"): (src, torch.zeros_like(src))}, {"u": nodes, "v": 2})


def data(nodes: int) -> Any:
    from torch_geometric.data import Data

    ends = torch.stack([torch.arange(nodes + 1) % nodes, torch.zeros(nodes + 1, dtype=torch.int64)])
    return Data(x=torch.zeros(nodes, 2), edge_index=ends, y=torch.zeros(1))


# Name -> a function from a number of nodes to an item, and the name of the nodes and edges in messages.
KINDS: dict[str, tuple[Callable[[int], Any], str, str]] = {
    "graphs": (ring, "nodes", "edges"),
    "labels": (lambda n: (ring(n), torch.zeros(1)), "nodes", "edges"),
    "types": (typed, "nodes:u, 2 nodes:v", "edges:u:r:v"),
    "names": (lambda n: ({"b": ring(n), "a": ring(2)}, {"y": torch.zeros(1)}), "nodes:b", "edges:b"),
    "pyg": (data, "nodes", "edges"),
}


class Changing:
    """A dataset whose items get other sizes after they were counted."""

    def __init__(self, make: Callable[[int], Any], nodes: list[int] = NODES) -> None:
        self.make, self.nodes = make, list(nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, i: int) -> Any:
        return self.make(self.nodes[i])


def batched_by_pyg(items: Any) -> Any:
    from torch_geometric.data import Batch

    return Batch.from_data_list(items)


PLAIN: Any = {"padded": False}
# Settings of the loader for each kind of item.
WAYS: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in KINDS),
    *((kind, PLAIN) for kind in KINDS if kind != "pyg"),
    ("labels", {"num_workers": 2}),
    ("labels", {"in_memory": False, "limits": [tp.Limits(12, 16), tp.Limits(20, 26)]}),
    ("labels", {"transform": dgl.transforms.DropEdge(0.0)}),
    ("labels", {**PLAIN, "transform": dgl.transforms.DropEdge(0.0)}),
    ("labels", {**PLAIN, "collate_fn": len}),
    ("labels", {**PLAIN, "collate_fn": lambda items: {"graph": dgl.batch([graph for graph, _ in items])}}),
    ("pyg", {**PLAIN, "collate_fn": batched_by_pyg}),
]


@pytest.mark.parametrize(
    ("kind", "given"), WAYS, ids=lambda value: value if isinstance(value, str) else "-".join(value)
)
def test_an_item_that_has_grown_is_named_with_both_sizes(kind: str, given: dict[str, Any]) -> None:
    make, nodes, edges = KINDS[kind]
    dataset = Changing(make)
    loader = tp.packed_loader(dataset, **{"limits": tp.Limits.from_components(limits_of(kind)), **given})
    assert sum(1 for _ in loader) == len(loader)
    dataset.nodes[17] = 99
    with refused(
        GraphTooLargeError, "item 17 had ", f"{NODES[17]} {nodes}", f"{NODES[17] + 1} {edges} when sizes were counted",
        f"99 {nodes}", f"100 {edges} when it was read again; 1 of the ", "transform=...", "in_memory=True",
    ), torch.no_grad():  # fmt: skip
        list(loader)


def limits_of(kind: str) -> dict[str, int]:
    """Limits of the nodes and edges of graphs of a kind."""
    sizes = tp.sizes_of(Changing(KINDS[kind][0]))
    return {name: 24 for name in sizes.components}


def test_items_of_splits_and_subsets_have_their_positions_in_the_source() -> None:
    splits = {"train": range(0, 12), "valid": range(12, 24)}
    for padded in (True, False):
        dataset = Changing(ring)
        loaders = tp.packed_loader(dataset, limits=tp.Limits(20, 26), splits=splits, padded=padded)
        subset = tp.packed_loader(Subset(dataset, range(12, 24)), limits=tp.Limits(20, 26), padded=padded)
        dataset.nodes[17] = 99
        assert sum(1 for _ in loaders["train"]) == len(loaders["train"])
        for loader, position in ((loaders["valid"], 17), (subset, 5)):
            with refused(GraphTooLargeError, f"item {position} had {NODES[17]} nodes"):
                list(loader)


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(2, 9), st.integers(-2, 2)), min_size=1, max_size=20),
    st.sampled_from([ring, data]),
    st.booleans(),
    st.integers(1, 2),
)
def test_only_batches_beyond_the_limits_are_refused(
    sizes: list[tuple[int, int]], make: Any, padded: bool, packs: int
) -> None:
    """Items that shrink, or that grow into unused room, are batched as they are."""
    dataset = Changing(make, [nodes for nodes, _ in sizes])
    collate: Any = {} if padded else {"collate_fn": batched_by_pyg if make is data else dgl.batch}
    limits = tp.Limits(nodes=12, edges=16)
    loader = tp.packed_loader(dataset, limits=limits, packs_per_batch=packs, padded=padded, shuffle=False, **collate)
    dataset.nodes = now = [max(1, nodes + change) for nodes, change in sizes]
    for ids in loader.sampler:
        most, nodes = packs * np.array([12, 16]), sum(now[i] for i in ids)
        if (np.array([nodes, nodes + len(ids)]) > most).any():
            with refused(GraphTooLargeError, "when sizes were counted, but"):
                loader.view[ids]
        else:
            batch = loader.view[ids]
            assert nodes == (batch.num_real_nodes if padded else len(batch.x) if make is data else batch.num_nodes())


def test_a_view_still_makes_batches_of_any_items_without_padding() -> None:
    """What the user asks for by hand has no limits, and no item has grown."""
    loader = tp.packed_loader(Changing(ring), limits=tp.Limits(20, 26), padded=False)
    assert loader.view[range(len(NODES))].num_nodes() == sum(NODES)
    assert loader.view[[]].num_nodes() == 0


@pytest.mark.parametrize("make", [ring, data])
def test_a_collate_that_knows_no_counted_sizes_names_the_largest_item(make: Any) -> None:
    dataset, limits = Changing(make), tp.Limits(20, 26)
    sampler = tp.PackBatchSampler(tp.sizes_of(dataset), limits)
    named = tp.with_ids(dataset)
    loader: Any = DataLoader(
        named,  # type: ignore[arg-type]
        batch_sampler=sampler, collate_fn=tp.PaddedCollate(sampler.limits, named[0]),
    )  # fmt: skip
    assert len(list(loader)) == len(sampler)
    dataset.nodes[17] = 99
    with refused(
        GraphTooLargeError, "the batch holds", "use a PackBatchSampler", "items have grown since sizes were counted",
        "the largest is graph 17 with 99 nodes, 100 edges", "transform=...",
    ), torch.no_grad():  # fmt: skip
        list(loader)
