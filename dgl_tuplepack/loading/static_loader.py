"""Stub."""
from dgl_tuplepack.planning.limits import Limits


def slots_of(limits, packs_per_batch=1):
    m = {n: v * packs_per_batch + 2 for n, v in limits.maxima.items()}
    return Limits.from_components(m, graphs=limits.graphs * packs_per_batch + 1)
