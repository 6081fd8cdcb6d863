"""A TensorGraph computes what the DGLGraph of the same edges does, also in DGL's free functions, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dgl
import dgl.function as fn
import dgl.ops
import pytest
import torch
from dgl.nn.functional import edge_softmax
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgl_tuplepack import TensorGraph
from dgl_tuplepack.compiling.tensor_graph import free_functions as ours
from dgl_tuplepack.errors import UnsupportedError
from tests.support.graphs import generator, random_graph, random_heterograph

# Several types with equal middle names, loops on a type, and both directions between two types.
EDGE_TYPES = [("a", "to", "a"), ("a", "to", "b"), ("b", "to", "a"), ("a", "other", "b"), ("c", "to", "b")]
REDUCERS = ("sum", "mean", "max", "min")
BINARY = ("add", "sub", "mul", "div")
MESSAGES = [
    "copy_u",
    "copy_e",
    *(f"{left}_{operation}_{right}" for operation in (*BINARY, "dot") for left, right in ("uv", "vu", "ue", "ev")),
]
# Shapes of two features that broadcast; a dot product is over the last axis.
SHAPES = (((), ()), ((3,), (3,)), ((3,), (1,)), ((2, 3), (2, 1)), ((2, 3), (3,)), ((1,), (2, 3)), ((9,), (9,)))
Shapes = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass
class Pair:
    """A batch of random graphs in both forms; `values` makes equal leaves for both."""

    graph: Any
    gen: torch.Generator

    @property
    def tensors(self) -> TensorGraph:
        graph = self.graph
        if graph.canonical_etypes == [("_N", "_E", "_N")]:
            numbers = {"batch_num_nodes": graph.batch_num_nodes(), "batch_num_edges": graph.batch_num_edges()}
            return TensorGraph(*graph.edges(), graph.num_nodes(), **numbers)
        ends = {t: graph.edges(etype=t) for t in graph.canonical_etypes}
        return TensorGraph(
            {t: src for t, (src, _) in ends.items()},
            {t: dst for t, (_, dst) in ends.items()},
            {t: graph.num_nodes(t) for t in graph.ntypes},
            batch_num_nodes={t: graph.batch_num_nodes(t) for t in graph.ntypes},
            batch_num_edges={t: graph.batch_num_edges(t) for t in graph.canonical_etypes},
        )

    @property
    def rows(self) -> dict[Any, int]:
        """Numbers of nodes and edges by type."""
        graph = self.graph
        return {t: graph.num_nodes(t) for t in graph.ntypes} | {t: graph.num_edges(t) for t in graph.canonical_etypes}

    def values(self, rows: int, shape: Sequence[int]) -> Tensor:
        # Away from 0, by which is divided.
        values = torch.randn(rows, *shape, generator=self.gen, dtype=torch.float64)
        return values + 0.5 * values.sign()


@st.composite
def pairs(draw: st.DrawFn, types: st.SearchStrategy[list[Any]] | None = None) -> Pair:
    """One to four graphs, some of them empty, many nodes without edges; without `types`, homogeneous graphs."""
    gen = generator(draw(st.integers(0, 2**31)))
    sizes = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=4))
    chosen = None if types is None else draw(types)
    is_int32 = draw(st.booleans())

    def graph_of(nodes: int, edges: int) -> Any:
        if chosen is None:
            graph = random_graph(gen, nodes, edges)
        else:
            used = sorted({each for source, _, destination in chosen for each in (source, destination)})
            numbers = {t: (nodes + i) // (i + 1) for i, t in enumerate(used)}
            graph = random_heterograph(gen, numbers, {t: (edges + i) // (i + 1) for i, t in enumerate(chosen)})
        return graph.int() if is_int32 else graph

    return Pair(dgl.batch([graph_of(*size) for size in sizes]), gen)


ONE_TYPE = st.sampled_from([[EDGE_TYPES[0]], [EDGE_TYPES[1]]])
SOME_TYPES = st.lists(st.sampled_from(EDGE_TYPES), min_size=1, unique=True)


def assert_same(pair: Pair, run: Callable[..., Any], *leaves: Tensor, gradients: Tensor | bool = True) -> None:
    """Check results and gradients of `run(graph, *leaves)` on both; of the rows `gradients`, if DGL errs in others."""
    outcomes = []
    for graph in (pair.graph, pair.tensors):
        copies = [leaf.clone().requires_grad_(gradients is not False) for leaf in leaves]
        results = list(flat(run(graph, *copies)))
        weights = generator(0)
        total: Any = 0.0
        for each in results:
            if not each.is_floating_point():
                continue
            weight = torch.randn(each.shape, generator=weights, dtype=each.dtype)
            chosen = each[gradients] * weight[gradients] if isinstance(gradients, Tensor) else each * weight
            total = total + chosen.sum()
        if isinstance(total, Tensor) and total.requires_grad:
            total.backward()
        by_leaf = [torch.zeros_like(each) if each.grad is None else each.grad for each in copies]
        outcomes.append([*(each.detach() for each in results), *by_leaf])
    for found, expected in zip(outcomes[1], outcomes[0], strict=True):
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def answered(pair: Pair, reducer: str) -> Tensor | bool:
    """Nodes with messages: of a largest message where there is none, DGL's gradient goes to row 0, or fails."""
    if reducer in ("sum", "mean"):
        return True
    return pair.graph.in_degrees() > 0 if pair.graph.num_edges() else False


