"""Columns of groups of identical packs, int64 ``[G, 4 + k]``.

- PARENT: the group that it was made from.
- ADDED: the size class that was added to it.
- COUNT: its packs.
- GRAPHS: graphs of each pack.
- REMAINDER and on: what is left of each limit.
"""

PARENT, ADDED, COUNT, GRAPHS, REMAINDER = range(5)
