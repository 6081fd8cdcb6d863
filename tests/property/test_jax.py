"""Batches as JAX arrays: values, layout, shared memory, and one compilation for a whole training."""

from __future__ import annotations

import gc
import importlib
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError
from tests.messages import refused
from tests.plain import TWO_TYPES, TYPES, Plain, plain_graphs, plain_sources
from tests.tensors import DTYPES

jax = pytest.importorskip("jax")
jnp = jax.numpy

LIMITS = tp.Limits(nodes=40, edges=80, graphs=6)
# JAX compiles something for each new structure.
FEWER = settings(max_examples=settings().max_examples // 3)
NARROW = {"int64": "int32", "float64": "float32", "complex128": "complex64"}


def written(source: Plain, path: Path) -> tp.GraphStore:
    return tp.GraphStore.write(path, source, overwrite=True)


def limits_of(store: tp.GraphStore) -> tp.Limits:
    """Limits that hold six graphs."""
    return tp.Limits.from_components(dict.fromkeys(store.sizes.components, 90), graphs=6)


def values_of(tensor: Tensor) -> Any:
    """The values as numpy, in a dtype that numpy has."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def assert_same_values(found: Any, expected: Any, wide: bool) -> None:
    """An array of JAX has the values, shape and dtype of a tensor, narrowed if JAX has 32 bits."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_same_values(found[key], expected[key], wide)
        return
    assert isinstance(found, jax.Array)
    name = str(expected.dtype).removeprefix("torch.")
    assert str(found.dtype) == (name if wide else NARROW.get(name, name))
    np.testing.assert_array_equal(np.asarray(found), values_of(expected).astype(np.asarray(found).dtype))


def fits(tensor: Any) -> bool:
    """Whether 32 bits hold all values."""
    if isinstance(tensor, dict):
        return all(map(fits, tensor.values()))
    return tensor is None or tensor.dtype != torch.int64 or bool((tensor == tensor.int()).all())


def content_of(batch: tp.PaddedBatch) -> list[Any]:
    return [batch.node_features, batch.edge_features, batch.labels, batch.graph_ids]


@pytest.fixture
def with_64_bits() -> Any:
    """JAX with 64 bits, as a setting of the process."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def check(batch: tp.PaddedBatch, wide: bool) -> None:
    """All arrays, and all masks, are those of the batch."""
    found = batch.jraph
    assert_same_values(found.nodes, batch.node_features, wide)
    assert_same_values(found.edges, batch.edge_features, wide)
    assert_same_values(found.senders, batch.src, wide)
    assert_same_values(found.receivers, batch.dst, wide)
    labels = {} if batch.labels is None else {"labels": batch.labels}
    assert_same_values(found.globals, {**labels, "graph_ids": batch.graph_ids}, wide)
    assert_layout(found.n_node, batch.nodes_per_graph, batch.num_real_graphs)
    assert_layout(found.n_edge, batch.edges_per_graph, batch.num_real_graphs)
    assert_same_values(found.graph_mask, batch.graph_mask, wide)
    assert_same_values(found.edge_mask, batch.edge_mask, wide)
    if isinstance(batch.node_mask, dict):
        with_features = {t: mask for t, mask in batch.node_mask.items() if batch.node_features[t]}
        assert_same_values(found.node_mask, with_features, wide)
    elif batch.node_features:
        assert_same_values(found.node_mask, batch.node_mask, wide)
        assert_same_values(jax.jit(lambda graphs: graphs.node_mask)(found), batch.node_mask, wide)


def assert_layout(found: Any, counts: Any, real: int) -> None:
    """Counts of real graphs, then of the padding graph, then zeros."""
    if isinstance(counts, dict):
        assert found.keys() == counts.keys()
        for t in counts:
            assert_layout(found[t], counts[t], real)
        return
    expected = counts.tolist()
    assert found.dtype == jnp.int32
    assert found.tolist() == [*expected[:real], expected[-1], *[0] * (len(expected) - real - 1)]


@FEWER
@given(plain_sources(), st.integers(0, 6), st.sampled_from([torch.int32, torch.int64]), st.booleans())
def test_arrays_have_the_values_of_the_batch(
    tmp_path_factory: pytest.TempPathFactory, source: Plain, number: int, idtype: torch.dtype, sort_edges: bool
) -> None:
    store = written(source, tmp_path_factory.mktemp("store"))
    batch = store.batch(range(min(number, len(store))), limits_of(store), idtype=idtype, sort_edges=sort_edges)
    if all(map(fits, content_of(batch))):
        check(batch, wide=False)
    else:
        with refused(SchemaError, "32 bits", "jax_enable_x64"):
            batch.jraph  # noqa: B018


@FEWER
@given(plain_sources())
@pytest.mark.usefixtures("with_64_bits")
def test_with_64_bits_nothing_is_narrowed(tmp_path_factory: pytest.TempPathFactory, source: Plain) -> None:
    store = written(source, tmp_path_factory.mktemp("store"))
    check(store.batch(range(len(store)), limits_of(store)), wide=True)


@pytest.mark.parametrize("number", [0, 1, 5, 6])
@pytest.mark.parametrize("types", [TYPES, TWO_TYPES], ids=["one type", "two types"])
def test_masks_are_those_of_jraph(number: int, types: Any, tmp_path: Path) -> None:
    jraph = pytest.importorskip("jraph")
    store = written(plain_graphs(6, {"x": ((2,), torch.float32)}, {}, {}, types), tmp_path)
    batch = store.batch(range(number), limits_of(store))
    found = batch.jraph
    assert isinstance(found, jraph.GraphsTuple)
    assert found._fields == jraph.GraphsTuple._fields
    if types is TYPES:
        assert jraph.get_graph_padding_mask(found).tolist() == batch.graph_mask.tolist()
        assert jraph.get_node_padding_mask(found).tolist() == batch.node_mask.tolist()
        assert jraph.get_edge_padding_mask(found).tolist() == batch.edge_mask.tolist()
        rest = jraph.unpad_with_graphs(found)
        assert rest.n_node.tolist() == batch.nodes_per_graph[:number].tolist()
        assert len(rest.senders) == batch.num_real_edges


def test_the_fields_are_there_without_jraph(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dgl_tuplepack.padding import jax_graphs

    fields = ("nodes", "edges", "receivers", "senders", "globals", "n_node", "n_edge")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "jraph", None)
        importlib.reload(jax_graphs)
        batch = written(plain_graphs(3, {"x": ((), torch.float32)}, {}, {}), tmp_path).batch([0, 2], LIMITS)
        assert batch.jraph._fields == fields
        assert type(batch.jraph).__mro__[1].__name__ == "_GraphsTuple"
        check(batch, wide=False)
        assert jax.tree_util.tree_map(lambda a: a, batch.jraph).n_node.tolist() == batch.jraph.n_node.tolist()
    importlib.reload(jax_graphs)


def test_without_node_features_a_mask_says_where_it_is(tmp_path: Path) -> None:
    batch = written(plain_graphs(3, {}, {}, {}), tmp_path).batch([0], LIMITS)
    with refused(SchemaError, "batch.node_mask"):
        batch.jraph.node_mask  # noqa: B018


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in (torch.int64, torch.float64, torch.complex128)])
def test_large_arrays_share_the_memory_of_a_stores_batch(dtype: torch.dtype, tmp_path: Path) -> None:
    """Whatever stands before them in memory: a tensor of odd length."""
    specs = {"x": ((600_001,), dtype), "y": ((600_000,), dtype)}
    store = written(plain_graphs(2, specs, {}, {}, most=2), tmp_path)
    batch = store.batch([1], tp.Limits(nodes=2, edges=9, graphs=1))
    found = batch.jraph
    for name, tensor in batch.node_features.items():
        assert found.nodes[name].unsafe_buffer_pointer() == tensor.data_ptr(), name


@pytest.mark.parametrize("width", [3, 300_000])
def test_arrays_outlive_their_batch(width: int, tmp_path: Path) -> None:
    store = written(plain_graphs(4, {"x": ((width,), torch.float32)}, {}, {}, most=2), tmp_path)
    batches = [store.batch([i], tp.Limits(nodes=2, edges=9, graphs=1)) for i in range(4)]
    expected = [batch.node_features["x"].numpy().copy() for batch in batches]
    found = [batch.jraph for batch in batches]
    del batches
    gc.collect()
    noise = [torch.full((3, width), 7.0) for _ in range(8)]
    for graphs, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(graphs.nodes["x"]), right)
    assert len(noise) == 8


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**62])
@pytest.mark.parametrize("where", ["node feature 'x'", "edge feature 'w'", "labels"])
def test_integers_beyond_32_bits_are_refused(value: int, where: str, tmp_path: Path) -> None:
    column = {"x": ((), torch.int64)}, {"w": ((), torch.int64)}, {"": ((), torch.int64)}
    batch = written(plain_graphs(2, *column, most=1), tmp_path).batch([0], LIMITS)
    for tensor in (batch.node_features["x"], batch.edge_features["w"], batch.labels):
        tensor.zero_()
    tensor = {"node": batch.node_features["x"], "edge": batch.edge_features["w"]}.get(where[:4], batch.labels)
    for most in (2**31 - 1, -(2**31)):
        tensor[0] = most
        check(batch, wide=False)
    tensor[0] = value
    with refused(SchemaError, where, str(value), "2**31 - 1"):
        batch.jraph  # noqa: B018


def test_floats_beyond_32_bits_are_refused_and_infinite_ones_stay(tmp_path: Path) -> None:
    specs = {"x": ((), torch.float64), "z": ((), torch.complex128)}
    batch = written(plain_graphs(2, specs, {}, {}, most=1), tmp_path).batch([0], LIMITS)
    x, z = batch.node_features["x"], batch.node_features["z"]
    x[:3] = torch.tensor([float("inf"), float("nan"), 0.1])
    assert batch.jraph.nodes["x"][0] == np.inf
    assert np.isnan(batch.jraph.nodes["x"][1])
    assert batch.jraph.nodes["x"][2] == np.float32(0.1)
    x[0] = 1e300
    with refused(SchemaError, "node feature 'x'", "1e+300"):
        batch.jraph  # noqa: B018
    x[0], z[0] = 0, complex(0, -1e300)
    with refused(SchemaError, "node feature 'z'", "1e+300"):
        batch.jraph  # noqa: B018


def test_written_and_differentiated_features_come_along(tmp_path: Path) -> None:
    batch = written(plain_graphs(3, {"x": ((2,), torch.float32)}, {}, {}), tmp_path).batch([0, 1], LIMITS)
    slots = len(batch.node_mask)
    batch.node_features["h"] = torch.ones(slots, 4, requires_grad=True) * 2
    batch.node_features["t"] = torch.arange(2.0 * slots).reshape(2, slots).T
    batch.node_features["c"] = torch.full((slots,), 1j).conj()
    batch.node_features["n"] = torch.full((slots,), 1 + 1j).conj().imag
    found = batch.jraph.nodes
    assert (np.asarray(found["h"]) == 2).all()
    np.testing.assert_array_equal(np.asarray(found["t"]), batch.node_features["t"].numpy())
    assert (np.asarray(found["c"]) == -1j).all()
    assert (np.asarray(found["n"]) == -1).all()


def test_a_batch_where_jax_is_not_says_what_to_do(tmp_path: Path) -> None:
    batch = written(plain_graphs(3, {"x": ((2,), torch.float32)}, {}, {}), tmp_path).batch([0], LIMITS)
    batch.node_features["x"] = batch.node_features["x"].to("meta")
    with refused(SchemaError, "meta", "batch.to('cpu').jraph"):
        batch.jraph  # noqa: B018


def test_guards_against_unseen_transfers_let_it_pass(tmp_path: Path) -> None:
    batch = written(plain_graphs(3, {"x": ((2,), torch.float32)}, {}, {}), tmp_path).batch([0], LIMITS)
    with jax.transfer_guard("disallow"):
        found = batch.jraph
    with jax.disable_jit():
        assert_same_values(batch.jraph.nodes, batch.node_features, wide=False)
    assert_same_values(found.nodes, batch.node_features, wide=False)


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_come_from_workers(workers: int, tmp_path: Path) -> None:
    store = written(plain_graphs(20, {"x": ((2,), torch.float32)}, {}, {}), tmp_path)
    sampler = tp.PackBatchSampler(store, LIMITS)
    context = "forkserver" if workers else None
    loader = DataLoader(
        store.padded(sampler.limits), sampler=sampler, batch_size=None, num_workers=workers,
        multiprocessing_context=context,
    )  # fmt: skip
    seen: list[int] = []
    for batch in loader:
        graphs = batch.jraph
        seen += graphs.globals["graph_ids"][graphs.graph_mask].tolist()
    assert sorted(seen) == list(range(20))


def network(parameters: dict[str, Any], graphs: Any) -> Any:
    """A GIN in plain JAX: two layers and a mean over the nodes of each graph, ``[G]``."""
    slots, number = len(graphs.nodes["x"]), len(graphs.n_node)
    x = graphs.nodes["x"] @ parameters["in"]
    for weight in parameters["layers"]:
        sums = jax.ops.segment_sum(x[graphs.senders], graphs.receivers, slots)
        x = x + jax.nn.relu((x + sums) @ weight)
    of_graph = jnp.repeat(jnp.arange(number), graphs.n_node, total_repeat_length=slots)
    sums = jax.ops.segment_sum(x, of_graph, number)
    return (sums / jnp.maximum(graphs.n_node, 1)[:, None]) @ parameters["out"]


def parameters_of(seed: int) -> dict[str, Any]:
    keys = jax.random.split(jax.random.PRNGKey(seed), 4)
    return {
        "in": jax.random.normal(keys[0], (3, 8)) / 2,
        "layers": [jax.random.normal(key, (8, 8)) / 8 for key in keys[1:3]],
        "out": jax.random.normal(keys[3], (8,)) / 3,
    }


def labelled(number: int) -> Plain:
    return plain_graphs(number, {"x": ((3,), torch.float32)}, {}, {"": ((), torch.float32)})


def test_a_training_step_is_compiled_once(tmp_path: Path) -> None:
    store = written(labelled(60), tmp_path)
    sampler = tp.PackBatchSampler(store, tp.Limits(nodes=30, edges=60), content="resample")
    view = store.padded(sampler.limits)
    traces = 0

    def loss_of(parameters: Any, graphs: Any, count: Any) -> Any:
        errors = (network(parameters, graphs) - graphs.globals["labels"]) ** 2
        return jnp.where(graphs.graph_mask, errors, 0).sum() / count

    @jax.jit
    def step(parameters: Any, graphs: Any, count: Any) -> Any:
        nonlocal traces
        traces += 1
        loss, gradients = jax.value_and_grad(loss_of)(parameters, graphs, count)
        return loss, jax.tree_util.tree_map(lambda p, g: p - 0.002 * g, parameters, gradients)

    parameters, losses = parameters_of(0), []
    for epoch in range(4):
        sampler.set_epoch(epoch)
        # The last one is of padding alone, as a rank without packs gets it.
        for ids in [*sampler, []]:
            loss, parameters = step(parameters, view[ids].jraph, sampler.graphs_per_batch)
            assert jnp.isfinite(loss)
            losses.append(float(loss))
    assert traces == 1
    steps = len(losses) // 4
    assert sum(losses[-steps:]) < sum(losses[:steps])


@FEWER
@given(st.lists(st.integers(0, 11), max_size=6, unique=True))
def test_padding_changes_no_result(ids: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = written(labelled(12), Path(folder) / "store")
        batch, parameters = store.batch(ids, tp.Limits(nodes=60, edges=120, graphs=8)), parameters_of(1)
        together = network(parameters, batch.jraph)
        for slot, i in enumerate(ids):
            nodes, edges = store.sizes.array[i].tolist()
            alone = network(parameters, store.batch([i], tp.Limits(nodes, max(edges, 1), 1)).jraph)
            np.testing.assert_allclose(together[slot], alone[0], rtol=2e-5, atol=1e-5)

        def total(graphs: Any) -> Any:
            return jnp.where(graphs.graph_mask, network(parameters, graphs), 0).sum()

        gradients = jax.grad(total, allow_int=True)(batch.jraph)
        assert not np.asarray(gradients.nodes["x"])[~batch.node_mask.numpy()].any()


def test_the_page_of_frameworks_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert names["step"]._cache_size() == 1
    assert jnp.isfinite(names["loss"])
    # The same step in torch.
    assert names["head"].weight.grad.isfinite().all()


def test_masks_of_named_graphs_are_keyed_by_name() -> None:
    """One real graph of 2 atoms and 3 bonds, then padding, then an empty slot."""
    from dgl_tuplepack.padding.jax_graphs import JaxGraphs

    counts = {"n_node": {"atoms": jnp.array([2, 3, 0])}, "n_edge": {"atoms": jnp.array([3, 1, 0])}}
    ends = {"atoms": jnp.zeros(4, jnp.int32)}
    graphs = JaxGraphs({"atoms": {"x": jnp.ones((5, 1))}}, {"atoms": {}}, ends, ends, {}, **counts)
    assert graphs.graph_mask.tolist() == [True, False, False]
    assert graphs.node_mask["atoms"].tolist() == [True, True, False, False, False]
    assert graphs.edge_mask["atoms"].tolist() == [True, True, True, False]
