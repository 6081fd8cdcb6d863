"""Ranks: which one this process is, whether all of them have the same, and how they end together."""

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
    """Whether torch.distributed is initialised."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def replicas(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """Number of processes and rank of this one: as given, or from torch.distributed, or 1 and 0.

    SamplerError if only one of the two is given, they contradict each other, or WORLD_SIZE tells of several processes
    but torch.distributed is not initialised.
    """
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
    """Compare the facts that a block, which makes `what`, puts into the dict that it gets.

    With `among_ranks`, all ranks must run this block; otherwise nothing is compared. If two ranks differ, SamplerError
    on every rank names the fact and both values. If the block fails on one rank, that rank raises its own error, and
    the others a SamplerError instead of waiting for ever.
    """
    facts: dict[str, Any] = {}
    try:
        yield facts
    except Exception as error:
        if among_ranks:
            _gather((f"{type(error).__name__}: {error}", {}))
        raise
    if among_ranks:
        gathered = _gather(("", facts))
        for rank, (failure, _) in enumerate(gathered):
            if failure:
                raise SamplerError(f"rank {rank} could not make {what}, so all ranks stop; its error: {failure}")
        _check_equal([of_rank for _, of_rank in gathered])


def _gather(mine: Any, group: torch.distributed.ProcessGroup | None = None) -> list[Any]:
    gathered: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(gathered, mine, group=group)
    return gathered


def _check_equal(gathered: list[dict[str, Any]]) -> None:
    # Another release may compare other facts.
    for name in dict.fromkeys(name for facts in gathered for name in facts):
        value = gathered[0].get(name)
        for rank, facts in enumerate(gathered):
            if facts.get(name) != value:
                raise SamplerError(
                    f"rank 0 has {name} {value!r}, but rank {rank} has {facts.get(name)!r}, so graphs would be "
                    "repeated or lost; give every rank the same graphs in the same order, settings, plan "
                    "(PackPlan.load) and versions."
                )


def in_step(
    batches: Iterable[Batch], empty: Batch | None = None, group: torch.distributed.ProcessGroup | None = None
) -> Iterator[Batch]:
    """Iterate the batches of this rank for as many steps as all ranks take together.

    Ranks of a stream may have unequal numbers of batches, and a rank that ends early would leave the others waiting for
    its gradients for ever. All ranks must iterate this to its end.

    Parameters
    ----------
    batches
        Batches of this rank, for example a loader.
    empty
        Batch for a rank that has none left while others do, such as ``collate([])``. Nothing is lost then.
        None: all ranks stop as soon as one has no batch left, and further batches of the others are lost.
    group
        Processes that take steps together; None: all of them.

    Raises
    ------
    SamplerError
        While iterating: `batches` of another rank failed; names the rank and its error. That rank raises its own
        error.

    Notes
    -----
    Each step takes one all-reduce of a single integer. With NCCL it runs on the current CUDA device, and the host waits
    for it and for all earlier work of the device. Without an initialised process group this is ``iter(batches)``.

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
    # The chain calls iter(batches), which may fail too, in its first next().
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
        # A rank with a batch counts 1; one that failed counts more than all of these together.
        mark = torch.tensor(int(not ended) if error is None else world_size + 1, device=device)
        torch.distributed.all_reduce(mark, group=group)
        failed, having = divmod(int(mark), world_size + 1)
        if failed:
            _fail_together(error, group)
        if having == 0 or (empty is None and having < world_size):
            return
        # A rank without batches comes here only with an empty one.
        yield cast(Batch, batch)


def _fail_together(error: Exception | None, group: torch.distributed.ProcessGroup | None) -> NoReturn:
    """Raise the error of this rank, or one that names the error of the first rank that failed."""
    cause = None if error is None else f"rank {torch.distributed.get_rank()} got no further batch ({error!r:.500})"
    causes = _gather(cause, group)
    if error is not None:
        raise error
    first = next(cause for cause in causes if cause is not None)
    raise SamplerError(f"{first}, so no rank can take another step; see the error of that rank for its origin.")
