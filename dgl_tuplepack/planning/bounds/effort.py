"""The effort of a search: counted work, and a deadline if the caller gives one."""

from __future__ import annotations

import time

from dgl_tuplepack._core.checks import real_number
from dgl_tuplepack.errors import MethodError

# Units of work in an effort of 1. A unit takes about ten nanoseconds.
_WORK = 50_000_000


class Effort:
    """The work that a search may still do.

    Work done in a portion is subtracted both from the portion and from the whole effort. A search chooses its steps by
    the work left in its portion; the whole effort only decides when the search stops. So with a larger whole effort, a
    search begins with the same steps. An effort is also used up when ``time.monotonic()`` reaches `deadline`.
    """

    def __init__(self, work: int, deadline: float | None = None, whole: Effort | None = None) -> None:
        self.left = work
        self._given = work
        self._deadline = deadline
        self._whole = whole

    def spend(self, work: int) -> None:
        """Subtract work that has been done."""
        self.left -= work
        if self._whole is not None:
            self._whole.spend(work)

    @property
    def spent(self) -> int:
        """Work done so far."""
        return self._given - self.left

    def affords(self, work: int) -> bool:
        """Return whether a step of `work` may begin.

        If the whole effort has less work left than `work`, use up the whole effort, so that the search stops.
        """
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
    """Return the units of work of an effort."""
    return int(min(effort, 1e9) * _WORK)
