"""An interrupt waits while numba compiles or loads a kernel, whose callbacks would lose it."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from dgl_tuplepack._core.interrupts import interrupts_held


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_comes_after_the_block(fails: bool) -> None:
    reached = []

    def interrupted() -> None:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            reached.append("end of the block")
            if fails:
                raise ValueError("ours")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert reached == ["end of the block"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_may_enter_the_block() -> None:
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: interrupts_held().__enter__()).result() is None
