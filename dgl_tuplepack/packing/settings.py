"""What a caller may set for a packing method; each method heeds what concerns it."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from dgl_tuplepack._checks import UINT64_MAX, whole_number
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.packing.heuristics import Heuristic, check_heuristic


@dataclass(frozen=True)
class Settings:
    """Checked settings; see `pack` for their meaning.

    Raises
    ------
    MethodError
        A setting is out of its range.
    """

    heuristic: Heuristic = "product"
    seed: int = 0
    random_ties: bool = False
    effort: float = 1.0
    time_limit: float | None = None
    on_interrupt: str = "raise"

    def __post_init__(self) -> None:
        check_heuristic(self.heuristic)
        object.__setattr__(self, "seed", whole_number("seed", self.seed, 0, UINT64_MAX, MethodError))
        object.__setattr__(self, "random_ties", bool(self.random_ties))
        if not isinstance(self.effort, Real) or not self.effort >= 0:
            raise MethodError(f"the effort must be a number >= 0, but is {self.effort!r}; 1 is the usual one.")
        limit = self.time_limit
        if limit is not None and (not isinstance(limit, Real) or not limit >= 0):
            raise MethodError(f"a time limit must be a number of seconds >= 0 or None, but is {limit!r}.")
        if self.on_interrupt not in ("raise", "best"):
            raise MethodError(f"on_interrupt must be 'raise' or 'best', but is {self.on_interrupt!r}.")
