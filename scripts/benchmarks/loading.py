"""Measure the speed of loaders."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.tables import JsonOption, show, write_json
from dgl_tuplepack import GraphSizes, GraphStore, Limits, PackBatchSampler, PaddedCollate, load_example
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, GraphBlock
from dgl_tuplepack.graphs.readers.source import Source

app = typer.Typer()

BATCH_SIZES = (32, 128, 512)
# For packs as a dataset: limits and packs per batch.
PACK_LIMITS, PACKS = Limits(nodes=222, edges=502), (1, 4, 16)

SourceOption = Annotated[
    Path | None, typer.Option(help="OGB folder of ogbg-molhiv; default: random graphs with its sizes.")
]


def synthetic_blocks(number: int, seed: int = 0) -> Iterator[GraphBlock]:
    """Yield random graphs with molhiv's sizes and OGB's features: int64, 9 per node and 3 per edge, and one label."""
    histogram, generator = load_example("ogbg-molhiv"), np.random.default_rng(seed)
    shares = histogram.counts / histogram.num_graphs
    for first in range(0, number, 4096):
        sizes = histogram.sizes[generator.choice(len(histogram), min(4096, number - first), p=shares)]
        nodes, edges = np.ascontiguousarray(sizes[:, 0]), np.ascontiguousarray(sizes[:, 1])
        most = np.repeat(nodes, edges)
        yield GraphBlock(
            {NODE_TYPE: nodes, EDGE_TYPE: edges},
            {EDGE_TYPE: (generator.integers(0, most), generator.integers(0, most))},
            {
                NODE_TYPE: {"feat": generator.integers(0, 119, (int(nodes.sum()), 9))},
                EDGE_TYPE: {"feat": generator.integers(0, 5, (int(edges.sum()), 3))},
            },
            {"": generator.integers(0, 2, (len(nodes), 1))},
        )


class Blocks(Source):
    """A source of synthetic blocks, written to a store like an OGB folder."""

    knows_sizes = True

    def __init__(self, number: int) -> None:
        super().__init__("synthetic graphs")
        self.number = number

    def sizes(self, cache: Path | None = None) -> GraphSizes:
        """Return the sizes of the blocks."""
        rows = [np.stack([b.num_nodes[NODE_TYPE], b.num_edges[EDGE_TYPE]], axis=1) for b in self.blocks()]
        return GraphSizes(np.concatenate(rows))

    def num_graphs(self) -> int:
        """Return the number of graphs."""
        return self.number

    def splits(self) -> dict[str, Any]:
        """Return one split of all graphs."""
        return {"train": np.arange(self.number)}

    def blocks(self) -> Iterator[GraphBlock]:
        """Return the blocks."""
        return synthetic_blocks(self.number)


@app.command()
def loading(
    source: SourceOption = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with all ways; results are medians.")] = 7,
    graphs: Annotated[int | None, typer.Option(min=512, help="Number of training graphs; default: all.")] = None,
    json_path: JsonOption = None,
) -> None:
    """Measure graphs per second of every way to load batches of 32, 128 and 512 graphs, in one process and one run.

    A round is an epoch: every graph once, in the same random batches for all ways. As in training, graphs then come
    from main memory if they exceed the caches. A second table measures packs as a dataset.
    """
    import torch

    torch.set_num_threads(1)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        stores = {
            compact: GraphStore.write(f"{folder}/{compact}", source or Blocks(32_901), compact=compact)
            for compact in (False, True)
        }
        trains = {compact: store.subset(store.splits["train"][:graphs]) for compact, store in stores.items()}
        items = list(trains[False])
        for batch_size in BATCH_SIZES:
            results += _rates(trains, items, batch_size, rounds)
        packs = [row for p in PACKS for row in _pack_rates(trains[False], items, p, rounds)]
    for result in results:
        result["times GraphDataLoader"] = result["graphs/s"] / next(
            r["graphs/s"] for r in results if r["graphs a batch"] == result["graphs a batch"]
        )
    where = "synthetic graphs" if source is None else source
    show(f"loading, {where}", results)
    show(f"packs of {PACK_LIMITS.nodes} nodes and {PACK_LIMITS.edges} edges, {where}", packs)
    write_json(json_path, results + packs)


def medians(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median CPU seconds of each way; each round measures all ways."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(rounds + 1):
        for name, way in ways.items():
            # CPU time, because every way runs in this thread and the machine may be busy.
            begin = time.process_time()
            way()
            # The first round only warms up.
            if round_:
                seconds[name].append(time.process_time() - begin)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def _pack_rates(train: GraphStore, items: Sequence[Any], packs_per_batch: int, rounds: int) -> list[dict[str, Any]]:
    """Return median speeds of packs as a dataset with DGL's collate, and of `PaddedCollate`, with labels and masks."""
    from dgl.dataloading import GraphDataLoader

    from dgl_tuplepack import PackedDataset, flatten_packs

    sampler = PackBatchSampler(train, PACK_LIMITS, packs_per_batch=packs_per_batch, content="fixed")
    collate = PaddedCollate(sampler.limits, items[0], packs_per_batch)
    packed = PackedDataset(train, PACK_LIMITS, multiple_of=packs_per_batch, content="fixed")
    collated = GraphDataLoader(items, batch_sampler=sampler, collate_fn=collate)
    batched = GraphDataLoader(packed, batch_size=packs_per_batch, shuffle=True)

    def by_collate() -> None:
        for batch in collated:
            batch.graph  # noqa: B018 (built on first access)

    def by_dataset() -> None:
        for graph, labels in batched:
            flatten_packs(graph, labels)

    taken = medians({"PaddedCollate": by_collate, "PackedDataset": by_dataset}, rounds)
    return [
        {
            "packs a batch": packs_per_batch,
            "way": name,
            "us a batch": 1e6 * seconds / len(sampler),
            "graphs/s": len(items) / seconds,
            "times PaddedCollate": taken["PaddedCollate"] / seconds,
        }
        for name, seconds in taken.items()
    ]


