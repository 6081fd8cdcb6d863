"""What counts padding of a PyG batch too: the wrong number and the right one (docs/reference/padded-layers.md)."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.nn import PNAConv
from torch_geometric.utils import negative_sampling

import dgl_tuplepack as tp


def graphs_of(sizes: list[int]) -> list[Data]:
    """Rings, whose nodes have one incoming edge each, and a label of 0 or 1."""
    rings = [torch.stack([torch.arange(n), (torch.arange(n) + 1) % n]) for n in sizes]
    return [
        Data(x=torch.rand(n, 2), edge_index=ring, y=torch.tensor([n % 2])) for n, ring in zip(sizes, rings, strict=True)
    ]


GRAPHS = graphs_of([3, 4, 5, 6, 7])
LIMITS = tp.Limits(nodes=40, edges=60, graphs=9)


def batch_of(graphs: list[Data]) -> Any:
    return tp.PaddedCollate(LIMITS, tp.with_ids(graphs)[0])([*map(tp.with_ids(graphs).__getitem__, range(5))])


def test_a_histogram_of_degrees_counts_padding_nodes() -> None:
    expected = PNAConv.get_degree_histogram(GRAPHS)
    assert expected.tolist() == [0, 25]
    assert PNAConv.get_degree_histogram([batch_of(GRAPHS).pyg]).tolist() != expected.tolist()
    plain = tp.packed_loader(GRAPHS, limits=LIMITS, padded=False, in_memory=True)
    assert PNAConv.get_degree_histogram(plain).tolist() == expected.tolist()


def test_negative_sampling_draws_pairs_of_padding_nodes() -> None:
    torch.manual_seed(0)
    data = batch_of(GRAPHS).pyg
    real = int(data.node_mask.sum())
    drawn = negative_sampling(data.edge_index, data.num_nodes, 200)
    assert (drawn >= real).any()
    kept = drawn[:, (drawn < real).all(dim=0)]
    assert kept.shape[1]
    assert not {*map(tuple, kept.T.tolist())} & {*map(tuple, data.edge_index.T.tolist())}
    for graph, sampled in zip(GRAPHS, data.to_data_list(), strict=True):
        of_one = negative_sampling(sampled.edge_index, sampled.num_nodes, 5)
        assert int(of_one.max()) < int(graph.num_nodes or 0)
