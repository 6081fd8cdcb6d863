"""Make one dataset of many shards: write the stores, find their common limits, write the plans and the manifest."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dgl_tuplepack._core.checks import as_path, true_or_false, whole_number
from dgl_tuplepack._core.files import JsonFormat, writing
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.errors import FormatError, InputError, ShardsError
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.graphs.relations import Indices, Ties
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.planning.buckets import Buckets, Shapes
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.search.evaluation import available_cores
from dgl_tuplepack.storage.folder import LOCK, is_begun, locked
from dgl_tuplepack.storage.format import MANIFEST, METADATA, Manifest, PreTransform, ShardEntry, check_unchanged
from dgl_tuplepack.storage.graph_store import GraphStore, MultiStore, StoredGraphs, load_plans, plan_file, write_graphs
from dgl_tuplepack.storage.preprocessing import checked_settings, limits_for, timed, write_plans
from dgl_tuplepack.storage.selection import check_same_schema
from dgl_tuplepack.storage.shards.shard import Shard, as_shards, check_apart
from dgl_tuplepack.storage.write import Transformed


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


# Name of a task -> its arguments.
Tasks = Mapping[str, tuple[Any, ...]]
# Submits a function with its arguments, and returns the future of its result.
Submit = Callable[..., Future[Any]]


@dataclass(frozen=True)
class Failed:
    """The cause of a task's failure, as text."""

    cause: str


# An error lists at most this many causes, and at most this many shards for each cause.
_SHOWN = 10
_DIED = Failed(
    "its process, or another process of the pool, died (killed, or out of memory); run again with fewer workers: a new "
    "run does only what is missing."
)
# In a process of the pool: whether the run was interrupted. If so, tasks in the queue must not start.
_interrupted = False


@contextmanager
def submitting(workers: int, executor: Executor | None = None) -> Iterator[Submit | None]:
    """Yield a function that submits a task to the executor or to a pool.

    With one worker and no executor, yield None: `run` then runs the tasks in this process.
    """
    if executor is not None:
        yield lambda *task: executor.submit(_attempt, *task)
    elif workers == 1:
        yield None
    else:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin_worker) as pool:
            yield lambda *task: pool.submit(_work, *task)


def run(submit: Submit | None, task: Callable[..., Any], tasks: Tasks) -> Iterator[tuple[str, Any]]:
    """Yield the name and the result (or `Failed`) of each task as soon as the task ends."""
    if submit is None:
        yield from ((name, _attempt(task, *arguments)) for name, arguments in tasks.items())
        return
    names: dict[Future[Any], str] = {}
    try:
        # Block Ctrl-C while processes start: a process that is interrupted during its imports prints a traceback.
        _hold_interrupts(True)
        try:
            for name, arguments in tasks.items():
                names[submit(task, *arguments)] = name
        except BrokenExecutor:
            # A process has died. Tasks that were not submitted are reported below.
            pass
        finally:
            _hold_interrupts(False)
        # If a process has died, `_attempt` returns `_DIED`.
        yield from ((names[future], _attempt(future.result)) for future in as_completed(names))
    finally:
        # If the caller stops early, cancel all tasks that have not started.
        for future in names:
            future.cancel()
    yield from ((name, _DIED) for name in tasks.keys() - names.values())


def run_all(
    submit: Submit | None, task: Callable[..., Any], tasks: Tasks, unit: str, what: str = "shards"
) -> dict[str, Any]:
    """Return the results of all tasks by name, in the order of the tasks.

    Raise ShardsError if tasks failed. `unit` is the unit of the progress bar, `what` the noun for tasks in messages.
    """
    done = dict(progress_bar(run(submit, task, tasks), total=len(tasks), desc=unit, unit=f" {unit}"))
    refuse({name: done[name].cause for name in tasks if isinstance(done[name], Failed)}, len(tasks), what)
    return {name: done[name] for name in tasks}


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


def number_of_processes(workers: int | None) -> int:
    """Return the number of processes: `workers`, or one for each core if `workers` is None."""
    return available_cores() if workers is None else whole_number("workers", workers, 1, 4096, InputError)


def _attempt(task: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a task, or `Failed` with the cause: not every exception can be sent between processes."""
    try:
        return task(*arguments)
    except BrokenExecutor:
        return _DIED
    except InputError as error:
        return Failed(str(error))
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}")


def _hold_interrupts(held: bool) -> None:
    """Block or unblock Ctrl-C for this process and the processes that it starts; do nothing on Windows."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK if held else signal.SIG_UNBLOCK, {signal.SIGINT})


def _begin_worker() -> None:
    """Set up a process of the pool: Ctrl-C makes later tasks fail, and the process ends when the main process ends."""
    signal.signal(signal.SIGINT, _end_run)
    # Unblock Ctrl-C, which the main process blocked before it started this process.
    _hold_interrupts(False)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait until the main process ends, then end this process at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _end_run(*_: object) -> None:
    """Make every later task of this process fail before it starts. Between tasks, Ctrl-C calls this function."""
    global _interrupted
    _interrupted = True


def _work(task: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a task in a process of the pool, or `Failed`.

    Ctrl-C reaches every process. In a running task it raises KeyboardInterrupt, so that the task can clean up.
    """
    try:
        if not _interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            return _attempt(task, *arguments)
    except KeyboardInterrupt:
        _end_run()
    finally:
        signal.signal(signal.SIGINT, _end_run)
    return Failed("interrupted")
