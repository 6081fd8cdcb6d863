"""Turn graph sizes into a plan.

The steps, in this order: sizes, histogram, limits, packing, plan.
In: numbers of nodes and edges of each graph. Out: limits, and plans whose packs never exceed them.
It may use `_core`. It needs numpy, numba and HiGHS, but neither torch nor DGL.
"""
