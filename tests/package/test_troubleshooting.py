"""The wrong number and the right one, for sections of docs/troubleshooting.md that no other test compares."""

from __future__ import annotations

from typing import Any

import dgl
import dgl.nn
import pytest
import torch
from torch import Tensor, nn

import dgl_tuplepack as tp

NAN = float("nan")
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def graph_of(nodes: int) -> Any:
    """A ring in both directions; its feature is the number of its nodes."""
    ends = torch.arange(nodes)
    made = dgl.graph((torch.cat([ends, (ends + 1) % nodes]), torch.cat([(ends + 1) % nodes, ends])))
    made.ndata["x"] = torch.full((nodes, 1), float(nodes), dtype=torch.float64)
    made.ndata["pos"] = torch.stack([ends.double(), ends.double() ** 2], dim=1)
    return made


# Small graphs have the label 0 and large graphs have the label 1.
SIZES = [3] * 40 + [20] * 8
DATASET = [(graph_of(nodes), torch.tensor([float(nodes > 3)], dtype=torch.float64)) for nodes in SIZES]
LIMITS = tp.Limits(nodes=24, edges=48)
LABELS = torch.stack([label for _, label in DATASET])


def batch_of(items: list[Any] = DATASET[:3], **settings: Any) -> tp.PaddedBatch:
    return tp.PaddedCollate(tp.Limits(nodes=24, edges=60, graphs=5), items[0], **settings)(items)


