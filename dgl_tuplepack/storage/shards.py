"""Datasets of many shards: a store for each shard, written in one or more processes, and a manifest that lists them.

A run is three rounds of tasks, each with one task for each shard: write the store, plan it, or verify it. Between the
rounds, `preprocess_shards` compares the schemas, and finds limits for the graphs of all shards. Tasks that find their
work done only check it, so a run that was killed or failed is continued by running it again.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dgl_tuplepack._core.checks import as_path, whole_number
from dgl_tuplepack._core.files import JsonFormat, writing
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.errors import FormatError, InputError, ShardsError
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.relations import Indices, Ties
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.graphs.transform import GraphTransform, identity_of
from dgl_tuplepack.planning.buckets import Buckets, Shapes
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.search.evaluation import available_cores
from dgl_tuplepack.storage.format import MANIFEST, METADATA, Manifest, PreTransform, ShardEntry, check_unchanged
from dgl_tuplepack.storage.graph_store import GraphStore, MultiStore, load_plans, plan_file
from dgl_tuplepack.storage.preprocessing import Planning, timed, write_plans
from dgl_tuplepack.storage.selection import check_same_schema
from dgl_tuplepack.storage.shard_sources import Shard, as_shards, check_apart
from dgl_tuplepack.storage.write import LOCK, WriteSettings, is_begun, locked, names_in, refuse_others, write_graphs


@dataclass(frozen=True)
class Sharded:
    """Result of `preprocess_shards`.

    Attributes
    ----------
    store
        All shards, opened.
    limits, packs_per_batch
        Limits of all plans, and packs per batch; 1 if limits were given.
    written, kept, planned
        Names of the shards that were written, that were verified and kept, and that got new plans.
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
        paths. All graphs must have the same schema. Either all shards have splits, or none has; names may differ.
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
        ``get_executor()`` of Dask's ``distributed.Client``. Stores and plans do not depend on it.
    ogb_settings
        Keywords of `OgbFolder`, for shards that are paths.
    pre_transform, transform_seed, transform_name, ties, indices, levels
        As in `GraphStore.write`. With several processes, the transform must be picklable. A finished shard that was
        written with other values is refused, unless `overwrite` is True.

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
    LimitsError, SearchError
        A graph exceeds the limits, or batches of `graphs_per_batch` graphs are impossible; found after the shards were
        written.
    InputError
        Another setting has a wrong value; for `pre_transform`, this is a TransformError. Nothing was written.
    """
    planning = Planning.of(limits, graphs_per_batch, multiple_of, seed)
    if pre_transform is not None:
        # Raises TransformError for a wrong transform or seed.
        GraphTransform(pre_transform, transform_seed)
        # Every process must get the same name.
        transform_name = identity_of(pre_transform, transform_name)
    settings = WriteSettings(compact, overwrite, pre_transform, transform_seed, transform_name, ties, indices, levels)
    processes = number_of_processes(workers, executor)
    sources = as_shards(shards, ogb_settings or {})
    out, seconds = as_path(out).absolute(), dict[str, float]()
    check_apart(sources, out)
    with locked(out, functools.partial(_check_folder, out)), pool_of(min(processes, len(sources)), executor) as pool:
        with writing(out):
            # A killed process leaves partial manifests behind.
            for file in out.glob(f".{MANIFEST}.*.partial"):
                file.unlink(missing_ok=True)
        with timed(seconds, "write"):
            write = functools.partial(write_shard, out=out, settings=settings)
            written = list(run_all(pool, write, {shard.name: shard for shard in sources}, "shards").values())
            _check_alike(written)
        with timed(seconds, "limits"):
            histogram = functools.reduce(SizeHistogram.__add__, (shard.histogram for shard in written))
            # The same histogram twice: the graphs to search limits for, and the graphs that the limits must hold.
            chosen, packs = planning.limits_for(histogram, histogram)
            chosen = chosen.aligned(histogram.components)
            chosen.check(histogram.sizes, histogram.counts)
        entries = tuple(ShardEntry(s.name, s.histogram.num_graphs, s.checksum) for s in written)
        manifest = Manifest(histogram.num_graphs, chosen, planning.seed, entries)
        changed = _manifest(out) != manifest
        if changed:
            # Delete the old manifest now: after an interruption, it would not describe the shards and plans on disk.
            with writing(out):
                (out / MANIFEST).unlink(missing_ok=True)
        with timed(seconds, "plan"):
            plan = functools.partial(plan_shard, out=out, limits=chosen, seed=planning.seed)
            planned = run_all(pool, plan, {shard.name: shard.name for shard in written}, "plans")
        if changed:
            manifest.save(out)
        return Sharded(
            MultiStore(out), chosen, packs,
            written=tuple(s.name for s in written if not s.kept), kept=tuple(s.name for s in written if s.kept),
            planned=tuple(name for name, new in planned.items() if new), seconds=seconds,
        )  # fmt: skip


def verify_shards(path: str | os.PathLike[str], *, workers: int | None = 1) -> MultiStore:
    """Check every byte of every shard, and that its plans have the limits and the seed of the manifest.

    `workers` are as in `preprocess_shards`. Raise ShardsError if shards have changed since they were written, and
    FormatError if the manifest has changed, or does not describe the shards.
    """
    folder, processes = as_path(path).absolute(), number_of_processes(workers)
    manifest = Manifest.load(folder)
    verify = functools.partial(verify_shard, out=folder, limits=manifest.limits, seed=manifest.seed)
    with pool_of(min(processes, len(manifest.shards))) as pool:
        run_all(pool, verify, {shard.name: shard for shard in manifest.shards}, "shards")
    return MultiStore(folder)


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


def _check_folder(out: Path) -> None:
    """Raise FormatError unless the folder is missing, empty, a dataset of shards, or left by an unfinished run."""
    names = names_in(out)
    if METADATA in names:
        raise FormatError(f"{out} holds a store already; choose another folder for the shards.")
    if _manifest(out) is None:
        others = [name for name in names if name not in (LOCK, MANIFEST) and not name.startswith(f".{MANIFEST}.")]
        # A run that did not finish leaves its lock file.
        refuse_others(out, [n for n in others if not is_begun(out / n)] if LOCK in names else names, "shards")


# The tasks of a shard ----------------------------------------------------------------------------------------

# A file next to the arrays of a shard, with the source and the settings from which the store was written.
SOURCE = "source.json"
_DECLARED = ("ties", "indices", "levels")
_SOURCE_FILE = JsonFormat("dgl_tuplepack.source", 1, "source of a shard", "preprocess the shards again")


@dataclass(frozen=True)
class WrittenShard:
    """The store of a shard: `has_splits` if a split has graphs, `kept` if it was not written again."""

    name: str
    histogram: SizeHistogram
    schema: Schema
    has_splits: bool
    checksum: str
    kept: bool


def write_shard(shard: Shard, out: Path, settings: WriteSettings) -> WrittenShard:
    """Write the store of a shard, unless an intact store of the same source exists."""
    folder = out / shard.name
    content: dict[str, Any] = {"source": shard.identity(), "compact": settings.compact}
    store = None if settings.overwrite or content["source"] is None else _finished(folder, content, settings)
    kept = store is not None
    if store is None:
        content |= {name: value for name in _DECLARED if (value := getattr(settings, name)) is not None}
        if settings.pre_transform is not None:
            content["pre_transform"] = {"transform": settings.transform_name, "seed": settings.transform_seed}
        with shard.opened() as source:
            write_graphs(
                folder, source, replace(settings, overwrite=True), shard=shard.name,
                prepare=lambda _, data: _SOURCE_FILE.write(data / SOURCE, content, indent=1),
            )  # fmt: skip
        store = GraphStore(folder)
    has_splits = any(map(len, store.splits.values()))
    return WrittenShard(shard.name, store.histogram, store.schema, has_splits, store.checksum, kept)


def _finished(folder: Path, content: Mapping[str, Any], settings: WriteSettings) -> GraphStore | None:
    """Return the store in a folder; None if it is missing or damaged, or its record differs from `content`.

    Raise FormatError if its transform, ties, indices or levels differ: that affects all shards; users must overwrite.
    """
    needed: dict[str, Any] = {"pre_transform": None, **{name: getattr(settings, name) for name in _DECLARED}}
    if settings.pre_transform is not None:
        needed["pre_transform"] = PreTransform(str(settings.transform_name), settings.transform_seed)
    try:
        store = GraphStore(folder)
        with _SOURCE_FILE.reading(store.segments[0].data / SOURCE) as document:
            if {name: document[name] for name in content} != content:
                return None
            found = {name: document.get(name) for name in needed}
            if found["pre_transform"] is not None:
                found["pre_transform"] = PreTransform.from_dict(found["pre_transform"])
        store.verify()
    except InputError:
        return None
    for name, value in needed.items():
        if found[name] != value:
            raise FormatError(
                f"{folder} was written with {name}={found[name]!s:.500}, but needs {name}={value!s:.500}; write it "
                "again (overwrite=True, --overwrite), or choose another folder."
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


def verify_shard(shard: ShardEntry, out: Path, limits: Limits | Buckets, seed: int) -> None:
    """Check every byte of a shard, and that its plans and its store are as the manifest describes them."""
    store = GraphStore(out / shard.name)
    store.verify()
    check_unchanged(store.checksum, out, shard)
    _check_plans(store, limits, seed)


def _check_plans(store: GraphStore, limits: Limits | Buckets, seed: int) -> None:
    """Raise FormatError if plans are missing, are for other graphs, or have other limits or another seed."""
    for split, plan in load_plans(store).items():
        if (plan.made_for, plan.seed) != (limits.aligned(store.schema.components), seed):
            raise FormatError(
                f"{plan_file(store.segments[0].data, split)} was not made with the limits {limits} and the seed {seed} "
                f"of {MANIFEST}; preprocess the shards again."
            )


# Running tasks -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failed:
    """The cause of a task's failure, as text: not every exception can be sent between processes."""

    cause: str


