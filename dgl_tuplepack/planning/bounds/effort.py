"""The effort of a search: counted work, and a deadline if the caller gives one."""

from __future__ import annotations

import time

from dgl_tuplepack._core.checks import real_number
from dgl_tuplepack.errors import MethodError

# A unit of work is an operation of about ten nanoseconds, so an effort of 1 is about half a second of one core.
_WORK = 50_000_000


class Effort:
    """The work that a search may still do.

    A portion of an effort has its own allowance. Work done in a portion is subtracted from the portion and the whole.
    A search chooses its steps by the work left in its portion; the whole can only stop it. So with a larger whole, a
    search begins with the same steps and then does more. At `deadline`, a ``time.monotonic()``, the effort is used up.
    """

    def __init__(self, work: int, deadline: float | None = None, whole: Effort | None = None) -> None:
        self.left = work
        self._given = work
        self._deadline = deadline
        self._whole = whole

    def spend(self, work: int) -> None:
        """Count work done."""
        self.left -= work
        if self._whole is not None:
            self._whole.spend(work)

    @property
    def spent(self) -> int:
        """Work done so far."""
        return self._given - self.left

    def affords(self, work: int) -> bool:
        """Return whether a step of that much work may begin; if the whole effort is too small for it, use it up."""
        whole = self if self._whole is None else self._whole
        if work > whole.left:
            whole.spend(whole.left)
        return not self.exhausted

    @property
    def exhausted(self) -> bool:
        """Whether the search should stop."""
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return self.left <= 0 or late or (self._whole is not None and self._whole.exhausted)

    def portion(self, work: int) -> Effort:
        """Return a portion of this effort, with an allowance of `work`."""
        return Effort(work, whole=self)


def check_effort(effort: object, time_limit: object) -> None:
    """Raise MethodError unless both are finite numbers >= 0; a time limit may also be None."""
    real_number("the effort", effort, least=0, hint="1 is the default of pack.", error=MethodError)
    if time_limit is not None:
        hint = "give seconds, or None for no time limit."
        real_number("the time limit", time_limit, least=0, hint=hint, error=MethodError)


def work_of(effort: float) -> int:
    """Return the units of work of an effort; 1 takes at most about a second."""
    return int(min(effort, 1e9) * _WORK)
