"""Shards in memory are kept if their graphs are the same, and written again if anything in them differs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
from hypothesis import given

import dgl_tuplepack as tp
from dgl_tuplepack.sharding.content import checksum_of
from tests.graphs import Content, contents
from tests.stores import molecules, purchases

LIMITS = tp.Limits(30, 40)


def shards() -> list[list[Any]]:
    return [molecules(8), molecules(9, seed=1)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_run_keeps_shards_whose_graphs_are_the_same(tmp_path: Path, workers: int) -> None:
    first = tp.preprocess_shards(shards(), tmp_path, limits=LIMITS, workers=1)
    assert (len(first.written), first.kept) == (2, ())
    again = shards()
    for graph, _ in again[0]:
        # DGL makes and keeps these when they are asked for.
        graph.create_formats_()
        assert graph.batch_size == 1
    for source in (shards(), again):
        second = tp.preprocess_shards(source, tmp_path, limits=LIMITS, workers=workers)
        assert (second.written, second.kept) == ((), first.written)
    again[1][3][0].ndata["x"][0] += 1
    third = tp.preprocess_shards(again, tmp_path, limits=LIMITS, workers=workers)
    assert (third.written, third.kept) == (first.written[1:], first.written[:1])


@given(contents(min_graphs=1))
def test_equal_graphs_have_equal_checksums(content: Content) -> None:
    before = checksum_of(content.items)
    assert checksum_of(content.items) == before
    copies = [
        (item[0].clone(), *item[1:]) if isinstance(item, tuple) else item.clone() for item in content.items
    ]  # fmt: skip
    assert checksum_of(copies) == before
    assert checksum_of([*content.items, content.items[0]]) != before


def changed(what: str) -> list[Any]:
    items = purchases(4)
    graph = items[0]
    t, e = next(t for t in graph.ntypes if graph.nodes[t].data), graph.canonical_etypes[0]
    if what == "value":
        name = next(iter(graph.nodes[t].data))
        graph.nodes[t].data[name] = graph.nodes[t].data[name] + 1
    elif what == "dtype":
        name = next(iter(graph.nodes[t].data))
        graph.nodes[t].data[name] = graph.nodes[t].data[name].double()
    elif what == "name":
        graph.nodes[t].data["other"] = graph.nodes[t].data.pop(next(iter(graph.nodes[t].data)))
    elif what == "edge":
        items[0] = dgl.add_edges(graph, [0], [0], etype=e)
    elif what == "idtype":
        items[0] = graph.int()
    elif what == "order":
        items.reverse()
    elif what == "label":
        items[0] = (graph, np.float32(1))
    return items


@pytest.mark.parametrize("what", ["value", "dtype", "name", "edge", "idtype", "order", "label"])
def test_any_change_changes_the_checksum(what: str) -> None:
    assert checksum_of(changed("nothing")) == checksum_of(changed("nothing"))
    assert checksum_of(changed(what)) != checksum_of(changed("nothing"))


def test_the_checksum_is_the_same_in_another_process() -> None:
    program = (
        "from tests.unit.test_sharding_content import checksum_of, molecules, purchases\n"
        "print(checksum_of([molecules(8), purchases(4)]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == checksum_of([molecules(8), purchases(4)])