def flat(results: Any) -> Iterator[Tensor]:
    if isinstance(results, Tensor):
        yield results
    elif isinstance(results, dict):
        for name in sorted(results):
            yield from flat(results[name])
    elif results is not None:
        for each in results:
            yield from flat(each)


def frame_of(graph: Any, t: Any) -> Any:
    return graph.nodes[t].data if isinstance(t, str) else graph.edges[t].data


def fill(graph: Any, leaves: Sequence[Tensor]) -> None:
    """Give all nodes and edges the features x and y."""
    types = [*graph.ntypes, *graph.canonical_etypes]
    for (name, t), values in zip([(name, t) for name in "xy" for t in types], leaves, strict=True):
        frame_of(graph, t)[name] = values


def assert_same_after(pair: Pair, run: Callable[[Any], None], shapes: Shapes = ((3,), (3,)), **checked: Any) -> None:
    """Check all features, and their gradients, after `run(graph)` on both kinds of graphs with features x and y."""

    def features(graph: Any, *leaves: Tensor) -> dict[str, Any]:
        fill(graph, leaves)
        run(graph)
        return {str(t): dict(frame_of(graph, t)) for t in (*graph.ntypes, *graph.canonical_etypes)}

    leaves = [pair.values(rows, shape) for shape in shapes for rows in pair.rows.values()]
    assert_same(pair, features, *leaves, **checked)


def message(name: str) -> Any:
    return getattr(fn, name)("x", "m") if name.startswith("copy") else getattr(fn, name)("x", "y", "m")


@settings(max_examples=200)
@given(pairs(ONE_TYPE), st.sampled_from(MESSAGES), st.sampled_from(REDUCERS), st.sampled_from(SHAPES))
def test_every_built_in_message_and_reduce_function(pair: Pair, name: str, reducer: str, shapes: Shapes) -> None:
    if "dot" in name:
        # DGL multiplies rows of equal shape, with an axis to sum over.
        shapes = (shapes[0] or (3,),) * 2

    def run(graph: Any) -> None:
        graph.update_all(message(name), getattr(fn, reducer)("m", "out"))
        graph.apply_edges(message(name))

    # Without any edge, DGL's gradient of a maximum goes to row 0, which may not even be there.
    assert_same_after(pair, run, shapes, gradients=bool(pair.graph.num_edges()))


def by_user(edges: Any) -> dict[str, Tensor]:
    """As in a layer: a gate from both ends and the edge."""
    gate = torch.sigmoid(edges.src["x"] + edges.dst["y"] - edges.data["x"])
    return {"m": gate * edges.src["y"], "gate": gate}


@given(pairs(ONE_TYPE), st.sampled_from(["sum", "mean"]))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_functions_of_users(pair: Pair, reducer: str) -> None:
    def run(graph: Any) -> None:
        graph.apply_edges(lambda edges: {"gate": by_user(edges)["gate"]})
        reduce = getattr(fn, reducer)("m", "out")
        graph.update_all(by_user, reduce, lambda nodes: {"out": nodes.data["out"] * nodes.data["x"]})
        graph.apply_nodes(lambda nodes: {"twice": nodes.data["x"] * 2}, ntype=graph.dsttypes[0])

    assert_same_after(pair, run, gradients=bool(pair.graph.num_edges()))


