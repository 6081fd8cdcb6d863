"""Sizes of which nearly every one is distinct, and sizes that fit only in certain combinations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.literature import Case
from dgl_tuplepack import GraphSizes, Limits, SizeHistogram

COMPONENTS = ("nodes", "edges", "triplets", "angles", "rings", "bonds")


def materials(number: int, seed: int = 0) -> GraphSizes:
    """Return sizes like those of materials: lognormal atoms, and edges within a cutoff."""
    rng = np.random.default_rng(seed)
    atoms = np.clip(np.exp(rng.normal(np.log(22), 0.8, number)), 1, 444).astype(int)
    edges = (atoms * np.clip(rng.lognormal(np.log(50), 0.45, number), 4, 120)).astype(int)
    return GraphSizes(np.stack([atoms, edges], axis=1))


def materials_limits(sizes: GraphSizes, atoms: int) -> Limits:
    """Return limits for packs of `atoms` atoms."""
    totals = sizes.totals()
    return Limits(atoms, totals["edges"] * atoms // totals["nodes"])


def related(components: int, number: int = 20_000) -> GraphSizes:
    """Return sizes with many components that are only loosely related, as in heterographs."""
    rng = np.random.default_rng(components)
    first = rng.lognormal(np.log(20), 0.6, number)
    columns = [
        np.clip(first * rng.lognormal(0, 0.4, number) * (1 + i), 1, 400 * (1 + i)).astype(int)
        for i in range(components)
    ]
    return GraphSizes(np.stack(columns, axis=1), COMPONENTS[:components])


def ego_networks(number: int = 32_000) -> GraphSizes:
    """Return sizes that follow a power law."""
    rng = np.random.default_rng(0)
    nodes = np.clip((4 * (1 + rng.pareto(1.2, number))).astype(int), 2, 600)
    edges = np.minimum(nodes * (nodes - 1), (nodes * rng.uniform(2, 8, number)).astype(int)).clip(2)
    return GraphSizes(np.stack([nodes, edges], axis=1))


def distinct_cases() -> list[Case]:
    """Return instances of nearly distinct sizes."""
    made = []
    for number, atoms in ((5000, 1024), (100_000, 1024), (100_000, 4096)):
        sizes = materials(number)
        made.append(_case(f"{number} materials in {atoms}", sizes, materials_limits(sizes, atoms)))
    for components in (3, 4, 6):
        sizes = related(components)
        # About 24 graphs in a pack.
        maxima = {name: -(-24 * total // len(sizes)) for name, total in sizes.totals().items()}
        largest = dict(zip(sizes.components, sizes.array.max(axis=0).tolist(), strict=True))
        limits = Limits.from_components({name: max(most, largest[name]) for name, most in maxima.items()})
        made.append(_case(f"{components} components", sizes, limits))
    sizes = ego_networks()
    limits = Limits(*(120 * sizes.array.mean(axis=0)).astype(int).tolist(), graphs=122)
    return [*made, _case("ego networks", sizes, limits)]


def combined_cases() -> list[Case]:
    """Return instances whose packs are full only with certain combinations of sizes, or hold few graphs."""
    rng = np.random.default_rng(0)
    few, two = rng.choice([7, 11, 13], 30_000), rng.choice([34, 51], 20_000)
    small, large = rng.integers(5, 16, (20_000, 2)), rng.integers(180, 261, (20_000, 2))
    bimodal = np.where(rng.random(20_000)[:, None] < 0.7, small, large)
    uniform = np.stack([rng.integers(1, 1001, 20_000), rng.integers(1, 2201, 20_000)], axis=1)
    return [
        _case("7, 11 and 13 in 100", GraphSizes(_twice(few)), Limits(100, 100)),
        _case("34 and 51 in 100", GraphSizes(_twice(two)), Limits(100, 100)),
        _case("5 to 15 and 180 to 260 in 600", GraphSizes(bimodal), Limits(600, 600)),
        _case("uniform in 1000/2200", GraphSizes(uniform), Limits(1000, 2200)),
    ]


def _twice(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.stack([values, values], axis=1)


def _case(name: str, sizes: GraphSizes, limits: Limits) -> Case:
    return Case(name, SizeHistogram.from_sizes(sizes).without_ids(), limits)
