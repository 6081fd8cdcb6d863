"""What only several processes can show; run by torchrun, each check prints a line on rank 0."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import dgl
import dgl.function as fn
import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.batches.tensors import BatchTensors
from dgl_tuplepack.errors import InputError, SamplerError
from tests.support.graphs import generator, ring_with_chords

STEPS = 4


class Network(nn.Module):
    """Two rounds of message passing with norms and a readout, from the tensors of a padded batch alone."""

    def __init__(self, across_ranks: bool) -> None:
        super().__init__()
        self.messages = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.norms = nn.ModuleList([tp.nn.MaskedBatchNorm1d(3, across_ranks=across_ranks) for _ in range(2)])
        self.readout = nn.Linear(3, 1)

    def forward(self, batch: tp.PaddedBatch) -> Tensor:
        h = batch.node_features["x"]
        for layer, norm in zip(self.messages, self.norms, strict=True):
            messages = layer(h[batch.src]) * batch.edge_features["w"][:, None]
            h = torch.tanh(norm(h + torch.zeros_like(h).index_add(0, batch.dst, messages), batch.node_mask))
        graphs = torch.zeros(len(batch.graph_mask), 3, dtype=h.dtype)
        return self.readout(graphs.index_add(0, batch.node_graph_slots, h)).squeeze(1)


def dataset_of(packs: int) -> list[Any]:
    """Labelled graphs that fill so many packs of 12 nodes exactly: of one, two or three graphs."""
    gen = generator(0)
    nodes = [12 // graphs for pack in range(packs) for graphs in [1 + pack % 3] * (1 + pack % 3)]
    return [
        (ring_with_chords(gen, number, i % 4), torch.randn((), generator=gen, dtype=torch.float64))
        for i, number in enumerate(nodes)
    ]


def square_errors(network: nn.Module, batch: tp.PaddedBatch) -> Tensor:
    assert isinstance(batch.labels, Tensor)
    return (network(batch) - batch.labels).square()


def gradients_are_those_of_one_process(rank: int, ranks: int, packs_per_batch: int, in_two_shapes: bool) -> None:
    """Train beside a single process that holds each step's graphs of all ranks; one step has few packs.

    In one shape, that is one pack; in two, a large graph and the small pack that is left over.
    """
    limits: Any = tp.Limits(nodes=12, edges=24)
    items = dataset_of((STEPS - 1) * ranks * packs_per_batch + 1)
    if in_two_shapes:
        limits = [limits, tp.Limits(nodes=24, edges=48)]
        items.append((ring_with_chords(generator(1), 24, 3), torch.ones((), dtype=torch.float64)))
    data = tp.with_ids(items)
    sampler = tp.PackBatchSampler(data, limits, seed=1, packs_per_batch=packs_per_batch)
    collate = tp.PaddedCollate(sampler.limits, example=data[0], packs_per_batch=packs_per_batch)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=collate)  # type: ignore[arg-type]
    assert (sampler.num_replicas, sampler.rank, len(loader)) == (ranks, rank, STEPS)
    everybody = [
        tp.PackBatchSampler(
            data, limits, seed=1, packs_per_batch=packs_per_batch, num_replicas=ranks, rank=other
        )
        for other in range(ranks)
    ]  # fmt: skip
    collate_all = tp.PaddedCollate(sampler.limits, example=data[0], packs_per_batch=ranks * packs_per_batch)

    torch.manual_seed(0)
    alone, together = Network(across_ranks=False).double(), Network(across_ranks=True).double()
    together.load_state_dict(alone.state_dict())
    network = DistributedDataParallel(together)
    seen, empty = [], 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for one in everybody:
            one.set_epoch(epoch)
        for batch, ids in zip(loader, zip(*everybody, strict=True), strict=True):
            assert batch.graph_ids is not None
            assert batch.graph_ids[batch.graph_mask].tolist() == ids[rank]
            shapes = {each.shape for each in ids}
            assert len(shapes) == 1
            assert len(batch.node_mask) == packs_per_batch * (24 if shapes == {1} else 12) + 1
            seen += ids[rank]
            empty += not ids[rank]
            loss = tp.nn.distributed_masked_mean(square_errors(network, batch), batch.graph_mask)
            loss.backward()
            whole = collate_all([data[i] for of_rank in ids for i in of_rank])
            right = tp.nn.masked_mean(square_errors(alone, whole), whole.graph_mask)
            right.backward()
            for found, expected in zip(network.parameters(), alone.parameters(), strict=True):
                assert found.grad is not None
                assert expected.grad is not None
                assert expected.grad.abs().max() > 0
                torch.testing.assert_close(found.grad, expected.grad, rtol=1e-10, atol=1e-12)
            for found, expected in zip(network.buffers(), alone.buffers(), strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            torch.testing.assert_close(mean / ranks, right.detach())
            with torch.no_grad():
                for parameter in [*network.parameters(), *alone.parameters()]:
                    assert parameter.grad is not None
                    parameter -= 0.05 * parameter.grad
                    parameter.grad = None
    gathered: list[Any] = [None] * ranks
    dist.all_gather_object(gathered, (seen, empty))
    assert sorted(i for ids, _ in gathered for i in ids) == sorted([*range(len(data))] * 2)
    alone_in_step = 2 if in_two_shapes else 1
    assert sum(number for _, number in gathered) == 2 * (ranks - alone_in_step), "one step has few packs"


class Loss(nn.Module):
    """The loss of a batch from its tensors, as a module."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.network = Network(across_ranks=False).double()

    def forward(self, t: BatchTensors, count: Tensor) -> Tensor:
        errors = (self.network(t) - t.labels).square()
        return tp.nn.masked_mean(errors, t.graph_mask, count=count)


