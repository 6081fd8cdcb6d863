"""Write any source as one large graph in several files: DGL's chunked graph format."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import as_path, choice, shown, true_or_false, whole_number
from dgl_tuplepack._core.files import write_text, writing
from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.errors import InputError, SizesError
from dgl_tuplepack.graphs.blocks import Array, GraphBlock
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.readers.chunked import FORMATS, METADATA, RECORD_KEY, SHAPE, ChunkedGraph
from dgl_tuplepack.graphs.readers.large_graph import GRAPH_ID, RECORD, GraphRecord, ends_in_large, text_of
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.graph_store import StoredGraphs
from dgl_tuplepack.storage.reader import as_store, chosen_block
from dgl_tuplepack.storage.write import fresh_data, plain_name

FEATURE_FORMATS = ("numpy", "parquet")
# Number of lines of a CSV file that are written at once.
_LINES = 1 << 16


def write_chunks(
    source: Any,
    folder: str | os.PathLike[str],
    chunks: int = 8,
    *,
    edges_as: str = "csv",
    features_as: str = "numpy",
    name: str = "graphs",
    overwrite: bool = False,
    levels: Levels | None = None,
) -> ChunkedGraph:
    """Write all graphs of a source as one large graph in DGL's chunked graph format.

    DGL's pipeline for distributed training reads the folder (user guide, chapter 7.1), and so does every function and
    command of this package that accepts a source of graphs. Graphs keep their order, and no graph is in two chunks.

    Parameters
    ----------
    source, levels
        As in `GraphStore.write`, but the items must not have named graphs.
    folder
        Folder to make, or an empty folder.
    chunks
        Number of chunks, >= 1, with about equal sums of nodes and edges; never more chunks than graphs.
    edges_as
        Format of the files of edges: "csv" (two numbers per line, separated by a space), "numpy" or "parquet".
    features_as
        "numpy" or "parquet", which needs pyarrow; complex features, and rows without values, are always numpy.
    name
        Name of the large graph.
    overwrite
        Whether to replace existing chunks. They stay valid until the new chunks are complete.

    Returns
    -------
    ChunkedGraph
        The chunks, opened.

    Raises
    ------
    FormatError
        The folder has other content or cannot be written, or a file of the source is damaged.
    SchemaError, SizesError
        Graphs differ in types or features, names cannot be written in this format, or there are no graphs.
    InputError
        Another argument has a wrong value.

    Notes
    -----
    The node data ``graph_id`` is the position of the node's graph in the source. Schema, labels and splits are in the
    file under the key ``dgl_tuplepack`` of ``metadata.json``. Memory holds one chunk at a time, and all labels.

    Examples
    --------
    >>> import dgl, tempfile
    >>> graphs = [dgl.graph(([0, 1], [1, 2])), dgl.graph(([0], [1]))]
    >>> write_chunks(graphs, tempfile.mkdtemp(), 2).sizes.array.tolist()
    [[3, 2], [2, 1]]
    """
    path, chunks = as_path(folder), whole_number("the number of chunks", chunks, 1, 2**20)
    edges_as = choice("edges_as", edges_as, FORMATS)
    features_as = choice("features_as", features_as, FEATURE_FORMATS)
    if not isinstance(name, str) or not name:
        raise InputError(f"the name of the graph is {shown(name)}; give a text that is not empty.")
    if "parquet" in (edges_as, features_as):
        load("pyarrow")
    with fresh_data(path, true_or_false("overwrite", overwrite), "chunks") as data:
        with as_store(source, data / "source", levels) as store, writing(path):
            content = _write(store, data, chunks, edges_as, features_as)
        write_text(path / METADATA, json.dumps({"graph_name": name, **content}, indent=1) + "\n")
    return ChunkedGraph(path)


def _write(store: StoredGraphs, data: Path, chunks: int, edges_as: str, features_as: str) -> dict[str, Any]:
    """Write all chunks into the folder `data`; return the content of ``metadata.json``, except the graph's name."""
    schema, sizes = store.schema, store.sizes.array
    types = [*schema.node_types, *map(text_of, schema.edge_types)]
    bounds = chunk_bounds(sizes.sum(axis=1), chunks)
    # Type -> number of nodes (edges) in each chunk; type -> first node (edge) of each graph in the large graph.
    counts = dict(zip(types, np.add.reduceat(sizes, bounds[:-1], axis=0).T.tolist(), strict=True))
    firsts = dict(zip(types, np.cumsum(sizes, axis=0).T - sizes.T, strict=True))
    formats = {"edges": edges_as, "node_data": features_as, "edge_data": features_as}
    # Content -> type (-> name of a feature) -> the description of the files; every chunk has the same arrays.
    described: dict[str, dict[str, Any]] = {content: {} for content in formats}
    labels: dict[str, list[Array]] = {label: [] for label in schema.labels}
    for chunk in progress_bar(range(len(bounds) - 1), desc="chunks", unit=" chunks"):
        # Positions in `store`, which may be a subset of a store.
        ids = np.arange(bounds[chunk], bounds[chunk + 1])
        block = chosen_block(store, store.ids_in_store(ids))
        arrays = _arrays(block, ids, {t: first[ids] for t, first in firsts.items()})
        for number, (content, keys, array) in enumerate(arrays):
            within, form = described[content], formats[content]
            if form == "parquet" and (array.dtype.kind == "c" or 0 in array.shape[1:]):
                # Parquet has no complex numbers, and no rows without values.
                form = "numpy"
            for key in keys[:-1]:
                within = within.setdefault(key, {})
            delimiter = {"delimiter": " "} if form == "csv" else {}
            description = within.setdefault(keys[-1], {"format": {"name": form, **delimiter}, "data": []})
            ending, write = _WRITERS[form]
            # Number the files: the names of two arrays may differ only in characters that file names cannot have.
            file = data / content / f"{number:02d}_{plain_name(keys) or 'all'}-{chunk}.{ending}"
            file.parent.mkdir(exist_ok=True)
            write(file, array)
            description["data"].append(f"{data.name}/{content}/{file.name}")
        for label, values in block.labels.items():
            labels[label].append(values)
    joined = {label: np.concatenate(values) for label, values in labels.items()}
    GraphRecord(schema, sizes, np.arange(len(store)), joined, store.splits).save(data / RECORD)
    return {
        "node_type": list(schema.node_types),
        "num_nodes_per_chunk": [counts[t] for t in schema.node_types],
        "edge_type": [text_of(e) for e in schema.edge_types],
        "num_edges_per_chunk": [counts[text_of(e)] for e in schema.edge_types],
        **described,
        RECORD_KEY: f"{data.name}/{RECORD}",
    }


