"""A TensorGraph computes what a DGLGraph of the same edges does: results and gradients, on any graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import dgl
import dgl.function as fn
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgl_tuplepack import TensorGraph

BINARY = [
    f"{left}_{operation}_{right}"
    for operation in ("add", "sub", "mul", "div", "dot")
    for left in "uve"
    for right in "uve"
    if left != right
]
MESSAGES = ["copy_u", "copy_e", *BINARY]
REDUCERS = ("sum", "mean", "max", "min")
# Several types with equal middle names, loops on a type, and both directions between two types.
EDGE_TYPES = [("a", "to", "a"), ("a", "to", "b"), ("b", "to", "a"), ("a", "other", "b"), ("c", "to", "b")]
# Axes of the two operands of a message after the first.
SHAPES = [((3,), (3,)), ((), ()), ((2, 3), (2, 1)), ((2, 3), (1, 3)), ((3,), (1,)), ((2, 3), (2, 3)), ((9,), (9,))]


class Case(NamedTuple):
    """Edges by type, numbers of nodes, and the seed of all features."""

    edges: dict[tuple[str, str, str], tuple[list[int], list[int]]]
    num_nodes: dict[str, int]
    seed: int
    idtype: torch.dtype

    def graphs(self) -> tuple[Any, TensorGraph]:
        """The same graph for DGL and of tensors."""
        ends = {}
        for each, pairs in self.edges.items():
            src, dst = (torch.tensor(side, dtype=self.idtype) for side in pairs)
            ends[each] = src, dst
        ours = TensorGraph(
            {each: src for each, (src, _) in ends.items()},
            {each: dst for each, (_, dst) in ends.items()},
            self.num_nodes,
        )
        return dgl.heterograph(ends, num_nodes_dict=self.num_nodes, idtype=self.idtype), ours


@st.composite
def cases(draw: st.DrawFn, *, types: st.SearchStrategy[list[Any]] | None = None) -> Case:
    """Small graphs of some edge types; any number of nodes and edges may be 0, and edges may repeat."""
    chosen = draw(types if types is not None else st.lists(st.sampled_from(EDGE_TYPES), min_size=1, unique=True))
    used = sorted({each for source, _, destination in chosen for each in (source, destination)})
    num_nodes = {each: draw(st.integers(0, 5)) for each in used}
    edges = {}
    for each in chosen:
        source, destination = num_nodes[each[0]], num_nodes[each[2]]
        pair = st.tuples(st.integers(0, max(source - 1, 0)), st.integers(0, max(destination - 1, 0)))
        pairs = draw(st.lists(pair, max_size=8)) if source and destination else []
        edges[each] = [u for u, _ in pairs], [v for _, v in pairs]
    idtype = draw(st.sampled_from([torch.int64, torch.int32]))
    return Case(edges, num_nodes, draw(st.integers(0, 1000)), idtype)


def one_type() -> st.SearchStrategy[list[Any]]:
    return st.sampled_from([[EDGE_TYPES[0]], [EDGE_TYPES[1]]])


class Leaves:
    """Features with gradients, equal for both graphs; numbers far from 0, which are divided by."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self.made: list[Tensor] = []

    def new(self, *shape: int) -> Tensor:
        values = torch.rand(shape, generator=self._generator, dtype=torch.float64) + 0.5
        signs = torch.randint(0, 2, shape, generator=self._generator) * 2 - 1
        self.made.append((values * signs).requires_grad_())
        return self.made[-1]


def filled(graph: Any, seed: int, shapes: tuple[tuple[int, ...], ...] = ((3,), (3,))) -> Leaves:
    """Give all nodes features x and y, and all edges x and y, of the two shapes."""
    leaves = Leaves(seed)
    for name, shape in zip("xy", shapes, strict=True):
        for node_type in sorted(graph.ntypes):
            graph.nodes[node_type].data[name] = leaves.new(graph.num_nodes(node_type), *shape)
        for edge_type in sorted(graph.canonical_etypes):
            graph.edges[edge_type].data[name] = leaves.new(graph.num_edges(edge_type), *shape)
    return leaves


def frames(graph: Any) -> Iterator[tuple[Any, str, Tensor]]:
    for node_type in graph.ntypes:
        for name in sorted(graph.nodes[node_type].data.keys()):
            yield node_type, name, graph.nodes[node_type].data[name]
    for edge_type in graph.canonical_etypes:
        for name in sorted(graph.edges[edge_type].data.keys()):
            yield edge_type, name, graph.edges[edge_type].data[name]


def gradients(graph: Any, leaves: Leaves) -> list[Tensor]:
    """Gradients of a weighted sum of all features."""
    total = torch.zeros((), dtype=torch.float64)
    generator = torch.Generator().manual_seed(7)
    for _, _, values in frames(graph):
        total = total + (values * torch.randn(values.shape, generator=generator, dtype=torch.float64)).sum()
    found = torch.autograd.grad(total, leaves.made, allow_unused=True)
    return [torch.zeros_like(leaf) if each is None else each for leaf, each in zip(leaves.made, found, strict=True)]


