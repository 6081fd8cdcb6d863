"""An interrupt waits while numba compiles or loads a kernel, whose callbacks would lose it."""

from __future__ import annotations

import signal
import threading

import pytest

from dgl_tuplepack._core.interrupts import interrupts_held


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_comes_after_the_block(fails: bool) -> None:
    before, reached = signal.getsignal(signal.SIGINT), []
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted() -> None:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            reached.append("end of the block")
            if fails:
                raise ValueError("ours")

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert reached == ["end of the block"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_errors_leave_the_block_and_other_threads_may_enter_it() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="ours"), interrupts_held():
        raise ValueError("ours")
    entered: list[object] = []

    def enter() -> None:
        with interrupts_held():
            entered.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == [before]
    assert signal.getsignal(signal.SIGINT) is before
