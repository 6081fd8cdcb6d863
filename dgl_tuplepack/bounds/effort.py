"""How long a search may go on: work done, or a wall clock where the caller gave one."""

from __future__ import annotations

import time

from dgl_tuplepack._checks import as_real, shown
from dgl_tuplepack.errors import MethodError

# Work units: one step of a search, or a comparable number of elementary operations (some ten nanoseconds).
SLICE = 2_000_000


class Effort:
    """What is left of the work that is allowed.

    A part is an allowance of its own that also draws on the whole. What a search decides depends on what is left of
    its part alone; the whole only cuts it off. So a search with a larger whole goes the same way, and further.

    Parameters
    ----------
    work
        Work units allowed.
    deadline
        ``time.monotonic()`` at which to stop as well, or None.
    whole
        What this is a part of.
    """

    def __init__(self, work: int, deadline: float | None = None, whole: Effort | None = None) -> None:
        self.left = work
        self._deadline = deadline
        self._whole = whole

    def spend(self, work: int) -> None:
        """Count work done."""
        self.left -= work
        if self._whole is not None:
            self._whole.spend(work)

    @property
    def exhausted(self) -> bool:
        """Whether the search should stop."""
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return self.left <= 0 or late or (self._whole is not None and self._whole.exhausted)

    def part(self, work: int) -> Effort:
        """An allowance of `work`, drawn on this one."""
        return Effort(work, whole=self)


def check_effort(effort: object, time_limit: object) -> None:
    """Refuse an effort or a time limit that is no number >= 0.

    Raises
    ------
    MethodError
        Names the value.
    """
    if not _not_negative(effort):
        raise MethodError(f"the effort must be a number >= 0, but is {shown(effort)}; 1 is the usual one.")
    if time_limit is not None and not _not_negative(time_limit):
        raise MethodError(f"a time limit must be a number of seconds >= 0 or None, but is {shown(time_limit)}.")


def _not_negative(value: object) -> bool:
    number = as_real(value)
    return number is not None and number >= 0


def work_of(effort: float, classes: int) -> int:
    """Work units of an effort for a number of size classes; an effort of 1 is a few seconds' worth at most."""
    usual = min(40_000_000 + 150_000 * classes, 400_000_000)
    return int(min(effort, 1e9) * usual)
