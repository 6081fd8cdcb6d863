"""``dgl-tuplepack preprocess``, ``info`` and ``verify``: stores on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dgl_tuplepack.cli.app import app
from dgl_tuplepack.cli.limits_options import named, whole
from dgl_tuplepack.cli.output import JsonOption, percent, print_json, print_table
from dgl_tuplepack.cli.source import RootOption
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.metrics import summarise

if TYPE_CHECKING:
    from dgl_tuplepack.store import GraphStore

StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="Folder of a store.", show_default=False)]


@app.command()
def preprocess(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="An OGB folder, an OGB name with --root, or a .bin file of dgl.save_graphs.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the new store.", show_default=False)],
    limits: Annotated[
        str | None,
        typer.Option(
            metavar="NODES,EDGES[,GRAPHS]",
            help="Limits of a pack; or NAME=NUMBER,... by component.",
            show_default=False,
        ),
    ] = None,
    auto_limits: Annotated[bool, typer.Option("--auto-limits", help="Search the limits; this is the default.")] = False,
    multiple_of: Annotated[int, typer.Option(min=1, help="Searched limits give padded shapes of this multiple.")] = 1,
    compact: Annotated[bool, typer.Option("--compact", help="Store integers as narrow as they are.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing store.")] = False,
    root: RootOption = None,
    split: Annotated[
        str | None, typer.Option(help="Which split of an OGB folder; default: the usual one.", show_default=False)
    ] = None,
    add_inverse_edge: Annotated[
        bool | None,
        typer.Option(help="Whether each edge of an OGB folder stands for both directions.", show_default=False),
    ] = None,
    labels: Annotated[bool, typer.Option(help="Whether to read the labels of an OGB folder.")] = True,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the plans.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Read SOURCE, write a store and plans for it to OUT, and verify what was written."""
    if limits is not None and (auto_limits or multiple_of != 1):
        raise typer.BadParameter("--limits leaves nothing to search; leave --auto-limits and --multiple-of out.")
    chosen = None if limits is None else _limits(limits)
    from dgl_tuplepack.preprocessing import preprocess as run

    opened = _graph_source(source, root, split=split, add_inverse_edge=add_inverse_edge, labels=labels)
    made = run(opened, out, limits=chosen, multiple_of=multiple_of, compact=compact, overwrite=overwrite, seed=seed)
    summary = {
        **_described(made.store),
        "limits": made.limits.to_dict(),
        "plans": {part: summarise(plan) for part, plan in made.plans.items()},
        "seconds": dict(made.seconds),
    }
    if as_json:
        print_json(summary)
        return
    _show(summary)
    bounds = ", ".join(f"{name} {limit:,}" for name, limit in made.limits.maxima.items())
    names = made.limits.maxima
    rows = [
        [part or "all", f["graphs"], f["packs"], f["gap"], *(percent(f["efficiency"][name]) for name in names)]
        for part, f in summary["plans"].items()
    ]
    print_table(
        f"Plans at most {bounds} a pack",
        ["part", "graphs", "packs", "above bound", *(f"eff. {n}" for n in names)],
        rows,
    )
    print_table("Seconds", ["", ""], [[step, taken] for step, taken in made.seconds.items()])


@app.command()
def info(store: StoreArgument, as_json: JsonOption = False) -> None:
    """Show what is in a store."""
    from dgl_tuplepack.store import GraphStore

    summary = _described(GraphStore(store))
    print_json(summary) if as_json else _show(summary)


@app.command()
def verify(store: StoreArgument, as_json: JsonOption = False) -> None:
    """Compare every byte of a store with its checksums, and the plans beside it with its graphs."""
    from dgl_tuplepack.preprocessing import verify as run

    opened = run(store)
    if as_json:
        print_json({"store": str(store), "graphs": len(opened), "intact": True})
    else:
        print(f"{store}: {len(opened):,} graphs, intact")


def _graph_source(source: str, root: Path | None, **settings: Any) -> Any:
    from dgl_tuplepack.sources import OgbFolder

    if root is not None:
        return OgbFolder(root, source, **settings)
    path = Path(source)
    if not path.exists():
        raise FormatError(f"there is no {source}; give a path, or an OGB name together with --root.")
    return path if path.suffix == ".bin" else OgbFolder(path, **settings)


def _limits(text: str) -> Limits:
    parts = text.split(",")
    if "=" not in text:
        if not 2 <= len(parts) <= 3:
            raise typer.BadParameter(f"--limits {text!r} must be NODES,EDGES or NODES,EDGES,GRAPHS.")
        return Limits(*(whole(part) for part in parts))
    maxima = named("--limits", parts, whole)
    graphs = maxima.pop("graphs", None)
    return Limits.from_components(maxima, graphs)


def _described(store: GraphStore) -> dict[str, Any]:
    """What is in a store, as plain data."""
    entries = store._arrays.metadata.arrays
    columns = [
        {
            "content": entry.content,
            "type": entry.type if isinstance(entry.type, str) or entry.type is None else ":".join(entry.type),
            "name": entry.name,
            "dtype": entry.dtype,
            "stored": entry.stored,
            "shape": list(entry.shape[1:]),
        }
        for entry in entries
        if entry.content in ("node_feature", "edge_feature", "label")
    ]
    return {
        "store": str(store.path),
        "graphs": len(store),
        "totals": store.sizes.totals(),
        "maxima": store.histogram.maxima(),
        "size_classes": len(store.histogram),
        "columns": columns,
        "splits": {name: len(ids) for name, ids in store.splits.items()},
        "bytes": sum(path.stat().st_size for path in store.path.rglob("*") if path.is_file()),
    }


def _show(summary: dict[str, Any]) -> None:
    rows = [
        ["graphs", summary["graphs"]],
        *([name, total] for name, total in summary["totals"].items()),
        *([f"largest graph, {name}", most] for name, most in summary["maxima"].items()),
        ["distinct sizes", summary["size_classes"]],
        *([f"split {name}", number] for name, number in summary["splits"].items()),
        ["MiB on the disk", summary["bytes"] / 2**20],
    ]
    print_table(summary["store"], ["", ""], rows)
    if summary["columns"]:
        headings = ["content", "type", "name", "dtype", "stored", "shape of one"]
        table = [
            [c["content"], c["type"] or "", c["name"], c["dtype"], c["stored"], c["shape"]] for c in summary["columns"]
        ]
        print_table("Features and labels", headings, table)