def _arrays(block: GraphBlock, ids: IntArray, firsts: dict[str, IntArray]) -> Iterator[tuple[str, list[str], Array]]:
    """Yield the arrays of a chunk, each with its keys in ``metadata.json``: a content, and [type] or [type, name].

    `ids` are positions of the graphs in the source; ``firsts[t]`` has the first node of type t of each graph.
    """
    for e in block.endpoints:
        yield "edges", [text_of(e)], np.stack(ends_in_large(block, e, firsts), axis=1).astype(np.int64)
    for t, features in block.features.items():
        content, type_name = ("node_data", t) if isinstance(t, str) else ("edge_data", text_of(t))
        if isinstance(t, str):
            yield content, [t, GRAPH_ID], np.repeat(ids, block.lengths[t])
        yield from ((content, [type_name, name], values) for name, values in features.items())


def chunk_bounds(weights: IntArray, chunks: int) -> IntArray:
    """Return the first graph of each chunk, then the number of graphs; chunks have about equal total weights."""
    number = len(weights)
    chunks = min(chunks, number)
    if not chunks:
        raise SizesError("there are no graphs; at least one is needed.")
    # For each chunk except the first: the total weight that should precede the chunk, and its first graph.
    goals = np.arange(1, chunks) * (weights.sum() / chunks)
    inner = np.searchsorted(np.cumsum(weights), goals, side="left") + 1
    # Every chunk has a graph: chunk i begins at graph i or later, and leaves one graph for each later chunk.
    place = np.arange(1, chunks)
    inner = np.maximum.accumulate(np.maximum(inner, place) - place) + place
    return np.concatenate([[0], np.minimum(inner, number - chunks + place), [number]]).astype(np.int64)


def _write_csv(file: Path, array: Array) -> None:
    with open(file, "x", encoding="ascii") as opened:
        for first in range(0, len(array), _LINES):
            rows = array[first : first + _LINES]
            opened.write("%d %d\n" * len(rows) % tuple(rows.reshape(-1).tolist()))


def _write_parquet(file: Path, array: Array) -> None:
    pyarrow, parquet = load("pyarrow"), load("pyarrow.parquet")
    # With -1, `reshape` cannot infer the width of an empty array.
    columns = array.reshape(len(array), -1 if array.size else int(np.prod(array.shape[1:])))
    names = list(map(str, range(columns.shape[1])))
    table = pyarrow.table([pyarrow.array(np.ascontiguousarray(column)) for column in columns.T], names=names)
    parquet.write_table(table.replace_schema_metadata({SHAPE: str(tuple(array.shape)).encode()}), file)


# Format -> the ending of its files, and the function that writes one.
_WRITERS: dict[str, tuple[str, Callable[[Path, Array], None]]] = {
    "csv": ("csv", _write_csv),
    "numpy": ("npy", lambda file, array: np.save(file, array)),
    "parquet": ("parquet", _write_parquet),
}
