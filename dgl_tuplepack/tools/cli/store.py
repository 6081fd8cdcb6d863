"""``dgl-tuplepack preprocess``, ``info``, ``verify``, ``chunk`` and ``partition``: data on disk."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.progress import notice
from dgl_tuplepack._version import __version__
from dgl_tuplepack.compiling.torch_versions import remark_on
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.planning.plan import summarise
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.output import percent, print_json, print_line, print_table
from dgl_tuplepack.tools.cli.sources import open_source, path_of

if TYPE_CHECKING:
    from dgl_tuplepack.storage.graph_store import StoredGraphs


# Packages that `info --system` shows.
_PACKAGES = (
    "torch", "dgl", "torch_geometric", "ogb", "numpy", "numba", "highspy", "scipy", "torchdata", "pytorch_lightning",
)  # fmt: skip
_STORE = options.argument("STORE", "Folder of a store.")
Sources = Annotated[
    list[str],
    options.argument(
        "SOURCE",
        f"One or several of: {options.GRAPHS}. With several SOURCEs, --workers or --dask, the output is a sharded "
        "dataset; each SOURCE is then a path or fsspec URL.",
    ),
]


def preprocess(
    sources: Sources,
    out: Annotated[Path, options.out("Folder of the new store.", show_default=False)],
    given: options.GivenLimits = None,
    graphs_per_batch: options.GraphsPerBatch = None,
    batch_size: Annotated[
        int | None,
        options.number("Also store the shape of batches with exactly this many graphs, for StaticBatchSampler.", 2**31),
    ] = None,
    multiple_of: options.MultipleOf = 1,
    compact: Annotated[bool, typer.Option("--compact", help="Store integers in the narrowest dtype.")] = False,
    overwrite: options.Overwrite = False,
    root: options.Root = None,
    split_scheme: Annotated[
        str | None, typer.Option(help="Split scheme of an OGB folder, such as scaffold; default: OGB's choice.")
    ] = None,
    add_inverse_edge: Annotated[
        bool | None, typer.Option(help="Whether to add the reverse of each edge of an OGB folder.")
    ] = None,
    labels: Annotated[bool, typer.Option(help="Whether to read the labels of an OGB folder.")] = True,
    seed: options.Seed = 0,
    workers: options.Workers = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on a Dask cluster, such as host:8786.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Read each SOURCE, write stores and plans, and verify them.

    One SOURCE becomes one store. Several SOURCEs, or one SOURCE with --workers or --dask, become a folder with a
    manifest, which lists the shards, and a store for each shard. A second run processes only missing or changed
    shards. Without --limits, find limits for --graphs-per-batch.
    """
    chosen = options.given_limits(given, graphs_per_batch, multiple_of)
    if workers is not None and dask is not None:
        raise typer.BadParameter("--workers runs on this machine, --dask on a cluster; leave one out.")
    # Leave out settings that the user did not give: a default, written out, would make shards count as changed.
    asked = {"split": split_scheme, "add_inverse_edge": add_inverse_edge, "labels": None if labels else False}
    ogb = {name: value for name, value in asked.items() if value is not None}
    settings: dict[str, Any] = {
        "limits": chosen, "graphs_per_batch": graphs_per_batch, "multiple_of": multiple_of, "compact": compact,
        "overwrite": overwrite, "seed": seed,
    }  # fmt: skip
    is_sharded = len(sources) > 1 or workers is not None or dask is not None
    if is_sharded and batch_size is not None:
        raise typer.BadParameter("--batch-size is for one store, not for shards; leave it out.")
    opened = [path_of(source, root) if is_sharded else open_source(source, root, ogb) for source in sources]
    # Imports and a pass over the sizes may take long before the first bar.
    with _cluster(dask) as executor, notice("reading the graphs"):
        from dgl_tuplepack.storage.preprocessing import preprocess as run
        from dgl_tuplepack.storage.shards import preprocess_shards

        done: Any
        more: dict[str, Any]
        if is_sharded:
            done = preprocess_shards(opened, out, workers=workers, executor=executor, ogb_settings=ogb, **settings)
            more = {name: list(getattr(done, name)) for name in ("written", "kept", "planned")}
        else:
            done = run(opened[0], out, batch_size=batch_size, **settings)
            more = {
                "limits": done.limits.to_dict(),
                "plans": {split: summarise(plan) for split, plan in done.plans.items()},
                "static_shape": done.static_shape and done.static_shape.to_dict(),
            }
    summary = {**_described(done.store), **more, "packs_per_batch": done.packs_per_batch, "seconds": dict(done.seconds)}
    if as_json:
        print_json(summary)
        return
    _show_preprocessed(summary)
    if is_sharded and (done.written or done.planned):
        print_line(f"{out}: {len(done.written):,} shards written, {len(done.kept):,} already there and intact")
    elif is_sharded:
        print_line(f"{out}: nothing to do, all {len(done.kept):,} shards are already there and intact")


