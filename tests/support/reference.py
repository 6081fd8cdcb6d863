"""Obvious pure-Python twins of what the package computes: slow, short, and written from the paper alone.

Nothing here imports a packer or a kernel. Sizes are tuples, packs are tuples of sizes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from dgl_tuplepack import PackPlan

Size = tuple[int, ...]
Pattern = tuple[tuple[Size, int], ...]


@dataclass
class Group:
    """So many identical open packs."""

    content: tuple[Size, ...]
    left: Size
    packs: int


def fits(size: Size, room: Size) -> bool:
    return all(s <= r for s, r in zip(size, room, strict=True))


def histogram_packs(
    counts: Mapping[Size, int],
    maxima: Size,
    cap: int | None,
    h: Callable[[Size], int | Fraction],
    *,
    fullest_first: bool,
    by_the_text: bool = False,
) -> Counter[tuple[Pattern, int]]:
    """The paper's histogram packer: how often each (pattern, repeats) is made.

    Both slips of the companion code are kept: after a placement only packs with h(remainder) > h(size) are
    looked at (not so `by_the_text` of the paper), and once no pack accepts a size, every graph left of it opens a
    pack of its own.
    """
    opened: dict[int | Fraction, list[Group]] = {}
    closed: list[Group] = []

    def put_away(group: Group) -> None:
        full = h(group.left) == 0 or len(group.content) == cap
        (closed if full else opened.setdefault(h(group.left), [])).append(group)

    def accepting(size: Size, placed_before: bool) -> Group | None:
        for value in sorted(opened, reverse=not fullest_first):
            if value > h(size) or (value == h(size) and (by_the_text or not placed_before)):
                for group in opened[value]:
                    if fits(size, group.left):
                        return group
        return None

    for size in sorted(counts, key=lambda s: (h(s), s, counts[s]), reverse=True):
        waiting, placed_before = counts[size], False
        while waiting:
            group = accepting(size, placed_before)
            if group is None:
                put_away(Group((size,), minus(maxima, size), waiting))
                break
            taken = min(waiting, group.packs)
            waiting -= taken
            placed_before = True
            opened[h(group.left)].remove(group)
            if group.packs > taken:
                # Those that stay behind queue up again, ahead of the group that grew out of them.
                put_away(Group(group.content, group.left, group.packs - taken))
            put_away(Group((*group.content, size), minus(group.left, size), taken))

    groups = closed + [group for same in opened.values() for group in same]
    return Counter((pattern(group.content), group.packs) for group in groups)


def minus(left: Size, size: Size) -> Size:
    return tuple(r - s for r, s in zip(left, size, strict=True))


def pattern(content: Sequence[Size]) -> Pattern:
    """A multiset of sizes in a form that can be compared."""
    return tuple(sorted(Counter(content).items()))


def named_heuristic(name: str, components: Sequence[str]) -> Callable[[Size], int]:
    """The heuristics that have a name; "node" and "edge" add up all types of a heterograph."""
    plain: dict[str, Callable[[Size], int]] = {"product": math.prod, "sum": sum, "maximum": max, "minimum": min}
    if name in plain:
        return plain[name]
    chosen = [i for i, component in enumerate(components) if component.split(":")[0] == name + "s"]
    return lambda size: sum(size[i] for i in chosen)


def weighted(weights: Sequence[float]) -> Callable[[Size], Fraction]:
    """A weighted sum in exact arithmetic; each weight means the decimal that it is written as."""
    exact = [Fraction(str(w)) for w in weights]
    return lambda size: sum((w * s for w, s in zip(exact, size, strict=True)), Fraction(0))


def fewest_packs(graphs: Sequence[Size], maxima: Size, cap: int | None) -> int:
    """The optimum, by trying every way to share packs out; for up to about eight graphs."""

    def best(following: int, packs: list[list[Size]], known: int) -> int:
        if len(packs) >= known or following == len(graphs):
            return min(len(packs), known)
        graph = graphs[following]
        for pack in packs:
            if len(pack) != cap and all(
                sum(column) <= m for column, m in zip(zip(*pack, graph, strict=True), maxima, strict=True)
            ):
                pack.append(graph)
                known = best(following + 1, packs, known)
                pack.pop()
        packs.append([graph])
        known = best(following + 1, packs, known)
        packs.pop()
        return known

    return best(0, [], len(graphs))


def next_fit(graphs: Sequence[Size], maxima: Size, cap: int | None) -> list[list[Size]]:
    """Fill one pack after another, in the order given."""
    packs: list[list[Size]] = []
    room: Size = ()
    for graph in graphs:
        if not packs or not fits(graph, room) or len(packs[-1]) == cap:
            packs.append([])
            room = maxima
        packs[-1].append(graph)
        room = minus(room, graph)
    return packs


def splitmix64(key: int, number: int) -> int:
    """Output `number` (from 0) of SplitMix64 seeded with `key`, in integers without a width."""
    word = 2**64
    bits = (key + (number + 1) * 0x9E3779B97F4A7C15) % word
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % word
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % word
    return bits ^ bits >> 31


def shuffled(values: Sequence[int], key: int) -> list[int]:
    """Fisher-Yates from the back; unbiased numbers below n from the top half of each output (Lemire 2019)."""
    result, number = list(values), 0
    for last in range(len(result) - 1, 0, -1):
        n = last + 1
        while True:
            chosen, rest = divmod((splitmix64(key, number) >> 32) * n, 2**32)
            number += 1
            if rest >= 2**32 % n:
                break
        result[last], result[chosen] = result[chosen], result[last]
    return result


def patterns_of(plan: PackPlan) -> Counter[tuple[Pattern, int]]:
    """How often a plan lists each (pattern, repeats), read from its arrays alone."""
    sizes = [tuple(row) for row in plan.histogram.sizes.tolist()]
    offsets, repeats = plan.offsets.tolist(), plan.repeats.tolist()
    entries = list(zip(plan.classes.tolist(), plan.multiplicities.tolist(), strict=True))
    found: Counter[tuple[Pattern, int]] = Counter()
    for (first, last), packs in zip(pairwise(offsets), repeats, strict=True):
        found[pattern([sizes[c] for c, m in entries[first:last] for _ in range(m)]), packs] += 1
    return found


def online_packs(sizes: list[Size], maxima: Size, cap: int | None, lookahead: int) -> list[list[int]]:
    """Best fit over open packs, online; packs of positions in the order in which they come out."""
    components = range(len(maxima))
    open_packs: list[list[int]] = []
    out: list[list[int]] = []

    def go(pack: list[int]) -> None:
        """The last open pack takes its place."""
        out.append(pack)
        at = next(i for i, other in enumerate(open_packs) if other is pack)
        open_packs[at] = open_packs[-1]
        open_packs.pop()

    def room_of(pack: list[int]) -> Size:
        return tuple(maxima[c] - sum(sizes[i][c] for i in pack) for c in components)

    def room_weighted(pack: list[int]) -> float:
        return sum(weight * room for weight, room in zip(weights, room_of(pack), strict=True))

    weights = [0.0] * len(maxima)
    totals = [0.0] * len(maxima)
    for number, size in enumerate(sizes):
        overdue = [pack for pack in open_packs if number - pack[0] >= 4 * lookahead]
        for pack in overdue:
            go(pack)
        for c in components:
            totals[c] += size[c] / maxima[c]
        scarcest = max(totals)
        weights = [(totals[c] / scarcest if scarcest else 1.0) for c in components]
        for _ in range(6):
            weights = [weight * weight for weight in weights]
        weights = [weight / maxima[c] for c, weight in enumerate(weights)]

        able = [pack for pack in open_packs if fits(size, room_of(pack))]
        if not able:
            open_packs.append([])
        # Open packs are below the cap: they go when they reach it.
        chosen = min(able, key=room_weighted) if able else open_packs[-1]
        chosen.append(number)
        used_up = any(room_of(chosen)[c] == 0 and all(s[c] > 0 for s in sizes[: number + 1]) for c in components)
        if used_up or len(chosen) == cap:
            go(chosen)
        elif sum(map(len, open_packs)) == lookahead:
            go(min(open_packs, key=room_weighted))
    return out + open_packs
