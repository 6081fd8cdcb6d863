"""Which of how many processes this is, and whether all of them see the same."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from dgl_tuplepack._checks import whole_number
from dgl_tuplepack.errors import SamplerError


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


def check_agreement(facts: Mapping[str, Any]) -> None:
    """Compare `facts` among all ranks; all of them must call this.

    Raises
    ------
    SamplerError
        On every rank, if two ranks differ; names the fact and both values.
    """
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, dict(facts))
    for name, value in gathered[0].items():
        for rank, other in enumerate(gathered):
            if other[name] != value:
                raise SamplerError(
                    f"rank 0 has {name} {value!r}, but rank {rank} has {other[name]!r}, so graphs would be repeated or "
                    "lost; give every rank the same graphs in the same order, settings and plan (PackPlan.load)."
                )
