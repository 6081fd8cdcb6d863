"""Try cases in turn until the time is up; the first that fails is shrunk, shown, and ends the run with 1.

    python -m tests.fuzzing [--seconds 60] [--seed 0] [--only NAME]

A run is a function of its seed, except for where the time ends it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

# Set before torch and DGL are imported.
import tests.conftest  # noqa: F401
from tests.fuzzing.cases import CASES

# Examples of a case before it is the turn of the next.
_AT_ONCE = 15


def main() -> int:
    """Run until the time is up."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[case.__name__ for case in CASES])
    asked = parser.parse_args()
    chosen = [case for case in CASES if asked.only in (None, case.__name__)]
    # Its lists of fonts belong to no case.
    os.environ["MPLCONFIGDIR"] = tempfile.mkdtemp(prefix="fonts-")
    end, tried = time.monotonic() + asked.seconds, Counter[str]()
    turn = 0
    while time.monotonic() < end:
        case = chosen[turn % len(chosen)]
        _try(case, asked.seed + turn // len(chosen), tried)
        turn += 1
    print(", ".join(f"{number} of {name}" for name, number in tried.items()))
    print(f"{sum(tried.values())} passed, 0 failed")
    return 0


def _try(case: Callable[..., None], key: int, tried: Counter[str]) -> None:
    @seed(key)
    @settings(
        max_examples=_AT_ONCE, deadline=None, database=None, derandomize=False, print_blob=False,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    @given(st.data())
    def one(data: st.DataObject) -> None:
        tried[case.__name__] += 1
        case(data.draw)

    one()


if __name__ == "__main__":
    sys.exit(main())
