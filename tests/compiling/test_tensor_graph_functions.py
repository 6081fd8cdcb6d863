"""DGL's free functions on a TensorGraph give what they give on the DGLGraph: results and gradients."""

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
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dgl_tuplepack import TensorGraph
from dgl_tuplepack.compiling.tensor_graph import free_functions as ours
from tests.support.graphs import RELATIONS, USER, generator, random_graph, random_heterograph

TYPES = (USER, "item")
REDUCERS = ("sum", "mean", "max", "min")
BINARY = ("add", "sub", "mul", "div")
# Shapes of two features that broadcast; a dot product is over the last axis.
SHAPES = (((), ()), ((3,), (3,)), ((3,), (1,)), ((2, 3), (2, 1)), ((2, 3), (3,)), ((1,), (2, 3)))


@dataclass
class Pair:
    """A batch of random graphs in both forms; `values` makes equal leaves for both."""

    graph: Any
    gen: torch.Generator

    @property
    def tensors(self) -> TensorGraph:
        graph = self.graph
        if graph.is_homogeneous:
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

    def values(self, rows: int, shape: Sequence[int]) -> Tensor:
        # Away from 0, by which is divided.
        values = torch.randn(rows, *shape, generator=self.gen, dtype=torch.float64)
        return values + 0.5 * values.sign()


@st.composite
def pairs(draw: st.DrawFn, *, hetero: bool = False) -> Pair:
    """One to four graphs, some of them empty, many nodes without edges."""
    gen = generator(draw(st.integers(0, 2**31)))
    sizes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=4)

    def graph_of(nodes: int, edges: int) -> Any:
        if not hetero:
            return random_graph(gen, nodes, edges)
        numbers = {TYPES[0]: nodes, TYPES[1]: (nodes + 1) // 2}
        return random_heterograph(gen, numbers, {t: (edges + i) // (i + 1) for i, t in enumerate(RELATIONS)})

    return Pair(dgl.batch([graph_of(*size) for size in draw(sizes)]), gen)


def assert_same(pair: Pair, run: Callable[..., Any], *leaves: Tensor, gradients: Tensor | bool = True) -> None:
    """Check results and gradients of `run(graph, *leaves)` on both kinds of graphs.

    `gradients` says for which rows of the results, where DGL's own are not right for all.
    """
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


@given(pairs(), st.sampled_from(REDUCERS), st.sampled_from(BINARY), st.sampled_from(SHAPES))
def test_sums_of_messages_of_nodes_and_edges(
    pair: Pair, reducer: str, operation: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    left, right = pair.values(pair.graph.num_nodes(), shapes[0]), pair.values(pair.graph.num_edges(), shapes[1])
    calls = ((f"u_{operation}_e", [left, right]), ("copy_u", [left]), ("copy_e", [right]))
    for name, operands in calls:
        assert_same(pair, getattr(dgl.ops, f"{name}_{reducer}"), *operands, gradients=answered(pair, reducer))


@given(pairs(), st.sampled_from([*BINARY, "dot"]), st.permutations("uve"), st.sampled_from(SHAPES[1:]))
def test_features_of_edges(
    pair: Pair, operation: str, targets: list[str], shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
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


@given(pairs(hetero=True), st.sampled_from(["dst", "src"]))
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


@given(pairs(), pairs(hetero=True), st.booleans(), st.booleans())
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


def frame_of(graph: Any, t: Any) -> Any:
    return graph.nodes[t].data if isinstance(t, str) else graph.edges[t].data


@pytest.mark.parametrize("hetero", [False, True])
@given(data=st.data(), reducer=st.sampled_from(REDUCERS), weighted=st.booleans())
def test_readouts_softmax_and_broadcasts_by_graph(
    hetero: bool, data: st.DataObject, reducer: str, weighted: bool
) -> None:
    pair, shape = data.draw(pairs(hetero=hetero)), data.draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
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


@pytest.mark.parametrize("descending", [False, True])
def test_rows_that_a_graph_lacks_have_the_numbers_of_dgl(descending: bool) -> None:
    pair = Pair(dgl.batch([dgl.rand_graph(rows, rows) for rows in (2, 5, 1)]), generator(0))

    def run(graph: Any, x: Tensor) -> list[Any]:
        graph.ndata["x"] = graph.edata["x"] = x
        return [topk(graph, "x", 6, descending=descending) for topk in (dgl.topk_nodes, dgl.topk_edges)]

    assert_same(pair, run, pair.values(8, (3,)))


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
