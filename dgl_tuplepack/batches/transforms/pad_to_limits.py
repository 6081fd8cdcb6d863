"""Pad a DGLGraph to a static shape, as a DGL transform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgl.transforms import BaseTransform

from dgl_tuplepack._core.checks import shown, true_or_false, whole_number
from dgl_tuplepack.batches.collate import padded_batch
from dgl_tuplepack.batches.shape import Coordinates, Fill, PaddedShape
from dgl_tuplepack.errors import LimitsError, SchemaError
from dgl_tuplepack.graphs.build import schema_of, tensors_of
from dgl_tuplepack.graphs.named import is_graph
from dgl_tuplepack.planning.limits import Limits, as_limits

if TYPE_CHECKING:
    from dgl import DGLGraph

_NODE_MASK, _EDGE_MASK = "node_mask", "edge_mask"


class PadToLimits(BaseTransform):  # type: ignore[misc]
    """Pad a DGLGraph, batched or not, to the slots of p packs.

    The result is a batched DGLGraph of static shape: the given graphs, then empty graphs, and the padding graph last,
    as in a `PaddedBatch`.

    Parameters
    ----------
    limits
        Limits of one pack, with a cap on graphs; for single graphs ``Limits(nodes=..., edges=..., graphs=1)``.
    packs_per_batch
        The number p of packs, >= 1.
    masks
        Write the features ``"node_mask"`` and ``"edge_mask"``, bool, True = real. Real graphs come first.
    feature_fill, cover_padding, coordinates, sort_edges
        As in `PaddedCollate`.

    Raises
    ------
    LimitsError, GraphTooLargeError, SchemaError
        As in `PaddedCollate`, mostly when a graph is padded; also if a graph has a feature with the name of a mask.

    Examples
    --------
    >>> import dgl
    >>> from dgl_tuplepack import Limits
    >>> transform = dgl.transforms.Compose([dgl.transforms.AddSelfLoop(), PadToLimits(Limits(4, 6, graphs=2))])
    >>> graph = transform(dgl.graph(([0, 1], [1, 2])))
    >>> graph.batch_num_nodes(), graph.batch_num_edges(), graph.ndata["node_mask"]
    (tensor([3, 0, 2]), tensor([5, 0, 1]), tensor([ True,  True,  True, False, False]))
    """

    def __init__(
        self,
        limits: Limits,
        packs_per_batch: int = 1,
        *,
        masks: bool = True,
        feature_fill: Fill = 0,
        cover_padding: bool = False,
        coordinates: Coordinates = (),
        sort_edges: bool = False,
    ) -> None:
        self.limits, self.masks = as_limits(limits), true_or_false("masks", masks)
        if self.limits.graphs is None:
            raise LimitsError(
                "PadToLimits needs a cap on graphs, but limits.graphs is None; give Limits(..., graphs=1)."
            )
        self.packs_per_batch = whole_number("packs_per_batch", packs_per_batch, 1, error=LimitsError)
        self.feature_fill, self.cover_padding = feature_fill, cover_padding
        self.coordinates, self.sort_edges = coordinates, sort_edges

    def __call__(self, graph: DGLGraph) -> DGLGraph:
        """Return the padded graph; the given graph is unchanged."""
        if not is_graph(graph):
            raise SchemaError(f"PadToLimits needs a DGLGraph, but got {shown(graph)}; give it only the graph.")
        if self.masks:
            _check_free(graph)
        schema = schema_of(graph)
        shape = PaddedShape(
            schema, self.limits, self.packs_per_batch, feature_fill=self.feature_fill, idtype=graph.idtype,
            cover_padding=self.cover_padding, coordinates=self.coordinates, sort_edges=self.sort_edges,
        )  # fmt: skip
        batch = padded_batch(shape, tensors_of(schema, graph, {}))
        if self.masks:
            for t, mask in batch.masks_by_type.items():
                batch.features_by_type[t][_NODE_MASK if isinstance(t, str) else _EDGE_MASK] = mask
        return batch.graph

    def __repr__(self) -> str:
        packs = "" if self.packs_per_batch == 1 else f", packs_per_batch={self.packs_per_batch}"
        return f"PadToLimits({self.limits!r}{packs})"


def _check_free(graph: Any) -> None:
    """Raise SchemaError if the graph already has a feature with the name of a mask."""
    taken = [_NODE_MASK for t in graph.ntypes if _NODE_MASK in graph.nodes[t].data]
    taken += [_EDGE_MASK for e in graph.canonical_etypes if _EDGE_MASK in graph.edges[e].data]
    if taken:
        raise SchemaError(
            f"the graph has a feature {taken[0]!r} already, which the mask would replace; pad a graph only once, or "
            "give masks=False."
        )
