"""What SOURCE on the command line stands for: from a name, a path or standard input to a histogram of sizes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.histogram import SizeHistogram, load_example
from dgl_tuplepack.sizes import GraphSizes, IntArray
from dgl_tuplepack.sources import OgbFolder, sizes_of

if TYPE_CHECKING:
    from dgl_tuplepack.store.graph_store import StoredGraphs

_EXAMPLE = "example:"

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A saved histogram (.json, .csv), an OGB folder, an OGB name with --root, a store, a dataset of "
        "shards, a .bin file of dgl.save_graphs, example:ogbg-molhiv, or - for CSV on standard input.",
        show_default=False,
    ),
]
RootOption = Annotated[Path | None, typer.Option(help="Folder of OGB datasets, where SOURCE is an OGB name.")]
PartOption = Annotated[
    str | None, typer.Option(help="Only one part of the dataset's split, train say.", show_default=False)
]


def read_histogram(source: str, root: Path | None = None, part: str | None = None) -> SizeHistogram:
    """Histogram of a SOURCE.

    Parameters
    ----------
    source
        See the help of the command line.
    root
        Folder of OGB datasets, for a name.
    part
        Part of the split to take; None: all graphs.

    Raises
    ------
    FormatError
        There is no such source, or it is damaged.
    SizesError
        It has no such part, or no graphs.
    typer.BadParameter
        A histogram was given together with `root` or `part`.
    """
    if source == "-" or source.startswith(_EXAMPLE) or Path(source).suffix.lower() in (".json", ".csv"):
        for option, given in (("--root", root), ("--part", part)):
            if given is not None:
                raise typer.BadParameter(f"{source} is a histogram, which heeds no {option}; leave it out.")
        return _saved(source)
    sizes, splits = _graphs(source, root, part)
    if part is None:
        return SizeHistogram.from_sizes(sizes)
    if part not in splits:
        advice = f"choose one of {', '.join(splits)}, or leave --part out" if splits else "leave --part out"
        known = "" if splits else ", for it has no split"
        raise SizesError(f"{source} has no part {part!r}{known}; {advice}.")
    # Positions in a part are no ids of the dataset, so graphs go unnamed.
    return SizeHistogram.from_sizes(sizes.take(splits[part])).without_ids()


def _saved(source: str) -> SizeHistogram:
    if source.startswith(_EXAMPLE):
        return load_example(source.removeprefix(_EXAMPLE))
    if source != "-":
        return SizeHistogram.load(source)
    if sys.stdin is None:
        raise FormatError("standard input is closed; give lines of nodes,edges,count, or the path of a file.")
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except OSError as error:
        raise FormatError(f"standard input cannot be read ({error.strerror}); give the path of a file.") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"standard input is no UTF-8 text ({error}); give lines of nodes,edges,count.") from error
    return SizeHistogram.from_csv(text, "standard input")


def _graphs(source: str, root: Path | None, part: str | None) -> tuple[GraphSizes, dict[str, IntArray]]:
    """Sizes of all graphs of a dataset, and the parts of its split."""
    path = Path(source)
    if root is not None:
        return _of_folder(OgbFolder(root, source), part)
    if not os.path.exists(path):
        raise FormatError(
            f"there is no {source}; give a path, an OGB name together with --root, or example:ogbg-molhiv."
        )
    if path.suffix == ".bin":
        from dgl_tuplepack.store.sources import bin_file_items

        return sizes_of(bin_file_items(path)), {}
    if is_sharded(path) or os.path.exists(path / "metadata.json"):
        store = open_stored(path)
        return store.sizes, store.splits
    return _of_folder(OgbFolder(path), part)


def _of_folder(folder: OgbFolder, part: str | None) -> tuple[GraphSizes, dict[str, IntArray]]:
    """Sizes and split of an OGB folder; the split is read only where a part of it is asked for."""
    return folder.sizes, folder.splits if part is not None else {}


def is_sharded(path: Path) -> bool:
    """Whether a folder holds a dataset of shards, and no store.

    Raises
    ------
    FormatError
        It holds both, put there by hand; each command must speak of the same one.
    """
    if not os.path.exists(path / "manifest.json"):
        return False
    if os.path.exists(path / "metadata.json"):
        raise FormatError(f"{path} holds a store and a dataset of shards; move one of them to another folder.")
    return True


def open_stored(path: Path) -> StoredGraphs:
    """The store, or the dataset of shards, in a folder."""
    from dgl_tuplepack.store import GraphStore, MultiStore

    return MultiStore(path) if is_sharded(path) else GraphStore(path)
