"""Figures of a report, against the sizes of the batches that they are about."""

from __future__ import annotations

import numpy as np
import pytest

from dgl_tuplepack import Limits, SizeHistogram
from dgl_tuplepack.report.findings import find, padded_shape
from dgl_tuplepack.sizes import components_of_kind


@pytest.mark.parametrize(
    "components",
    [("nodes", "edges"), ("nodes:u", "nodes:v"), ("nodesets", "edges"), ("nodes_of_rings", "nodes"), ("edges", "x")],
)
def test_only_components_that_count_nodes_have_a_reserved_node(components: tuple[str, ...]) -> None:
    nodes = {components[i] for i in components_of_kind(components, "nodes")}
    limits = Limits.from_components(dict.fromkeys(components, 9))
    assert padded_shape(limits) == {name: 9 + (name in nodes) for name in components}


def test_a_component_named_like_nodes_costs_no_more_in_the_slots_of_packing() -> None:
    histogram = SizeHistogram(np.array([[3, 4], [2, 2]]), np.array([5, 4]), ("nodesets", "edges"))
    found = find(histogram, Limits.from_components({"nodesets": 6, "edges": 9}), (2,), seed=0)
    assert found.ways[-1].slots == {"nodesets": 6 * found.plan.num_packs, "edges": 9 * found.plan.num_packs}
