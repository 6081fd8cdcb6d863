from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dgl_tuplepack.planning.bounds.instance import Instance, projected
from dgl_tuplepack.planning.bounds.pattern_lp import Effort
from dgl_tuplepack.planning.packing.auto import merged, spread
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning, minimum_bin_slack
from dgl_tuplepack.planning.plan import Patterns


@st.composite
def instances_with_equal_sizes(draw):
    """Rows in any order, equal ones and ones of nothing among them."""
    d = draw(st.integers(1, 3))
    rows = draw(st.lists(st.tuples(*[st.integers(0, 3)] * d), min_size=1, max_size=8))
    rows.append((2,) * d)
    counts = draw(st.lists(st.integers(1, 40), min_size=len(rows), max_size=len(rows)))
    limits = draw(st.lists(st.integers(3, 9), min_size=d, max_size=d))
    return Instance(np.array(rows), np.array(counts), np.array(limits))


def contents(patterns: Patterns, instance: Instance) -> np.ndarray:
    return patterns.dense(len(instance.counts), len(patterns)) @ instance.sizes


@given(instances_with_equal_sizes())
def test_packs_of_merged_classes_become_packs_of_the_classes_themselves(instance):
    relaxation = projected(instance, list(range(len(instance.limits))))
    relaxed = relaxation.instance
    packed = minimum_bin_slack(relaxed, 1, Tuning(steps=20), Effort(10**9))
    assert relaxation.whole
    assert packed is not None
    found = spread(packed, relaxation, instance.counts)
    assert found.num_packs == packed.num_packs
    assert (found.packed(len(instance.counts)) == instance.counts).all()
    assert (found.multiplicities > 0).all()
    assert (contents(found, instance) <= instance.limits).all()
    again = merged(found, relaxation)
    assert again.num_packs == packed.num_packs
    assert (again.packed(len(relaxed.counts)) == relaxed.counts).all()
    given, back = (set(map(tuple, each.dense(len(relaxed.counts), 10**6).tolist())) for each in (packed, again))
    assert back <= given