def _show_preprocessed(summary: dict[str, Any]) -> None:
    """Print the result of `preprocess` or `preprocess_shards`."""
    _show(summary)
    if "plans" in summary:
        names = next(iter(summary["plans"].values()))["efficiency"]
        # With shape buckets, plans minimise slots, not packs.
        bound = [] if isinstance(summary["limits"], list) else ["gap"]
        rows = [
            [split or "all", *(plan[name] for name in ["graphs", "packs", *bound]),
             *(percent(plan["efficiency"][name]) for name in names)]
            for split, plan in summary["plans"].items()
        ]  # fmt: skip
        headings = ["split", "graphs", "packs", *["above bound" for _ in bound], *(f"eff. {name}" for name in names)]
        print_table(f"Plans with at most {_bounds(summary['limits'])} per pack", headings, rows)
    if (packs := summary["packs_per_batch"]) > 1:
        print_line(f"batches have {packs} packs each")
    if shape := summary.get("static_shape"):
        print_line(f"batches of exactly {shape['graphs']} graphs have at most {_bounds(shape)}")
    print_table("Seconds", ["", ""], [[step, seconds] for step, seconds in summary["seconds"].items()])


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Provide the executor of a Dask cluster, or None without an address."""
    if address is None:
        yield None
        return
    distributed = load("distributed")
    try:
        client = distributed.Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise FormatError(f"no Dask cluster answers at {address}: {error}; give its scheduler's address.") from error
    with client:
        yield client.get_executor(pure=False)


def info(
    store: Annotated[Path | None, _STORE] = None,
    system: Annotated[bool, typer.Option("--system", help="Show versions of packages, for bug reports.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show the contents of a store or of a sharded dataset, or with --system the versions of packages."""
    if (store is None) != system:
        raise typer.BadParameter("give either STORE or --system.")
    if store is None:
        versions = _versions()
        print_json(versions) if as_json else print_table("System", ["", ""], [list(row) for row in versions.items()])
        return
    from dgl_tuplepack.storage.reader import open_stored

    summary = _described(open_stored(store))
    print_json(summary) if as_json else _show(summary)


def _versions() -> dict[str, str]:
    found = {"dgl_tuplepack": __version__, "python": platform.python_version(), "system": platform.platform()}
    found["processors"] = str(os.cpu_count())
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "absent"
    if found["torch"] != "absent":
        found["tp.compile"] = remark_on(found["torch"])
    return found


def verify(store: Annotated[Path, _STORE], as_json: options.Json = False) -> None:
    """Compare every byte of a store with its checksums, and its plans with its graphs.

    In a sharded dataset, verify every shard.
    """
    from dgl_tuplepack.storage.graph_store import plan_files
    from dgl_tuplepack.storage.preprocessing import verify as run
    from dgl_tuplepack.storage.reader import is_sharded
    from dgl_tuplepack.storage.shards import verify_shards

    sharded = is_sharded(store)
    opened: StoredGraphs = verify_shards(store) if sharded else run(store)
    if as_json:
        print_json({"store": str(store), "graphs": len(opened), "intact": True})
    else:
        # A store without plans is valid, but the user may have lost them.
        plans = "" if sharded or plan_files(opened.segments[0].data) else "; it has no plans"
        print_line(f"{store}: {len(opened):,} graphs, intact{plans}")


def _described(store: StoredGraphs) -> dict[str, Any]:
    """Return the contents of a store or of shards as plain data."""
    from dgl_tuplepack.storage.graph_store import MultiStore

    # Shards may store integers in different dtypes; `stored` is the dtype in the first shard.
    columns = [
        {
            "content": entry.content,
            "type": entry.type if isinstance(entry.type, str) or entry.type is None else ":".join(entry.type),
            "name": entry.name,
            "dtype": entry.dtype,
            "stored": entry.stored,
            "shape": list(entry.shape[1:]),
        }
        for entry in store.segments[0].entries.values()
        if entry.content in ("node_feature", "edge_feature", "label")
    ]
    shards = {}
    if isinstance(store, MultiStore):
        numbers = {shard.name: shard.num_graphs for shard in store.manifest.shards}
        shards = {"shards": numbers, "limits": store.limits.to_dict()}
    return {
        "store": str(store.path),
        "graphs": len(store),
        "totals": store.sizes.totals(),
        "maxima": store.histogram.maxima(),
        "size_classes": len(store.histogram),
        "columns": columns,
        "splits": {name: len(ids) for name, ids in store.splits.items()},
        "pre_transform": None if store.pre_transform is None else asdict(store.pre_transform),
        "ties": dict(store.schema.ties),
        "indices": dict(store.schema.indices),
        "bytes": sum(path.stat().st_size for path in store.path.rglob("*") if path.is_file()),
        **shards,
    }


