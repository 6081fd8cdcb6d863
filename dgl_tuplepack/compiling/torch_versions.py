"""The versions of torch that `tp.compile` was tried on, and their known bug. This file does not import torch."""

from __future__ import annotations

import re

# Torch reads a sum over edges before it is complete, in models that use a layer's node features more than once. If
# nothing is fused, torch computes these sums correctly.
FUSION = "sums over edges may be wrong if operations are fused on the CPU (tp.compile does not fuse them)"
_TRIED = ((2, 11), (2, 13), (2, 14))
_FIRST_WITHOUT_BUG = (2, 14)
# Torch 2.5.1 computes sums over edges wrongly even if nothing is fused.
OLDEST = (2, 6)


def release_of(text: str) -> tuple[int, int]:
    """Return the first two numbers of a version: (2, 13) for ``2.13.0+cpu``."""
    major, minor = re.findall(r"\d+", text)[:2]
    return int(major), int(minor)


def bug_of(text: str) -> str:
    """Return the known bug of compiled code of a version of torch; empty if none is known."""
    return FUSION if release_of(text) < _FIRST_WITHOUT_BUG else ""


def is_tried(text: str) -> bool:
    """Return whether `tp.compile` was tried on a version of torch."""
    return release_of(text) in _TRIED


def remark_on(text: str) -> str:
    """Return what is known about compiled code of a version of torch."""
    if release_of(text) < OLDEST:
        return f"too old for tp.compile, which needs torch {_dotted(OLDEST)} or newer"
    bugs = f"known bugs: {bug_of(text) or 'none'}"
    if is_tried(text):
        return bugs
    return f"not one of the versions that tp.compile was tried on ({', '.join(map(_dotted, _TRIED))}); {bugs}"


def _dotted(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