def _rates(trains: dict[bool, GraphStore], items: Sequence[Any], batch_size: int, rounds: int) -> list[dict[str, Any]]:
    """Return the median speed of every way at one batch size."""
    steps = len(items) // batch_size
    order = np.random.default_rng(batch_size).permutation(len(items))[: steps * batch_size]
    batches = order.reshape(steps, batch_size).tolist()
    sizes = trains[False].sizes
    most = np.max([sizes.take(ids).array.sum(axis=0) for ids in batches], axis=0)
    limits = Limits(int(most[0]), int(most[1]), batch_size)
    ways = dict(_ways(trains, items, batches, limits))
    taken_by_way = medians(ways, rounds)
    return [
        {
            "graphs a batch": batch_size,
            "way": name,
            "us a batch": 1e6 * taken / steps,
            "graphs/s": steps * batch_size / taken,
        }
        for name, taken in taken_by_way.items()
    ]


def _ways(
    trains: dict[bool, GraphStore], items: Sequence[Any], batches: list[list[int]], limits: Limits
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the name and loop of each way; the first one is the baseline."""
    import torch
    from dgl.dataloading import GraphDataLoader

    from dgl_tuplepack import GraphDataLoader as WholeLoader

    def through(loader: Any, view: str | None = None) -> Callable[[], None]:
        def loop() -> None:
            for batch in loader:
                if view is not None:
                    # Built on first access.
                    getattr(batch, view)

        return loop

    def ours(compact: bool = False, view: str | None = None, **settings: Any) -> Callable[[], None]:
        padded = trains[compact].padded(limits, **settings)
        return through(GraphDataLoader(padded, sampler=batches, batch_size=None), view)

    yield "GraphDataLoader + dgl.batch", through(GraphDataLoader(items, batch_sampler=batches))
    if find_spec("torch_geometric") is not None:
        from torch_geometric.loader import DataLoader

        yield "PyG DataLoader", through(DataLoader([as_pyg(*item) for item in items], batch_sampler=batches))
        yield "store, PyG batch", ours(view="pyg")
        yield "store, PyG batch, compact", ours(compact=True, view="pyg")
        plain = trains[False].batched(framework="pyg")
        yield "store, PyG batch without padding", through(GraphDataLoader(plain, sampler=batches, batch_size=None))
    for name, stored in (("store, without padding", False), ("store, without padding, compact", True)):
        yield name, through(GraphDataLoader(trains[stored].batched(), sampler=batches, batch_size=None))
    yield "store, tp.GraphDataLoader", through(WholeLoader(trains[False], batch_sampler=batches))
    yield "store, DGLGraph", ours(view="graph")
    yield "store, DGLGraph, compact", ours(compact=True, view="graph")
    yield "store, tensors", ours()
    yield "store, tensors, compact", ours(compact=True)
    yield "store, tensors, compact, as stored", ours(compact=True, as_stored=True)

    view = trains[False].padded(limits)
    ready = [view[ids] for ids in batches[:8]]

    def floor() -> None:
        for _, batch in zip(batches, itertools.cycle(ready), strict=False):
            batch._graph = None
            batch.graph  # noqa: B018

    yield "floor: the DGLGraph from existing tensors", floor

    # Copy the same number of bytes, from memory that is no longer in a cache.
    nbytes = view.shape.nbytes
    data, out = torch.ones(max(len(batches), 64) * nbytes, dtype=torch.uint8), torch.empty(nbytes, dtype=torch.uint8)

    def copies() -> None:
        for step in range(len(batches)):
            out.copy_(data[step * nbytes : (step + 1) * nbytes])

    yield "plain copy of the same number of bytes", copies


def as_pyg(graph: Any, label: Any) -> Any:
    """Return an item (DGLGraph, label) as a PyG `Data`; ``feat`` becomes ``x`` and ``edge_attr``."""
    import torch
    from torch_geometric.data import Data

    of_nodes = {"x" if name == "feat" else name: value for name, value in graph.ndata.items()}
    return Data(edge_index=torch.stack(graph.edges()), edge_attr=graph.edata["feat"], y=label.view(1, -1), **of_nodes)
