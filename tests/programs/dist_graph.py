"""Train over a partition of one part by `DistGraph` in standalone mode, and over each of several by `load_partition`.

Run as ``python dist_graph.py FOLDER``; it prints the numbers of nodes that were trained on, and compares features.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["DGL_DIST_MODE"] = "standalone"

import dgl
import torch

import dgl_tuplepack as tp

LAYER = dgl.nn.SAGEConv(8, 1, "mean")
OPTIMISER = torch.optim.SGD(LAYER.parameters(), lr=0.01)
SAMPLER = dgl.dataloading.NeighborSampler([5])


def graphs() -> Iterator[Any]:
    """Random graphs with features and a mask."""
    torch.manual_seed(0)
    dgl.seed(0)
    for n in range(5, 65):
        graph = dgl.rand_graph(n, 3 * n)
        graph.ndata["x"] = torch.randn(n, 8)
        graph.ndata["train_mask"] = torch.rand(n) < 0.8
        yield graph, torch.tensor(float(n % 2))


def step(block: Any, features: torch.Tensor) -> None:
    """Train on one block."""
    loss = LAYER(block, features).square().mean()
    OPTIMISER.zero_grad()
    loss.backward()
    OPTIMISER.step()
    assert loss.isfinite()


def over_dist_graph(config: Path) -> int:
    """Train on the nodes of the mask, in random batches."""
    dgl.distributed.initialize("ip_config.txt")
    large = dgl.distributed.DistGraph(config.stem, part_config=str(config))
    nodes, seen = dgl.distributed.node_split(large.ndata["train_mask"]), 0
    loader = dgl.dataloading.DistNodeDataLoader(large, nodes, SAMPLER, batch_size=100, shuffle=True)
    for inputs, seeds, blocks in loader:
        step(blocks[0], large.ndata["x"][inputs])
        seen += len(seeds)
    _, features, *_ = dgl.distributed.load_partition(str(config), 0)
    assert torch.equal(features["_N/x"], large.ndata["x"][torch.arange(large.num_nodes())])
    return seen


def over_parts(config: Path, parts: int) -> int:
    """Train on the nodes of the mask of each part."""
    seen = 0
    for part in range(parts):
        graph, features, *_ = dgl.distributed.load_partition(str(config), part)
        nodes = features["_N/train_mask"].bool().nonzero().flatten()
        for inputs, seeds, blocks in dgl.dataloading.DataLoader(graph, nodes, SAMPLER, batch_size=100):
            step(blocks[0], features["_N/x"][inputs])
            seen += len(seeds)
    return seen


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    store = tp.GraphStore.write(folder / "store", graphs())
    one, several = (tp.partition(store, folder / str(parts), parts, workers=1).config for parts in (1, 3))
    expected = sum(int(graph.ndata["train_mask"].sum()) for graph, _ in graphs())
    print(expected, over_dist_graph(one), over_parts(several, 3))
