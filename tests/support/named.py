"""Random items of several named graphs, with ties and indices, and the obvious way to a batch of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dgl
import torch
from hypothesis import strategies as st
from torch import Tensor

from dgl_tuplepack import Limits, PaddedBatch
from tests.support.graphs import (
    ITEM,
    PLAIN,
    RELATIONS,
    USER,
    assert_equal_tensors,
    assert_same_graph,
    assert_same_label,
    drop_features_of_nothing,
    generator,
    random_graph,
    random_heterograph,
    random_label,
)

FEATURES = {"x": ((2,), torch.float32), "kind": ((), torch.int16)}
TIES = {"nodes:bonds": "edges:atoms"}
LIMITS = Limits({"atoms": 12, "bonds": 20}, {"atoms": 20, "bonds": 50}, graphs=4)
LABELS = ("none", "tensor", "int", "dict")


def path_graph(nodes: int) -> Any:
    """A path with features."""
    graph = dgl.graph((torch.arange(nodes - 1), torch.arange(1, nodes)), num_nodes=nodes)
    graph.ndata["x"], graph.edata["r"] = torch.arange(nodes) + 1.0, torch.arange(nodes - 1) + 10.0
    return graph


def path_item(nodes: int = 4) -> dict[str, Any]:
    """A path and its line graph."""
    graph = path_graph(nodes)
    return {"atoms": graph, "bonds": dgl.line_graph(graph, shared=True)}


@dataclass(frozen=True)
class Named:
    """Items ``{name: graph}``, or pairs with a label, and limits that hold all of them in p packs."""

    items: list[Any]
    example: Any
    limits: Limits
    packs: int
    # Arguments `ties` and `indices`.
    declared: dict[str, Any] = field(default_factory=dict)

    @property
    def tied(self) -> bool:
        """Whether the nodes of "bonds" are the edges of "atoms"."""
        return bool(self.declared["ties"])


def graphs_of(item: Any) -> dict[str, Any]:
    """The named graphs of an item."""
    return item[0] if isinstance(item, tuple) else item


def types_of(graphs: Mapping[str, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Key of a limit -> (name, node type), and the same for edges."""
    nodes: dict[Any, Any] = {}
    edges: dict[Any, Any] = {}
    for name, graph in sorted(graphs.items()):
        plain = graph.canonical_etypes == [PLAIN]
        nodes |= {name if plain else f"{name}/{t}": (name, t) for t in graph.ntypes}
        edges |= {
            name if plain else (f"{name}/{s}", r, f"{name}/{d}"): (name, (s, r, d))
            for s, r, d in graph.canonical_etypes
        }
    return nodes, edges