# An error lists at most this many causes, and at most this many shards for each cause.
_SHOWN = 10
_DIED = Failed(
    "its process, or another process of the pool, died (killed, or out of memory); run again with fewer workers: a new "
    "run does only what is missing."
)
# In a process of the pool: whether a task is running, and whether Ctrl-C was pressed; no task may start after that.
_running = _interrupted = False


def number_of_processes(workers: int | None, executor: Executor | None = None) -> int:
    """Return `workers`, or one process for each core if `workers` is None; InputError if an executor is given too."""
    if executor is not None and workers is not None:
        raise InputError("workers are for a pool of processes; leave them out if an executor is given.")
    return available_cores() if workers is None else whole_number("workers", workers, 1, 4096, InputError)


@contextmanager
def pool_of(processes: int, executor: Executor | None = None) -> Iterator[Executor | None]:
    """Provide the executor, or else a pool; None for one process, which is this one."""
    if executor is not None or processes == 1:
        yield executor
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin_worker) as pool:
        yield pool


def run_all(
    pool: Executor | None, task: Callable[[Any], Any], arguments: Mapping[str, Any], unit: str, what: str = "shards"
) -> dict[str, Any]:
    """Call `task` with each argument, in the pool or in this process; return the results by the argument's name.

    Raise ShardsError, which calls tasks `what`, if tasks failed, after all others have ended.
    """
    started: list[Any] = []
    sent = _ByValue if isinstance(pool, ProcessPoolExecutor) else lambda value: value
    results: Iterable[Any] = (_attempt(task, argument) for argument in arguments.values())
    try:
        if pool is not None:
            # Processes start with Ctrl-C blocked: interrupted during its imports, a process prints a traceback.
            _hold_interrupts(True)
            try:
                for argument in arguments.values():
                    # If a process has died, `submit` and `result` fail.
                    started.append(_attempt(pool.submit, _attempt, sent(task), sent(argument)))
            finally:
                _hold_interrupts(False)
            results = (_attempt(each.result) if isinstance(each, Future) else each for each in started)
        shown = progress_bar(results, total=len(arguments), desc=unit, unit=f" {unit}")
        done = dict(zip(arguments, shown, strict=True))
    finally:
        # If this process stops early, cancel all tasks that have not started.
        for each in started:
            if isinstance(each, Future):
                each.cancel()
    refuse({name: each.cause for name, each in done.items() if isinstance(each, Failed)}, len(done), what)
    return done


