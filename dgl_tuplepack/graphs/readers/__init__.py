"""Sources of graphs and of their sizes."""

from dgl_tuplepack.graphs.items import Identified, Parts, WithIds, is_iterable, parts_of, with_ids
from dgl_tuplepack.graphs.readers.items import SizeReader
from dgl_tuplepack.graphs.readers.source import Source, paths, recognised, resolve
from dgl_tuplepack.graphs.readers.ogb_folder import OgbFolder
from dgl_tuplepack.graphs.readers.sizes_of import histogram_of, sizes_of

__all__ = [
    "Identified", "OgbFolder", "Parts", "SizeReader", "Source", "WithIds", "histogram_of",
    "is_iterable", "parts_of", "paths", "recognised", "resolve", "sizes_of", "with_ids",
]  # fmt: skip
