"""Graphs in the batches of an epoch, and what each would weigh if every batch divided by its own number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._checks import as_array, shown
from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.sampler.dealing import NONE
from dgl_tuplepack.sampler.plans import Packs
from dgl_tuplepack.sizes import FloatArray, IntArray


@dataclass(frozen=True)
class Delivered:
    """What all ranks deliver in one epoch."""

    # What the batches are made of.
    packs: Packs
    # Graph in each slot of the packs, int64 [N].
    graphs: IntArray
    # Packs of each batch of each rank, int64 [S, R, p]; NONE where there is no pack.
    dealt: IntArray

    @property
    def graphs_in_batches(self) -> IntArray:
        """Graphs of each batch of each rank, int64 ``[S, R]``."""
        sizes = np.diff(self.packs.offsets)
        return np.asarray(np.where(self.dealt == NONE, 0, sizes[self.dealt]).sum(axis=2))

    def per_batch(self, values: NDArray[Any]) -> float:
        """Sum of a value of each graph, given for all graphs by their ids, over the batches of all steps and ranks."""
        delivered = np.zeros(self.packs.plan.num_packs, dtype=bool)
        delivered[self.dealt[self.dealt != NONE]] = True
        chosen = self.graphs[np.repeat(delivered, np.diff(self.packs.offsets))]
        return float(values[chosen].sum()) / self.graphs_in_batches.size

    def weights(self, number: int) -> FloatArray:
        """Weight of each of `number` graphs in the mean of all batches' means, 1 on average; 0 if not delivered."""
        in_batches = self.graphs_in_batches
        of_batches = in_batches.mean() / np.maximum(in_batches, 1)
        of_packs = np.zeros(self.packs.plan.num_packs)
        real = self.dealt != NONE
        of_packs[self.dealt[real]] = np.broadcast_to(of_batches[:, :, None], self.dealt.shape)[real]
        weights = np.zeros(number)
        weights[self.graphs] = np.repeat(of_packs, np.diff(self.packs.offsets))
        return weights


def labels_of_graphs(label_mask: Any, number: int) -> IntArray:
    """Labels of each graph, int64 ``[N]``, of a mask ``[N]`` or ``[N, T]`` of those that are there."""
    mask = as_array(label_mask, "label_mask", SamplerError)
    if mask.dtype != bool or mask.ndim not in (1, 2) or len(mask) != number:
        raise SamplerError(
            f"label_mask must be bool with shape [{number}] or [{number}, tasks], one row for each graph, but is "
            f"{shown(mask.dtype)} with shape {mask.shape}; give ~labels.isnan() of the whole dataset."
        )
    return np.asarray(mask.reshape(number, -1).sum(axis=1, dtype=np.int64))
