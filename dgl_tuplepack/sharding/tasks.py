"""What is done with one shard, in any process: small things come in, and small things go out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgl_tuplepack._files import check_header, checksum, read_json, write_text
from dgl_tuplepack.errors import FormatError, InputError
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.preprocessing import part_histograms, verify, verify_plans, write_plans
from dgl_tuplepack.sharding.shard import Shard
from dgl_tuplepack.store import GraphStore
from dgl_tuplepack.store.folder import check_place, is_begun
from dgl_tuplepack.store.format import MANIFEST, METADATA
from dgl_tuplepack.store.manifest import ShardEntry, was_written_anew
from dgl_tuplepack.store.plan_files import plan_file, plan_files

FORMAT, VERSION = "dgl_tuplepack.source", 1
SOURCE = "source.json"
# Folder in that of a dataset, for stores that are to replace those of the dataset.
NEW = ".new"


@dataclass(frozen=True)
class WrittenShard:
    """What the run has to know of the store of a shard; `has_parts`: its split has a part with graphs.

    `kept`: it was there already. `is_new`: it lies in the folder `NEW`, to be put in its place.
    """

    name: str
    histogram: SizeHistogram
    schema: Schema
    has_parts: bool
    checksum: str
    kept: bool
    is_new: bool


def write_shard(shard: Shard, out: Path, compact: bool, overwrite: bool) -> WrittenShard:
    """Write the store of a shard, unless it is there, whole, and of the same source.

    A dataset stays as it was: where there is one, the store is written in the folder `NEW`.

    Raises
    ------
    FormatError, SchemaError, SizesError
        As in `GraphStore.write`; whatever store was there stays.
    """
    folder = out / shard.name
    identity = shard.identity()
    for place in () if overwrite else (folder, out / NEW / shard.name):
        store = _finished(place, identity, compact)
        if store is not None:
            return _written(shard, store, kept=True, is_new=place != folder)
    _clear_remains(folder)
    is_new = (out / MANIFEST).exists()
    if is_new:
        check_place(folder, overwrite=True)
        folder = out / NEW / shard.name
    with shard.opened() as source:
        store = GraphStore.write(folder, source, compact=compact, overwrite=True)
    if shard.has_files and shard.identity() != identity:
        raise FormatError(f"the source of {shard.name} changed while it was read; run again.")
    content = {"source": identity, "compact": compact, "store": store.checksum}
    document = {"format": FORMAT, "version": VERSION, **content}
    write_text(folder / SOURCE, json.dumps({**document, "checksum": checksum(document)}, indent=1) + "\n")
    return _written(shard, store, kept=False, is_new=is_new)


def _written(shard: Shard, store: GraphStore, kept: bool, is_new: bool) -> WrittenShard:
    has_parts = any(map(len, store.splits.values()))
    return WrittenShard(shard.name, store.histogram, store.schema, has_parts, store.checksum, kept, is_new)


def _clear_remains(folder: Path) -> None:
    """Take away what we wrote beside a store that is no more, but nothing where other things lie there, too."""
    if (folder / METADATA).exists() or not _is_ours(folder / SOURCE):
        return
    # What tells that the folder is ours goes last.
    remains = [*(file for file in folder.glob("*.json") if _plan(file) is not None), folder / SOURCE]
    if is_begun(folder, besides=[file.name for file in remains]):
        for file in remains:
            file.unlink()


def _is_ours(source: Path) -> bool:
    try:
        check_header(read_json(source), source, FORMAT, VERSION)
    except FormatError:
        return False
    return True


def _plan(file: Path) -> PackPlan | None:
    """A plan; None if there is none that can be read."""
    try:
        return PackPlan.load(file)
    except InputError:
        return None


def _finished(folder: Path, identity: str, compact: bool) -> GraphStore | None:
    """The store in a folder, if it was written from the same source in the same way, and every byte still is there."""
    if not (folder / METADATA).exists() or not (folder / SOURCE).exists():
        return None
    try:
        document = read_json(folder / SOURCE)
        check_header(document, folder / SOURCE, FORMAT, VERSION)
        store = GraphStore(folder)
        found = [document.get(key) for key in ("source", "compact", "store", "checksum")]
        if found != [identity, compact, store.checksum, checksum(document)]:
            return None
        store.verify()
    except InputError:
        # Damaged; it is made again.
        return None
    return store


def plan_shard(name: str, out: Path, limits: Limits, seed: int) -> bool:
    """Write the plans of a shard beside its store; False if they are there."""
    store = GraphStore(out / name)
    histograms = part_histograms(store)
    files = {plan_file(store.path, part): histogram for part, histogram in histograms.items()}
    if set(plan_files(store.path)) == set(files) and all(
        _is_plan(file, histogram, limits, seed) for file, histogram in files.items()
    ):
        return False
    write_plans(store, limits, seed)
    return True


def _is_plan(file: Path, histogram: SizeHistogram, limits: Limits, seed: int) -> bool:
    plan = _plan(file)
    return plan is not None and (plan.histogram, plan.limits, plan.seed) == (
        histogram,
        limits.aligned(histogram.components),
        seed,
    )


def verify_shard(out: Path, shard: ShardEntry, limits: Limits, seed: int) -> None:
    """Check every byte of a shard, its plans, and that both are those of which the manifest tells.

    Raises
    ------
    FormatError
        Names what is not as it was written.
    """
    store = verify(out / shard.name)
    if store.checksum != shard.store:
        raise FormatError(was_written_anew(out, shard.name))
    verify_plans(store)
    for part, histogram in part_histograms(store).items():
        file = plan_file(store.path, part)
        if not _is_plan(file, histogram, limits, seed):
            raise FormatError(
                f"{file} is no plan of {limits} and seed {seed}, of which {out / MANIFEST} tells; preprocess it again."
            )


@dataclass(frozen=True)
class Failed:
    """Why a shard could not be done."""

    cause: str


def attempt(task: Any, *arguments: Any) -> Any:
    """Result of a task, or its failure as text: not every exception can be sent between processes."""
    try:
        return task(*arguments)
    except InputError as error:
        return Failed(str(error))
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}")
