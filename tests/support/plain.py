"""Random graphs as plain arrays, which a store is written from; nothing here needs DGL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from dgl_tuplepack import GraphSizes
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, GraphBlock
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_array
from tests.support.tensors import DTYPES, SHAPES, Spec, generator, random_tensor, specs

TYPES = ((NODE_TYPE,), (EDGE_TYPE,))
TWO_TYPES = (("user", "item"), (("user", "follows", "user"), ("user", "buys", "item")))


class Plain(Source):
    """Graphs of one block, as a source that `GraphStore.write` and `packed_loader` take."""

    def __init__(self, block: GraphBlock, schema: Schema | None = None) -> None:
        super().__init__("plain graphs")
        self.block, self.schema = block, schema

    def sizes(self, cache: Any = None) -> GraphSizes:
        """Return the sizes of the block."""
        return GraphSizes(np.stack([*self.block.lengths.values()], axis=1))

    def num_graphs(self) -> int:
        """Return the number of graphs."""
        return len(self.block)

    def blocks(self) -> Iterator[GraphBlock]:
        """Return the block."""
        return iter([self.block])


def plain_graphs(
    number: int,
    node_specs: Spec,
    edge_specs: Spec,
    label_specs: Spec,
    types: tuple[Any, Any] = TYPES,
    seed: int = 0,
    most: int = 7,
) -> Plain:
    """Random graphs of 1 to `most` nodes of each type, and up to twice as many edges, with the same features."""
    gen = generator(seed)
    node_types, edge_types = types
    nodes = {t: torch.randint(1, most + 1, (number,), generator=gen).numpy() for t in node_types}
    edges = {t: torch.randint(0, 2 * most + 1, (number,), generator=gen).numpy() for t in edge_types}

    def columns(specs: Spec, rows: int) -> dict[str, Any]:
        return {name: as_array(random_tensor(gen, (rows, *shape), dtype)) for name, (shape, dtype) in specs.items()}

    def ends(edge_type: Any, node_type: str) -> Any:
        draw = torch.rand(int(edges[edge_type].sum()), generator=gen, dtype=torch.float64).numpy()
        return (draw * np.repeat(nodes[node_type], edges[edge_type])).astype(np.int64)

    block = GraphBlock(
        {**nodes, **edges},
        {t: (ends(t, t[0]), ends(t, t[2])) for t in edge_types},
        {
            **{t: columns(node_specs, int(nodes[t].sum())) for t in node_types},
            **{t: columns(edge_specs, int(edges[t].sum())) for t in edge_types},
        },
        columns(label_specs, number),
    )

    def as_specs(given: Spec) -> dict[str, ArraySpec]:
        return {name: ArraySpec(shape, dtype) for name, (shape, dtype) in given.items()}

    schema = Schema(
        node_types,
        edge_types,
        {**dict.fromkeys(node_types, as_specs(node_specs)), **dict.fromkeys(edge_types, as_specs(edge_specs))},
        as_specs(label_specs),
        torch.int64,
        has_ids=True,
    )
    return Plain(block, schema)


@st.composite
def plain_sources(draw: st.DrawFn) -> Plain:
    """Graphs of one or two types, with features and labels of all dtypes."""
    label = draw(st.none() | st.tuples(st.sampled_from(SHAPES), st.sampled_from(DTYPES)))
    labels: Spec = {} if label is None else {draw(st.sampled_from(["", "y"])): label}
    return plain_graphs(
        draw(st.integers(1, 6)),
        draw(specs()),
        draw(specs()),
        labels,
        draw(st.sampled_from([TYPES, TWO_TYPES])),
        draw(st.integers(0, 2**31)),
    )