class _ByValue:
    """A value that other processes get as a copy: torch would keep a file open for each tensor that it sends them."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (pickle.dumps(self._value),)


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function, or `Failed`."""
    global _running
    if _interrupted:
        return Failed("interrupted")
    _running = True
    try:
        return function(*arguments)
    except BrokenExecutor:
        return _DIED
    except InputError as error:
        return Failed(str(error))
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}")
    finally:
        _running = False


def _begin_worker() -> None:
    """Set up a process of the pool: Ctrl-C stops its task, and the process ends when the main process ends."""
    signal.signal(signal.SIGINT, _interrupt)
    _hold_interrupts(False)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _hold_interrupts(held: bool) -> None:
    """Block or unblock Ctrl-C for this process and the processes that it starts; do nothing on Windows."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK if held else signal.SIG_UNBLOCK, {signal.SIGINT})


def _interrupt(*_: object) -> None:
    """Let the running task clean up and end; between tasks, only remember that none may start."""
    global _interrupted
    _interrupted = True
    if _running:
        raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Wait until the main process ends, then end this process at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def refuse(failed: Mapping[str, str], number: int, what: str = "shards") -> None:
    """Raise ShardsError if `failed` (name of a failed task -> cause) is not empty; `number` counts all tasks."""
    if failed:
        names: dict[str, list[str]] = {}
        for name, cause in failed.items():
            names.setdefault(cause, []).append(name)
        # One line for each cause: thousands of shards may fail for the same cause.
        lines = [f"{_first(same, ', ')}: {cause:.2000}" for cause, same in names.items()]
        causes = "\n- " + _first(lines, "\n- ")
        raise ShardsError(
            f"{len(failed)} of {number} {what} failed; correct the causes and run again: a new run does only what is "
            f"missing.{causes}"
        )


def _first(texts: Sequence[str], separator: str) -> str:
    """Join the first texts, and add the number of the others."""
    more = [f"{len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return separator.join([*texts[:_SHOWN], *more])
