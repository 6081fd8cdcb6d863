"""Collect the outputs of a model for all graphs of a split, in the order of the split's ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.checks import as_integer, as_integers, shown, true_or_false
from dgl_tuplepack.batches.output_rows import GRAPHS, OutputRows, output_rows
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.sampling.ranks import gathered_objects, in_process_group

_MAX_LISTED = 10


class Predictions:
    """Outputs of a model, collected batch by batch and returned in the order of the expected ids.

    Batches may come in any order, padded or not. Padding is left out, and each graph must come exactly once.

    Parameters
    ----------
    ids
        The expected ids, each once, such as the ids of a split; or the number N of graphs, if the ids are 0..N-1.
    of
        What a row of the outputs belongs to. "graphs": to a graph. "nodes" or "edges", or for heterographs a component
        such as "nodes:user": to a node or edge; `result` then returns one tensor for each graph.

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

    def __init__(self, ids: int | Sequence[int] | IntArray | Tensor, of: str = GRAPHS) -> None:
        number = as_integer(ids)
        self.ids: IntArray = np.arange(max(number, 0)) if number is not None else np.array(as_integers(ids), np.int64)
        self.of = of
        if not len(self.ids) or self.ids.min() < 0:
            raise InputError(
                f"ids must be a number of graphs >= 1, or a non-empty list of ids >= 0, but are {shown(ids)}."
            )
        if len(repeated := _repeated(self.ids)):
            raise InputError(f"ids repeats {_listed(repeated)}; give each id once.")
        # For each batch: the ids of its graphs, padding included, and the number of real graphs. `result` cuts off the
        # padding, since this would take longer in `add`, between two steps of a model.
        self._ids: list[tuple[Tensor, int]] = []
        # For each batch, if rows are nodes or edges: the number of rows of each real graph.
        self._counts: list[Tensor] = []
        # Name ("" for a single tensor) -> (outputs, number of real rows) of each batch.
        self._outputs: dict[str, list[tuple[Tensor, int]]] = {}

    def add(self, batch: Any, outputs: Tensor | Mapping[str, Tensor]) -> None:
        """Add the outputs of a batch.

        Parameters
        ----------
        batch
            A `PaddedBatch` or its `tensors`; a PyG batch with `graph_ids`, such as ``batch.pyg``; ``(graph, labels,
            ids)`` of a loader with ``with_ids=True``; or only the ids, if each graph has one row.
        outputs
            Tensor with a row for each slot, ``[G, ...]``, or with a row for each real graph (node, edge),
            ``[n, ...]``; or a dict from names to such tensors. Numpy arrays work too. The outputs are copied without
            gradients; the copies stay on the same device.

        Raises
        ------
        InputError
            The batch has no ids; the outputs have a wrong number of rows; or they differ from earlier outputs in names,
            in dtype or in the shape of a row.
        """
        # `rows.counts`: the number of rows of each real graph; None if each graph is one row.
        rows = output_rows(batch, self.of)
        named = {"": outputs} if isinstance(outputs, Tensor) or not isinstance(outputs, Mapping) else outputs
        real_rows = rows.num_real_graphs if rows.counts is None else int(rows.counts.sum())
        copies = {name: _copied(rows, real_rows, value, name) for name, value in named.items()}
        if self._ids:
            self._check_same(copies)
        self._ids.append((rows.ids.clone(), rows.num_real_graphs))
        if rows.counts is not None:
            self._counts.append(rows.counts.clone())
        for name, value in copies.items():
            self._outputs.setdefault(name, []).append((value, real_rows))

    def result(self, all_ranks: bool = False) -> Any:
        """Return the outputs in the order of `ids`, on the CPU.

        Parameters
        ----------
        all_ranks
            Whether to join the outputs of all ranks, if torch.distributed is initialised. Every rank must then call
            `result`, and gets the outputs of all ranks.

        Returns
        -------
        Tensor or list of Tensor, or a dict of these
            If rows belong to graphs: a tensor with a row for each id, ``[N, ...]``. If rows belong to nodes or edges: a
            list with one tensor for each id. If the outputs were dicts: a dict from names to such results.

        Raises
        ------
        InputError
            A graph is missing, was added twice or was not expected.
        """
        ids, counts = _joined(self._ids).numpy(), _joined([(counts, len(counts)) for counts in self._counts])
        outputs = {name: _joined(values) for name, values in self._outputs.items()}
        if true_or_false("all_ranks", all_ranks) and in_process_group():
            ids, counts, outputs = _of_all_ranks(ids, counts, outputs)
        order = self._order_of(ids)
        results: dict[str, Any] = {}
        for name, rows in outputs.items():
            if self.of == GRAPHS:
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
            before, _ = self._outputs[name][0]
            if (value.shape[1:], value.dtype) != (before.shape[1:], before.dtype):
                raise InputError(
                    f"rows of the outputs{f' {name!r}' if name else ''} are {value.dtype} {list(value.shape[1:])}, but "
                    f"earlier rows are {before.dtype} {list(before.shape[1:])}; use one dtype and shape in all batches."
                )

    def __repr__(self) -> str:
        return f"Predictions({sum(number for _, number in self._ids)} of {len(self.ids)} graphs, rows of {self.of})"


def _copied(rows: OutputRows, number: int, outputs: Any, name: str) -> Tensor:
    """Return a copy of the outputs whose first `number` rows are the real rows, in the order of the graphs."""
    if isinstance(outputs, np.ndarray):
        outputs = torch.from_numpy(outputs)
    if not isinstance(outputs, Tensor) or outputs.shape[:1] not in ((rows.slots,), (number,)):
        has = f"{len(outputs)} rows" if isinstance(outputs, Tensor) and outputs.dim() else shown(outputs)
        raise InputError(
            f"the outputs{f' {name!r}' if name else ''} are {has}, but the batch has {rows.slots} slots, {number} of "
            "them real; give a tensor with a row for each slot, or with a row for each real slot."
        )
    rows_of_model: Tensor = outputs.detach() if outputs.requires_grad else outputs
    if rows.order is None:
        return rows_of_model.clone()
    # These rows (edges, or nodes tied to edges) were sorted when the batch was made. Row i was row order[i] before.
    in_order = torch.empty_like(rows_of_model[:number])
    in_order[rows.order[:number].to(outputs.device)] = rows_of_model[:number]
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


def _joined(tensors: Sequence[tuple[Tensor, int]]) -> Tensor:
    """Join the first rows of each tensor, on the CPU. `tensors` has pairs (tensor, number of its rows to join)."""
    parts = [tensor[:number] for tensor, number in tensors]
    return torch.cat(parts).cpu() if parts else torch.empty(0, dtype=torch.int64)


def _repeated(ids: IntArray) -> IntArray:
    values, counts = np.unique(ids, return_counts=True)
    return values[counts > 1]


def _listed(ids: IntArray) -> str:
    more = f" and {len(ids) - _MAX_LISTED} more" if len(ids) > _MAX_LISTED else ""
    return ", ".join(map(str, ids[:_MAX_LISTED].tolist())) + more
