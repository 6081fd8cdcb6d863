"""Settings of the packing methods; each method uses only some of them."""

from __future__ import annotations

from dataclasses import dataclass

from dgl_tuplepack._core.checks import UINT64_MAX, true_or_false, whole_number
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.planning.bounds.effort import check_effort
from dgl_tuplepack.planning.packing.heuristics import Heuristic, check_heuristic


@dataclass(frozen=True)
class Settings:
    """Checked settings; see `pack` for their meaning."""

    heuristic: Heuristic = "product"
    seed: int = 0
    random_ties: bool = False
    effort: float = 1.0
    time_limit: float | None = None

    def __post_init__(self) -> None:
        check_heuristic(self.heuristic)
        object.__setattr__(self, "seed", whole_number("seed", self.seed, 0, UINT64_MAX, MethodError))
        object.__setattr__(self, "random_ties", true_or_false("random_ties", self.random_ties, MethodError))
        check_effort(self.effort, self.time_limit)
