"""The graph slot of each node or edge of a batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.kernels.graph_slots import fill_graph_slots
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import GraphType


def slots_and_pointers(t: GraphType, counts: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Return the graph slot of each node or edge, ``[number]``, and the first node or edge of each graph slot.

    The second tensor is ``[G + 1]``. `counts` ``[G]`` has the number of nodes or edges of type `t` in each graph slot.
    Raise SchemaError if the counts do not add up to `number`; on a GPU and in compiled code, this is not checked.
    """
    if not counts.is_cpu or is_traced():
        all_slots = torch.arange(counts.shape[0], device=counts.device)
        slots = torch.repeat_interleave(all_slots, counts, output_size=number)
        return slots, torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    # The kernel takes a fraction of the time of torch's functions.
    of_rows, pointers = np.empty(number, np.int64), np.empty(len(counts) + 1, np.int64)
    if (filled := fill_graph_slots(counts.numpy(), of_rows, pointers)) != number:
        raise SchemaError(
            f"the counts of {t!r} in each graph slot were changed: they add up to {filled}, but the batch has {number} "
            f"slots; change a copy, {'nodes' if isinstance(t, str) else 'edges'}_per_graph.clone()."
        )
    return torch.from_numpy(of_rows), torch.from_numpy(pointers)
