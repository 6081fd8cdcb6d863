"""The one function in front of all methods, and plans that can be followed by hand."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

from dgl_tuplepack import GraphSizes, Limits, PackPlan, SizeHistogram, pack
from dgl_tuplepack.bounds.instance import as_instance
from dgl_tuplepack.bounds.quick import quick_bound
from dgl_tuplepack.errors import GraphTooLargeError, LimitsError, MethodError, SizesError
from dgl_tuplepack.packing import METHODS
from tests import reference
from tests.messages import refused

# The package gives its methods the names of their files.
next_fit = sys.modules["dgl_tuplepack.packing.next_fit"]


def contents(plan: PackPlan) -> Counter[tuple[tuple[int, ...], ...]]:
    """How many packs hold which sizes."""
    found: Counter[tuple[tuple[int, ...], ...]] = Counter()
    for (pattern, packs), times in reference.patterns_of(plan).items():
        found[tuple(size for size, number in pattern for _ in range(number))] += packs * times
    return found


def pack_nodes(counts: dict[int, int], limit: int, **options: Any) -> Counter[tuple[int, ...]]:
    """Packs of a problem of one component, as tuples of numbers of nodes."""
    limits = Limits(limit, graphs=options.pop("graphs", None))
    plan = pack(SizeHistogram.from_counts(counts), limits, **{"method": "best_fit", **options})
    return Counter({tuple(n for (n,) in sizes): packs for sizes, packs in contents(plan).items()})


def test_the_methods_are_those_of_the_design() -> None:
    assert {"auto", "best_fit", "first_fit", "none", "node_only", "edge_only", "next_fit"} <= set(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_the_contract_of_the_registry(method: str) -> None:
    limits = Limits(20, 30, 5)
    plan = pack(SizeHistogram.from_counts({(9, 12): 7, (5, 8): 11, (2, 3): 13}), limits, method)
    assert plan.method.startswith(method)
    assert plan.limits == limits or method in ("node_only", "edge_only")
    assert plan.lower_bound >= quick_bound(as_instance(plan.histogram, plan.limits))


def test_best_fit_takes_the_fullest_pack_and_first_fit_the_emptiest() -> None:
    assert pack_nodes({7: 1, 5: 1, 3: 1}, 10, method="best_fit") == {(3, 7): 1, (5,): 1}
    assert pack_nodes({7: 1, 5: 1, 3: 1}, 10, method="first_fit") == {(7,): 1, (3, 5): 1}


def test_a_group_of_identical_packs_is_split() -> None:
    assert pack_nodes({6: 5, 4: 2}, 10) == {(4, 6): 2, (6,): 3}


def test_all_graphs_of_a_size_open_packs_at_once() -> None:
    # The weakness of the paper's algorithm that only other methods may cure.
    assert pack_nodes({2: 4}, 8) == {(2,): 4}
    assert pack_nodes({2: 4}, 8, method="first_fit") == {(2,): 4}


def test_after_a_placement_packs_of_exactly_the_priority_are_passed_over() -> None:
    # Two groups have 4 nodes left; the second graph of 4 nodes no longer looks at the other one.
    plan = pack(
        SizeHistogram.from_counts({(6, 1): 1, (6, 2): 1, (4, 1): 2}), Limits(10, 10), "best_fit", heuristic="node"
    )
    assert contents(plan) == {((4, 1), (6, 2)): 1, ((6, 1),): 1, ((4, 1),): 1}


def test_a_full_pack_is_closed_by_its_cap() -> None:
    assert pack_nodes({5: 1, 1: 1, 2: 1}, 10, graphs=2) == {(2, 5): 1, (1,): 1}
    assert pack_nodes({5: 2, 1: 1}, 10, graphs=1) == {(5,): 2, (1,): 1}


def test_a_pack_without_priority_left_is_closed_even_to_graphs_of_size_0() -> None:
    assert pack_nodes({10: 1, 0: 2}, 10) == {(10,): 1, (0,): 2}
    assert pack_nodes({9: 1, 0: 1}, 10) == {(0, 9): 1}


def test_the_baselines_ignore_other_limits_and_carry_raised_ones() -> None:
    histogram = SizeHistogram.from_counts({(5, 9): 1, (4, 9): 1, (1, 1): 1})
    plan = pack(histogram, Limits(10, 10, 8), method="node_only")
    assert contents(plan) == {((1, 1), (4, 9), (5, 9)): 1}
    assert plan.limits == Limits(10, 19, 8)
    assert (plan.lower_bound, plan.method, plan.heuristic) == (1, "node_only", None)
    flipped = SizeHistogram.from_counts({(9, 5): 1, (9, 4): 1, (1, 1): 1})
    assert pack(flipped, Limits(10, 10, 8), method="edge_only").limits == Limits(19, 10, 8)
    # Where nothing is exceeded the limits stay as they were asked for.
    assert pack(histogram, Limits(10, 30), method="node_only").limits == Limits(10, 30)
    # The cap on graphs is heeded by every method.
    assert pack(histogram, Limits(10, 10, 1), method="node_only").num_packs == 3


def test_none_gives_every_graph_its_own_pack() -> None:
    assert pack_nodes({5: 2, 1: 3}, 10, method="none") == {(5,): 2, (1,): 3}


def test_next_fit_takes_single_graphs_in_random_order() -> None:
    histogram = SizeHistogram.from_counts({(1, 1): 40, (2, 2): 20})
    plans = [pack(histogram, Limits(8, 8), method="next_fit", seed=seed) for seed in range(3)]
    assert len({plan.fingerprint for plan in plans}) == 3
    # Next fit never leaves two neighbours that would go into one pack.
    for plan in plans:
        filled = plan.pattern_contents[:, 0]
        assert (filled[:-1] + filled[1:] > 8).all()


def test_anything_that_sizes_are_made_of_is_taken() -> None:
    rows = [[3, 4], [1, 2], [3, 4]]
    forms = [rows, np.array(rows, dtype=np.int32), GraphSizes(rows), SizeHistogram.from_sizes(rows)]
    assert len({pack(form, Limits(5, 6)).fingerprint for form in forms}) == 1


def test_limits_may_stand_in_any_order() -> None:
    limits = Limits.from_components({"edges": 6, "nodes": 5})
    assert pack([[3, 4]], limits).fingerprint == pack([[3, 4]], Limits(5, 6)).fingerprint


def test_random_ties_vary_with_the_seed_and_only_when_asked_for() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 9, (200, 2))
    plain = {pack(rows, Limits(30, 30), "best_fit", heuristic="maximum", seed=s).fingerprint for s in range(5)}
    mixed = {
        pack(rows, Limits(30, 30), "best_fit", heuristic="maximum", seed=s, random_ties=True).fingerprint
        for s in range(5)
    }
    assert len(plain) == 1
    assert len(mixed) == 5


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_refuses_what_cannot_be_packed(method: str) -> None:
    # A typo must not go unnoticed just because the method has no use for it.
    with refused(MethodError, "unknown heuristic 'produkt'", "product"):
        pack([[1, 1]], Limits(5, 5), method=method, heuristic="produkt")
    with refused(SizesError, "no graphs"):
        pack(np.zeros((0, 2), dtype=np.int64), Limits(5, 5), method=method)
    with refused(GraphTooLargeError, "1 of 3 graphs", "graph 2 (3 nodes, 6 edges)", "5 nodes, 6 edges"):
        pack([[1, 1], [5, 5], [3, 6]], Limits(5, 5), method=method)
    with refused(LimitsError, "['edges']", "['nodes', 'edges']"):
        pack([[1, 1]], Limits.from_components({"edges": 5}), method=method)
    plan = pack([[1, 1], [4, 50], [3, 7]], Limits(5), method=method)
    assert plan.effective_limits.nodes <= (8 if method == "edge_only" else 5)
    assert plan.histogram.num_graphs == 3


def test_every_seed_of_64_bits_is_usable() -> None:
    seeds = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]
    plans = [pack([[1, 1], [2, 2]], Limits(5, 5), method="next_fit", seed=seed) for seed in seeds]
    assert [plan.seed for plan in plans] == seeds


@pytest.mark.parametrize(("method", "component"), [("edge_only", "nodes"), ("node_only", "edges")])
def test_a_baseline_needs_its_component(method: str, component: str) -> None:
    histogram = SizeHistogram.from_counts({(1,): 1}, (component,))
    with refused(MethodError, repr(method), str([component]), "another method"):
        pack(histogram, Limits.from_components({component: 5}), method=method)


@pytest.mark.parametrize("heuristic", ["node", "maximum", "sum", "product"])
def test_priorities_that_reach_the_largest_integer_are_refused(heuristic: str) -> None:
    # The kernels count up from a priority; from this one they would wrap around and lose the order of packs.
    histogram = SizeHistogram.from_counts({(5, 2): 1, (0, 5): 1, (0, 1): 1})
    with refused(MethodError, "overflows int64", str(2**63 - 1)):
        pack(histogram, Limits(2**63 - 1, 6), "best_fit", heuristic=heuristic)
    assert pack(histogram, Limits(2**63 - 2, 6), "best_fit", heuristic="node").num_packs == 2


@pytest.mark.parametrize("largest", [1, 2**62, 2**63 - 2])
def test_the_search_goes_on_above_the_largest_integer_as_above_any_other(largest: int) -> None:
    # All sizes have one priority, so after its first graph the size 2 finds no pack of a higher one.
    packs = pack_nodes({6: 1, 5: 1, 2: 2}, 10, heuristic=lambda nodes: largest * (nodes > 0))
    assert packs == {(2, 6): 1, (5,): 1, (2,): 1}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ((np.array([3, 2]), np.array([4, 2])), "tuple of ndarray"),
        (["graph"], "list of str"),
        ((), "but are tuple"),
        ("molhiv", "but are str"),
        (object(), "but are object"),
    ],
)
def test_what_sizes_of_reads_is_not_taken_for_rows(given: Any, shown: str) -> None:
    # A pair of arrays (num_nodes, num_edges) would otherwise be counted as two graphs of other sizes.
    with refused(SizesError, shown, "call sizes_of(source) first"):
        SizeHistogram.from_sizes(given)


def test_a_pair_of_arrays_is_packed_as_columns() -> None:
    columns = np.array([3, 2, 1]), np.array([4, 2, 1])
    assert pack(columns, Limits(5, 5)).fingerprint == pack(np.stack(columns, axis=1), Limits(5, 5)).fingerprint


@pytest.mark.parametrize("heuristic", [{1, 2}, {1: 2, 3: 4}])
def test_weights_have_an_order(heuristic: Any) -> None:
    with refused(MethodError, "unknown heuristic", "a tuple of weights"):
        pack([[1, 1]], Limits(5, 5), "best_fit", heuristic=heuristic)


def test_a_heuristic_of_other_components() -> None:
    with refused(MethodError, "must take 2 integers", "nodes, edges"):
        pack([[1, 1]], Limits(5, 5), "best_fit", heuristic=lambda nodes: nodes)


def test_a_plan_says_whether_its_ties_were_random() -> None:
    rows = [[1, 1], [2, 2]]
    assert not pack(rows, Limits(5, 5), "best_fit").random_ties
    assert pack(rows, Limits(5, 5), "best_fit", random_ties=True).random_ties


GIANT = SizeHistogram([[1, 3], [4, 2], [5, 5]], [2**40, 2**39 + 1, 2**41])


@pytest.mark.parametrize("method", [name for name in METHODS if name != "next_fit"])
@pytest.mark.parametrize("limits", [Limits(9, 9), Limits(9, 9, 2), Limits(10**9, 10**9), Limits(2**62, 2**62)])
def test_giant_counts_are_packed_or_refused_at_once(method: str, limits: Limits) -> None:
    # Best and first fit add one graph at a time to all packs of a group: many graphs in a pack take long.
    if method in ("best_fit", "first_fit", "first_fit_by_text", "node_only", "edge_only") and limits.values[0] > 9:
        return
    plan = pack(GIANT, limits, method)
    plan.validate()
    assert plan.num_patterns < 1000


@pytest.mark.parametrize("graphs", [next_fit.MOST_GRAPHS + 1, 2**31, 2**31 + 1, 2**40])
def test_next_fit_refuses_more_graphs_than_memory_may_hold(graphs: int) -> None:
    histogram = SizeHistogram.from_counts({(1, 1): graphs})
    message = (f"{next_fit.MOST_GRAPHS:,}", f"{graphs:,}", "'auto'")
    with refused(MethodError, *message):
        pack(histogram, Limits(5, 5), "next_fit")


SHUFFLED = SizeHistogram([[1, 3], [4, 2], [5, 5], [0, 0]], [40, 30, 20, 10])


def test_next_fit_is_the_same_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pack(SHUFFLED, Limits(20, 20), "next_fit", seed=3)
    for size in (1, 7, 50):
        monkeypatch.setattr(next_fit, "_SLICE", size)
        sliced = pack(SHUFFLED, Limits(20, 20), "next_fit", seed=3)
        assert sliced.fingerprint == whole.fingerprint
        assert sliced.offsets.tolist() == whole.offsets.tolist()
