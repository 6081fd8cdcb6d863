"""The tasks for one shard. They may run in another process, so their arguments and results are small."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dgl_tuplepack._core.files import JsonFormat
from dgl_tuplepack.errors import FormatError, InputError
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.planning.buckets import Buckets
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.storage.format import MANIFEST, PreTransform
from dgl_tuplepack.storage.graph_store import GraphStore, StoredGraphs, write_graphs
from dgl_tuplepack.storage.manifest import ShardEntry, check_unchanged
from dgl_tuplepack.storage.plans import load_plans, plan_file
from dgl_tuplepack.storage.pre_transform import Transformed
from dgl_tuplepack.storage.preprocessing import write_plans
from dgl_tuplepack.storage.shards.shard import Shard

# A file next to the arrays of a shard, with the source and the settings from which the store was written.
SOURCE = "source.json"
_SOURCE_FILE = JsonFormat("dgl_tuplepack.source", 1, "source of a shard", "preprocess the shards again")


@dataclass(frozen=True)
class WrittenShard:
    """Facts that a run needs about the store of a shard.

    `has_splits`: at least one split has graphs. `kept`: the store existed before the run, and was not written again.
    """

    name: str
    histogram: SizeHistogram
    schema: Schema
    has_splits: bool
    checksum: str
    kept: bool


def write_shard(
    shard: Shard,
    out: Path,
    compact: bool,
    overwrite: bool,
    pre_transform: Any,
    expected: PreTransform | None,
    declared: Mapping[str, Any],
) -> WrittenShard:
    """Write the store of a shard, unless an intact store of the same source exists.

    `expected` identifies `pre_transform`. `declared` has those of the settings `ties`, `indices` and `levels` that are
    not None. Raise the errors of `GraphStore.write` and of `_finished`; after an error, an earlier store is unchanged.
    """
    folder, identity = out / shard.name, shard.identity()
    store = None if overwrite or identity is None else _finished(folder, identity, compact, expected, declared)
    if store is not None:
        return _written(shard, store, kept=True)
    content = {"source": identity, "compact": compact, **declared}
    if expected is not None:
        content["pre_transform"] = asdict(expected)

    def finish(_: StoredGraphs, data: Path) -> None:
        """Record the source and the settings in the folder of the arrays, before the store becomes visible."""
        _SOURCE_FILE.write(data / SOURCE, content, indent=1)

    settings: dict[str, Any] = {"ties": None, "indices": None, "levels": None, **declared}
    with shard.opened() as source:
        source = resolve(source).with_levels(settings.pop("levels"))
        if expected is not None:
            # Pass the name of the shard, so that each shard draws random numbers of its own.
            source = Transformed(source, pre_transform, expected.seed, expected.transform, shard=shard.name)
        write_graphs(folder, source, compact=compact, overwrite=True, prepare=finish, levels=None, **settings)
    return _written(shard, GraphStore(folder), kept=False)


def _written(shard: Shard, store: GraphStore, kept: bool) -> WrittenShard:
    has_splits = any(map(len, store.splits.values()))
    return WrittenShard(shard.name, store.histogram, store.schema, has_splits, store.checksum, kept)


def _finished(
    folder: Path, identity: str, compact: bool, expected: PreTransform | None, declared: Mapping[str, Any]
) -> GraphStore | None:
    """Return the store in a folder; None if it is missing or damaged, or has another `identity` or `compact`.

    Raise FormatError if the store was written with a transform other than `expected`, or with ties, indices or levels
    other than `declared`: such a change affects all shards, so the user must set `overwrite`.
    """
    try:
        store = GraphStore(folder)
        with _SOURCE_FILE.reading(store.segments[0].data / SOURCE) as document:
            found = [document[key] for key in ("source", "compact")]
            applied = PreTransform.from_dict(document["pre_transform"]) if "pre_transform" in document else None
            relations = {name: document[name] for name in ("ties", "indices", "levels") if name in document}
        if found != [identity, compact]:
            return None
        store.verify()
    except InputError:
        return None
    if applied != expected:
        raise FormatError(
            f"{folder} was written with the pre_transform {applied!s:.500}, but needs {expected!s:.500}; write it "
            "again (overwrite=True, --overwrite), or choose another folder."
        )
    if relations != declared:
        raise FormatError(
            f"{folder} was written with {relations or 'no ties, indices or levels'!s:.200}, but needs "
            f"{declared or 'no ties, indices or levels'!s:.200}; write it again (overwrite=True), or choose another "
            "folder."
        )
    return store


def plan_shard(name: str, out: Path, limits: Limits | Buckets, seed: int) -> bool:
    """Write the plans of a shard; return False if the shard already has plans with these limits and this seed."""
    store = GraphStore(out / name)
    try:
        _check_plans(store, limits, seed)
    except FormatError:
        write_plans(store, limits, seed)
        return True
    return False


def _check_plans(store: GraphStore, limits: Limits | Buckets, seed: int) -> None:
    """Raise FormatError if plans are missing, are for other graphs, or have other limits or another seed."""
    for split, plan in load_plans(store).items():
        if (plan.made_for, plan.seed) != (limits.aligned(store.schema.components), seed):
            raise FormatError(
                f"{plan_file(store.segments[0].data, split)} was not made with the limits {limits} and the seed {seed} "
                f"of {MANIFEST}; preprocess the shards again."
            )


def verify_shard(out: Path, shard: ShardEntry, limits: Limits | Buckets, seed: int) -> None:
    """Check every byte of a shard, and that its plans and its store are as the manifest describes them.

    Raise FormatError if a check fails.
    """
    store = GraphStore(out / shard.name)
    store.verify()
    check_unchanged(store.checksum, out, shard)
    _check_plans(store, limits, seed)
