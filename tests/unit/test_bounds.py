"""Each of the three lower bounds decides somewhere, and problems without a solution are refused."""

from __future__ import annotations

import pytest

from dgl_tuplepack import Limits, SizeHistogram, lower_bound
from dgl_tuplepack.errors import GraphTooLargeError, LimitsError
from dgl_tuplepack.sizes import INT64_MAX
from tests.messages import refused


@pytest.mark.parametrize(
    ("counts", "limits", "expected"),
    [
        ({(1, 0): 10}, Limits(4, 9), 3),  # nodes / limit, rounded up
        ({(0, 1): 10}, Limits(9, 4), 3),  # edges / limit, rounded up
        ({(1, 0): 8}, Limits(4, 9), 2),  # divides evenly
        ({(0, 0): 7}, Limits(9, 9, 3), 3),  # graphs / cap
        ({(0, 0): 7}, Limits(9, 9), 1),  # nothing to hold is still one pack
        ({(3, 0): 5, (1, 0): 1}, Limits(5, 9), 5),  # more than half of an odd limit: one a pack
        ({(2, 0): 4, (1, 0): 1}, Limits(4, 9), 3),  # exactly half: two a pack
        ({(0, 3): 4, (1, 0): 2}, Limits(9, 5), 4),  # halves of the second component
        ({(1, 1): 3}, Limits(1, 1), 3),
        ({(INT64_MAX, 0): 1}, Limits(INT64_MAX, 1), 1),
        ({(1, 0): INT64_MAX}, Limits(2, 1), 2**62),
    ],
)
def test_values(counts: dict[tuple[int, ...], int], limits: Limits, expected: int) -> None:
    assert lower_bound(SizeHistogram.from_counts(counts), limits) == expected


def test_the_order_of_the_limits_does_not_matter() -> None:
    histogram = SizeHistogram.from_counts({(1, 5): 10})
    assert lower_bound(histogram, Limits.from_components({"edges": 50, "nodes": 2})) == 5


def test_a_graph_that_fits_nowhere_is_named() -> None:
    histogram = SizeHistogram.from_sizes([[1, 1], [9, 2], [1, 1], [9, 2]])
    with refused(GraphTooLargeError, "2 of 4 graphs", "graph 1 (9 nodes, 2 edges); graph 3 (9", "9 nodes, 5 edges"):
        lower_bound(histogram, Limits(5, 5))


def test_without_ids_graphs_are_counted_and_not_size_classes() -> None:
    histogram = SizeHistogram.from_counts({(1, 1): 2, (9, 2): 5})
    with pytest.raises(GraphTooLargeError) as caught:
        lower_bound(histogram, Limits(5, 5))
    message = str(caught.value)
    assert "9 nodes, 2 edges" in message
    assert "1 of 2 graphs" not in message  # five of seven graphs are too large
    assert "graph 1 " not in message  # 1 is a size class, not a graph


def test_limits_for_other_components_are_refused() -> None:
    with refused(LimitsError, "['edges']", "['nodes', 'edges']"):
        lower_bound(SizeHistogram.from_counts({(1, 1): 1}), Limits.from_components({"edges": 5}))
