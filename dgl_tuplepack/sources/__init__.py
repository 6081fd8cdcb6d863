"""Where graphs come from, and their sizes."""

from dgl_tuplepack.graphs.items import Identified, Parts, WithIds, is_iterable, parts_of, with_ids
from dgl_tuplepack.sources.ogb_folder import OgbFolder
from dgl_tuplepack.sources.sizes_of import SizeReader, graph_of, sizes_of

__all__ = [
    "Identified", "OgbFolder", "Parts", "SizeReader", "WithIds", "graph_of", "is_iterable", "parts_of", "sizes_of",
    "with_ids",
]  # fmt: skip
