"""Random numbers of transforms. They depend only on seed, epoch and graph, not on the process that draws them."""

from __future__ import annotations

import contextlib
import pickle
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from dgl_tuplepack._core.checks import INT64_MAX, UINT64_MAX, whole_number
from dgl_tuplepack.errors import TransformError


def seed_generators(key: int) -> None:
    """Seed the global generators of torch, numpy and Python by a key in 0..2**64-1.

    Torch's generators are seeded one by one. `torch.manual_seed` would also set the seed of CUDA devices that are not
    in use yet.
    """
    for generator in _torch_generators():
        generator.manual_seed(key)
    np.random.seed([key & 0xFFFFFFFF, key >> 32])  # noqa: NPY002 - the generator that DGL draws from
    random.seed(key)


@contextlib.contextmanager
def kept_generators() -> Iterator[None]:
    """Restore the states of the global generators on exit."""
    of_torch = [(generator, generator.get_state()) for generator in _torch_generators()]
    of_numpy, of_python = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        for generator, state in of_torch:
            generator.set_state(state)
        np.random.set_state(of_numpy)  # noqa: NPY002
        random.setstate(of_python)


def states() -> tuple[Any, ...]:
    """Return the states of the global generators."""
    of_torch = [bytes(generator.get_state().numpy()) for generator in _torch_generators()]
    return (*of_torch, pickle.dumps(np.random.get_state(legacy=False)), random.getstate())  # noqa: NPY002


def _torch_generators() -> list[torch.Generator]:
    """Return torch's global generators: the CPU generator, and the generators of CUDA devices in use."""
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    on_devices = torch.cuda.default_generators if in_use else ()
    return [torch.default_generator, *on_devices]


class Draws:
    """The seed of a transform, and the epoch to use if the ids of a batch carry no epoch (see `items.EpochIds`).

    All worker processes share the epoch, including persistent workers.
    """

    def __init__(self, seed: int) -> None:
        self.seed = whole_number("the seed of a transform", seed, 0, UINT64_MAX, TransformError)
        # The epoch; 1 if it was set, else 0; the id of the first graph for which the transform drew random numbers
        # while the epoch was unknown, or -1.
        self._shared = torch.tensor([0, 0, -1], device="cpu")
        self._shared.share_memory_()  # type: ignore[no-untyped-call]
        self._warned = False

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch to use if the ids of a batch carry no epoch."""
        self._shared[0] = whole_number("epoch", epoch, 0, INT64_MAX, TransformError)
        self._shared[1] = 1

    def epoch(self, of_ids: int | None) -> tuple[int, bool]:
        """Return the epoch, and whether it is known; `of_ids` is the epoch that the ids of a batch carry, or None."""
        if of_ids is not None:
            return of_ids, True
        epoch, is_set, _ = self._shared.tolist()
        return epoch, bool(is_set)

    def may_repeat(self, graph_id: int) -> bool:
        """Return whether to check if the transform draws random numbers for this graph, while the epoch is unknown.

        All graphs are checked until the transform draws for one of them; from then on, only that graph.
        """
        return int(self._shared[2]) in (-1, graph_id) and not self._warned

    def notice_repetition(self, graph_id: int, name: str) -> None:
        """Handle a draw for a graph while the epoch is unknown: store the first graph, and warn if it comes again."""
        first = int(self._shared[2])
        if first < 0:
            self._shared[2] = graph_id
        elif first == graph_id and not self._warned:
            self._warned = True
            warnings.warn(
                f"the transform {name} draws random numbers for graph {graph_id} again, the same as before, because "
                "the epoch is unknown; before each epoch, call set_epoch(epoch) of the object that has the transform, "
                "or take the batches from a PackBatchSampler, whose ids carry the epoch.",
                UserWarning,
                stacklevel=2,
            )
