"""What the stages of "auto" share: the best packs so far, and the round that they run in."""

from __future__ import annotations

from dataclasses import dataclass, field

from dgl_tuplepack.bounds.effort import Effort
from dgl_tuplepack.bounds.instance import Instance, Relaxation
from dgl_tuplepack.bounds.pricing import Priced
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing.patterns import Patterns

# Beyond what any effort reaches: an allowance doubles with each round, and most searches grow fourfold each turn.
MOST_ROUNDS = 30
MOST_TURNS = 1000


@dataclass
class Best:
    """The patterns with the fewest packs so far, the method that made them, and the best lower bound."""

    patterns: Patterns
    method: str
    bound: int

    @property
    def packs(self) -> int:
        """Packs of the best patterns."""
        return self.patterns.num_packs

    @property
    def proven(self) -> bool:
        """Whether no fewer packs are possible."""
        return self.packs <= self.bound

    def offer(self, patterns: Patterns | None, method: str) -> None:
        """Keep the patterns if they need fewer packs than those so far."""
        if patterns is not None and patterns.num_packs < self.packs:
            self.patterns, self.method = patterns, method


@dataclass
class Round:
    """A round of "auto": turns of all stages with ever longer searches, until its effort is used up."""

    histogram: SizeHistogram
    limits: Limits
    instance: Instance
    # Shared by all rounds.
    best: Best
    # Rounds before this one, and where samples of its first turn start.
    number: int
    start: float
    # Portions of the whole effort: for this round, and for `close_gap` in it.
    effort: Effort
    closing: Effort
    # Turns of this round before this one.
    turn: int = 0
    # Steps for each pattern and work of the last search; steps of the next one, as a multiple of those.
    steps: int = 0
    spent: int = 0
    growth: float = 1.0
    # Relaxations with their lifted duals, best bound first.
    relaxations: list[tuple[Relaxation, Priced]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.graphs_per_pack = self.instance.num_graphs / self.best.packs

    @property
    def is_first_turn(self) -> bool:
        """Whether this is the first turn of the first round."""
        return self.number == self.turn == 0

    @property
    def trial(self) -> int:
        """Number of the turn, over all rounds."""
        return self.number * MOST_TURNS + self.turn

    @property
    def done(self) -> bool:
        """Whether the best plan is proven optimal, or the effort used up."""
        return self.best.proven or self.effort.exhausted
