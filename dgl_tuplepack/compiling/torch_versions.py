"""The versions of torch that `tp.compile` was tried on, and the bugs of each. This file does not import torch."""

from __future__ import annotations

import re

# Torch reads a sum over edges before it is complete, in models that use a layer's node features more than once. If
# nothing is fused, torch computes these sums correctly.
FUSION = "sums over edges may be wrong if operations are fused on the CPU (tp.compile does not fuse them)"
LSTM_STATES = "the states that a compiled LSTM returns have an additional axis (compile only its output)"
# Version -> bugs in compiled code that the tests of `tp.compile` found.
TRIED: dict[tuple[int, int], tuple[str, ...]] = {(2, 11): (FUSION, LSTM_STATES), (2, 13): (FUSION,), (2, 14): ()}
# Torch 2.5.1 computes sums over edges wrongly even if nothing is fused.
OLDEST = (2, 6)


def release_of(text: str) -> tuple[int, int]:
    """Return the first two numbers of a version: (2, 13) for ``2.13.0+cpu``."""
    major, minor = re.findall(r"\d+", text)[:2]
    return int(major), int(minor)


def bugs_of(text: str) -> tuple[str, ...]:
    """Return the known bugs of a version of torch; a version that was not tried has those of the next newer one."""
    return next((bugs for release, bugs in sorted(TRIED.items()) if release >= release_of(text)), ())


def remark_on(text: str) -> str:
    """Return what is known about compiled code of a version of torch."""
    if release_of(text) < OLDEST:
        return f"too old for tp.compile, which needs torch {_dotted(OLDEST)} or newer"
    bugs = f"known bugs: {'; '.join(bugs_of(text)) or 'none'}"
    if release_of(text) not in TRIED:
        return f"not one of the versions that tp.compile was tried on ({', '.join(map(_dotted, TRIED))}); {bugs}"
    return bugs


def _dotted(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