def compiled_steps_share_gradients(rank: int, ranks: int) -> None:
    """DistributedDataParallel around a compiled module averages as around an uncompiled one, with empty batches."""
    data = tp.with_ids(dataset_of((STEPS - 1) * ranks + 1))
    sampler = tp.PackBatchSampler(data, tp.Limits(nodes=12, edges=24), seed=1)
    collate = tp.PaddedCollate(sampler.limits, example=data[0])
    compiled = DistributedDataParallel(tp.compile(Loss(), backend="aot_eager"))
    uncompiled = DistributedDataParallel(Loss())
    empty = torch.zeros(())
    for batch in DataLoader(data, batch_sampler=sampler, collate_fn=collate):  # type: ignore[arg-type]
        empty += batch.num_real_graphs == 0
        for loss in (compiled, uncompiled):
            loss.zero_grad()
            loss(batch.tensors, sampler.count_tensor).backward()
        for found, expected in zip(compiled.parameters(), uncompiled.parameters(), strict=True):
            assert found.grad is not None
            assert expected.grad is not None
            assert expected.grad.abs().max() > 0
            torch.testing.assert_close(found.grad, expected.grad, rtol=1e-10, atol=1e-12)
    dist.all_reduce(empty)
    assert empty == ranks - 1


def a_mean_over_nothing_is_zero(rank: int, ranks: int) -> None:
    for real in (0, ranks - 1):
        x = torch.ones(4, requires_grad=True)
        # Nobody, or the last rank alone, has an entry.
        mask = torch.tensor([real > 0 and rank == real, False, False, False])
        mean = tp.nn.distributed_masked_mean(3 * x, mask)
        mean.backward()
        mine = ranks if real and rank == real else 0
        assert mean.item() == 3 * mine
        assert x.grad is not None
        assert x.grad.tolist() == [3 * mine, 0, 0, 0]
    # Half precision: the sum of a rank would overflow without care.
    ones = torch.ones(70_000, dtype=torch.float16)
    assert tp.nn.distributed_masked_mean(ones, torch.ones(70_000, dtype=torch.bool)).item() == 1


def groups_average_by_themselves(rank: int, ranks: int) -> None:
    """Statistics, gradients and means are those of the ranks of a group together, whatever the others hold."""
    members = [list(range(ranks - 1)), [ranks - 1]]
    groups = [dist.new_group(of_group) for of_group in members]
    mine = int(rank == ranks - 1)
    held = [torch.randn(3 + i, 3, generator=generator(i), dtype=torch.float64) + i for i in range(ranks)]
    weights = [torch.randn(3 + i, 3, generator=generator(9 + i), dtype=torch.float64) for i in range(ranks)]

    together = torch.cat([held[i] for i in members[mine]]).requires_grad_()
    normed = nn.BatchNorm1d(3, dtype=torch.float64)(together)
    (normed * torch.cat([weights[i] for i in members[mine]])).sum().backward()
    norm = tp.nn.MaskedBatchNorm1d(3, dtype=torch.float64, across_ranks=True, group=groups[mine])
    x, real = held[rank].clone().requires_grad_(), torch.ones(len(held[rank]), dtype=torch.bool)
    found = norm(x, real)
    (found * weights[rank]).sum().backward()
    begin = sum(len(held[i]) for i in members[mine] if i < rank)
    part = slice(begin, begin + len(x))
    torch.testing.assert_close(found, normed[part])
    assert together.grad is not None
    torch.testing.assert_close(x.grad, together.grad[part])

    mean = tp.nn.distributed_masked_mean(held[rank], real, group=groups[mine])
    dist.all_reduce(mean, group=groups[mine])
    torch.testing.assert_close(mean / len(members[mine]), together.detach().mean())


