"""Memory of a store's batches: shared by all tensors of a dtype or separate, and layers that free it."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import dgl_tuplepack as tp
from dgl_tuplepack.storage.view import BatchMemory, fields_of
from tests.support.graphs import assert_same_batch, generator, random_graph, random_tensor
from tests.support.stores import molecules, purchases

FEATURES = {"x": ((8,), torch.float32), "other": ((2,), torch.float32)}


def labelled() -> list[Any]:
    """Graphs with two features of the same dtype, and a label of it."""
    gen = generator(0)
    return [(random_graph(gen, 4, 7, FEATURES), random_tensor(gen, (2,), torch.float32)) for _ in range(8)]


def tensors_of(batch: tp.PaddedBatch) -> list[Tensor]:
    """All tensors of a batch."""
    parts = [value for value in vars(batch).values() if value is not None]
    found: list[Tensor] = []
    while parts:
        part = parts.pop()
        if isinstance(part, Tensor):
            found.append(part)
        elif isinstance(part, dict):
            parts.extend(part.values())
    return found


@pytest.mark.parametrize("items", [molecules(), purchases(), labelled()], ids=["molecules", "purchases", "labelled"])
def test_separate_memory_holds_the_same_batches(items: list[Any], tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path, items)
    limits = tp.Limits.from_components(dict.fromkeys(store.sizes.components, 60), graphs=9)
    shared, separate = store.padded(limits), store.padded(limits, separate=True)
    for ids in ([], [0], [3, 1, 2], list(range(7)), [5]):
        assert_same_batch(separate[ids], shared[ids])
        assert_same_batch(pickle.loads(pickle.dumps(separate))[ids], shared[ids])
        tensors = tensors_of(separate[ids])
        assert len({t.untyped_storage().data_ptr() for t in tensors if t.numel()}) == sum(
            bool(t.numel()) for t in tensors
        )
        assert len({t.untyped_storage().data_ptr() for t in tensors_of(shared[ids])}) < len(tensors)
        # A layer that frees the storage of its input, such as DGL's GroupRevRes, leaves all other tensors as they are.
        (first, *others), (_, *right) = tensors, tensors_of(shared[ids])
        first.untyped_storage().resize_(0)
        assert all(torch.equal(a, b) for a, b in zip(others, right, strict=True))


def large_store(folder: Path) -> Any:
    """A view of a store whose batches are large enough for memory to be used again."""
    gen = generator(0)
    features = {"x": ((16,), torch.float32), "n": ((3,), torch.bfloat16)}
    items = [(random_graph(gen, 40, 80, features), torch.tensor([float(i)])) for i in range(60)]
    return tp.GraphStore.write(folder, items).padded(tp.Limits(nodes=6000, edges=20_000, graphs=60))


def test_memory_is_used_again_when_the_last_tensor_is_gone(tmp_path: Path) -> None:
    padded = large_store(tmp_path)
    batch, stretches = padded[[0]], []
    for i in range(1, 20):
        stretches.append(
            {t.untyped_storage().data_ptr() for t in tensors_of(batch) if t.untyped_storage().nbytes() > 2**18}
        )
        batch = padded[[i]]
    assert all(stretches)
    # The one in use while the next is made, and the next.
    assert len(set().union(*stretches)) <= 2 * len(stretches[0])


def in_a_backward_pass(batch: tp.PaddedBatch) -> tuple[Tensor, Tensor]:
    x = batch.node_features["x"]
    weight = torch.ones_like(x, requires_grad=True)
    return weight, (x * weight).sum()


# What may outlive a batch -> how it is taken, and the node feature that it still has to give.
READERS: dict[str, tuple[Callable[[tp.PaddedBatch], Any], Callable[[Any], Tensor]]] = {
    "a slice": (lambda batch: batch.node_features["x"][:], lambda kept: kept),
    "an array": (lambda batch: batch.node_features["x"].numpy(), torch.from_numpy),
    "a graph": (lambda batch: batch.graph, lambda kept: kept.ndata["x"]),
    "a backward pass": (in_a_backward_pass, lambda kept: torch.autograd.grad(kept[1], kept[0])[0]),
}


@pytest.mark.parametrize("name", READERS)
def test_memory_is_not_used_again_while_something_reads_it(name: str, tmp_path: Path) -> None:
    take, feature_of = READERS[name]
    padded = large_store(tmp_path)
    kept = [take(padded[[i, 7 - i]]) for i in range(8)]
    separate = padded.store.padded(padded.shape.limits, separate=True)
    for i, taken in enumerate(kept):
        assert feature_of(taken).equal(separate[[i, 7 - i]].node_features["x"])


def test_of_many_deleted_batches_the_memory_of_two_is_kept(tmp_path: Path) -> None:
    memory = BatchMemory(fields_of(large_store(tmp_path).shape))
    held = [memory.take() for _ in range(5)]
    del held
    assert {len(free) for free in memory._free if free is not None} == {2}


@given(kept_or_deleted=st.lists(st.booleans(), min_size=3, max_size=12))
@settings(max_examples=8)
def test_no_batch_gets_the_memory_of_a_batch_that_is_held(kept_or_deleted: list[bool]) -> None:
    """One batch is deleted, say, and then two newer ones are held."""
    with tempfile.TemporaryDirectory() as folder, patch("os.fsync"):
        padded = large_store(Path(folder))
        separate = padded.store.padded(padded.shape.limits, separate=True)
        held: dict[int, tp.PaddedBatch] = {}
        for i, is_kept in enumerate([False, *kept_or_deleted]):
            held[i] = padded[[i, 2 * i]]
            if not is_kept:
                del held[i if i % 2 else min(held)]
        for i, batch in held.items():
            assert_same_batch(batch, separate[[i, 2 * i]])
