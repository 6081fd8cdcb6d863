"""Batches of every kind with given numbers of nodes, and attention inside their graphs by a loop."""

from __future__ import annotations

from typing import Any

import dgl
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import dgl_tuplepack as tp
from tests.support.tensors import generator

import tests.support.pyg  # noqa: F401  # isort: skip
from torch_geometric.data import Batch, Data  # isort: skip

WIDTH, HEADS = 4, 2
COUNTS = st.lists(st.integers(0, 6), min_size=1, max_size=6)
BATCHES = ("index", "dgl", "TensorGraph", "pyg", "padded", "tensors", "padded pyg")


def features(number: int, seed: int = 0, width: int = 3 * WIDTH) -> Tensor:
    return torch.randn(number, width, generator=generator(seed), dtype=torch.float64)


def graph_of(number: int) -> Any:
    return dgl.graph(([], []), num_nodes=number)


def data_of(number: int) -> Any:
    return Data(x=features(number, number), edge_index=torch.zeros(2, 0, dtype=torch.long), y=torch.ones(1))


def batch_of(kind: str, counts: list[int]) -> tuple[Any, dict[str, int], int]:
    """A batch of graphs with these numbers of nodes, more arguments, and the number of rows."""
    number = sum(counts)
    if kind == "index":
        index = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        return index, {"num_graphs": len(counts)}, number
    if kind == "dgl":
        return dgl.batch([graph_of(n) for n in counts]), {}, number
    if kind == "TensorGraph":
        none = torch.zeros(0, dtype=torch.long)
        made = tp.TensorGraph(
            none, none, number, batch_num_nodes=torch.tensor(counts), batch_num_edges=none.new_zeros(len(counts))
        )
        return made, {}, number
    if kind == "pyg":
        return Batch.from_data_list([data_of(n) for n in counts]), {}, number
    # The padding graph has more nodes than any real graph.
    limits = tp.Limits(number + 9, 5, graphs=len(counts) + 1)
    items = [data_of(n) if kind == "padded pyg" else graph_of(n) for n in counts]
    batch = tp.PaddedCollate(limits, items[0])(items)
    view = batch.pyg if kind == "padded pyg" else batch.tensors if kind == "tensors" else batch
    return view, {}, len(batch.node_mask)


def attended(qkv: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Attention among rows ``[..., L, 3 * WIDTH]``."""
    q, k, v = qkv.unflatten(-1, (3, HEADS, -1)).movedim(-3, 0).transpose(-3, -2)
    return scaled_dot_product_attention(q, k, v, attn_mask).transpose(-3, -2).flatten(-2)


def looped(qkv: Tensor, counts: list[int]) -> Tensor:
    """Attention inside each graph, one by one; other rows get 0."""
    found = [attended(each) for each in qkv[: sum(counts)].split(counts) if len(each)]
    return torch.cat([qkv[:0, :WIDTH], *found, qkv.new_zeros(len(qkv) - sum(counts), WIDTH)])