def _show(summary: dict[str, Any]) -> None:
    """Print the result of `_described` as tables."""
    rows = [
        ["graphs", summary["graphs"]],
        *([name, total] for name, total in summary["totals"].items()),
        *([f"largest graph, {name}", most] for name, most in summary["maxima"].items()),
        ["distinct sizes", summary["size_classes"]],
        *([f"split {name}", number] for name, number in summary["splits"].items()),
        ["MiB on disk", summary["bytes"] / 2**20],
    ]
    if summary["pre_transform"] is not None:
        rows.append(["transformed by", summary["pre_transform"]["transform"]])
    rows += [[f"tied to {edges}", nodes] for nodes, edges in summary["ties"].items()]
    rows += [[f"index {name}", component] for name, component in summary["indices"].items()]
    if "shards" in summary:
        rows += [["shards", len(summary["shards"])], ["limits of their plans", _bounds(summary["limits"])]]
    print_table(summary["store"], ["", ""], rows)
    if summary["columns"]:
        headings = ["content", "type", "name", "dtype", "stored", "shape of one row"]
        table = [
            [c["content"], c["type"] or "", c["name"], c["dtype"], c["stored"], c["shape"]] for c in summary["columns"]
        ]
        print_table("Features and labels", headings, table)


def _bounds(limits: Any) -> str:
    """Return limits as text; `limits` is the result of `Limits.to_dict`, or for shape buckets a list of results."""
    shapes = limits if isinstance(limits, list) else [limits]
    return " or ".join(", ".join(f"{name} {limit:,}" for name, limit in each["maxima"].items()) for each in shapes)


_EDGES, _FEATURES = ("csv", "numpy", "parquet"), ("numpy", "parquet")

Graphs = Annotated[str, options.argument("SOURCE", f"One of: {options.GRAPHS}.")]
Name = Annotated[str, typer.Option("--graph-name", help="Name of the large graph.")]


def chunk(
    source: Graphs,
    out: Annotated[Path, options.out("Folder of the chunks.", show_default=False)],
    chunks: Annotated[int, options.number("Number of chunks.", 2**20)] = 8,
    edges_as: Annotated[str, options.choice(f"Format of edges: one of {', '.join(_EDGES)}.", _EDGES)] = "csv",
    features_as: Annotated[str, options.choice(f"Format of features: {' or '.join(_FEATURES)}.", _FEATURES)] = "numpy",
    name: Name = "graphs",
    overwrite: options.Overwrite = False,
    root: options.Root = None,
    as_json: options.Json = False,
) -> None:
    """Write the graphs of SOURCE as one large graph in DGL's chunked graph format.

    All commands accept the folder OUT as SOURCE, and DGL's distributed pipeline reads the folder.
    """
    load("torch")
    from dgl_tuplepack.storage.chunks import write_chunks

    chunked = write_chunks(
        open_source(source, root), out, chunks, edges_as=edges_as, features_as=features_as, name=name,
        overwrite=overwrite,
    )  # fmt: skip
    totals = chunked.sizes.totals()
    if as_json:
        print_json({"chunks": str(out), "graphs": len(chunked), "totals": totals})
    else:
        print_line(f"{out}: {len(chunked):,} graphs, " + ", ".join(f"{n:,} {each}" for each, n in totals.items()))


def partition(
    source: Graphs,
    out: Annotated[Path, options.out("Folder of the partition.", show_default=False)],
    parts: Annotated[int, options.number("Number of parts.", 2**20, show_default=False)],
    balance: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Balance this split or node mask too, such as train; may be repeated."),
    ] = None,
    name: Name = "graphs",
    overwrite: options.Overwrite = False,
    root: options.Root = None,
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Divide the graphs of SOURCE into balanced parts that dgl.distributed opens; no edge is cut.

    A second run does only what is missing. All commands accept a part, such as OUT/part0, as SOURCE.
    """
    load("torch")
    from dgl_tuplepack.storage.partition import partition as run

    done = run(
        open_source(source, root), out, parts, balance=balance or (), name=name, overwrite=overwrite, workers=workers,
    )  # fmt: skip
    if as_json:
        print_json({**asdict(done), "config": str(done.config)})
        return
    rows = [[each, f"{value:.6f}", f"{done.bound[each]:.6f}"] for each, value in done.imbalance.items()]
    print_table(f"{done.config}: {parts:,} parts", ["largest part / mean", "found", "at least"], rows)
    print_line(f"{len(done.written):,} parts written, {len(done.kept):,} already there and intact; no edge is cut")
