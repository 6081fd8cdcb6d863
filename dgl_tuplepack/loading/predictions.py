"""Collect the outputs of a model for all graphs of a split, in the order of the split's ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.checks import as_integer, as_integers, shown, true_or_false
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.tensors import BatchTensors
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.blocks import components_of
from dgl_tuplepack.graphs.named import is_graph, is_pyg
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.sampling.ranks import gathered_objects, in_process_group

_GRAPHS = "graphs"
_MAX_LISTED = 10


class Predictions:
    """Outputs of a model, collected batch by batch and returned in the order of the expected ids.

    Batches may come in any order, padded or not. Padding is left out, and each graph must come exactly once.

    Parameters
    ----------
    ids
        The expected ids, each once, such as the ids of a split; or the number N of graphs, if the ids are 0..N-1.
    of
        What a row of the outputs belongs to: "graphs", "nodes", "edges", or for heterographs a component such as
        "nodes:user". For nodes and edges, `result` returns one tensor for each graph.

    Raises
    ------
    InputError
        An id is negative or repeated, or there are no ids.

    Examples
    --------
    >>> import dgl, torch
    >>> import dgl_tuplepack as tp
    >>> dataset = [(dgl.rand_graph(n, 2 * n), torch.tensor(float(n))) for n in range(3, 43)]
    >>> loader = tp.packed_loader(dataset, graphs_per_batch=10)
    >>> predictions = tp.Predictions(len(dataset))
    >>> for batch in loader:
    ...     predictions.add(batch, batch.nodes_per_graph)
    >>> predictions.result()[:4]
    tensor([3, 4, 5, 6])
    """

    def __init__(self, ids: int | Sequence[int] | IntArray | Tensor, of: str = _GRAPHS) -> None:
        number = as_integer(ids)
        self.ids: IntArray = np.arange(max(number, 0)) if number is not None else np.array(as_integers(ids), np.int64)
        self.of = of
        if not len(self.ids) or self.ids.min() < 0:
            raise InputError(
                f"ids must be a number of graphs >= 1, or a non-empty list of ids >= 0, but are {shown(ids)}."
            )
        if len(repeated := _repeated(self.ids)):
            raise InputError(f"ids repeats {_listed(repeated)}; give each id once.")
        # For each batch: the ids of its real graphs, and if rows are nodes or edges, their number in each real graph.
        self._ids: list[Tensor] = []
        self._counts: list[Tensor] = []
        # Name ("" for a single tensor) -> the outputs of each batch, without padding.
        self._outputs: dict[str, list[Tensor]] = {}

    def add(self, batch: Any, outputs: Tensor | Mapping[str, Tensor]) -> None:
        """Add the outputs of a batch.

        Parameters
        ----------
        batch
            A `PaddedBatch` or its `tensors`; a PyG batch with `graph_ids`, such as ``batch.pyg``; ``(graph, labels,
            ids)`` of a loader with ``with_ids=True``; or only the ids, if each graph has one row.
        outputs
            Tensor or array with a row for each slot, ``[G, ...]``, or for each real graph (node, edge), ``[n, ...]``;
            or a dict from names to these. They are copied without gradients, on their device.

        Raises
        ------
        InputError
            The batch has no ids; or the outputs have a wrong number of rows, or other names, dtypes or shapes of a row
            than before.
        """
        rows = _rows_of(batch, self.of)
        by_name = {"": outputs} if isinstance(outputs, Tensor) or not isinstance(outputs, Mapping) else outputs
        number = len(rows.ids) if rows.counts is None else int(rows.counts.sum())
        copies = {name: _copied(rows, number, value, name) for name, value in by_name.items()}
        if self._ids:
            self._check_same(copies)
        self._ids.append(rows.ids.clone())
        if rows.counts is not None:
            self._counts.append(rows.counts.clone())
        for name, value in copies.items():
            self._outputs.setdefault(name, []).append(value)

    def result(self, all_ranks: bool = False) -> Any:
        """Return the outputs in the order of `ids`, on the CPU.

        Parameters
        ----------
        all_ranks
            Whether to join the outputs of all ranks, if torch.distributed is initialised; every rank must call it.

        Returns
        -------
        Tensor or list of Tensor, or a dict of these
            For graphs, a tensor with a row for each id, ``[N, ...]``; for nodes or edges, a list with a tensor for each
            id. If the outputs were dicts, a dict from names to such results.

        Raises
        ------
        InputError
            A graph is missing, was added twice or was not expected.
        """
        ids, counts = _joined(self._ids).numpy(), _joined(self._counts)
        outputs = {name: _joined(values) for name, values in self._outputs.items()}
        if true_or_false("all_ranks", all_ranks) and in_process_group():
            ids, counts, outputs = _of_all_ranks(ids, counts, outputs)
        order = self._order_of(ids)
        results: dict[str, Any] = {}
        for name, rows in outputs.items():
            if self.of == _GRAPHS:
                results[name] = rows[order]
            else:
                rows_of_graphs = torch.split(rows, counts.tolist())
                results[name] = [rows_of_graphs[i] for i in order]
        return results[""] if list(results) == [""] else results

    def _order_of(self, ids: IntArray) -> IntArray:
        """Return the position in `ids` of each expected id; raise InputError if `ids` and the expected ids differ."""
        by_id, expected_by_id = np.argsort(ids), np.argsort(self.ids)
        if np.array_equal(ids[by_id], self.ids[expected_by_id]):
            order = np.empty_like(by_id)
            order[expected_by_id] = by_id
            return order
        problems = {
            "were added more than once": _repeated(ids),
            "were not expected": np.setdiff1d(ids, self.ids),
            "are missing": np.setdiff1d(self.ids, ids),
        }
        raise InputError(
            "; ".join(f"graphs {_listed(wrong)} {what}" for what, wrong in problems.items() if len(wrong))
            + ". For each epoch, make new Predictions and add each batch once. Ids are positions in the source of the "
            "loader, even with splits=, so for one split, give Predictions the ids of that split. drop_last=True and "
            "oversize='drop' leave graphs out."
        )

    def _check_same(self, outputs: Mapping[str, Tensor]) -> None:
        """Raise InputError if outputs differ from earlier outputs in names, in dtype or in the shape of a row."""
        if outputs.keys() != self._outputs.keys():
            raise InputError(
                f"outputs have the names {list(outputs)}, but earlier outputs have {list(self._outputs)}; give the "
                "same names ('' stands for a single tensor)."
            )
        for name, value in outputs.items():
            before = self._outputs[name][0]
            if (value.shape[1:], value.dtype) != (before.shape[1:], before.dtype):
                raise InputError(
                    f"rows of the outputs{f' {name!r}' if name else ''} are {value.dtype} {list(value.shape[1:])}, but "
                    f"earlier rows are {before.dtype} {list(before.shape[1:])}; use one dtype and shape in all batches."
                )

    def __repr__(self) -> str:
        return f"Predictions({sum(map(len, self._ids))} of {len(self.ids)} graphs, rows of {self.of})"


class _OutputRows(NamedTuple):
    """The rows of one component of a batch that has `slots` rows, padding included."""

    # Integers: the ids of the n real graphs, ``[n]``.
    ids: Tensor
    slots: int
    # int64 ``[n]``, the number of rows of each real graph; None if each graph is one row.
    counts: Tensor | None = None
    # int64 ``[slots]``: the slot of each row before edges were sorted. None if these rows were not sorted.
    order: Tensor | None = None


def _rows_of(batch: Any, of: str) -> _OutputRows:
    """Return the rows of the component `of`; raise InputError if the batch has no ids or no such component.

    `batch` is as in `Predictions.add`.
    """
    nodes: Any
    edges: Any
    if isinstance(batch, PaddedBatch):
        nodes, edges = (
            {t: batch.per_graph_by_type[t] for t in types} for types in (batch.node_types, batch.edge_types)
        )
        return _rows(of, batch.graph_ids, batch.num_real_graphs, nodes, edges, batch, bool(batch.graph_names))
    if isinstance(batch, BatchTensors):
        if batch.row_pointers is not None and of != _GRAPHS:
            raise InputError(
                f"batch.tensors has no original order of {of} if edges are sorted; give the batch instead."
            )
        nodes, edges = batch.nodes_per_graph, batch.edges_per_graph
        if not isinstance(nodes, dict):
            nodes, edges = {"nodes": nodes}, {"edges": edges}
        number = int(batch.graph_mask.sum())
        return _rows(of, batch.graph_ids, number, nodes, edges, is_named=bool(batch.graph_names))
    if is_pyg(batch):
        ids = batch.get("graph_ids") if hasattr(batch, "get") else getattr(batch, "graph_ids", None)
        # Only a batch made by `PaddedBatch.pyg` or a store has an origin.
        origin = batch.__dict__.get("_origin")
        if origin is not None:
            types = origin.names.types
            nodes, edges = ({t: origin.counts[t] for t in each} for each in (types.nodes, types.edges))
            return _rows(of, ids, origin.num_real_graphs, nodes, edges, origin, origin.is_named)
        nodes, edges = ({}, {}) if of == _GRAPHS else _counts_of_pyg(batch)
        return _rows(of, ids, None, nodes, edges)
    if isinstance(batch, tuple | list) and batch and is_graph(batch[0]):
        # A pair (graph, labels) has no ids.
        graph, ids = batch[0], batch[-1] if len(batch) > 2 else None
        nodes = {t: graph.batch_num_nodes(t) for t in graph.ntypes}
        return _rows(of, ids, None, nodes, {e: graph.batch_num_edges(e) for e in graph.canonical_etypes})
    if of != _GRAPHS:
        raise InputError(f"rows of {of} need the batch, not only ids; give (graph, labels, ids), or the PaddedBatch.")
    ids = batch if isinstance(batch, Tensor) else torch.from_numpy(as_integers(batch).astype(np.int64))
    found = _rows(of, ids, None, {}, {})
    if (ids < 0).any():
        raise InputError("ids have -1, which marks padding; give the batch itself instead of its graph_ids.")
    return found


def _counts_of_pyg(batch: Any) -> tuple[dict[Any, Tensor], dict[Any, Tensor]]:
    """Return, by type, the nodes and the edges of each graph in a batch that PyG made."""

    def edges(node_storage: Any, edge_storage: Any) -> Tensor:
        # An edge belongs to the graph of its source node.
        graphs = len(node_storage.ptr) - 1
        return torch.bincount(node_storage.batch[edge_storage.edge_index[0]], minlength=graphs)

    if not hasattr(batch, "node_types"):
        return {"nodes": batch.ptr.diff()}, {"edges": edges(batch, batch)}
    nodes = {t: batch[t].ptr.diff() for t in batch.node_types}
    return nodes, {e: edges(batch[e[0]], batch[e]) for e in batch.edge_types}


def _rows(
    of: str, ids: Any, num_real_graphs: int | None, nodes: Mapping[Any, Any], edges: Mapping[Any, Any],
    content: Any = None, is_named: bool = False,
) -> _OutputRows:  # fmt: skip
    """Return the rows of the component `of`; `nodes` and `edges` have the number of each type in each graph slot.

    `num_real_graphs` is None if no graph is padding. If edges may be sorted, `content` has `edge_orders` and `ties`.
    """
    if not isinstance(ids, Tensor) or ids.dim() != 1 or ids.dtype not in (torch.int32, torch.int64):
        raise InputError(
            "the batch has no ids of its graphs. Padded batches of stores and of packed_loader have ids. For batches "
            "without padding, set with_ids=True; for PaddedCollate, use tp.with_ids(dataset). For graphs without "
            "labels, give (graph, None, ids)."
        )
    number = len(ids) if num_real_graphs is None else num_real_graphs
    if of == _GRAPHS:
        return _OutputRows(ids[:number], len(ids) if content is None else len(next(iter(nodes.values()))))
    names = components_of(tuple(nodes), tuple(edges), is_named)
    if of not in names:
        raise InputError(f"a batch has no rows of {shown(of)}; choose {' or '.join([_GRAPHS, *names])}.")
    # In the tensors of named graphs, a node type and an edge type may have the same key.
    t, counts_of_slots = (*nodes.items(), *edges.items())[names.index(of)]
    counts = torch.as_tensor(counts_of_slots)
    orders = getattr(content, "edge_orders", None) or {}
    # Nodes of type t that are tied to edges of type e are sorted like these edges.
    order = orders.get(t, orders.get(content.ties.get(t))) if orders else None
    return _OutputRows(ids[:number], int(counts.sum()), counts[:number], order)


def _copied(rows: _OutputRows, number: int, outputs: Any, name: str) -> Tensor:
    """Return a copy of the outputs of the `number` real rows, which come first, in the order of the graphs."""
    if isinstance(outputs, np.ndarray):
        outputs = torch.from_numpy(outputs)
    if not isinstance(outputs, Tensor) or outputs.shape[:1] not in ((rows.slots,), (number,)):
        has = f"{len(outputs)} rows" if isinstance(outputs, Tensor) and outputs.dim() else shown(outputs)
        raise InputError(
            f"the outputs{f' {name!r}' if name else ''} are {has}, but the batch has {rows.slots} slots, {number} of "
            "them real; give a tensor with a row for each slot, or with a row for each real slot."
        )
    real: Tensor = outputs.detach()[:number]
    if rows.order is None:
        return real.clone()
    # These rows (edges, or nodes tied to edges) were sorted when the batch was made. Row i was row order[i] before.
    in_order = torch.empty_like(real)
    in_order[rows.order[:number].to(outputs.device)] = real
    return in_order


def _of_all_ranks(
    ids: IntArray, counts: Tensor, outputs: dict[str, Tensor]
) -> tuple[IntArray, Tensor, dict[str, Tensor]]:
    """Join the ids, the counts of rows and the outputs of all ranks; every rank must call this function."""
    # Ranks without batches have no outputs.
    of_ranks = [rank for rank in gathered_objects((ids, counts, outputs)) if rank[-1]]
    if not of_ranks:
        return ids, counts, outputs
    ids_of_ranks, counts_of_ranks, outputs_of_ranks = zip(*of_ranks, strict=True)
    joined = {name: torch.cat([rank[name] for rank in outputs_of_ranks]) for name in outputs_of_ranks[0]}
    return np.concatenate(ids_of_ranks), torch.cat(counts_of_ranks), joined


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors along their rows, on the CPU."""
    return torch.cat([*tensors]).cpu() if tensors else torch.empty(0, dtype=torch.int64)


def _repeated(ids: IntArray) -> IntArray:
    values, counts = np.unique(ids, return_counts=True)
    return values[counts > 1]


def _listed(ids: IntArray) -> str:
    more = f" and {len(ids) - _MAX_LISTED} more" if len(ids) > _MAX_LISTED else ""
    return ", ".join(map(str, ids[:_MAX_LISTED].tolist())) + more
