"""Batches as a GraphsTuple: values, layout, shared memory, and one compilation for a whole training in JAX."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from tests.support.plain import TWO_TYPES, TYPES, Plain, plain_graphs, plain_sources

LIMITS = tp.Limits(nodes=40, edges=80, graphs=6)
FIELDS = ("nodes", "edges", "receivers", "senders", "globals", "n_node", "n_edge")


def written(source: Plain, path: Path) -> tp.GraphStore:
    return tp.GraphStore.write(path, source, overwrite=True)


def limits_of(store: tp.GraphStore) -> tp.Limits:
    """Limits that hold six graphs."""
    return tp.Limits.from_components(dict.fromkeys(store.sizes.components, 90), graphs=6)


def assert_same_values(found: Any, expected: Any) -> None:
    """An array of numpy has the values, shape and dtype of a tensor."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_same_values(found[key], expected[key])
        return
    assert isinstance(found, np.ndarray)
    assert str(found.dtype) == str(expected.dtype).removeprefix("torch.")
    if expected.dtype == torch.bfloat16:
        expected, found = expected.float(), found.astype(np.float32)
    np.testing.assert_array_equal(found, expected.numpy())


def assert_layout(found: Any, counts: Any, real: int) -> None:
    """Counts of real graphs, then of the padding graph, then zeros."""
    if isinstance(counts, dict):
        assert found.keys() == counts.keys()
        for t in counts:
            assert_layout(found[t], counts[t], real)
        return
    expected = counts.tolist()
    assert found.dtype == np.int32
    assert found.tolist() == [*expected[:real], expected[-1], *[0] * (len(expected) - real - 1)]


def has_bfloat16(*values: Any) -> bool:
    return any(has_bfloat16(*v.values()) if isinstance(v, dict) else v.dtype == torch.bfloat16 for v in values)


@given(plain_sources(), st.integers(0, 6), st.sampled_from([torch.int32, torch.int64]), st.booleans())
def test_arrays_have_the_values_of_the_batch(
    tmp_path_factory: pytest.TempPathFactory, source: Plain, number: int, idtype: torch.dtype, sort_edges: bool
) -> None:
    store = written(source, tmp_path_factory.mktemp("store"))
    batch = store.padded(limits_of(store), idtype=idtype, sort_edges=sort_edges)[range(min(number, len(store)))]
    labels = {} if batch.labels is None else {"labels": batch.labels}
    # Without JAX, numpy does not have these numbers.
    assume(find_spec("ml_dtypes") or not has_bfloat16(batch.node_features, batch.edge_features, labels))
    found = batch.jraph
    assert type(found)._fields == FIELDS
    assert_same_values(found.nodes, batch.node_features)
    assert_same_values(found.edges, batch.edge_features)
    assert_same_values(found.senders, batch.src)
    assert_same_values(found.receivers, batch.dst)
    assert_same_values(found.globals, {**labels, "graph_ids": batch.graph_ids})
    assert_layout(found.n_node, batch.nodes_per_graph, batch.num_real_graphs)
    assert_layout(found.n_edge, batch.edges_per_graph, batch.num_real_graphs)


@pytest.mark.parametrize("number", [0, 1, 5, 6])
@pytest.mark.parametrize("types", [TYPES, TWO_TYPES], ids=["one type", "two types"])
def test_masks_are_those_of_jraph(number: int, types: Any, tmp_path: Path) -> None:
    jraph = pytest.importorskip("jraph")
    store = written(plain_graphs(6, {"x": ((2,), torch.float32)}, {}, {}, types), tmp_path)
    batch = store.padded(limits_of(store))[range(number)]
    found = batch.jraph
    assert isinstance(found, jraph.GraphsTuple)
    if types is TYPES:
        assert jraph.get_graph_padding_mask(found).tolist() == batch.graph_mask.tolist()
        assert jraph.get_node_padding_mask(found).tolist() == batch.node_mask.tolist()
        assert jraph.get_edge_padding_mask(found).tolist() == batch.edge_mask.tolist()
        rest = jraph.unpad_with_graphs(found)
        assert rest.n_node.tolist() == batch.nodes_per_graph[:number].tolist()
        assert len(rest.senders) == batch.num_real_edges


def test_the_fields_are_there_without_jraph(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jraph", None)
    batch = written(plain_graphs(3, {"x": ((), torch.float32)}, {}, {}), tmp_path).padded(LIMITS)[[0, 2]]
    assert batch.jraph._fields == FIELDS
    assert isinstance(batch.jraph, tuple)
    assert np.shares_memory(batch.jraph.nodes["x"], batch.node_features["x"].numpy())


def test_written_and_differentiated_features_come_along(tmp_path: Path) -> None:
    batch = written(plain_graphs(3, {"x": ((2,), torch.float32)}, {}, {}), tmp_path).padded(LIMITS)[[0, 1]]
    slots = len(batch.node_mask)
    batch.node_features["h"] = torch.ones(slots, 4, requires_grad=True) * 2
    batch.node_features["t"] = torch.arange(2.0 * slots).reshape(2, slots).T
    batch.node_features["c"] = torch.full((slots,), 1j).conj()
    batch.node_features["n"] = torch.full((slots,), 1 + 1j).conj().imag
    found = batch.jraph.nodes
    assert (found["h"] == 2).all()
    np.testing.assert_array_equal(found["t"], batch.node_features["t"].numpy())
    assert (found["c"] == -1j).all()
    assert (found["n"] == -1).all()


def test_a_training_step_is_compiled_once(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    store = written(plain_graphs(60, {"x": ((3,), torch.float32)}, {}, {"": ((), torch.float32)}), tmp_path)
    sampler = tp.PackBatchSampler(store, tp.Limits(nodes=30, edges=60), content="resample")
    view = store.padded(sampler.limits)
    traces = 0

    @jax.jit
    def loss_of(graphs: Any, mask: Any) -> Any:
        nonlocal traces
        traces += 1
        slots = len(graphs.nodes["x"])
        sums = jax.ops.segment_sum(graphs.nodes["x"][graphs.senders], graphs.receivers, slots).sum(1)
        graph_of_node = jax.numpy.repeat(jax.numpy.arange(len(mask)), graphs.n_node, total_repeat_length=slots)
        outputs = jax.ops.segment_sum(sums, graph_of_node, len(mask))
        return jax.numpy.where(mask, (outputs - graphs.globals["labels"]) ** 2, 0).sum()

    for epoch in range(2):
        sampler.set_epoch(epoch)
        # The last one is of padding alone, as a rank without packs gets it.
        for ids in [*sampler, []]:
            batch = view[ids]
            assert np.isfinite(loss_of(batch.jraph, batch.graph_mask.numpy()))
    assert traces == 1


def test_the_page_about_jax_runs() -> None:
    pytest.importorskip("jax")
    page = (Path(__file__).parents[2] / "docs" / "howto" / "jax.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert np.isfinite(names["loss"])
    if "head" in names:
        # The same step in torch.
        assert names["head"].weight.grad.isfinite().all()
