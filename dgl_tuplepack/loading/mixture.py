"""Several sources as one training loader: their graphs one after another, and their shares as weights of graphs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset

from dgl_tuplepack._core.checks import choice, real_number, shown
from dgl_tuplepack.batches.collate import CollatedView
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.loading.opened import Graphs
from dgl_tuplepack.planning.sizes import FloatArray, GraphSizes, components_of_kind
from dgl_tuplepack.sampling.weights import SourceShares
from dgl_tuplepack.storage.graph_store import JoinedStores, StoredGraphs
from dgl_tuplepack.storage.selection import COMPARED, check_same_schema
from dgl_tuplepack.storage.view import with_source_ids


def mixes(source: Any, shares: Any, temperature: Any, share_of: Any, **others: Any) -> bool:
    """Return whether to mix the sources of a mapping; InputError if the arguments of `packed_loader` contradict it."""
    choice("share_of", share_of, ("graphs", "nodes"))
    given, is_mapping = [name for name, each in others.items() if each is not None], isinstance(source, Mapping)
    if shares is None and temperature is None:
        if share_of != "graphs" or (is_mapping and "splits" not in given):
            raise InputError(
                "a mapping of sources needs splits=True, for a loader of each source, or shares= or temperature=, for "
                "one loader that mixes all of them; and share_of= needs shares= or temperature=."
            )
        return False
    if shares is not None and temperature is not None:
        wrong = "both are given; leave one of them out"
    elif given:
        wrong = f"{given[0]}= is given too; leave it out"
    elif not is_mapping:
        wrong = f"the source is {shown(source)}; give a mapping of names to sources"
    else:
        return True
    raise InputError(
        f"shares= or temperature=, one of them, mixes all graphs of a mapping of sources in one loader; but {wrong}."
    )


def joined(sources: Mapping[str, Graphs]) -> Graphs:
    """Return the graphs of all sources, in their order; their ids count from 0."""
    stored = [name for name, graphs in sources.items() if isinstance(graphs.items, StoredGraphs)]
    if 0 < len(stored) < len(sources):
        other = next(name for name in sources if name not in stored)
        raise InputError(
            f"the source {stored[0]!r} is a store, or was copied to one, but {other!r} is read item by item, and a "
            "mixture needs one of the two: give in_memory=True, or write a store, tp.GraphStore.write(path, dataset)."
        )
    first, items = next(iter(sources.values())), [graphs.items for graphs in sources.values()]
    expected, reason = first.schema, "a mixture needs one schema, since its batches have graphs of all sources"
    for name, graphs in sources.items():
        # Types without nodes (edges) have the features of other sources.
        expected, schema = expected.settled(graphs.schema.shown), graphs.schema.settled(expected.shown)
        check_same_schema(expected, schema, repr(next(iter(sources))), repr(name), COMPARED, reason)
    found: Any = JoinedStores(items) if stored else ConcatDataset(items)
    made = Graphs(found, np.arange(len(found)), all(graphs.is_copy for graphs in sources.values()), first.levels)
    rows = np.concatenate([graphs.sizes.array for graphs in sources.values()])
    made.__dict__["sizes"] = GraphSizes(rows, first.sizes.components)
    return made


def shares_of(sources: Mapping[str, Graphs], shares: Any, temperature: Any, share_of: str) -> SourceShares:
    """Return the share of each source in the graphs of an epoch; the arguments are those of `packed_loader`."""
    sizes = [graphs.sizes for graphs in sources.values()]
    counts, columns = np.array([*map(len, sizes)]), components_of_kind(sizes[0].components, "nodes")
    amounts = counts.astype(np.float64)
    if share_of == "nodes":
        amounts = np.array([each.array[:, columns].sum(dtype=np.float64) for each in sizes])
    found: FloatArray
    if shares is None:
        hint = "1 keeps the sizes of the sources, and a large number gives all sources equal shares."
        power = 1 / float(real_number("temperature", temperature, least=1e-3, hint=hint))
        # Rounded, since powers differ in the last digit between platforms.
        found = np.round((amounts / amounts.max()) ** power, 12)
    elif isinstance(shares, Mapping) and shares.keys() == sources.keys():
        hint = "leave a source out of both mappings to show none of its graphs."
        found = np.array([float(real_number(f"the share of {n!r}", shares[n], above=0, hint=hint)) for n in sources])
        # So that no sum overflows.
        found /= found.max()
    else:
        raise InputError(
            f"shares must have a number for each of the sources {', '.join(map(repr, sources))}, but is "
            f"{shown(shares)}; give a mapping with exactly these names."
        )
    # The same share of nodes takes fewer graphs of a source whose graphs are large.
    found = np.where(amounts, found * counts / np.maximum(amounts, 1), 0)
    found /= math.fsum(found)
    # A smaller share could round to nothing.
    if not found.min() >= 1e-9:
        raise InputError(
            f"the source {[*sources][int(found.argmin())]!r} would have {found.min():.3g} of all graphs, which is next "
            f"to none; {'leave it out' if amounts.all() else 'a source without nodes has no share of nodes'}."
        )
    return SourceShares(tuple(sources), found, np.repeat(np.arange(len(counts)), counts))


def mark_sources(view: Any, sampler: Any, weights: SourceShares, with_ids: bool) -> None:
    """Let the batches of a view have `source_ids`; InputError if a graph must come more often than there are batches.

    It would then be twice in some batch.
    """
    kept = np.delete(weights.source_ids, sampler.dropped_ids)
    counts, batches = np.bincount(kept), len(sampler) * sampler.num_replicas
    times = weights.shares * len(kept) / counts
    worst = int(times.argmax())
    if times[worst] > max(batches, 1):
        raise InputError(
            f"no order meets the shares: {weights.names[worst]!r} would be {weights.shares[worst]:.3g} of all graphs, "
            f"so each of its {counts[worst]} graphs would come {times[worst]:.3g} times in {batches} batches, and "
            f"twice in some batch; give it at most {counts[worst] * batches / len(kept):.3g} of all graphs, or use "
            "smaller batches."
        )
    if isinstance(view, CollatedView):
        view.collated = functools.partial(_collated, view.collated, weights, with_ids)
    else:
        view.source_ids = weights.source_ids


def _collated(
    inner: Any, weights: SourceShares, with_ids: bool,
    collate: Callable[[Any], Any], items: Sequence[Any], positions: Sequence[int],
) -> Any:  # fmt: skip
    batch = collate(items) if inner is None else inner(collate, items, positions)
    ids = torch.from_numpy(weights.source_ids[np.array(positions, dtype=np.int64)])
    return with_source_ids(batch, ids, with_ids)
