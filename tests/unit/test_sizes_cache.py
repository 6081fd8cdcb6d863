"""Sizes in files: read back as they were, and refused where they belong to another dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError
from tests.messages import refused


class Lazy:
    """A dataset that reads a file for each item, as it were, and counts them."""

    def __init__(self, nodes: list[int], name: str = "lazy") -> None:
        self.nodes, self.name, self.fetched = nodes, name, 0

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, index: int) -> Any:
        self.fetched += 1
        return dgl.graph(([0] * 3, [0] * 3), num_nodes=self.nodes[index])


class Other(Lazy):
    """Another class of the same."""


@given(rows=st.lists(st.tuples(*[st.integers(0, 2**63 - 1)] * 3), min_size=1))
def test_sizes_are_read_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    path = tmp_path_factory.mktemp("sizes") / "a.sizes"
    sizes = tp.GraphSizes(np.array(rows), ("nodes", "é", "\ud800"))
    sizes.save(path)
    found = tp.GraphSizes.load(path)
    assert found.array.tolist() == sizes.array.tolist()
    assert found.components == sizes.components


def test_a_cache_spares_the_items(tmp_path: Path) -> None:
    data, path = Lazy(list(range(1, 501))), tmp_path / "cache.sizes"
    expected = tp.sizes_of(data)
    assert tp.sizes_of(data, cache=path).array.tolist() == expected.array.tolist()
    again = Lazy(data.nodes)
    assert tp.sizes_of(tp.with_ids(again), cache=str(path)).array.tolist() == expected.array.tolist()
    assert again.fetched <= 19


@pytest.mark.parametrize(("changed", "said"), [
    (Lazy([*range(1, 500)]), "500 graphs, but the dataset has 499"),
    (Lazy([2, *range(2, 501)]), "item 0 has the size (2, 3), but (1, 3)"),
    (Lazy([*range(1, 500), 1]), "item 499"),
    (Lazy([*range(500, 0, -1)]), "item 0"),
    (Lazy([*range(1, 501)], "eager"), "eager"),
    (Other([*range(1, 501)]), "Other"),
])  # fmt: skip
def test_the_sizes_of_another_dataset_are_refused(tmp_path: Path, changed: Lazy, said: str) -> None:
    path = tmp_path / "cache.sizes"
    tp.sizes_of(Lazy([*range(1, 501)]), cache=path)
    before = path.read_bytes()
    with refused(FormatError, str(path), said, "remove"):
        tp.sizes_of(changed, cache=path)
    assert path.read_bytes() == before


def test_graphs_of_other_types_are_refused(tmp_path: Path) -> None:
    class Typed(Lazy):
        def __getitem__(self, index: int) -> Any:
            return dgl.rand_bipartite("u", "e", "v", 2, 2, 1) if self.nodes[0] == 2 else super().__getitem__(index)

    tp.sizes_of(Typed([1, 1]), cache=tmp_path / "a")
    with refused(FormatError, "edges:u:e:v", "remove"):
        tp.sizes_of(Typed([2, 2]), cache=tmp_path / "a")


def test_no_changed_byte_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "a.sizes"
    tp.GraphSizes([[3, 4], [2, 2]]).save(path)
    intact = path.read_bytes()
    for at in range(len(intact)):
        for content in (intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :], intact[:at]):
            path.write_bytes(content)
            with pytest.raises(FormatError, match="sizes"):
                tp.GraphSizes.load(path)
    path.write_bytes(intact + b"\0")
    with refused(FormatError, str(path)):
        tp.GraphSizes.load(path)


def test_sources_that_know_their_sizes_need_no_cache(tmp_path: Path) -> None:
    assert tp.sizes_of([[3, 4]], cache=tmp_path / "a").array.tolist() == [[3, 4]]
    assert not (tmp_path / "a").exists()