class WithPenalty(nn.Module):
    """A model that returns a penalty over all rows, or the rows."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.inside, self.head = inside, nn.Linear(1, 1).double()

    def forward(self, graph: Any) -> tuple[Tensor, Tensor]:
        h = self.head(graph.ndata["x"])
        with graph.local_scope():
            graph.ndata["h"] = h
            return dgl.sum_nodes(graph, "h"), h.square().mean() if self.inside else h


def test_a_penalty_over_all_rows_is_an_error_of_the_first_call_and_right_outside_of_the_model() -> None:
    items = [(graph_of(3 + i % 3), torch.ones(1)) for i in range(40)]
    loader = tp.packed_loader(items, batch_size=8)
    batch, _ = next(iter(loader))
    with pytest.raises(tp.errors.CompileError, match="other results with padding"):
        tp.compile(WithPenalty(inside=True), loader, backend="eager")(batch)
    model = WithPenalty(inside=False)
    expected = model(batch)[1].square().mean()
    found = tp.compile(model, loader, backend="eager")(batch)[1].square().mean()
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.filterwarnings("ignore:.*(are|is) dropped:UserWarning", "ignore:.*more slots than a mean:UserWarning")
def test_limits_leave_out_graphs_for_which_the_shape_is_too_large() -> None:
    items = [*DATASET, (graph_of(200), torch.ones(1, dtype=torch.float64))]
    with pytest.warns(UserWarning, match="more slots than a mean batch"):
        tp.packed_loader(items, batch_size=8)
    loader = tp.packed_loader(items, batch_size=8, limits=tp.Limits(nodes=60, edges=120), oversize="drop")
    assert sum(graph.batch_size for graph, _ in loader) == len(DATASET)


def test_a_mean_over_nodes_divides_by_the_mean_number_of_nodes() -> None:
    loader = tp.packed_loader(DATASET, limits=tp.Limits(nodes=24, edges=48, graphs=3))
    mean_nodes = tp.sizes_of(DATASET).array[:, 0].mean()
    true_mean = torch.cat([graph.ndata["x"] for graph, _ in DATASET]).mean()
    wrong, right = [], []
    for batch in loader:
        x, mask = batch.node_features["x"], batch.node_mask
        wrong.append(tp.nn.masked_mean(x, mask))
        right.append(tp.nn.masked_mean(x, mask, count=loader.graphs_per_batch * mean_nodes))
    assert torch.stack(wrong).mean() < 0.8 * true_mean
    torch.testing.assert_close(torch.stack(right).mean(), true_mean, **CLOSE)


def test_a_loss_without_padding_is_biased_too_if_each_batch_has_its_own_mean() -> None:
    loader = tp.packed_loader(DATASET, limits=LIMITS, padded=False)
    labels = [labels for _, labels in loader]
    assert torch.stack([each.mean() for each in labels]).mean() > 1.5 * LABELS.mean()
    right = torch.stack([each.sum() / loader.graphs_per_batch for each in labels]).mean()
    torch.testing.assert_close(right, LABELS.mean(), **CLOSE)


def test_a_loss_without_count_is_biased_towards_large_graphs() -> None:
    loader = tp.packed_loader(DATASET, limits=LIMITS)
    batches = list(loader)
    true_mean = LABELS.mean()
    biased = torch.stack([tp.nn.masked_mean(b.labels, b.graph_mask) for b in batches]).mean()
    right = torch.stack([tp.nn.masked_mean(b.labels, b.graph_mask, count=loader.graphs_per_batch) for b in batches])
    assert biased > 1.5 * true_mean
    torch.testing.assert_close(right.mean(), true_mean, **CLOSE)


def test_the_loss_of_the_last_step_is_lower_than_the_mean_over_the_steps() -> None:
    items = [(graph, torch.ones(1, dtype=torch.float64)) for graph, _ in DATASET]
    loader = tp.packed_loader(items, limits=LIMITS, packs_per_batch=5)
    count = loader.graphs_per_batch
    losses = [tp.nn.masked_mean(batch.labels, batch.graph_mask, count=count) for batch in loader]
    assert loader.plan.num_packs % 5
    assert losses[-1] < 0.8
    torch.testing.assert_close(torch.stack(losses).mean(), torch.ones((), dtype=torch.float64), **CLOSE)


def test_missing_labels_make_gradients_nan_unless_they_are_replaced_before_the_loss() -> None:
    batch = batch_of([(graph_of(3), torch.tensor([label])) for label in (1.0, NAN, 0.0)])
    loss_fn, out = nn.MSELoss(reduction="none"), torch.full((6, 1), 0.5, requires_grad=True)
    there = batch.graph_mask[:, None] & ~batch.labels.isnan()
    (wrong,) = torch.autograd.grad(tp.nn.masked_mean(loss_fn(out, batch.labels), there), out)
    (right,) = torch.autograd.grad(tp.nn.masked_loss(loss_fn, out, batch.labels, batch), out)
    assert wrong.isnan().any()
    assert right.flatten().tolist() == [-0.5, 0, 0.5, 0, 0, 0]


def test_distances_of_padding_make_gradients_nan_unless_coordinates_are_named() -> None:
    def gradient(batch: tp.PaddedBatch) -> Tensor:
        weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
        at = batch.node_features["pos"] * weight
        inverse = 1 / (at[batch.src] - at[batch.dst]).norm(dim=1)
        (found,) = torch.autograd.grad(tp.nn.masked_mean(inverse, batch.edge_mask), weight)
        return found

    joined = dgl.batch([graph for graph, _ in DATASET[:3]])
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
    src, dst = (joined.ndata["pos"][ends] * weight for ends in joined.edges())
    (expected,) = torch.autograd.grad((1 / (src - dst).norm(dim=1)).mean(), weight)
    assert gradient(batch_of()).isnan().all()
    torch.testing.assert_close(gradient(batch_of(coordinates=("pos",))), expected, **CLOSE)


def test_empty_graph_slots_make_gradients_nan_unless_divisors_are_positive() -> None:
    """Both are divisions by 0 in slots without a graph: by the number of nodes, and by the volume of a cell."""
    items = [(graph, {"y": label, "cell": torch.eye(2).double() * 2}) for graph, label in DATASET[:3]]
    weight = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)

    def gradient(batch: tp.PaddedBatch, number: Tensor, cell: Tensor) -> Tensor:
        sums = torch.zeros(6, 1).double().index_add(0, batch.node_graph_slots, batch.node_features["x"])
        out = sums * weight / number[:, None] / torch.linalg.det(cell)[:, None]
        loss = tp.nn.masked_loss(nn.MSELoss(reduction="none"), out, batch.labels["y"], batch)
        return torch.autograd.grad(loss, weight)[0]

    plain, filled = batch_of(items), batch_of(items, label_fill={"cell": torch.eye(2)})
    number = plain.nodes_per_graph
    for batch, divisor in ((plain, number.clamp(min=1)), (filled, number)):
        with pytest.warns(UserWarning, match="Empty graph slots .* label_fill="):
            assert gradient(batch, divisor, batch.labels["cell"]).isnan()
    # Each graph has 3 nodes, whose feature is 3, the label 0 and a cell of volume 4.
    assert gradient(filled, number.clamp(min=1), filled.labels["cell"]).item() == 2 * (3 / 4) ** 2