def detached(graph: Any) -> Any:
    """The graph with features that do not depend on each other, as messages along no edges.

    Without any edge, DGL's gradient of a maximum goes to row 0, which may not even be there.
    """
    for node_type in graph.ntypes:
        for name, values in dict(graph.nodes[node_type].data).items():
            if not values.is_leaf:
                graph.nodes[node_type].data[name] = values.detach()
    return graph


def assert_equal_after(
    case: Case, run: Any, shapes: tuple[tuple[int, ...], ...] = ((3,), (3,)), reduces: bool = False
) -> None:
    """Run the same on both graphs: features and gradients must be equal. It may do no more than reduce messages."""
    theirs, ours = case.graphs()
    leaves = [filled(graph, case.seed, shapes) for graph in (theirs, ours)]
    for graph in (theirs, ours):
        run(graph)
    if reduces and not theirs.num_edges():
        theirs = detached(theirs)
    expected, found = list(frames(theirs)), list(frames(ours))
    assert [each[:2] for each in found] == [each[:2] for each in expected]
    for (of_type, name, values), (_, _, ours_values) in zip(expected, found, strict=True):
        torch.testing.assert_close(
            ours_values, values, rtol=1e-12, atol=1e-12, msg=lambda m, t=of_type, n=name: f"{t} {n}: {m}"
        )
    for theirs_gradient, ours_gradient in zip(gradients(theirs, leaves[0]), gradients(ours, leaves[1]), strict=True):
        torch.testing.assert_close(ours_gradient, theirs_gradient, rtol=1e-11, atol=1e-11)


def message(name: str) -> Any:
    return getattr(fn, name)("x", "m") if name.startswith("copy") else getattr(fn, name)("x", "y", "m")


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=6)
@given(case=cases(types=one_type()), shapes=st.sampled_from(SHAPES))
def test_every_built_in_message_and_reduce_function_equals_that_of_dgl(
    name: str, reducer: str, case: Case, shapes: tuple[tuple[int, ...], ...]
) -> None:
    if "dot" in name:
        # DGL multiplies rows of equal shape, with an axis to sum over.
        shapes = (shapes[0] or (3,),) * 2
    assert_equal_after(
        case, lambda graph: graph.update_all(message(name), getattr(fn, reducer)("m", "out")), shapes, True
    )


@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=6)
@given(case=cases(types=one_type()), shapes=st.sampled_from(SHAPES))
def test_every_built_in_function_applied_to_edges_equals_that_of_dgl(
    name: str, case: Case, shapes: tuple[tuple[int, ...], ...]
) -> None:
    if "dot" in name:
        shapes = (shapes[0] or (3,),) * 2
    assert_equal_after(case, lambda graph: graph.apply_edges(message(name)), shapes)


def by_user(edges: Any) -> dict[str, Tensor]:
    """As in a layer: a gate from both ends and the edge."""
    gate = torch.sigmoid(edges.src["x"] + edges.dst["y"] - edges.data["x"])
    return {"m": gate * edges.src["y"], "gate": gate}


@pytest.mark.parametrize("reducer", REDUCERS)
@given(case=cases(types=one_type()))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_functions_of_users_equal_those_on_dgl(reducer: str, case: Case) -> None:
    def run(graph: Any) -> None:
        graph.apply_edges(lambda edges: {"gate": by_user(edges)["gate"]})
        reduce = getattr(fn, reducer)("m", "out")
        graph.update_all(by_user, reduce, lambda nodes: {"out": nodes.data["out"] * nodes.data["x"]})
        graph.apply_nodes(lambda nodes: {"twice": nodes.data["x"] * 2}, ntype=graph.dsttypes[0])

    # Where a node has no messages, DGL gives its apply function an infinite maximum; ours gives 0, as DGL documents.
    if reducer in ("sum", "mean") or case.graphs()[0].in_degrees().all():
        assert_equal_after(case, run)


@pytest.mark.parametrize("cross", ["sum", "mean", "max", "min", "stack", lambda values: values[0] * 2 + values[-1]])
@pytest.mark.parametrize("reducer", REDUCERS)
@settings(max_examples=10)
@given(case=cases())
def test_messages_of_each_edge_type_reduced_across_types_equal_those_of_dgl(
    reducer: str, cross: Any, case: Case
) -> None:
    def run(graph: Any) -> None:
        functions = {
            each: (
                fn.u_mul_e("x", "y", "m") if each[0] == "a" else fn.copy_u("x", "m"),
                getattr(fn, reducer)("m", "out"),
            )
            for each in graph.canonical_etypes
        }
        graph.multi_update_all(functions, cross, lambda nodes: {"out": nodes.data["out"] + nodes.data["x"].mean()})

    # DGL's gradient of a maximum goes to row 0 where a type has no edges.
    if reducer in ("max", "min") and not all(src for src, _ in case.edges.values()):
        return
    assert_equal_after(case, run)