@st.composite
def named_contents(draw: st.DrawFn, *, max_graphs: int = 5, most: int = 4, empty: bool = True) -> Named:
    """One to three names; homogeneous graphs "atoms" and "bonds", and a heterograph "deals"; some without nodes.

    With a tie "bonds" has a node for each edge of "atoms". Indices are features of "atoms" and a label.
    """
    names = draw(st.sampled_from([("atoms",), ("atoms", "bonds"), ("bonds", "deals"), ("deals", "atoms", "bonds")]))
    gen = generator(draw(st.integers(0, 2**31)))
    tied = {"atoms", "bonds"} <= set(names) and draw(st.booleans())
    has_indices = "atoms" in names and draw(st.booleans())
    kind, idtype = draw(st.sampled_from(LABELS)), draw(st.sampled_from([torch.int64, torch.int32]))

    def graph_of(name: str, numbers: Sequence[int], others: Mapping[str, Any]) -> Any:
        if name == "deals":
            nodes = {USER: numbers[0], ITEM: numbers[1]}
            graph = random_heterograph(gen, nodes, dict.fromkeys(RELATIONS, numbers[2]), {USER: FEATURES})
        else:
            nodes = others["atoms"].num_edges() if tied and name == "bonds" else numbers[0]
            if has_indices and name == "atoms":
                nodes = max(nodes, 1)
            graph = random_graph(gen, nodes, numbers[2], FEATURES, {"w": ((), torch.float64)})
        if has_indices and name == "atoms":
            number = graph.num_nodes()
            graph.ndata["near"] = torch.randint(0, number, (number, 2), generator=gen)
            graph.edata["twin"] = torch.randint(0, max(graph.num_edges(), 1), (graph.num_edges(),), generator=gen).int()
        return graph

    def item_of(numbers: Mapping[str, Sequence[int]], bare: bool) -> Any:
        graphs: dict[str, Any] = {}
        for name in names:
            graphs[name] = graph_of(name, numbers[name], graphs)
        if bare:
            for graph in graphs.values():
                drop_features_of_nothing(graph)
        if idtype == torch.int32:
            graphs = {name: graph.int() for name, graph in graphs.items()}
        if not has_indices:
            return graphs if kind == "none" else (graphs, random_label(gen, kind, (2,), torch.float32))
        root = torch.randint(0, graphs["atoms"].num_nodes(), (), generator=gen)
        return graphs, {"root": root, "y": torch.rand(3, generator=gen)}

    size = st.tuples(*[st.integers(0 if empty else 1, most)] * 3)
    sizes = st.fixed_dictionaries(dict.fromkeys(names, size))
    items = [item_of(drawn, draw(st.booleans())) for drawn in draw(st.lists(sizes, min_size=1, max_size=max_graphs))]
    example = item_of(dict.fromkeys(names, (2, 2, 2)), False)
    packs = draw(st.integers(1, 2))

    def limit(total: int) -> int:
        return max(1, -(-(total + draw(st.integers(0, 5))) // packs))

    nodes, edges = types_of(graphs_of(example))
    of_nodes = {key: limit(sum(graphs_of(i)[n].num_nodes(t) for i in items)) for key, (n, t) in nodes.items()}
    of_edges = {key: limit(sum(graphs_of(i)[n].num_edges(t) for i in items)) for key, (n, t) in edges.items()}
    indices = {"near": "nodes", "twin": "edges:atoms", "root": "nodes:atoms"} if has_indices else {}
    declared = {"ties": {"nodes:bonds": "edges:atoms"} if tied else {}, "indices": indices}
    return Named(items, example, Limits(of_nodes, of_edges, limit(len(items))), packs, declared)


def shifted_batch(content: Named, items: Sequence[Any]) -> tuple[dict[str, Any], Any]:
    """Batched graphs by name and stacked labels, by `dgl.batch` and a loop that shifts indices."""
    copies = [{name: graph.clone() for name, graph in graphs_of(item).items()} for item in items]
    labels = [item[1] if isinstance(item, tuple) else None for item in items]
    if content.declared["indices"]:
        labels = [dict(label) for label in labels]
        first_node = first_edge = 0
        for graphs, label in zip(copies, labels, strict=True):
            atoms = graphs["atoms"]
            nodes, edges = atoms.num_nodes(), atoms.num_edges()
            atoms.ndata["near"] = atoms.ndata["near"] + first_node
            if edges:
                atoms.edata["twin"] = atoms.edata["twin"] + first_edge
            label["root"] = label["root"] + first_node
            first_node, first_edge = first_node + nodes, first_edge + edges
    for graphs in copies:
        for graph in graphs.values():
            drop_features_of_nothing(graph)
    batched = {name: dgl.batch([graphs[name] for graphs in copies]) for name in copies[0]}
    return batched, stacked(labels)


def stacked(labels: Sequence[Any]) -> Any:
    """Labels of all items, stacked."""
    if labels[0] is None:
        return None
    if isinstance(labels[0], dict):
        return {name: stacked([label[name] for label in labels]) for name in labels[0]}
    return torch.stack([torch.as_tensor(label) for label in labels])


def assert_same_named(found: Any, expected: Any, idtype: torch.dtype | None = None) -> None:
    """Two items of named graphs agree, with their labels where there are some; `idtype` as in `expected` if None."""
    assert isinstance(found, tuple) == isinstance(expected, tuple)
    if isinstance(expected, tuple):
        assert_same_label(found[1], expected[1])
    assert set(graphs_of(found)) == set(graphs_of(expected))
    for name, graph in graphs_of(expected).items():
        assert graphs_of(found)[name].idtype == (idtype or graph.idtype)
        assert_same_graph(graphs_of(found)[name], graph)


def assert_begins_with(batch: PaddedBatch, content: Named, items: Sequence[Any]) -> None:
    """The real part of a batch, whose edges are not sorted, is what `shifted_batch` makes."""
    right, labels = shifted_batch(content, items)
    for name, graph in batch.graphs.items():
        expected = right[name]
        assert graph.ntypes == expected.ntypes
        for t in expected.ntypes:
            number = expected.num_nodes(t)
            assert graph.batch_num_nodes(t)[: len(items)].tolist() == expected.batch_num_nodes(t).tolist()
            for feature, value in expected.nodes[t].data.items():
                assert_equal_tensors(graph.nodes[t].data[feature][:number], value, feature)
        for e in expected.canonical_etypes:
            number = expected.num_edges(e)
            assert graph.batch_num_edges(e)[: len(items)].tolist() == expected.batch_num_edges(e).tolist()
            for end, value in zip(graph.edges(etype=e), expected.edges(etype=e), strict=True):
                assert end[:number].tolist() == value.tolist()
            for feature, value in expected.edges[e].data.items():
                assert_equal_tensors(graph.edges[e].data[feature][:number], value, feature)
    real = {name: value[: len(items)] for name, value in as_dict(batch.labels).items()}
    for name, value in as_dict(labels).items():
        assert_equal_tensors(real[name], value, name)


def as_dict(labels: Any) -> dict[str, Tensor]:
    """Labels by name; a single one has the empty name."""
    return {} if labels is None else labels if isinstance(labels, dict) else {"": labels}