def error_of(order: Any, limits: tp.Limits, **settings: Any) -> Exception:
    """What making a sampler raises."""
    try:
        tp.PackBatchSampler(order, limits, **settings)
    except Exception as error:
        return error
    raise AssertionError(f"rank {dist.get_rank()} did not notice that another one differs: {settings}")


def ranks_compare_what_they_hold(rank: int, ranks: int) -> None:
    rows, limits = np.tile([[3, 4], [2, 2], [1, 0]], (20, 1)), tp.Limits(6, 7)
    plan = tp.pack(tp.GraphSizes(rows), limits)
    other = tp.pack(tp.GraphSizes(rows), limits, method="none")
    odd = rank == ranks - 1
    assert tp.PackBatchSampler(tp.GraphSizes(rows), limits).num_replicas == ranks
    cases: list[tuple[str, tuple[object, ...], Any, dict[str, Any]]] = [
        ("seed", (4, 5), rows, {"seed": 5 if odd else 4}),
        ("plan", (plan.fingerprint, other.fingerprint), rows, {"plan": other if odd else plan}),
        ("sizes", (), rows[::-1] if odd else rows, {}),
        # What is dropped stands at another place, so the same ids are other graphs.
        ("sizes", (), np.insert(rows, [0 if odd else 60], [9, 9], axis=0), {"oversize": "drop"}),
        ("num_graphs", (60, 57), rows[:57] if odd else rows, {}),
        ("packs_per_batch", (1, 2), rows, {"packs_per_batch": 2 if odd else 1}),
        ("content", ("exchange", "resample"), rows, {"content": "resample" if odd else "exchange"}),
    ]
    for name, values, order, settings in cases:
        error = error_of(tp.GraphSizes(order), limits, **settings)
        message = str(error)
        assert type(error) is SamplerError, message
        assert f"rank 0 has {name}" in message, message
        assert f"rank {ranks - 1} has" in message, message
        assert all(str(value) in message for value in values), message
    # Who says which rank it is may be alone in making a sampler: nothing is compared, and nobody waits.
    if odd:
        tp.PackBatchSampler(tp.GraphSizes(rows), limits, seed=9, num_replicas=1, rank=0)


def exact_batches_are_divided(rank: int, ranks: int) -> None:
    """Every rank has as many batches, none is empty, every graph comes once; other settings are refused."""
    rows = np.random.default_rng(0).integers(1, 30, (8 * ranks * 3 + 1, 2))
    sampler = tp.StaticBatchSampler(tp.GraphSizes(rows), 8)
    assert sampler.num_replicas == ranks
    for epoch in range(3):
        sampler.set_epoch(epoch)
        gathered: list[Any] = [None] * ranks
        dist.all_gather_object(gathered, list(sampler))
        assert {len(batches) for batches in gathered} == {4}
        assert all(ids for batches in gathered for ids in batches)
        assert sorted(i for batches in gathered for ids in batches for i in ids) == list(range(len(rows)))
    odd = rank == ranks - 1
    for name, order, settings in (
        ("seed", rows, {"seed": 5 if odd else 4}),
        ("limits", rows, {"slack": 0.2 if odd else 0.1}),
        ("sizes", rows[::-1] if odd else rows, {"shape": tp.Limits(999, 999)}),
    ):
        with pytest.raises(SamplerError, match=f"rank 0 has {name} .* but rank {ranks - 1} has"):
            tp.StaticBatchSampler(tp.GraphSizes(order), 8, **settings)