@pytest.mark.parametrize("reducer", ["max", "min"])
def test_maxima_with_an_apply_function_are_refused(reducer: str) -> None:
    # Where a node has no messages, DGL gives its apply function infinity, and replaces infinite results by 0.
    graph = TensorGraph(torch.tensor([0]), torch.tensor([1]), 2, node_features={"x": torch.ones(2, 1)})
    with pytest.raises(UnsupportedError, match=f"update_all has {reducer} and an apply function.*afterwards"):
        graph.update_all(fn.copy_u("x", "m"), getattr(fn, reducer)("m", "out"), lambda nodes: {"out": nodes.data["x"]})


CROSS_REDUCERS: list[Any] = [*REDUCERS, "stack", lambda values: values[0] * 2 + values[-1]]


@settings(max_examples=150)
@given(pairs(SOME_TYPES), st.sampled_from(REDUCERS), st.sampled_from(CROSS_REDUCERS))
def test_messages_of_each_edge_type_reduced_across_types(pair: Pair, reducer: str, cross: Any) -> None:
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
    if reducer in ("sum", "mean") or all(pair.graph.num_edges(t) for t in pair.graph.canonical_etypes):
        assert_same_after(pair, run)


@given(pairs(SOME_TYPES))
def test_types_numbers_and_degrees_equal_those_of_dgl(pair: Pair) -> None:
    theirs, ours = pair.graph, pair.tensors
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


@given(pairs(SOME_TYPES))
def test_the_part_of_an_edge_type_equals_that_of_dgl_and_shares_its_features(pair: Pair) -> None:
    theirs, ours = pair.graph, pair.tensors
    leaves = [pair.values(rows, (3,)) for rows in pair.rows.values()] * 2
    for graph in (theirs, ours):
        fill(graph, leaves)
    for edge_type in theirs.canonical_etypes:
        parts = theirs[edge_type], ours[edge_type]
        for name in ("ntypes", "srctypes", "dsttypes", "canonical_etypes", "batch_size"):
            assert getattr(parts[1], name) == getattr(parts[0], name), name
        for part in parts:
            part.update_all(fn.copy_u("x", "m"), fn.sum("m", "out"), etype=edge_type)
        for graph in (theirs, ours):
            assert "out" in graph.nodes[edge_type[2]].data
        torch.testing.assert_close(ours[edge_type].dstdata["out"], theirs[edge_type].dstdata["out"])


def ids_of_features(graph: TensorGraph) -> dict[Any, dict[str, int]]:
    return {t: {name: id(values) for name, values in frame.items()} for t, frame in graph.frames.items()}


@given(pairs(SOME_TYPES))
def test_a_local_scope_leaks_nothing_also_after_an_error(pair: Pair) -> None:
    graph = pair.tensors
    fill(graph, [pair.values(rows, (3,)) for rows in pair.rows.values()] * 2)
    before = ids_of_features(graph)
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
    assert ids_of_features(graph) == before


@settings(max_examples=5)
@given(pairs(ONE_TYPE))
def test_gradients_of_gradients_hold(pair: Pair) -> None:
    (edge_type,) = pair.graph.canonical_etypes
    edges, nodes = pair.rows[edge_type], pair.rows[edge_type[0]]

    def out(x: Tensor, weight: Tensor, score: Tensor) -> Tensor:
        graph = pair.tensors
        graph.nodes[edge_type[0]].data["x"], graph.edata["w"] = x, weight
        soft = graph.relations[edge_type].by_dst.softmax(score)
        graph.update_all(fn.u_mul_e("x", "w", "m"), fn.sum("m", "weighted"))
        graph.update_all(lambda edges: {"m": edges.src["x"] ** 2 * soft}, fn.sum("m", "attended"))
        graph.update_all(lambda edges: {"m": edges.src["x"] ** 2}, fn.max("m", "most"))
        return sum((graph.dstdata[name] ** 2).sum() for name in ("weighted", "attended", "most"))

    leaves = pair.values(nodes, (2, 2)), pair.values(edges, (2, 1)), pair.values(edges, (1, 2))
    inputs = [each.requires_grad_() for each in leaves]
    if edges:
        assert torch.autograd.gradcheck(out, inputs, atol=1e-6)
        assert torch.autograd.gradgradcheck(out, inputs, atol=1e-6)


# DGL's free functions ------------------------------------------------------------------------------------------------


