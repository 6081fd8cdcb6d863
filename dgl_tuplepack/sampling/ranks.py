"""Find the rank of this process, check that all ranks have equal settings, and stop all ranks together."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar, cast

import torch

from dgl_tuplepack._core.checks import whole_number
from dgl_tuplepack.errors import SamplerError

Batch = TypeVar("Batch")


def in_process_group() -> bool:
    """Return whether torch.distributed is initialised."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def replicas(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """Return the number of processes and the rank of this process: as given, or from torch.distributed, or 1 and 0."""
    if (num_replicas is None) != (rank is None):
        raise SamplerError(
            f"num_replicas and rank go together, but are {num_replicas!r} and {rank!r}; give both or neither."
        )
    if num_replicas is not None:
        num_replicas = whole_number("num_replicas", num_replicas, 1, error=SamplerError)
        return num_replicas, whole_number("rank", rank, 0, num_replicas - 1, SamplerError)
    if in_process_group():
        return torch.distributed.get_world_size(), torch.distributed.get_rank()
    world_size = os.environ.get("WORLD_SIZE", "1")
    if world_size != "1":
        raise SamplerError(
            f"WORLD_SIZE is {world_size}, but torch.distributed is not initialised, so every process would train on "
            "the same graphs; call torch.distributed.init_process_group first, or give num_replicas and rank."
        )
    return 1, 0


@contextmanager
def compared(what: str, among_ranks: bool) -> Iterator[dict[str, Any]]:
    """Yield a dict that the block fills with facts; if they differ among ranks, raise SamplerError on every rank.

    If the block fails on one rank, the other ranks raise a SamplerError that names `what`, instead of waiting forever.
    """
    facts: dict[str, Any] = {}
    try:
        yield facts
    except Exception as error:
        if among_ranks:
            # The other ranks wait in their call of `gathered_objects` below; this call sends them the error.
            gathered_objects((f"{type(error).__name__}: {error}", {}))
        raise
    if among_ranks:
        gathered = gathered_objects(("", facts))
        for rank, (failure, _) in enumerate(gathered):
            if failure:
                raise SamplerError(f"rank {rank} could not make {what}, so all ranks stop; its error: {failure}")
        # A rank that runs another release of this package may have facts with other names.
        for name in dict.fromkeys(name for _, of_rank in gathered for name in of_rank):
            value = gathered[0][1].get(name)
            for rank, (_, of_rank) in enumerate(gathered):
                if of_rank.get(name) != value:
                    raise SamplerError(
                        f"rank 0 has {name} {value!r}, but rank {rank} has {of_rank.get(name)!r}, so graphs would be "
                        "repeated or lost; give every rank the same settings, plan (PackPlan.load) and versions, and "
                        "the same graphs in the same order."
                    )


def gathered_objects(mine: Any, group: torch.distributed.ProcessGroup | None = None) -> list[Any]:
    """Return the objects `mine` of all ranks of a group, in the order of ranks; every rank must call this function."""
    gathered: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(gathered, mine, group=group)
    return gathered


def in_step(
    batches: Iterable[Batch], empty: Batch | None = None, group: torch.distributed.ProcessGroup | None = None
) -> Iterator[Batch]:
    """Yield batches of this rank, so that all ranks stop after the same number of steps.

    The ranks of a stream may have unequal numbers of batches; a rank that ends early would leave the others waiting for
    its gradients forever. The ranks communicate in each step, so all of them must iterate the result to its end.

    Parameters
    ----------
    batches
        Batches of this rank, for example a loader.
    empty
        Batch for a rank that has run out of batches, such as ``collate([])``; no batch is lost. None: all ranks stop as
        soon as one rank has no batch left, and further batches of other ranks are lost.
    group
        Processes that train together; None: all processes.

    Raises
    ------
    SamplerError
        While iterating: `batches` failed on another rank, which raises its own error; the message names both.

    Notes
    -----
    Each step runs one all-reduce of a single integer. With NCCL, it runs on the current CUDA device, and the host waits
    for all earlier work there. Without an initialised process group, the result is like ``iter(batches)``.

    Examples
    --------
    >>> list(in_step([[1, 2], [3]], empty=[]))
    [[1, 2], [3]]
    """
    if not in_process_group():
        yield from batches
        return
    device = "cuda" if torch.distributed.get_backend(group) == "nccl" else "cpu"
    world_size = torch.distributed.get_world_size(group)
    # The chain calls iter(batches) only in its first next(), so an error of that call is handled below as well.
    iterator, ended = itertools.chain.from_iterable([batches]), False
    while True:
        batch, error = empty, None
        if not ended:
            try:
                batch = next(iterator)
            except StopIteration:
                ended = True
            except Exception as failure:
                error = failure
        # A rank with a batch adds 1, a failed rank adds world_size + 1. At most world_size ranks have a batch, so
        # `divmod` separates the two counts.
        mark = torch.tensor(int(not ended) if error is None else world_size + 1, device=device)
        torch.distributed.all_reduce(mark, group=group)
        failed, with_batch = divmod(int(mark), world_size + 1)
        if failed:
            _fail_together(error, group)
        if with_batch == 0 or (empty is None and with_batch < world_size):
            return
        # A rank without a batch gets here only if `empty` is given.
        yield cast(Batch, batch)


def _fail_together(error: Exception | None, group: torch.distributed.ProcessGroup | None) -> NoReturn:
    """Raise the error of this rank, or else a SamplerError that names the first failed rank and its error."""
    cause = None if error is None else f"rank {torch.distributed.get_rank()} got no further batch ({error!r:.500})"
    causes = gathered_objects(cause, group)
    if error is not None:
        raise error
    first = next(cause for cause in causes if cause is not None)
    raise SamplerError(f"{first}, so no rank can continue; see the error of that rank for its cause.")
