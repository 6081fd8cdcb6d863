"""Every graph weighs the same: the mean gradient of an epoch is the gradient of the mean over the dataset."""

from __future__ import annotations

import warnings
from typing import Any

import dgl
import dgl.nn
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SamplerError
from tests.support.graphs import SamplerCase, flat, generator, ring_with_chords, sampler_cases
from tests.support.messages import refused
from tests.support.samplers import samplers_of
from tests.support.tensors import seeded


def samplers_in(case: SamplerCase, epoch: int, **changes: Any) -> list[tp.PackBatchSampler]:
    """One sampler for each rank, in an epoch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = samplers_of(case, **changes)
    for sampler in made:
        sampler.set_epoch(epoch)
    return made


@settings(max_examples=25)
@given(sampler_cases(too_large=True), st.integers(0, 3))
def test_the_count_is_the_mean_over_all_batches(case: SamplerCase, epoch: int) -> None:
    samplers = samplers_in(case, epoch, oversize="drop")
    batches = [batch for sampler in samplers for batch in sampler]
    expected = sum(map(len, batches)) / len(batches)
    for sampler in samplers:
        assert sampler.graphs_per_batch == pytest.approx(expected, rel=1e-14)
        assert sampler.graphs_per_batch == samplers[0].graphs_per_batch
        assert sampler.count_tensor.shape == ()
        assert sampler.count_tensor.item() == sampler.graphs_per_batch


@settings(max_examples=25)
@given(sampler_cases(), st.integers(0, 2), st.data())
def test_the_count_of_a_resumed_epoch_is_that_of_the_whole(case: SamplerCase, epoch: int, data: st.DataObject) -> None:
    (first, *_), (second, *_) = samplers_in(case, epoch), samplers_in(case, 0)
    whole = first.graphs_per_batch
    second.set_epoch(epoch, skip=data.draw(st.integers(0, len(first))))
    assert second.graphs_per_batch == whole
    list(second)
    assert second.graphs_per_batch == whole


@settings(max_examples=25)
@given(sampler_cases(too_large=True), st.integers(0, 3), st.integers(1, 3), st.integers(0, 2**31))
def test_labels_are_counted_where_they_are(case: SamplerCase, epoch: int, tasks: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((len(case.sizes), tasks)) < 0.6
    samplers = samplers_in(case, epoch, oversize="drop")
    batches = [batch for sampler in samplers for batch in sampler]
    total = mask[flat(batches)].sum()
    for sampler in samplers:
        if not total:
            with refused(SamplerError, "label_mask is False"):
                sampler.labels_per_batch(mask)
            continue
        for given_mask in (mask, torch.from_numpy(mask)):
            assert sampler.labels_per_batch(given_mask) == pytest.approx(total / len(batches), rel=1e-14)
    all_there = samplers[0].labels_per_batch(np.ones(len(case.sizes), dtype=bool))
    assert all_there == pytest.approx(samplers[0].graphs_per_batch, rel=1e-14)


def test_masks_of_another_shape_or_dtype() -> None:
    sampler = tp.PackBatchSampler(tp.GraphSizes([[1, 1]] * 4), tp.Limits(nodes=2, edges=2))
    for mask, part in ((np.ones(3, dtype=bool), "(3,)"), (np.ones(4), "float64")):
        with refused(SamplerError, "label_mask must be bool with shape [4]", part):
            sampler.labels_per_batch(mask)


# The gradient itself -------------------------------------------------------------------------------------------------


class Model(nn.Module):
    """Without statistics of a batch, so that each graph's loss is a function of that graph."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.conv, self.head = dgl.nn.GraphConv(3, 4, allow_zero_in_degree=True), nn.Linear(4, outputs)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        with graph.local_scope():
            graph.ndata["h"] = torch.tanh(self.conv(graph, x))
            result: Tensor = self.head(dgl.mean_nodes(graph, "h"))
        return result


def gradient(model: nn.Module, loss: Tensor) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


@st.composite
def datasets(draw: st.DrawFn) -> tuple[list[Any], Tensor]:
    """Graphs of unlike sizes with T labels, and which labels are there."""
    gen = generator(draw(st.integers(0, 2**31)))
    sizes = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=4, max_size=12))
    tasks = draw(st.integers(1, 3))
    items = [
        (ring_with_chords(gen, n, chords), torch.randn(tasks, generator=gen, dtype=torch.float64))
        for n, chords in sizes
    ]
    there = torch.rand(len(items), tasks, generator=gen) < 0.7
    there[0, 0] = True
    return items, there


def batches_again(sampler: tp.PackBatchSampler) -> list[list[int]]:
    """The batches of the current epoch once more, without the warning that they repeat."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(sampler)


@settings(max_examples=20)
@given(
    datasets(), st.integers(1, 3), st.integers(1, 2), st.booleans(),
    st.sampled_from(["resample", "fixed", "exchange"]), st.integers(0, 2), st.booleans(),
)  # fmt: skip
def test_the_mean_gradient_of_an_epoch_is_that_of_the_mean(
    dataset: tuple[list[Any], Tensor], ranks: int, packs: int, drop_last: bool, content: str, epoch: int, missing: bool
) -> None:
    items, there = dataset
    sizes = tp.sizes_of(items)
    limits = tp.Limits(nodes=10, edges=19)
    drop_last = drop_last and tp.pack(sizes, limits).num_packs >= 2 * ranks * packs
    samplers = [
        tp.PackBatchSampler(
            sizes, limits, packs_per_batch=packs, num_replicas=ranks, rank=rank, content=content, drop_last=drop_last
        )
        for rank in range(ranks)
    ]
    model = seeded(lambda: Model(there.shape[1]))
    for sampler in samplers:
        sampler.set_epoch(epoch)
    delivered = flat([ids for sampler in samplers for ids in sampler])
    # Graphs without labels may be all that is delivered.
    missing = missing and bool(there[delivered].any())
    of_steps = []
    for sampler in samplers:
        collate = tp.PaddedCollate(sampler.limits, tp.with_ids(items)[0], packs)
        for ids in batches_again(sampler):
            batch = collate([tp.with_ids(items)[i] for i in ids])
            losses = (model(batch.graph, batch.node_features["x"]) - batch.labels).square()
            if missing:
                mask = batch.graph_mask[:, None] & there[batch.graph_ids]
                loss = tp.nn.masked_mean(losses, mask, count=sampler.labels_per_batch(there))
            else:
                loss = tp.nn.masked_mean(losses, batch.graph_mask, count=sampler.count_tensor)
            of_steps.append(gradient(model, loss))
    whole = dgl.batch([items[i][0] for i in delivered])
    losses = (model(whole, whole.ndata["x"]) - torch.stack([items[i][1] for i in delivered])).square()
    expected = gradient(model, losses[there[delivered]].mean() if missing else losses.mean())
    torch.testing.assert_close(torch.stack(of_steps).mean(0), expected, rtol=1e-10, atol=1e-10)