@given(pairs(), st.sampled_from(REDUCERS), st.sampled_from(BINARY), st.sampled_from(SHAPES))
def test_sums_of_messages_of_nodes_and_edges(pair: Pair, reducer: str, operation: str, shapes: Shapes) -> None:
    left, right = pair.values(pair.graph.num_nodes(), shapes[0]), pair.values(pair.graph.num_edges(), shapes[1])
    calls = ((f"u_{operation}_e", [left, right]), ("copy_u", [left]), ("copy_e", [right]))
    for name, operands in calls:
        assert_same(pair, getattr(dgl.ops, f"{name}_{reducer}"), *operands, gradients=answered(pair, reducer))


@given(pairs(), st.sampled_from([*BINARY, "dot"]), st.permutations("uve"), st.sampled_from(SHAPES[1:]))
def test_features_of_edges(pair: Pair, operation: str, targets: list[str], shapes: Shapes) -> None:
    if operation == "dot":
        shapes = (shapes[0], shapes[0])
    rows = {"u": pair.graph.num_nodes(), "v": pair.graph.num_nodes(), "e": pair.graph.num_edges()}
    left, right = (pair.values(rows[target], shape) for target, shape in zip(targets[:2], shapes, strict=True))
    function = getattr(dgl.ops, f"{targets[0]}_{operation}_{targets[1]}")
    assert_same(pair, function, left, right)


@given(pairs(), st.sampled_from(["dst", "src"]), st.sampled_from([(1,), (3,), (2, 1)]), st.booleans())
def test_a_softmax_over_the_edges_of_a_node(pair: Pair, norm_by: str, shape: tuple[int, ...], some: bool) -> None:
    logits = 300 * pair.values(pair.graph.num_edges(), shape)
    if some and pair.graph.num_edges():
        chosen = torch.arange(0, pair.graph.num_edges(), 2)
        assert_same(pair, lambda g, x: edge_softmax(g, x, chosen, norm_by=norm_by), logits[::2].contiguous())
    assert_same(pair, lambda g, x: edge_softmax(graph=g, logits=x, norm_by=norm_by), logits)


@given(pairs(SOME_TYPES.filter(lambda types: len(types) > 1)), st.sampled_from(["dst", "src"]))
def test_a_softmax_over_edges_of_several_types(pair: Pair, norm_by: str) -> None:
    types = pair.graph.canonical_etypes
    if not pair.graph.num_edges(types[0]):
        # DGL computes nothing then.
        return
    logits = [30 * pair.values(pair.graph.num_edges(t), (2,)) for t in types]
    assert_same(pair, lambda g, *xs: edge_softmax(g, dict(zip(types, xs, strict=True)), norm_by=norm_by), *logits)
    for graph in (pair.graph, pair.tensors):
        leaves = {t: values.clone().requires_grad_() for t, values in zip(types, logits, strict=True)}
        edge_softmax(graph, leaves, norm_by=norm_by)[types[0]].sum().backward()
        assert [t for t in types if leaves[t].grad is None] == []


@given(pairs(), pairs(SOME_TYPES), st.booleans(), st.booleans())
def test_edges_turned_round(plain: Pair, hetero: Pair, copy_ndata: bool, copy_edata: bool) -> None:
    for pair in (plain, hetero):
        for edge_type in pair.graph.canonical_etypes:

            def run(graph: Any, x: Tensor, w: Tensor, edge_type: Any = edge_type) -> list[Tensor]:
                source, name, target = edge_type
                graph.nodes[target].data["x"], graph.edges[edge_type].data["w"] = x, w
                turned = dgl.reverse(graph, copy_ndata=copy_ndata, copy_edata=copy_edata)
                assert ("x" in turned.nodes[target].data) == copy_ndata
                back = target, name, source
                assert ("w" in turned.edges[back].data) == copy_edata
                turned.nodes[target].data["x"], turned.edges[back].data["w"] = x, w
                turned.update_all(fn.u_mul_e("x", "w", "m"), fn.sum("m", "y"), etype=back)
                assert "y" not in graph.nodes[source].data
                return [turned.nodes[source].data["y"], *turned.edges(etype=back), turned.in_degrees(etype=back)]

            rows = pair.graph.num_nodes(edge_type[2]), pair.graph.num_edges(edge_type)
            assert_same(pair, run, *(pair.values(each, (2,)) for each in rows))


