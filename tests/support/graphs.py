"""Random DGL graphs and labels for the tests, and what it means that two of them are equal.

Hypothesis draws sizes, kinds and one seed; tensors come from torch's generator with that seed. So drawing stays fast
and a failing example still shrinks to few, small graphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import dgl
import torch
from hypothesis import strategies as st
from torch import Tensor

from dgl_tuplepack import Limits, PaddedBatch
from dgl_tuplepack.batches.tensors import BatchTensors
from tests.support.samplers import SamplerCase as SamplerCase
from tests.support.samplers import flat as flat
from tests.support.samplers import sampler_cases as sampler_cases
from tests.support.tensors import DTYPES as DTYPES
from tests.support.tensors import PADDING as PADDING
from tests.support.tensors import SHAPES as SHAPES
from tests.support.tensors import Spec as Spec
from tests.support.tensors import assert_equal_tensors as assert_equal_tensors
from tests.support.tensors import generator as generator
from tests.support.tensors import random_tensor as random_tensor
from tests.support.tensors import specs as specs

PLAIN = ("_N", "_E", "_N")
USER, ITEM = "user", "item"
# One relation from a type to itself, and one in each direction between the two types.
RELATIONS = ((USER, "follows", USER), (USER, "buys", ITEM), (ITEM, "pleases", USER))

LABEL_KINDS = ("none", "tensor", "int", "float", "bool", "numpy", "dict")


def random_ends(gen: torch.Generator, sources: int, targets: int, edges: int) -> tuple[Tensor, Tensor]:
    """Random endpoints of `edges` edges; loops and repeated edges occur."""
    return (
        torch.randint(0, max(sources, 1), (edges,), generator=gen),
        torch.randint(0, max(targets, 1), (edges,), generator=gen),
    )


def random_graph(
    gen: torch.Generator, nodes: int, edges: int, node_spec: Spec | None = None, edge_spec: Spec | None = None
) -> Any:
    """Homogeneous graph of exactly that size (0 edges if it has no node)."""
    edges = edges if nodes else 0
    graph = dgl.graph(random_ends(gen, nodes, nodes, edges), num_nodes=nodes)
    for name, (shape, dtype) in (node_spec or {}).items():
        graph.ndata[name] = random_tensor(gen, (nodes, *shape), dtype)
    for name, (shape, dtype) in (edge_spec or {}).items():
        graph.edata[name] = random_tensor(gen, (edges, *shape), dtype)
    return graph


def random_heterograph(
    gen: torch.Generator,
    nodes: Mapping[str, int],
    edges: Mapping[tuple[str, str, str], int],
    node_specs: Mapping[str, Spec] | None = None,
    edge_specs: Mapping[tuple[str, str, str], Spec] | None = None,
) -> Any:
    """Heterograph of exactly these sizes (0 edges of a type whose ends have no node)."""
    edges = {t: number if nodes[t[0]] and nodes[t[2]] else 0 for t, number in edges.items()}
    ends = {t: random_ends(gen, nodes[t[0]], nodes[t[2]], number) for t, number in edges.items()}
    graph = dgl.heterograph(ends, dict(nodes))
    for node_type, spec in (node_specs or {}).items():
        for name, (shape, dtype) in spec.items():
            graph.nodes[node_type].data[name] = random_tensor(gen, (nodes[node_type], *shape), dtype)
    for edge_type, spec in (edge_specs or {}).items():
        for name, (shape, dtype) in spec.items():
            graph.edges[edge_type].data[name] = random_tensor(gen, (edges[edge_type], *shape), dtype)
    return graph


def random_label(gen: torch.Generator, kind: str, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    """One label of a kind of `LABEL_KINDS`; shape and dtype matter for tensors, arrays and dicts."""
    if kind == "none":
        return None
    if kind == "tensor":
        return random_tensor(gen, shape, dtype)
    if kind == "numpy":
        # numpy knows no bfloat16.
        return random_tensor(gen, shape, torch.float32 if dtype == torch.bfloat16 else dtype).numpy()
    if kind == "dict":
        return {"y": random_tensor(gen, shape, dtype), "weight": random_tensor(gen, (), torch.float32).item()}
    number = random_tensor(gen, (), torch.float64).item()
    return {"int": int(100 * number), "float": number, "bool": number > 0}[kind]


@dataclass(frozen=True)
class Content:
    """Graphs that fit one batch together, with what is needed to pad them."""

    items: list[Any]
    example: Any
    limits: Limits
    packs_per_batch: int
    has_labels: bool

    @property
    def graphs(self) -> list[Any]:
        """The graphs alone."""
        return [item[0] if self.has_labels else item for item in self.items]

    @property
    def node_types(self) -> list[str]:
        """Node types of every graph."""
        return list((self.example[0] if self.has_labels else self.example).ntypes)

    @property
    def edge_types(self) -> list[tuple[str, str, str]]:
        """Canonical edge types of every graph."""
        return list((self.example[0] if self.has_labels else self.example).canonical_etypes)


@st.composite
def contents(
    draw: st.DrawFn,
    *,
    hetero: st.SearchStrategy[bool] = st.booleans(),  # noqa: B008 - a strategy is immutable
    min_graphs: int = 0,
    max_graphs: int = 5,
    most_nodes: int = 6,
    most_edges: int = 9,
) -> Content:
    """Contents of one batch: few graphs, some without edges or nodes, and limits with 0..6 to spare."""
    gen = generator(draw(st.integers(0, 2**31)))
    is_hetero = draw(hetero)
    node_types = (USER, ITEM) if is_hetero else ("_N",)
    edge_types = RELATIONS if is_hetero else (PLAIN,)
    node_specs = {t: draw(specs()) for t in node_types}
    edge_specs = {t: draw(specs()) for t in edge_types}
    idtype = draw(st.sampled_from([torch.int64, torch.int32]))
    kind, shape, dtype = draw(st.tuples(st.sampled_from(LABEL_KINDS), st.sampled_from(SHAPES), st.sampled_from(DTYPES)))

    def graph_of_size(nodes: Sequence[int], edges: Sequence[int], bare: bool) -> Any:
        if is_hetero:
            # A type without nodes or edges may come without its features, as many datasets have it.
            graph = random_heterograph(
                gen, dict(zip(node_types, nodes, strict=True)), dict(zip(edge_types, edges, strict=True)),
                node_specs, edge_specs,
            )  # fmt: skip
        else:
            graph = random_graph(gen, nodes[0], edges[0], node_specs["_N"], edge_specs[PLAIN])
        if bare:
            drop_features_of_nothing(graph)
        return graph if idtype == torch.int64 else graph.int()

    def item_of(graph: Any) -> Any:
        return graph if kind == "none" else (graph, random_label(gen, kind, shape, dtype))

    size = st.tuples(
        st.tuples(*[st.integers(0, most_nodes)] * len(node_types)),
        st.tuples(*[st.integers(0, most_edges)] * len(edge_types)),
        st.booleans(),
    )
    graphs = [graph_of_size(*drawn) for drawn in draw(st.lists(size, min_size=min_graphs, max_size=max_graphs))]
    example = graph_of_size([draw(st.integers(0, 2))] * len(node_types), [1] * len(edge_types), False)

    packs = draw(st.integers(1, 3))

    def limit(total: int) -> int:
        return max(1, -(-(total + draw(st.integers(0, 6))) // packs))

    nodes = {t: limit(sum(g.num_nodes(t) for g in graphs)) for t in node_types}
    edges = {t: limit(sum(g.num_edges(t) for g in graphs)) for t in edge_types}
    cap = limit(len(graphs))
    limits = Limits(nodes, edges, cap) if is_hetero else Limits(nodes["_N"], edges[PLAIN], cap)
    return Content([item_of(g) for g in graphs], item_of(example), limits, packs, kind != "none")


def drop_features_of_nothing(graph: Any) -> None:
    """Take the features away from node and edge types that have no node or edge."""
    for t in graph.ntypes:
        for name in [] if graph.num_nodes(t) else list(graph.nodes[t].data):
            graph.nodes[t].data.pop(name)
    for t in graph.canonical_etypes:
        for name in [] if graph.num_edges(t) else list(graph.edges[t].data):
            graph.edges[t].data.pop(name)


def assert_same_graph(found: Any, expected: Any) -> None:
    """Same types, nodes, edges in the same order, and features; features of nothing may be absent."""
    assert found.ntypes == expected.ntypes
    assert found.canonical_etypes == expected.canonical_etypes
    for t in expected.ntypes:
        assert found.num_nodes(t) == expected.num_nodes(t)
        _assert_same_features(found.nodes[t].data, expected.nodes[t].data, expected.num_nodes(t))
    for t in expected.canonical_etypes:
        assert found.num_edges(t) == expected.num_edges(t)
        for end, right in zip(found.edges(etype=t), expected.edges(etype=t), strict=True):
            assert torch.equal(end.long(), right.long())
        _assert_same_features(found.edges[t].data, expected.edges[t].data, expected.num_edges(t))


def _assert_same_features(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], number: int) -> None:
    if number:
        assert set(found) == set(expected)
    for name, value in expected.items():
        assert_equal_tensors(found[name], value, name)


def assert_same_label(found: Any, expected: Any) -> None:
    """Same values, after what `torch.as_tensor` makes of numbers and arrays."""
    if isinstance(expected, dict):
        assert set(found) == set(expected)
        for name in expected:
            assert_equal_tensors(found[name], torch.as_tensor(expected[name]), name)
    elif expected is None:
        assert found is None
    else:
        assert_equal_tensors(found, torch.as_tensor(expected))


def assert_same_batch(found: Any, expected: Any) -> None:
    """Two padded batches agree in every field."""
    actual = _fields_of(found)
    for name, value in _fields_of(expected).items():
        _assert_same_values(actual[name], value, name)


def _fields_of(batch: PaddedBatch) -> dict[str, Any]:
    """All that a batch holds and gives, except for its graph, which is made of it."""
    # Features that were written into the graph come into the fields first.
    batch.sync_with_graph()
    names = [field.name for field in fields(batch) if field.name not in ("_graph", "_agreed")]
    return {name: getattr(batch, name) for name in [*names, *BatchTensors._fields]}


def _assert_same_values(found: Any, expected: Any, what: str) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), what
        for key in expected:
            _assert_same_values(found[key], expected[key], f"{what}[{key!r}]")
    elif isinstance(expected, Tensor):
        assert_equal_tensors(found, expected, what)
    else:
        assert found == expected, what


def shapes_of(batch: Any) -> dict[str, Any]:
    """Shape and dtype of every tensor of a batch, and of its graph."""

    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shape(part) for key, part in value.items()}
        if isinstance(value, Tensor):
            return tuple(value.shape), value.dtype
        # Numbers of real nodes, edges and graphs are the content, not the shape.
        return None if isinstance(value, int) else value

    graph = batch.graph
    shapes = {name: shape(value) for name, value in _fields_of(batch).items()}
    shapes["graph"] = (graph.batch_size, graph.idtype, graph.ntypes, graph.canonical_etypes)
    shapes["graph nodes"] = [graph.num_nodes(t) for t in graph.ntypes]
    shapes["graph edges"] = [graph.num_edges(t) for t in graph.canonical_etypes]
    return shapes


def ring_with_chords(gen: torch.Generator, nodes: int, chords: int, features: int = 3) -> Any:
    """Directed ring plus random edges: every node has an incoming edge. Features ``"x"`` and ``"w"``, float64."""
    around = torch.arange(nodes)
    src, dst = random_ends(gen, nodes, nodes, chords)
    graph = dgl.graph((torch.cat([around, src]), torch.cat([(around + 1) % nodes, dst])), num_nodes=nodes)
    graph.ndata["x"] = torch.randn((nodes, features), generator=gen, dtype=torch.float64)
    graph.edata["w"] = torch.rand((nodes + chords,), generator=gen, dtype=torch.float64)
    return graph


def assert_same_dgl_batch(found: Any, expected: Any) -> None:
    """Two batched DGLGraphs agree in structure, index type, counts and features."""
    assert found.idtype == expected.idtype
    assert found.batch_size == expected.batch_size
    assert_same_graph(found, expected)
    for t in expected.ntypes:
        assert found.batch_num_nodes(t).tolist() == expected.batch_num_nodes(t).tolist()
    for t in expected.canonical_etypes:
        assert found.batch_num_edges(t).tolist() == expected.batch_num_edges(t).tolist()


def split_item(item: Any) -> tuple[Any, Any]:
    """Graph and label (None if it has none) of an item."""
    return item if isinstance(item, tuple) else (item, None)


def assert_same_item(found: Any, expected: Any) -> None:
    """Two items of a dataset agree: graph, index type, and label where there is one."""
    assert isinstance(found, tuple) == isinstance(expected, tuple)
    assert_same_graph(split_item(found)[0], split_item(expected)[0])
    assert split_item(found)[0].idtype == split_item(expected)[0].idtype
    assert_same_label(split_item(found)[1], split_item(expected)[1])
