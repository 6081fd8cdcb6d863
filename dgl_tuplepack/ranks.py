"""Which of how many processes this is, whether all of them see the same, and how they end together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch

from dgl_tuplepack._checks import whole_number
from dgl_tuplepack.errors import SamplerError

Batch = TypeVar("Batch")


def in_process_group() -> bool:
    """Whether torch.distributed is initialised."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def replicas(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """Number of processes and the number of this one: as given, or those of torch.distributed, or 1 and 0.

    Raises
    ------
    SamplerError
        Only one of the two is given, they do not fit together, or WORLD_SIZE speaks of processes that
        torch.distributed does not know of.
    """
    if (num_replicas is None) != (rank is None):
        raise SamplerError(
            f"num_replicas and rank go together, but are {num_replicas!r} and {rank!r}; give both or neither."
        )
    if num_replicas is not None:
        num_replicas = whole_number("num_replicas", num_replicas, 1, error=SamplerError)
        rank = whole_number("rank", rank, 0, num_replicas - 1, SamplerError)
        return num_replicas, rank
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
    """Compare among all ranks what the block puts into the dict that it gets; all ranks must come here.

    Parameters
    ----------
    what
        What the block makes; for the message.
    among_ranks
        False: nothing is compared.

    Raises
    ------
    SamplerError
        On every rank, if two ranks differ; names the fact and both values. If the block failed on one, its error is
        raised there, and this on the others, which would wait for that rank for ever.
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
                raise SamplerError(f"rank {rank} could not make {what}, so no rank goes on; there: {failure}")
        _check_equal([of_rank for _, of_rank in gathered])


def _gather(mine: Any) -> list[Any]:
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, mine)
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


def in_step(batches: Iterable[Batch], empty: Batch | None = None) -> Iterator[Batch]:
    """Batches of this rank for as many steps as all ranks take together.

    Ranks of a stream may have unequal numbers of batches, and one that ends early would leave the others waiting for
    its gradients for ever. All ranks must iterate this, to the end.

    Parameters
    ----------
    batches
        What this rank has, for example a loader.
    empty
        What a rank without batches gets until the last one has none: ``collate([])``, say. Nothing is lost then.
        None: all ranks stop as soon as one has no batch, and the batches that others have left are lost.

    Notes
    -----
    One all-reduce of a single integer for each step, on the current CUDA device where the backend is NCCL. Without an
    initialised process group the batches come as they are.

    Examples
    --------
    >>> list(in_step([[1, 2], [3]], empty=[]))
    [[1, 2], [3]]
    """
    if not in_process_group():
        yield from batches
        return
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    iterator, ended = iter(batches), False
    while True:
        batch = empty
        if not ended:
            try:
                batch = next(iterator)
            except StopIteration:
                ended = True
        having = torch.tensor(int(not ended), device=device)
        torch.distributed.all_reduce(having)
        ranks = int(having)
        if ranks == 0 or (empty is None and ranks < torch.distributed.get_world_size()):
            return
        # A rank without batches comes here only with an empty one.
        yield cast(Batch, batch)
