"""Make one dataset of many shards: write the stores, find their common limits, write the plans and the manifest."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgl_tuplepack._core.checks import as_path, true_or_false
from dgl_tuplepack._core.files import writing
from dgl_tuplepack.errors import FormatError, InputError
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.relations import Indices, Ties
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.planning.buckets import Shapes
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.storage.folder import LOCK, is_begun, locked
from dgl_tuplepack.storage.format import MANIFEST, METADATA, PreTransform
from dgl_tuplepack.storage.manifest import Manifest, ShardEntry
from dgl_tuplepack.storage.multi_store import MultiStore
from dgl_tuplepack.storage.preprocessing import checked_settings, limits_for, timed
from dgl_tuplepack.storage.selection import check_same_schema
from dgl_tuplepack.storage.shards.shard import as_shards, check_apart
from dgl_tuplepack.storage.shards.tasks import WrittenShard, plan_shard, verify_shard, write_shard
from dgl_tuplepack.storage.shards.workers import number_of_processes, refuse, run_all, submitting


@dataclass(frozen=True)
class Sharded:
    """Result of `preprocess_shards`.

    Attributes
    ----------
    store
        All shards, opened.
    limits
        Limits of all plans.
    packs_per_batch
        Packs per batch, chosen for `graphs_per_batch`; 1 if limits were given.
    written, kept
        Names of the shards written in this run, and of the existing shards that were verified and kept.
    planned
        Names of the shards that got new plans.
    seconds
        Time of each step: write, limits, plan.
    """

    store: MultiStore
    limits: Any
    packs_per_batch: int
    written: tuple[str, ...]
    kept: tuple[str, ...]
    planned: tuple[str, ...]
    seconds: Mapping[str, float]


def preprocess_shards(
    shards: Sequence[Any] | Mapping[str, Any],
    out: str | os.PathLike[str],
    *,
    limits: Shapes | None = None,
    graphs_per_batch: int | None = None,
    multiple_of: int = 1,
    compact: bool = False,
    overwrite: bool = False,
    seed: int = 0,
    workers: int | None = None,
    executor: Executor | None = None,
    ogb_settings: Mapping[str, Any] | None = None,
    pre_transform: Callable[[Any], Any] | None = None,
    transform_seed: int = 0,
    transform_name: str | None = None,
    ties: Ties | None = None,
    indices: Indices | None = None,
    levels: Levels | None = None,
) -> Sharded:
    """Write a store and plans for each shard, and a manifest that lists the shards; all plans have the same limits.

    A second run does only the missing work: a finished shard whose source files have not changed is verified and kept.
    Objects without files are written again. A shard that fails does not stop the other shards.

    Parameters
    ----------
    shards
        Paths, fsspec URLs, or picklable objects: any source that `GraphStore.write` accepts. The keys of a mapping are
        the names of the shards. In a list, shards are named by their paths, or by their positions if they have no
        paths. All graphs must have the same schema. Either all shards have splits, or no shard has splits. The names of
        the splits may differ between shards.
    out
        Folder of the dataset, with a folder for each shard. With several machines, all of them must see the folder.
    limits
        Limits of the packs, or a list of two to four limits for shape buckets; None: search for limits, considering all
        graphs of all shards.
    graphs_per_batch
        Search for limits whose batches hold this many graphs on average (>= 1). None: as in `preprocess`.
    multiple_of, compact, seed
        As in `preprocess`.
    overwrite
        Write every shard again, even if it is finished.
    workers
        Number of processes in the pool; None: one for each core. 1: no pool, all tasks run in this process.
    executor
        Run the tasks on this executor instead of a pool: any ``concurrent.futures.Executor``, such as
        ``get_executor()`` of Dask's ``distributed.Client``. Stores and plans do not depend on the executor or on the
        number of workers.
    ogb_settings
        Keywords of `OgbFolder`, for shards that are paths.
    pre_transform, transform_seed, transform_name
        As in `GraphStore.write`. With several processes, the transform must be picklable. A finished shard that was
        written with another transform is refused, unless `overwrite` is True.
    ties, indices, levels
        As in `GraphStore.write`. A finished shard that was written with other values is refused, unless `overwrite` is
        True.

    Returns
    -------
    Sharded
        The dataset as a `MultiStore`, and the names of the written, kept and planned shards.

    Raises
    ------
    ShardsError
        Shards could not be read, written or planned; the message names each failed shard and the cause. If a shard of
        an earlier dataset was replaced, that dataset cannot be opened until a run succeeds.
    FormatError
        `out` holds a store or other files, or cannot be written, or another run is writing to it.
    SizesError
        There are no shards, two shards have the same name, or the source of a shard would be overwritten.
    LimitsError
        A graph exceeds the limits, or `limits` are neither a `Limits` nor a list of them.
    SearchError
        Batches of `graphs_per_batch` graphs are impossible. This is found after the shards were written.
    InputError
        Another setting has a wrong value; for `pre_transform`, this is a TransformError. Nothing was written.

    Notes
    -----
    Each shard is read once: graphs are written and counted at the same time. Processes exchange paths, schemas and
    histograms; graphs are sent only if a source is an object that holds graphs.
    """
    given, multiple_of, seed = checked_settings(limits, multiple_of, seed, graphs_per_batch)
    compact, overwrite = true_or_false("compact", compact), true_or_false("overwrite", overwrite)
    expected = _checked_transform(pre_transform, transform_seed, transform_name)
    if executor is not None and workers is not None:
        raise InputError("workers are for a pool of processes; leave them out if an executor is given.")
    processes = number_of_processes(workers)
    relations = {"ties": ties, "indices": indices, "levels": levels}
    declared = {name: value for name, value in relations.items() if value is not None}
    named_shards = as_shards(shards, ogb_settings or {})
    out, seconds = as_path(out).absolute(), dict[str, float]()
    check_apart(named_shards, out)
    with _locked_folder(out), submitting(min(processes, len(named_shards)), executor) as submit:
        with timed(seconds, "write"):
            settings = (out, compact, overwrite, pre_transform, expected, declared)
            tasks = {shard.name: (shard, *settings) for shard in named_shards}
            # In the order of `shards`.
            written = list(run_all(submit, write_shard, tasks, "shards").values())
            _check_alike(written)
        with timed(seconds, "limits"):
            histogram = functools.reduce(SizeHistogram.__add__, (shard.histogram for shard in written))
            # The same histogram twice: the graphs to search limits for, and the graphs that the limits must hold.
            chosen, packs = limits_for(histogram, given, graphs_per_batch, multiple_of, histogram)
            chosen = chosen.aligned(histogram.components)
            chosen.check(histogram.sizes, histogram.counts)
        entries = tuple(ShardEntry(s.name, s.histogram.num_graphs, s.checksum) for s in written)
        manifest = Manifest(histogram.num_graphs, chosen, seed, entries)
        changed = _manifest(out) != manifest
        if changed:
            # Delete the old manifest now: after an interruption, it would not describe the shards and plans on disk.
            with writing(out):
                (out / MANIFEST).unlink(missing_ok=True)
        with timed(seconds, "plan"):
            planned = run_all(submit, plan_shard, {s.name: (s.name, out, chosen, seed) for s in written}, "plans")
        if changed:
            manifest.save(out)
        return Sharded(
            MultiStore(out), chosen, packs,
            written=tuple(s.name for s in written if not s.kept), kept=tuple(s.name for s in written if s.kept),
            planned=tuple(name for name, new in planned.items() if new), seconds=seconds,
        )  # fmt: skip


def verify_shards(path: str | os.PathLike[str], *, workers: int | None = 1) -> MultiStore:
    """Check every byte of every shard, and check the plans of each shard.

    The plans must be for the graphs of the shard, and must have the limits and the seed of the manifest.

    `workers` are as in `preprocess_shards`. Raise ShardsError if shards have changed since they were written, and
    FormatError if the manifest has changed, or does not describe the shards.
    """
    folder, processes = as_path(path).absolute(), number_of_processes(workers)
    manifest = Manifest.load(folder)
    tasks = {shard.name: (folder, shard, manifest.limits, manifest.seed) for shard in manifest.shards}
    with submitting(min(processes, len(tasks))) as submit:
        run_all(submit, verify_shard, tasks, "shards")
    return MultiStore(folder)


def _checked_transform(
    pre_transform: Callable[[Any], Any] | None, transform_seed: int, transform_name: str | None
) -> PreTransform | None:
    """Return what identifies a transform; raise TransformError for a wrong transform or seed."""
    if pre_transform is None:
        return None
    GraphTransform(pre_transform, transform_seed)
    return PreTransform.after(None, pre_transform, transform_seed, transform_name)


def _check_alike(written: Sequence[WrittenShard]) -> None:
    """Raise ShardsError if the shards differ in their schema, or if only some of the shards have splits."""
    first, failed = written[0], dict[str, str]()
    expected = first.schema
    with_splits = next((shard.name for shard in written if shard.has_splits), None)
    for shard in written:
        if with_splits is not None and not shard.has_splits:
            failed[shard.name] = (
                f"it has no splits, but {with_splits} has, so the graphs of this shard would be in no split; leave the "
                'shard out, or write it as a store, GraphStore.write(..., splits={"train": ...}), and give the store.'
            )
        try:
            expected = expected.settled(shard.schema.shown)
            check_same_schema(expected, shard.schema.settled(expected.shown), first.name, shard.name)
        except InputError as error:
            failed[shard.name] = str(error)
    refuse(failed, len(written))


def _manifest(out: Path) -> Manifest | None:
    """Return the manifest; None if it is missing or cannot be read."""
    try:
        return Manifest.load(out)
    except FormatError:
        return None


@contextlib.contextmanager
def _locked_folder(out: Path) -> Iterator[None]:
    """Make the folder and lock it for this run; raise FormatError if `_check_folder` refuses the folder."""
    with locked(out, functools.partial(_check_folder, out)):
        with writing(out):
            # Check again, now under the lock: another run may have changed the folder since the first check.
            _check_folder(out)
            # A killed process leaves partial manifests behind.
            for file in out.glob(f".{MANIFEST}.*.partial"):
                file.unlink(missing_ok=True)
        yield


def _check_folder(out: Path) -> None:
    """Raise FormatError unless the folder is missing, empty, a dataset of shards, or left by an unfinished run."""
    if not out.is_dir():
        return
    names = sorted(os.listdir(out))
    if METADATA in names:
        raise FormatError(f"{out} holds a store already; choose another folder for the shards.")
    if _manifest(out) is not None:
        return
    others = [name for name in names if name not in (LOCK, MANIFEST) and not name.startswith(f".{MANIFEST}.")]
    # A run that did not finish leaves its lock file.
    others = [name for name in others if not is_begun(out / name)] if LOCK in names else names
    if others:
        raise FormatError(f"{out} holds other things, such as {others[0]}, but no shards; choose an empty folder.")