class Broken:
    """A dataset that cannot be read."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        raise OSError("the disk is gone")


def a_rank_that_fails_ends_all(rank: int, ranks: int) -> None:
    """It raises what went wrong, whatever that is; the others tell of it instead of waiting."""
    rows, limits = np.tile([[3, 4], [2, 2], [1, 0]], (20, 1)), tp.Limits(6, 7)
    plan, odd = tp.pack(tp.GraphSizes(rows), limits), rank == ranks - 1
    cases: list[tuple[str, str, Any, dict[str, Any]]] = [
        ("PlanError", "57 graphs", rows[:57] if odd else rows, {"plan": plan}),
        ("GraphTooLargeError", "graph 0 (9 nodes, 9 edges)", [[9, 9]] if odd else rows, {}),
        ("SamplerError", "packs_per_batch", rows, {"packs_per_batch": "2" if odd else 1}),
        ("OSError", "the disk is gone", Broken() if odd else rows, {}),
    ]
    for kind, text, order, settings in cases:
        error = error_of(order, limits, **settings)
        assert text in str(error), error
        if odd:
            assert type(error).__name__ == kind
        else:
            assert type(error) is SamplerError
            assert f"rank {ranks - 1} could not make its sampler" in str(error)
            assert f"{kind}: " in str(error)


def streams_end_together(rank: int, ranks: int) -> None:
    mine = [[rank, step] for step in range(rank + 1)]
    assert list(tp.in_step(mine)) == mine[:1]
    assert list(tp.in_step(mine, empty=[])) == mine + [[]] * (ranks - rank - 1)
    assert list(tp.in_step([] if rank else mine)) == []
    assert list(tp.in_step([], empty=[])) == []

    sizes = [(1 + i % 5, 1 + i % 7) for i in range(101)]
    packer: Any = tp.StreamPacker(list(enumerate(sizes)), tp.Limits(9, 11), lookahead=10, size_of=lambda item: item[1])
    loader: Any = DataLoader(packer, batch_size=None, num_workers=1)
    seen = [int(number) for pack in tp.in_step(loader, empty=[]) for number, _ in pack]
    gathered: list[Any] = [None] * ranks
    dist.all_gather_object(gathered, seen)
    assert sorted(i for ids in gathered for i in ids) == list(range(101))
    assert all(gathered)


def streams_fail_together(rank: int, ranks: int) -> None:
    """The last rank fails in its second step, or when its iteration begins, or after the others have ended."""
    odd = rank == ranks - 1

    def failing(steps: int) -> Iterator[int]:
        yield from range(steps)
        if odd:
            raise OSError("the disk is gone")

    class NoIterator:
        def __iter__(self) -> Iterator[int]:
            if odd:
                raise OSError("the disk is gone")
            return iter([1, 2])

    endless: Any = failing(1) if odd else itertools.count()
    late: Any = failing(3) if odd else [0]
    for batches, empty, expected in ((endless, None, 1), (NoIterator(), None, 0), (late, -1, 3)):
        steps = tp.in_step(batches, empty)
        assert len(list(itertools.islice(steps, expected))) == expected
        told = rf"^rank {ranks - 1} got no further batch \(OSError\('the disk is gone'\)\)"
        with pytest.raises(OSError if odd else SamplerError, match="^the disk is gone$" if odd else told):
            next(steps)


def groups_step_by_themselves(rank: int, ranks: int) -> None:
    """The last rank takes more steps than the others, of which none takes part."""
    others, last = dist.new_group(list(range(ranks - 1))), dist.new_group([ranks - 1])
    mine = list(range(3 if rank == ranks - 1 else rank + 1))
    found = list(tp.in_step(mine, group=last if rank == ranks - 1 else others))
    assert found == (mine if rank == ranks - 1 else [0])


def packed_datasets_have_packs_of_their_own(rank: int, ranks: int) -> None:
    """Each graph is in one pack of one rank, and ranks with other settings are refused."""
    items, limits = dataset_of(9), tp.Limits(nodes=12, edges=24)
    packed = tp.PackedDataset(items, limits)
    found: list[Any] = [None] * ranks
    dist.all_gather_object(found, [labels.graph_ids[labels.graph_mask].tolist() for _, labels in packed])
    assert sorted(i for packs in found for pack in packs for i in pack) == list(range(len(items)))
    assert len({len(packs) for packs in found}) == 1
    with pytest.raises(SamplerError, match="multiple_of"):
        tp.PackedDataset(items, limits, multiple_of=1 + rank)


def predictions_of_all_ranks(rank: int, ranks: int) -> None:
    """Every rank gets the outputs of all graphs in the order of ids, also a rank without graphs, and every error."""
    items = dataset_of(9)
    ids = [*range(1, len(items), 2), *range(0, len(items), 2)]
    for of in ("graphs", "nodes"):
        predictions = tp.Predictions(ids, of)
        for batch in tp.packed_loader(items, limits=tp.Limits(nodes=12, edges=24)):
            rows = batch.graph_ids if of == "graphs" else batch.graph_ids[batch.node_graph_slots]
            predictions.add(batch, rows)
        found = [set(rows.tolist()) for rows in predictions.result(all_ranks=True)] if of == "nodes" else [
            {int(row)} for row in predictions.result(all_ranks=True)
        ]  # fmt: skip
        assert found == [{i} for i in ids]
    only_first = tp.Predictions(2)
    if rank == 0:
        only_first.add([1, 0], torch.tensor([5.0, 6.0]))
    assert only_first.result(all_ranks=True).tolist() == [6, 5]
    twice = tp.Predictions(1)
    twice.add([0], torch.zeros(1))
    with pytest.raises(InputError, match="0 were added more than once"):
        twice.result(all_ranks=True)


class PadsInside(nn.Module):
    """A layer with a norm over nodes, and a readout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)

    def forward(self, graph: dgl.DGLGraph) -> Tensor:
        graph.ndata["h"] = self.norm(self.first(graph.ndata["x"]))
        graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "h"))
        return self.last(dgl.mean_nodes(graph, "h")).squeeze(1)


