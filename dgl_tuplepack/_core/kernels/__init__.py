"""Compiled loops over arrays. Callers check the arguments, unless a kernel states that it checks them itself."""

from dgl_tuplepack._core.interrupts import interrupts_held

# This import is slow, and numba runs callbacks during it. An interrupt would be lost in such a callback.
with interrupts_held():
    import numba  # noqa: F401
