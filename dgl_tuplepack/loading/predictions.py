"""Collect the outputs of a model for all graphs of a split, in the order of its ids."""

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

# Maximum number of ids that a message lists.
_MAX_LISTED = 10


class Predictions:
    """Outputs of a model, collected batch by batch and returned in the order of the expected ids.

    Batches may come in any order, padded or not. Padding is left out, and each graph must come exactly once.

    Parameters
    ----------
    ids
        The expected ids, each once, such as the ids of a split; or the number N of all graphs, for 0..N-1.
    of
        "graphs": the outputs have a row for each graph. "nodes" or "edges", or for heterographs a component such as
        "nodes:user": they have a row for each node or edge, and are returned graph by graph.

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
        # Ids of each batch with the number of real graphs. Padding is cut off in `result`: slicing in `add`, between
        # two steps of a model, takes longer than copying the padding too.
        self._ids: list[tuple[Tensor, int]] = []
        # For each batch, if rows are nodes or edges: the number of rows of each graph.
        self._counts: list[Tensor] = []
        # Outputs of each batch and their number of real rows, by name; a single tensor has the empty name.
        self._outputs: dict[str, list[tuple[Tensor, int]]] = {}

    def add(self, batch: Any, outputs: Tensor | Mapping[str, Tensor]) -> None:
        """Add the outputs of a batch.

        Parameters
        ----------
        batch
            A `PaddedBatch` or its `tensors`; a PyG batch with `graph_ids`, such as ``batch.pyg``; ``(graph, labels,
            ids)`` of a loader with ``with_ids=True``; or only the ids, if each graph has one row.
        outputs
            A row for each slot, ``[G, ...]``, or for each real graph (node, edge), ``[n, ...]``; or a dict of such
            tensors by name. Numpy arrays work too. Outputs are copied, on their device and without gradients.

        Raises
        ------
        InputError
            The batch has no ids, or rows or names of the outputs do not fit.
        """
        # The ids of the graphs, and which rows of the outputs are real.
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
            Join the outputs of all ranks, if torch.distributed is initialised. Every rank must call this, and gets all
            outputs.

        Returns
        -------
        Tensor or list of Tensor, or a dict of these
            A row for each id, ``[N, ...]``; for nodes and edges a list of N tensors. A dict if the outputs were dicts.

        Raises
        ------
        InputError
            A graph is missing, was added twice or was not expected.
        """
        ids, counts = _joined(self._ids).numpy(), _joined([(counts, len(counts)) for counts in self._counts])
        outputs = {name: _joined(values) for name, values in self._outputs.items()}
        if true_or_false("all_ranks", all_ranks) and in_process_group():
            # (ids, counts, outputs) of each rank. Leave out ranks without batches, which have no outputs.
            of_ranks = [each for each in gathered_objects((ids, counts, outputs)) if each[2]]
            ids = np.concatenate([each[0] for each in of_ranks] or [ids])
            counts = torch.cat([each[1] for each in of_ranks] or [counts])
            names = of_ranks[0][2] if of_ranks else outputs
            outputs = {name: torch.cat([each[2][name] for each in of_ranks]) for name in names}
        order = self._order_of(ids)
        found: dict[str, Any] = {}
        for name, values in outputs.items():
            if self.of == GRAPHS:
                found[name] = values[order]
            else:
                of_graphs = torch.split(values, counts.tolist())
                found[name] = [of_graphs[i] for i in order]
        return found[""] if list(found) == [""] else found

    def _order_of(self, ids: IntArray) -> IntArray:
        """Return the position of each expected id in `ids`; InputError unless `ids` holds each exactly once."""
        # The i-th smallest id is at position by_id[i] of `ids`, and at position expected_by_id[i] of the expected ids.
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
            + ". Add each batch of one epoch once, to new Predictions. Ids are positions in what the loader was given; "
            "drop_last=True and oversize='drop' leave graphs out."
        )

    def _check_same(self, outputs: Mapping[str, Tensor]) -> None:
        """Raise InputError if outputs differ from earlier ones in their names or shapes."""
        if outputs.keys() != self._outputs.keys():
            raise InputError(
                f"outputs have the names {list(outputs)}, but earlier outputs have {list(self._outputs)}; give the "
                "same names."
            )
        for name, value in outputs.items():
            before, _ = self._outputs[name][0]
            if (value.shape[1:], value.dtype) != (before.shape[1:], before.dtype):
                raise InputError(
                    f"rows of the outputs{f' {name!r}' if name else ''} are {value.dtype} {list(value.shape[1:])}, but "
                    f"earlier rows are {before.dtype} {list(before.shape[1:])}; give the same in each batch."
                )

    def __repr__(self) -> str:
        return f"Predictions({sum(number for _, number in self._ids)} of {len(self.ids)} graphs, rows of {self.of})"


def _copied(rows: OutputRows, number: int, outputs: Any, name: str) -> Tensor:
    """Return a copy of the outputs with the `number` real rows first, in the order of the graphs.

    Raise InputError for a wrong number of rows.
    """
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
    # The batch has sorted these rows (edges, or nodes tied to edges): row i goes back to row order[i].
    in_order = torch.empty_like(rows_of_model[:number])
    in_order[rows.order[:number].to(outputs.device)] = rows_of_model[:number]
    return in_order


def _joined(tensors: Sequence[tuple[Tensor, int]]) -> Tensor:
    """Join the first rows of all tensors, on the CPU; each tensor comes with its number of rows to keep."""
    parts = [tensor[:number] for tensor, number in tensors]
    return torch.cat(parts).cpu() if parts else torch.empty(0, dtype=torch.int64)


def _repeated(ids: IntArray) -> IntArray:
    """Return the ids that occur more than once."""
    values, counts = np.unique(ids, return_counts=True)
    return values[counts > 1]


def _listed(ids: IntArray) -> str:
    more = f" and {len(ids) - _MAX_LISTED} more" if len(ids) > _MAX_LISTED else ""
    return ", ".join(map(str, ids[:_MAX_LISTED].tolist())) + more