@given(case=cases())
def test_types_numbers_and_degrees_equal_those_of_dgl(case: Case) -> None:
    theirs, ours = case.graphs()
    names = "ntypes etypes canonical_etypes srctypes dsttypes is_homogeneous is_block is_unibipartite idtype batch_size"
    for name in (*names.split(), "device"):
        assert getattr(ours, name) == getattr(theirs, name), name
    for name in ("num_nodes", "number_of_nodes", "num_edges", "number_of_edges", "num_src_nodes", "num_dst_nodes"):
        assert getattr(ours, name)() == getattr(theirs, name)(), name
    for node_type in theirs.ntypes:
        assert ours.num_nodes(node_type) == theirs.num_nodes(node_type)
        assert ours.get_ntype_id(node_type) == theirs.get_ntype_id(node_type)
        assert torch.equal(ours.nodes(node_type), theirs.nodes(node_type))
        assert torch.equal(ours.batch_num_nodes(node_type), theirs.batch_num_nodes(node_type))
    for edge_type in theirs.canonical_etypes:
        assert ours.num_edges(edge_type) == theirs.num_edges(edge_type)
        assert ours.get_etype_id(edge_type) == theirs.get_etype_id(edge_type)
        for name in ("in_degrees", "out_degrees"):
            expected = getattr(theirs, name)(etype=edge_type)
            found = getattr(ours, name)(etype=edge_type)
            assert torch.equal(found, expected)
            assert found.dtype == expected.dtype
        for mine, other in zip(ours.edges("all", etype=edge_type), theirs.edges("all", etype=edge_type), strict=True):
            assert torch.equal(mine, other)
            assert mine.dtype == other.dtype


@given(case=cases())
def test_the_part_of_an_edge_type_equals_that_of_dgl_and_shares_its_features(case: Case) -> None:
    theirs, ours = case.graphs()
    for graph in (theirs, ours):
        filled(graph, case.seed)
    for edge_type in theirs.canonical_etypes:
        parts = theirs[edge_type], ours[edge_type]
        for name in ("ntypes", "srctypes", "dsttypes", "canonical_etypes", "batch_size"):
            assert getattr(parts[1], name) == getattr(parts[0], name), name
        for part in parts:
            part.update_all(fn.copy_u("x", "m"), fn.sum("m", "out"), etype=edge_type)
        for graph in (theirs, ours):
            assert "out" in graph.nodes[edge_type[2]].data
        torch.testing.assert_close(ours[edge_type].dstdata["out"], theirs[edge_type].dstdata["out"])


@given(case=cases())
def test_a_local_scope_leaks_nothing_also_after_an_error(case: Case) -> None:
    _, graph = case.graphs()
    filled(graph, case.seed)
    before = [(*each[:2], id(each[2])) for each in frames(graph)]
    local = graph.local_var()

    def change(changed: TensorGraph) -> None:
        for edge_type in changed.canonical_etypes:
            changed[edge_type].update_all(fn.copy_u("x", "m"), fn.sum("m", "out"))
            changed.apply_edges(fn.copy_u("x", "z"), etype=edge_type)
            del changed.edges[edge_type].data["x"]
        changed.nodes[changed.ntypes[0]].data["y"] = torch.zeros(changed.num_nodes(changed.ntypes[0]))

    with graph.local_scope():
        change(graph)
        with graph.local_scope():
            graph.nodes[graph.ntypes[0]].data["deeper"] = torch.zeros(graph.num_nodes(graph.ntypes[0]))
        assert "deeper" not in graph.nodes[graph.ntypes[0]].data
        assert "out" in graph.nodes[graph.canonical_etypes[0][2]].data

    def fail() -> None:
        with graph.local_scope():
            change(graph)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    change(local)
    assert [(*each[:2], id(each[2])) for each in frames(graph)] == before


@settings(max_examples=15)
@given(case=cases(types=one_type()))
def test_gradients_of_gradients_hold(case: Case) -> None:
    edge_type = next(iter(case.edges))
    edges, nodes = len(case.edges[edge_type][0]), case.num_nodes[edge_type[0]]

    def out(x: Tensor, weight: Tensor, score: Tensor) -> Tensor:
        graph = case.graphs()[1]
        graph.nodes[edge_type[0]].data["x"] = x
        graph.edata["w"] = weight
        relation = graph.relations[edge_type]
        graph.update_all(fn.u_mul_e("x", "w", "m"), fn.sum("m", "weighted"))
        soft = relation.by_dst.softmax(score)
        graph.update_all(lambda edges: {"m": edges.src["x"] ** 2 * soft}, fn.sum("m", "attended"))
        graph.update_all(lambda edges: {"m": edges.src["x"] ** 2}, fn.max("m", "most"))
        return sum((graph.dstdata[name] ** 2).sum() for name in ("weighted", "attended", "most"))

    leaves = Leaves(case.seed)
    inputs = leaves.new(nodes, 2, 3), leaves.new(edges, 2, 1), leaves.new(edges, 1, 3)
    if edges:
        assert torch.autograd.gradcheck(out, inputs, atol=1e-6)
        assert torch.autograd.gradgradcheck(out, inputs, atol=1e-6)
