"""Columns of groups of identical packs, int64 ``[G, 4 + k]``.

The group that it grew from, the size class that it added, how many packs it stands for, the graphs of each, and from
REMAINDER on what is left of each limit.
"""

PARENT, ADDED, COUNT, GRAPHS, REMAINDER = range(5)
