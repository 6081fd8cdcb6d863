"""Divide whole graphs into balanced parts, in the files that `dgl.distributed` opens."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import as_ids, as_path, true_or_false, whole_number
from dgl_tuplepack._core.files import JsonFormat, is_there, write_bytes, write_text
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, InputError, SizesError
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.readers.graph_record import text_of
from dgl_tuplepack.graphs.readers.partition import GRAPH_FILE
from dgl_tuplepack.planning.balance import MOST_PARTS, balanced_parts, imbalance_bound, imbalance_of, totals_of
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.storage.as_store import as_store
from dgl_tuplepack.storage.folder import LOCK, locked, writing_to
from dgl_tuplepack.storage.graph_store import StoredGraphs
from dgl_tuplepack.storage.partition_files import ASSIGNED, EDGE_FEATURES, NODE_FEATURES, PartTask, write_part
from dgl_tuplepack.storage.reader import chosen_block
from dgl_tuplepack.storage.shards.workers import number_of_processes, run_all, submitting

STATE, SOURCE = "partition.json", ".source"
_STATE_FILE = JsonFormat("dgl_tuplepack.partition", 1, "partition", "write the partition again (overwrite=True)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_GRAPHS = 4096


@dataclass(frozen=True)
class Partitioned:
    """Result of `partition`.

    Attributes
    ----------
    config
        The JSON file that `dgl.distributed.load_partition` and `DistGraph` open.
    imbalance
        The largest part divided by the mean of all parts, for each component: node types, edge types and `balance`.
    bound
        The smallest imbalance that any assignment of whole graphs could have.
    written, kept
        Numbers of the parts written in this run, and of the existing parts that were verified and kept.
    """

    config: Path
    imbalance: Mapping[str, float]
    bound: Mapping[str, float]
    written: tuple[int, ...]
    kept: tuple[int, ...]


def partition(
    source: Any,
    folder: str | os.PathLike[str],
    parts: int,
    *,
    balance: Sequence[str] = (),
    name: str = "graphs",
    overwrite: bool = False,
    seed: int = 0,
    workers: int | None = None,
    executor: Executor | None = None,
    levels: Levels | None = None,
) -> Partitioned:
    """Divide the graphs of a source into parts for `dgl.distributed`; no edge is cut.

    All parts have nearly equal numbers of nodes and edges of each type. `dgl.distributed.load_partition` opens each
    part, and `DistGraph` opens the whole. A folder such as ``out/part0`` is a source too.

    Parameters
    ----------
    source, levels
        As in `GraphStore.write`.
    folder
        Folder to make, an empty folder, or the folder of the same partition: a second run writes only missing and
        damaged parts. With several machines, all of them must see it.
    parts
        Number of parts, 1..2**20. If there are fewer graphs, some parts are empty.
    balance
        Further components to balance, such as ``["train"]`` or ``["train_mask"]``: a split, whose graphs count with
        all their nodes, or a bool or integer node feature, of which values other than 0 count.
    name
        Name of the large graph, and of the JSON file: letters, digits, "_", "." and "-".
    overwrite
        Write all parts again, and replace another partition in the folder.
    seed
        Seed of the search for balanced parts, 0..2**63-1.
    workers
        Processes of the pool; None: one for each core. 1: everything happens in this process. Each has one part in
        memory.
    executor
        Run the tasks on this executor instead, as in `preprocess_shards`.

    Returns
    -------
    Partitioned
        The JSON file, the imbalance, its bound, and the parts that were written.

    Raises
    ------
    FormatError
        The folder has other content or another partition, cannot be written, or a file of the source is damaged.
    ShardsError
        Parts could not be written; the message names each and the cause. The others are kept.
    SchemaError, SizesError
        Graphs differ in types or features, have names that DGL's files cannot hold, or there are no graphs; `balance`
        names neither a split nor such a feature.
    InputError
        Another argument is not allowed.

    Notes
    -----
    The files are those of `dgl.distributed.partition_graph`, with ``orig_nids.dgl`` and ``orig_eids.dgl`` in each part,
    a file such as ``_N.txt`` with the part of each node, and the records of this package. As in DGL, bool features are
    saved as uint8. A source other than a store is first written to a temporary store in the folder.

    Examples
    --------
    >>> import dgl, tempfile
    >>> graphs = [dgl.graph(([0, 1], [1, 2])), dgl.graph(([0], [1]))] * 2
    >>> done = partition(graphs, tempfile.mkdtemp(), 2, workers=1)
    >>> done.config.name, done.imbalance
    ('graphs.json', {'nodes': 1.0, 'edges': 1.0})
    """
    out, parts = as_path(folder).absolute(), whole_number("the number of parts", parts, 1, MOST_PARTS)
    overwrite, seed = true_or_false("overwrite", overwrite), whole_number("seed", seed, 0)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or f"{name}.json" == STATE:
        raise InputError(
            f"the name of the graph is {name!r:.100}; give letters, digits, '_', '.' and '-'; not 'partition'."
        )
    if isinstance(balance, str) or not all(isinstance(each, str) for each in balance):
        raise InputError(f"balance is {balance!r:.100}; give a list of names of splits or node features.")
    if executor is not None and workers is not None:
        raise InputError("workers are for a pool of processes; leave them out if an executor is given.")
    processes = min(number_of_processes(workers), parts)
    load("dgl")
    with locked(out, functools.partial(_check_folder, out)), as_store(source, out / SOURCE, levels) as store:
        sizes = _with_masks(store, balance)
        assigned = balanced_parts(sizes, parts, seed=seed)
        totals = totals_of(sizes.array, assigned, parts)
        run = _Run(store, out, name, assigned, totals)
        run.begin(sizes.components, overwrite)
        with submitting(processes, executor) as submit:
            done = run_all(submit, write_part, run.tasks(overwrite), "parts", "parts")
        config = run.finish()
    imbalance, bound = (
        dict(zip(sizes.components, values.tolist(), strict=True))
        for values in (imbalance_of(totals), imbalance_bound(sizes, parts))
    )
    written, kept = (tuple(i for i, new in enumerate(done.values()) if new == wanted) for wanted in (True, False))
    return Partitioned(config, imbalance, bound, written, kept)


def _with_masks(store: StoredGraphs, names: Sequence[str]) -> GraphSizes:
    """Return the sizes of the graphs, with a component for each mask."""
    sizes, schema = store.sizes, store.schema
    columns = {name: np.zeros(len(store), np.int64) for name in names}
    features: dict[str, list[str]] = {}
    for name, column in columns.items():
        found = [t for t, specs in schema.node_features.items() if name in specs]
        if found:
            specs = [schema.node_features[t][name] for t in found]
            if any(spec.shape or spec.dtype.is_floating_point or spec.dtype.is_complex for spec in specs):
                raise SizesError(f"the node feature {name!r:.100} is {specs[0]}; balance needs one bool for each node.")
            features[name] = found
        elif name in store.splits:
            chosen = as_ids(store.splits[name], len(store))
            column[chosen] = sizes.num_nodes[chosen]
        else:
            known = sorted({*store.splits, *(n for specs in schema.node_features.values() for n in specs)})
            raise SizesError(f"balance names {name!r:.100}, but there are only the splits and node features {known}.")
    for first in range(0, len(store) if features else 0, _GRAPHS):
        ids = np.arange(first, min(first + _GRAPHS, len(store)))
        block = chosen_block(store, store.ids_in_store(ids))
        for name, types in features.items():
            for t in types:
                graph = np.repeat(ids - first, block.num_nodes[t])
                marked = block.node_features[t][name] != 0
                columns[name][ids] += np.bincount(graph[marked], minlength=len(ids))
    taken = [name for name in columns if name in sizes.components]
    if taken:
        raise SizesError(f"balance names {taken[0]!r:.100}, which is always balanced; leave it out.")
    return GraphSizes(np.column_stack([sizes.array, *columns.values()]), (*sizes.components, *columns))


class _Run:
    """Write one partition: the record of the run first, then the parts, and last the JSON file of DGL."""

    def __init__(self, store: StoredGraphs, out: Path, name: str, assigned: IntArray, totals: IntArray) -> None:
        self._store, self._out, self._name, self._assigned = store, out, name, assigned
        # Nodes and edges of each type in each part, and the first node (edge) of each part and type.
        types = len(store.schema.node_types)
        self._numbers = totals[:, :types], totals[:, types : types + len(store.schema.edge_types)]
        content = [_content_of(store), hashlib.sha256(assigned.tobytes()).hexdigest(), len(totals)]
        self._identity = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        self._config = out / f"{name}.json"

    def begin(self, components: Sequence[str], overwrite: bool) -> None:
        """Check the folder for another partition, remove it if allowed, and write the files that parts need."""
        out, text_files = self._out, {f"{t}.txt": t for t in self._store.schema.node_types}
        content = {"identity": self._identity, "name": self._name, "parts": len(self._numbers[0])}
        content |= {"components": list(components), "files": [*text_files]}
        try:
            with _STATE_FILE.reading(out / STATE) as document:
                earlier = {key: document[key] for key in content}
        except FormatError:
            earlier = {}
        if earlier != content:
            if is_there(out / STATE) and not overwrite:
                raise FormatError(
                    f"{out} holds another partition ({earlier.get('parts', 'damaged')} parts, or other graphs or "
                    "settings); choose another folder, or overwrite it (overwrite=True, --overwrite)."
                )
            with writing_to(out):
                self._config.unlink(missing_ok=True)
                _remove(out, earlier, len(self._numbers[0]))
            _STATE_FILE.write(out / STATE, content, indent=1)
        with writing_to(out):
            for leftover in out.glob(".*.partial*"):
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            partial = out / f".{ASSIGNED}.partial"
            with open(partial, "wb") as file:
                np.save(file, self._assigned)
            os.replace(partial, out / ASSIGNED)

    def tasks(self, fresh: bool) -> dict[str, tuple[PartTask]]:
        """Return the task of each part by its name."""
        nodes, edges = (np.cumsum(numbers.sum(axis=1)) - numbers.sum(axis=1) for numbers in self._numbers)
        return {
            f"part{i}": (PartTask(self._store, self._out, i, int(node), int(edge), self._identity, fresh),)
            for i, (node, edge) in enumerate(zip(nodes, edges, strict=True))
        }

    def finish(self) -> Path:
        """Write the part of each node, and the JSON file, which completes the partition."""
        schema = self._store.schema
        lines = [f"{part}\n".encode() for part in range(len(self._numbers[0]))]
        for t, counts in zip(schema.node_types, self._store.sizes.array.T, strict=False):
            text = b"".join([lines[p] * n for p, n in zip(self._assigned.tolist(), counts.tolist(), strict=True)])
            write_bytes(self._out / f"{t}.txt", text)
        node_map, edge_map = (
            dict(zip(types, _ranges(numbers), strict=True))
            for types, numbers in zip((schema.node_types, map(text_of, schema.edge_types)), self._numbers, strict=True)
        )
        document: dict[str, Any] = {
            "graph_name": self._name,
            "num_nodes": int(self._numbers[0].sum()),
            "num_edges": int(self._numbers[1].sum()),
            "part_method": "dgl_tuplepack",
            "num_parts": len(lines),
            "halo_hops": 1,
            "node_map": node_map,
            "edge_map": edge_map,
            "ntypes": {t: i for i, t in enumerate(node_map)},
            "etypes": {e: i for i, e in enumerate(edge_map)},
        }
        files = {"node_feats": NODE_FEATURES, "edge_feats": EDGE_FEATURES, "part_graph": GRAPH_FILE}
        for i in range(len(lines)):
            document[f"part-{i}"] = {key: f"part{i}/{file}" for key, file in files.items()}
        write_text(self._config, json.dumps(document, indent=1) + "\n")
        return self._config


def _ranges(numbers: IntArray) -> list[list[list[int]]]:
    """Return the range ``[first, end]`` of each part for each type; ids run part by part, inside a part by type."""
    ends = np.cumsum(numbers).reshape(numbers.shape)
    ranges: list[list[list[int]]] = np.stack([ends - numbers, ends], axis=2).transpose(1, 0, 2).tolist()
    return ranges


def _content_of(store: StoredGraphs) -> list[Any]:
    """Return what identifies the graphs of a store, in whatever folder it lies."""
    arrays = [[[e.content, e.type, e.name, e.dtype, e.sha256] for e in part.metadata.arrays] for part in store.parts]
    return [arrays, None if store.chosen is None else hashlib.sha256(store.chosen.tobytes()).hexdigest()]


def _check_folder(out: Path) -> None:
    """Raise FormatError for a folder that contains something other than a partition, finished or not."""
    if not out.is_dir():
        if os.path.lexists(out):
            raise FormatError(f"{out} is not a folder; choose another path for the partition.")
        return
    names = sorted(os.listdir(out))
    others = [name for name in names if name not in (LOCK, SOURCE) and not name.startswith(f".{STATE}.")]
    if others and STATE not in names:
        raise FormatError(f"{out} holds other things, such as {others[0]}, but no partition; choose an empty folder.")


def _remove(out: Path, earlier: Mapping[str, Any], parts: int) -> None:
    """Remove an earlier partition, except for its first `parts` parts, which the new ones replace."""
    for file in [f"{earlier['name']}.json", *earlier["files"]] if earlier else []:
        (out / Path(file).name).unlink(missing_ok=True)
    for folder in out.glob("part*"):
        number = folder.name.removeprefix("part")
        if number.isdecimal() and int(number) >= parts:
            shutil.rmtree(folder)
