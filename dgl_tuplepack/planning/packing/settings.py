"""Settings of the packing methods; each method uses only some of them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from dgl_tuplepack._core.checks import UINT64_MAX, true_or_false, whole_number
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.planning.bounds.pricing import Effort, check_effort, work_of
from dgl_tuplepack.planning.packing.heuristics import Heuristic, check_heuristic


@dataclass(frozen=True)
class Settings:
    """Checked settings; see `pack` for their meaning."""

    heuristic: Heuristic = "product"
    seed: int = 0
    random_ties: bool = False
    effort: float = 1.0
    time_limit: float | None = None
    # The work that may still be done, shared by the plans of all shape buckets. None: from `effort` and `time_limit`.
    work: Effort = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_heuristic(self.heuristic)
        object.__setattr__(self, "seed", whole_number("seed", self.seed, 0, UINT64_MAX, MethodError))
        object.__setattr__(self, "random_ties", true_or_false("random_ties", self.random_ties, MethodError))
        check_effort(self.effort, self.time_limit)
        if self.work is None:
            deadline = None if self.time_limit is None else time.monotonic() + self.time_limit
            object.__setattr__(self, "work", Effort(work_of(self.effort), deadline))
