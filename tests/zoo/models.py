"""The models of the zoo, and the loss that a training script has for each kind of batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import dgl_tuplepack as tp
from tests.zoo import attention, convolutions, geometry, items, several


def losses_of(out: Tensor, graph: Any, labels: Tensor) -> list[Tensor]:
    """Binary cross-entropy of each graph."""
    return [binary_cross_entropy_with_logits(out, labels.to(out.dtype), reduction="none")]


def masks_of(batch: Any) -> list[Tensor]:
    """Masks of the rows of these losses."""
    return [batch.graph_mask]


@dataclass(frozen=True)
class Model:
    """A model in both frameworks, and what it needs beside a model of molecules.

    `dgl` and `pyg` are classes, which take a width, a number of layers and the categories of features; papers and
    baselines have `layers` of them. `item` maps a framework, a molecule and a label to an item of a dataset, `losses`
    outputs, graph and labels to losses by rows, and `masks` a padded batch to masks of these rows. `ties` and
    `compiling` have settings for each framework, `loading` has settings of `tp.packed_loader`. `positions`: whether
    items are made of positions. `most_nodes`: number of nodes of the largest graph that the model allows. `smallest`:
    test graphs in a nearly empty batch; torch's batch norm refuses a single row, and DGL's mean over a type is NaN if
    no graph of the batch has a node of it.
    """

    dgl: Callable[..., nn.Module]
    pyg: Callable[..., nn.Module]
    layers: int
    item: Callable[[str, Any, Tensor], Any] = items.as_it_is
    losses: Callable[[Any, Any, Tensor], list[Tensor]] = losses_of
    masks: Callable[[Any], list[Tensor]] = masks_of
    ties: Mapping[str, dict[str, str]] = field(default_factory=dict)
    loading: Mapping[str, Any] = field(default_factory=dict)
    compiling: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    positions: bool = False
    most_nodes: int | None = None
    smallest: tuple[int, ...] = (0,)

    def new(self, framework: str, *arguments: Any) -> nn.Module:
        """Return a new model of a width, a number of layers and categories."""
        return (self.dgl if framework == "dgl" else self.pyg)(*arguments)

    def loss_of_plain(self, framework: str, model: nn.Module, batch: Any, count: float | Tensor) -> Tensor:
        """Loss of a batch without padding: a pair of a graph and labels, or a Batch of PyG."""
        graph, labels = batch if framework == "dgl" else (batch, batch.y)
        first, *others = (each.sum() for each in self.losses(model(graph), graph, labels))
        return sum(others, start=first) / count

    def loss_of_padded(self, framework: str, model: nn.Module, batch: Any, count: float | Tensor) -> Tensor:
        """Loss of a padded batch: itself or its tensors with DGL, its `pyg` with PyG."""
        graph, labels = graph_of(framework, batch), batch.labels if framework == "dgl" else batch.y
        with tp.nn.masked(batch):
            out = model(graph)
        losses = zip(self.losses(out, graph, labels), self.masks(batch), strict=True)
        first, *others = (tp.nn.masked_mean(each, mask, count=count) for each, mask in losses)
        return sum(others, start=first)


def graph_of(framework: str, batch: Any) -> Any:
    """Return the argument of a model: the graph of a padded batch, its graphs by name, or the `pyg` that is given."""
    if framework == "pyg":
        return batch
    return batch.graphs if batch.graph_names else batch.graph


# Attention within graphs whose largest size is read from the batch, and pools without a size.
_BREAKS = {"pyg": {"fullgraph": False}}

MODELS = {
    "GIN-JK": Model(convolutions.DglGinJK, convolutions.PygGinJK, 5),
    "GIN-VN": Model(convolutions.DglGinVN, convolutions.PygGinVN, 5, smallest=(0, 1)),
    "GAT": Model(convolutions.DglGat, convolutions.PygGat, 4),
    "GatedGCN": Model(geometry.DglGatedGCN, geometry.PygGatedGCN, 4),
    "MPNN": Model(convolutions.DglMpnn, convolutions.PygMpnn, 3),
    "SchNet": Model(geometry.DglSchNet, geometry.PygSchNet, 3, loading={"coordinates": ("pos",)}, positions=True),
    "GraphSAGE": Model(convolutions.DglSage, convolutions.PygSage, 3),
    "DeeperGCN": Model(convolutions.DglDeeperGCN, convolutions.PygDeeperGCN, 7),
    "AttentiveFP": Model(attention.DglAttentiveFP, attention.PygAttentiveFP, 2, compiling=_BREAKS),
    "GraphGPS": Model(attention.DglGraphGPS, attention.PygGraphGPS, 5, compiling=_BREAKS, most_nodes=items.MOST_NODES),
    "R-GCN": Model(several.DglRGCN, several.PygRGCN, 3, items.typed, smallest=(0, 1)),
    "ALIGNN": Model(
        geometry.DglAlignn, geometry.PygAlignn, 3, items.with_line_graph,
        ties=geometry.TIES, positions=True, smallest=(0, 1, 2),
    ),
    "Graphormer": Model(
        attention.DglGraphormer, attention.PygGraphormer, 4, items.with_distances, most_nodes=items.MOST_NODES
    ),
    "Autoencoder": Model(
        several.DglAutoencoder, several.PygAutoencoder, 3, items.with_asked_pairs, several.losses_of, several.masks_of
    ),
}  # fmt: skip