@pytest.mark.parametrize("hetero", [False, True])
@given(data=st.data(), reducer=st.sampled_from(REDUCERS), weighted=st.booleans())
def test_readouts_softmax_and_broadcasts_by_graph(
    hetero: bool, data: st.DataObject, reducer: str, weighted: bool
) -> None:
    pair, shape = data.draw(pairs(SOME_TYPES if hetero else None)), data.draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    for t in (*pair.graph.ntypes, *pair.graph.canonical_etypes):
        kind, rows = ("nodes", pair.graph.num_nodes(t)) if isinstance(t, str) else ("edges", pair.graph.num_edges(t))
        named = getattr(dgl, f"{reducer}_{kind}", None)
        of_type = {} if not hetero else {"ntype" if kind == "nodes" else "etype": t}

        def run(
            graph: Any, x: Tensor, w: Tensor, of_graphs: Tensor, t: Any = t, kind: str = kind, rows: int = rows,
            named: Any = named, of_type: Any = of_type,
        ) -> list[Tensor]:  # fmt: skip
            frame, weight = frame_of(graph, t), "w" if weighted else None
            frame["x"], frame["w"], frame["big"] = x, w, 300 * x
            results = [getattr(dgl, f"broadcast_{kind}")(graph, of_graphs, **of_type)]
            if shape:
                results.append(getattr(dgl, f"softmax_{kind}")(graph, "big", **of_type))
            # DGL's mean is NaN if all graphs are empty, and 0 for an empty one beside others.
            if rows or reducer != "mean":
                results.append(getattr(dgl, f"readout_{kind}")(graph, "x", weight, op=reducer, **of_type))
                results += [] if named is None else [named(graph, feat="x", weight=weight, **of_type)]
            return results

        leaves = pair.values(rows, shape), pair.values(rows, (1,) * len(shape))
        assert_same(pair, run, *leaves, pair.values(pair.graph.batch_size, shape))


@given(pairs(), st.integers(1, 7), st.sampled_from([None, -1, 1]), st.booleans())
def test_largest_nodes_and_edges_of_each_graph(pair: Pair, k: int, sortby: int | None, descending: bool) -> None:
    # Graph by graph, because DGL mixes rows up where a graph of a batch is empty.
    graph = pair.tensors
    for kind, frame, counts in (
        ("nodes", graph.ndata, graph.batch_num_nodes()),
        ("edges", graph.edata, graph.batch_num_edges()),
    ):
        frame["x"] = pair.values(int(counts.sum()), (3,)).requires_grad_()
        values, numbers = getattr(dgl, f"topk_{kind}")(graph, "x", k, descending=descending, sortby=sortby)
        assert values.shape == (len(counts), k, 3)
        assert numbers.shape == (len(counts), k, 3)[: 3 if sortby is None else 2]
        gradient = torch.randn(values.shape, generator=pair.gen, dtype=values.dtype)
        values.backward(gradient)
        for i, rows in enumerate(frame["x"].split(counts.tolist())):
            keys = rows if sortby is None else rows[:, sortby, None].expand_as(rows)
            order = keys.argsort(0, descending=descending)[:k]
            exist = len(order)
            assert torch.equal(values[i, :exist], rows.gather(0, order))
            assert not values[i, exist:].any()
            assert torch.equal(numbers[i, :exist], order if sortby is None else order[:, 0])
            assert all(torch.equal(row, torch.full_like(row, exist + j)) for j, row in enumerate(numbers[i, exist:]))
            expected = torch.zeros_like(rows).scatter(0, order, gradient[i, :exist])
            assert torch.equal(frame["x"].grad.split(counts.tolist())[i], expected)


@pytest.mark.parametrize("types", [2, 9])
@given(st.data())
def test_products_by_type_and_segment_functions_are_dgls_where_they_are_traced(types: int, data: st.DataObject) -> None:
    gen = generator(data.draw(st.integers(0, 2**31)))
    lengths = torch.randint(0, 4, (types,), generator=gen)
    lengths[0] += 1
    rows = torch.randn(int(lengths.sum()), 5, generator=gen, dtype=torch.float64)
    matrices = torch.randn(types, 5, 3, generator=gen, dtype=torch.float64)
    by_row = torch.repeat_interleave(torch.arange(types), lengths)
    for found, expected in (
        (ours.gather_mm(rows, matrices, idx_b=by_row), dgl.ops.gather_mm(rows, matrices, idx_b=by_row)),
        (ours.segment_mm(rows, matrices, lengths), dgl.ops.segment_mm(rows, matrices, lengths)),
        (ours.segment_softmax(lengths, rows), dgl.ops.segment_softmax(lengths, rows)),
        *((ours.segment_reduce(lengths, rows, how), dgl.ops.segment_reduce(lengths, rows, how)) for how in REDUCERS),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
