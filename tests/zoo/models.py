"""The models of the zoo by name and framework, and the loss that a training script has for each kind of batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import dgl_tuplepack as tp
from tests.zoo.gat import DglGat, PygGat
from tests.zoo.gated_gcn import DglGatedGCN, PygGatedGCN
from tests.zoo.gin_jk import DglGinJK, PygGinJK
from tests.zoo.gin_vn import DglGinVN, PygGinVN
from tests.zoo.mpnn import DglMpnn, PygMpnn
from tests.zoo.schnet import DglSchNet, PygSchNet

# Each takes a width, a number of layers and the categories of features.
MODELS: dict[str, dict[str, Callable[..., nn.Module]]] = {
    "GIN-JK": {"dgl": DglGinJK, "pyg": PygGinJK},
    "GIN-VN": {"dgl": DglGinVN, "pyg": PygGinVN},
    "GAT": {"dgl": DglGat, "pyg": PygGat},
    "GatedGCN": {"dgl": DglGatedGCN, "pyg": PygGatedGCN},
    "MPNN": {"dgl": DglMpnn, "pyg": PygMpnn},
    "SchNet": {"dgl": DglSchNet, "pyg": PygSchNet},
}


def losses_of(out: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of each graph."""
    return binary_cross_entropy_with_logits(out, labels.to(out.dtype), reduction="none")


def loss_of_plain(framework: str, model: nn.Module, batch: Any, count: float | Tensor) -> Tensor:
    """Loss of a batch without padding: a pair of a DGLGraph and labels, or a Batch of PyG."""
    graph, labels = batch if framework == "dgl" else (batch, batch.y)
    return losses_of(model(graph), labels).sum() / count


def loss_of_padded(framework: str, model: nn.Module, batch: Any, count: float | Tensor) -> Tensor:
    """Loss of a padded batch: itself or its tensors with DGL, its `pyg` with PyG."""
    with tp.nn.masked(batch):
        out = model(batch.graph if framework == "dgl" else batch)
    labels = batch.labels if framework == "dgl" else batch.y
    return tp.nn.masked_mean(losses_of(out, labels), batch.graph_mask, count=count)