def models_that_pad_inside_share_gradients(rank: int, ranks: int) -> None:
    """DistributedDataParallel around a compiled model, and inside one, trains as around the model itself."""
    loader = tp.packed_loader(dataset_of(9), batch_size=4)
    models = []
    for way in ("plain", "inside", "outside"):
        torch.manual_seed(0)
        model: nn.Module = PadsInside().double()
        if way == "outside":
            model = tp.compile(DistributedDataParallel(model), loader, backend="eager")
        else:
            model = DistributedDataParallel(tp.compile(model, loader, backend="eager") if way == "inside" else model)
        models.append((model, torch.optim.SGD(model.parameters(), 0.1)))
    for epoch in range(2):
        loader.set_epoch(epoch)
        for graph, labels in loader:
            for model, optimiser in models:
                optimiser.zero_grad()
                (model(graph.local_var()) - labels).square().mean().backward()
                optimiser.step()
    plain, *others = (model.state_dict() for model, _ in models)
    for other in others:
        for name, value in other.items():
            torch.testing.assert_close(value, plain[name], rtol=1e-10, atol=1e-12)


def mixtures_are_shared(rank: int, ranks: int) -> None:
    """Over all ranks, each source has its share of an epoch, and each graph comes as often as its weight says."""
    sources = {"a": dataset_of(8), "b": dataset_of(4)}
    shares, number = {"a": 0.25, "b": 0.75}, sum(map(len, sources.values()))
    loader = tp.packed_loader(sources, batch_size=4, shares=shares, with_ids=True)
    for epoch in range(3):
        loader.set_epoch(epoch)
        seen: list[Any] = [None] * ranks
        own = [(int(i), int(source)) for _, _, of, ids in loader for i, source in zip(ids, of, strict=True)]
        dist.all_gather_object(seen, own)
        drawn = [pair for of_rank in seen for pair in of_rank]
        assert len(drawn) == number
        for i, (name, share) in enumerate(shares.items()):
            assert abs(sum(source == i for _, source in drawn) - number * share) < 1
            counts = np.unique([graph for graph, source in drawn if source == i], return_counts=True)[1]
            assert counts.max() <= np.ceil(number * share / len(sources[name]))


def main() -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    def done(what: str) -> None:
        dist.barrier()
        if rank == 0:
            print("ok:", what, flush=True)

    for packs_per_batch, in_two_shapes in ((1, False), (2, True)):
        gradients_are_those_of_one_process(rank, ranks, packs_per_batch, in_two_shapes)
        done(f"gradients with {packs_per_batch} packs a batch{', in two shapes' if in_two_shapes else ''}")
    compiled_steps_share_gradients(rank, ranks)
    done("compiled steps")
    a_mean_over_nothing_is_zero(rank, ranks)
    groups_average_by_themselves(rank, ranks)
    done("a mean over nothing")
    ranks_compare_what_they_hold(rank, ranks)
    done("ranks compare")
    exact_batches_are_divided(rank, ranks)
    done("exact batches")
    a_rank_that_fails_ends_all(rank, ranks)
    done("a failing rank")
    streams_end_together(rank, ranks)
    streams_fail_together(rank, ranks)
    groups_step_by_themselves(rank, ranks)
    done("streams")
    packed_datasets_have_packs_of_their_own(rank, ranks)
    done("packed datasets")
    predictions_of_all_ranks(rank, ranks)
    done("predictions")
    models_that_pad_inside_share_gradients(rank, ranks)
    done("models that pad inside")
    mixtures_are_shared(rank, ranks)
    done("mixtures")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
