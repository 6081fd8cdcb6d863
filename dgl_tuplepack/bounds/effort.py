"""How long a search may go on: work done, or a wall clock where the caller gave one."""

from __future__ import annotations

import time

# Work units: one step of a search, or a comparable number of elementary operations (some ten nanoseconds).
SLICE = 2_000_000


class Effort:
    """What is left of the work a caller allows.

    Parameters
    ----------
    work
        Work units allowed.
    deadline
        ``time.monotonic()`` at which to stop as well, or None.
    """

    def __init__(self, work: int, deadline: float | None = None) -> None:
        self.left = work
        self.deadline = deadline

    def spend(self, work: int) -> None:
        """Count work done."""
        self.left -= work

    @property
    def late(self) -> bool:
        """Whether the deadline is over."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def exhausted(self) -> bool:
        """Whether the search should stop."""
        return self.left <= 0 or self.late

    def part(self, share: float) -> Effort:
        """An allowance of its own, a share of what is left, under the same deadline."""
        return Effort(int(self.left * share), self.deadline)


def work_of(effort: float, classes: int) -> int:
    """Work units of an effort for a number of size classes; an effort of 1 is a few seconds' worth at most."""
    usual = min(40_000_000 + 150_000 * classes, 400_000_000)
    return int(min(effort, 1e9) * usual)
