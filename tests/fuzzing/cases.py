"""What is tried: each case draws its input, runs a command or a reader, and checks what must hold."""

from __future__ import annotations

import functools
import io
import itertools
import os
import shutil
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import typer
from hypothesis import note
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack import preprocessing, sharding
from dgl_tuplepack.cli.commands import app
from dgl_tuplepack.cli.pictures import PICTURES
from dgl_tuplepack.errors import TuplepackError
from tests.fuzzing.damage import damages
from tests.fuzzing.entry import Case, limited
from tests.fuzzing.specimens import SPECIMENS, Specimen, make_specimens
from tests.stores import molecules

_LIMITS = ("--nodes", "40", "--edges", "40")
_ENCODINGS = ("utf-8", "ascii", "latin-1", "cp1252")
# Where what a view of any limits would hold has to fit.
_ROOM = tp.Limits(nodes=200, edges=400, graphs=30)

# Parts of names that mean something to a terminal, to markup, to a file system, or to a formula.
_PIECES = (
    "[/x]", "[bold]", "[red", "$x", "$x^", "\\", "\x1b[31m", "\x07", "\r", "\t", "\n", "\x85", "‮", "\ud800", "é", "日",
    "<b>", "&amp;", "{0}", "%s", "%(a)s", "../", "/", "~", "*", "'", '"', ",", ":", "=", " ", "", "nodes", "edges",
    "nodes:", "edges:a:b:c", "graphs", "-", "--json", "😀", "_", "$", "^", "#", "x" * 300,
)  # fmt: skip


@functools.cache
def _specimens() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="specimens-"))
    make_specimens(folder)
    return folder


@contextmanager
def _case(path: str | None = None) -> Iterator[Case]:
    """A new case that is given a copy of a specimen."""
    with tempfile.TemporaryDirectory(prefix="case-") as folder:
        case = Case(Path(folder))
        if path is not None:
            source, target = _specimens() / path, case.given / path
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        yield case


def names() -> st.SearchStrategy[str]:
    """Names as data may have them."""
    pieces = st.lists(st.one_of(st.sampled_from(_PIECES), st.text(max_size=3)), min_size=1, max_size=4)
    return pieces.map("".join)


@st.composite
def _commands(draw: st.DrawFn, specimen: Specimen, path: Path, out: Path) -> list[str]:
    """A command that reads what lies at a path."""
    plain = [["sizes"], ["plan", *_LIMITS], ["limits"]]
    if specimen.is_dataset:
        plain += [["sizes", "--part", "train"]]
    if specimen.is_store:
        plain += [["info"], ["verify"], ["verify"]]
    chosen = [*draw(st.sampled_from(plain)), str(path)]
    if specimen.is_dataset and draw(st.booleans()):
        flags = draw(st.lists(st.sampled_from(["--compact", "--overwrite"]), unique=True, max_size=2))
        chosen = ["preprocess", str(path), str(out), "--limits", "40,40", *flags]
        if specimen.name == "heterogeneous store":
            chosen = ["preprocess", str(path), str(out), *flags]
        if specimen.name in ("store", "OGB folder") and draw(st.booleans()):
            chosen += ["--workers", "1"]
    if specimen.name == "archive":
        chosen = ["preprocess", f"zip://ogbg_molhiv::{path}", str(out), "--workers", "1", "--limits", "40,40"]
    return chosen + (["--json"] if draw(st.booleans()) else [])


def damaged_files(draw: st.DrawFn) -> None:
    """A command or a reader is given a file that is damaged."""
    specimen = draw(st.sampled_from(SPECIMENS))
    with _case(specimen.path) as case:
        path = case.given / specimen.path
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        file = draw(st.sampled_from(files))
        note(f"{specimen.name}, {file.relative_to(case.given)}: {draw(damages())(file)}")
        if draw(st.booleans()):
            command = draw(_commands(specimen, path, case.out))
            ended = case.run(command, draw(st.sampled_from(_ENCODINGS)))
            if command[0] == "verify" and not ended.code:
                _check_same(specimen, path)
        else:
            _read(path)


def _read(path: Path) -> None:
    """Every reader either reads it, or says by an error of ours why not."""

    def folder(path: Path) -> Any:
        ogb = tp.OgbFolder(path)
        return ogb.sizes, ogb.splits, list(ogb.blocks())

    readers = (
        tp.SizeHistogram.load, tp.PackPlan.load, tp.sizes_of, folder, tp.GraphStore,
        tp.MultiStore, preprocessing.verify, sharding.verify_shards,
    )  # fmt: skip
    for reader in readers:
        said = _refusal(reader, path)
        assert said is None or 0 < len(said.strip()) < 5000, f"{reader}: {said:.2000}"


def _refusal(reader: Callable[[Path], Any], path: Path) -> str | None:
    """What an error of ours says; None where the path was read. Other errors are for the caller to fail on."""
    try:
        with limited(reader):
            reader(path)
    except TuplepackError as error:
        return str(error)
    return None


def _check_same(specimen: Specimen, path: Path) -> None:
    """What was verified gives the graphs that were written."""
    kind = tp.MultiStore if specimen.name == "shards" else tp.GraphStore
    found, expected = kind(path), kind(_specimens() / specimen.path)
    assert found.schema == expected.schema
    assert found.sizes.array.tolist() == expected.sizes.array.tolist()
    assert {n: ids.tolist() for n, ids in found.splits.items()} == {n: i.tolist() for n, i in expected.splits.items()}
    room = (
        _ROOM
        if found.schema.components == ("nodes", "edges")
        else tp.Limits.from_components(dict.fromkeys(found.sizes.components, 400), 30)
    )
    ids = range(len(found))
    batches = [store.batch(list(ids), room) for store in (found, expected)]
    flat = [[*_tensors(vars(batch))] for batch in batches]
    assert len(flat[0]) == len(flat[1])
    assert all(torch.equal(a, b) for a, b in zip(*flat, strict=True))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)


_VALUES = (
    "0", "1", "2", "3", "40", "-1", "1.5", "nan", "inf", "-inf", "1e400", str(2**31), str(2**63), "9" * 5000, "", " ",
    "x", "auto", "best_fit", "node", "sum", "drop", "error", "a,b", "40,40", "40,40,4", "40,", "nodes=40", "edges=40",
    "nodes=0.9", "nodes:x=3", "graphs=4", "=", "nodes=", "1:3", "30:40:5", "40:30", "1:10**9", "nodes=30:40:5",
    "edges=30:40", "1:1000000000000", "train", "no-such-part", "log", "linear", "/dev/null", "/proc/self/mem",
    "../../ESCAPED", "x" * 300, "\udcff", "[/x]", "tcp://127.0.0.1:1",
)  # fmt: skip
# Takes minutes and writes only pictures; its options are checked by tests of its own.
_LEFT_OUT = ("demo",)


def arguments(draw: st.DrawFn) -> None:
    """Any command with any of its options, given values that fit or do not."""
    group: Any = typer.main.get_command(app)
    name = draw(st.sampled_from([n for n in sorted(group.commands) if n not in _LEFT_OUT]))
    specimen = draw(st.sampled_from(SPECIMENS))
    with _case(specimen.path) as case:
        path = case.given / specimen.path
        places = [str(path), str(path), str(path), "-", "example:no", "", "no/such/place", "/dev/null", str(case.given)]
        parameters = group.commands[name].params
        chosen = [name]
        for parameter in draw(st.lists(st.sampled_from(parameters), max_size=5)):
            if parameter.param_type_name != "option":
                continue
            chosen.append(draw(st.sampled_from([*parameter.opts, *parameter.secondary_opts])))
            if not getattr(parameter, "is_flag", False):
                known = "save" in chosen[-1] or "out" in chosen[-1]
                outputs = [str(case.out / f"o.{ending}") for ending in ("json", "csv", "png", "svg", "html", "txt")]
                chosen.append(draw(st.sampled_from([*outputs, str(case.out)] if known else _VALUES)))
        for parameter in parameters:
            if parameter.param_type_name == "argument" and draw(st.integers(0, 9)):
                chosen.append(draw(st.sampled_from([*PICTURES, *places] if parameter.name == "picture" else places)))
        if name == "preprocess" and draw(st.integers(0, 9)):
            chosen.append(str(case.out))
        if "out" in {parameter.name for parameter in parameters} and draw(st.integers(0, 3)):
            case.out.mkdir()
            chosen += ["--out", str(case.out / draw(st.sampled_from(["o.png", "o.html", "o.svg"])))]
        if name == "report" and "--out" not in chosen:
            chosen += ["--out", str(case.out)]
        note(repr(chosen))
        case.run(chosen, draw(st.sampled_from(_ENCODINGS)), draw(st.binary(max_size=20)))


def component_names(draw: st.DrawFn) -> None:
    """Components, which data names, in tables, JSON, pictures and the report."""
    chosen = tuple(draw(st.lists(names(), min_size=2, max_size=3, unique=True)))
    with _case() as case:
        path = case.given / "named.json"
        rows = {(3, 4, 1)[: len(chosen)]: 5, (2, 2, 2)[: len(chosen)]: 4}
        try:
            tp.SizeHistogram.from_counts(rows, chosen).save(path)
        except TuplepackError:
            return
        case.out.mkdir()
        limits = [part for name in chosen for part in ("--limit", f"{name}=9")]
        commands = [
            ["sizes"], ["sizes", "--json"], ["plan", *limits], ["plan", *limits, "--json"], ["limits"],
            ["limits", "--csv"], ["report", "--out", str(case.out / "page.html")],
            *(["plot", kind, "--out", str(case.out / "p.png")] for kind in ("sizes", "distributions", "fill")),
        ]  # fmt: skip
        heavy = draw(st.integers(0, 9)) == 0
        command = draw(st.sampled_from(commands if heavy else commands[:6]))
        position = 2 if command[0] == "plot" else 1
        note(repr((chosen, command)))
        case.run([*command[:position], str(path), *command[position:]], draw(st.sampled_from(_ENCODINGS)))


def stored_names(draw: st.DrawFn) -> None:
    """Splits, features and paths, which data names, through stores and what is told of them."""
    part, feature, folder = draw(names()), draw(names()), draw(names())
    with _case() as case:
        graphs = molecules(4)
        for graph, _ in graphs:
            graph.ndata[feature] = torch.zeros(graph.num_nodes())
        name = (
            folder.replace("/", "_")
            .replace("\0", "_")
            .encode("utf-8", "surrogateescape" if "\udc80" <= folder <= "\udcff" else "replace")[:200]
        )
        path = case.given / os.fsdecode(name or b"_") / "store"
        if ".." in path.parts:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            tp.GraphStore.write(path, graphs, splits={part: [0, 1], "rest": [2, 3]})
        except TuplepackError:
            return
        commands = [
            ["info", str(path)], ["info", str(path), "--json"], ["verify", str(path)],
            ["sizes", str(path), f"--part={part}"], ["sizes", str(path), "--part", "no-such"],
            ["preprocess", str(path), str(case.out)], ["preprocess", str(path), str(case.out), "--json"],
            ["verify", f"{path}-missing"],
        ]  # fmt: skip
        command = draw(st.sampled_from(commands))
        note(repr((part, feature, command)))
        case.run(command, draw(st.sampled_from(_ENCODINGS)))


_MEMBERS = (
    "ogbg_molhiv/../../ESCAPED", "ogbg_molhiv/../ESCAPED", "/ogbg_molhiv/x", "ogbg_molhiv//x", "ogbg_molhiv/./x",
    "ogbg_molhiv/raw/../../../ESCAPED", "ogbg_molhiv/..", "ogbg_molhiv/C:\\x", "ogbg_molhiv/..\\..\\ESCAPED",
    "ogbg_molhiv/raw/edge.csv.gz", "ogbg_molhiv/raw", "ogbg_molhiv/" + "x" * 300, "ogbg_molhiv/raw/\x1b[31m",
)  # fmt: skip


def archives(draw: st.DrawFn) -> None:
    """Archives with members that lead out of their folder, or are no plain files."""
    kind = draw(st.sampled_from(["zip", "tar"]))
    hostile = draw(st.lists(st.sampled_from(_MEMBERS), max_size=2))
    link = draw(st.booleans())
    with _case("csv/ogbg_molhiv") as case:
        source = case.given / "csv" / "ogbg_molhiv"
        members = {f"ogbg_molhiv/{p.relative_to(source)}": p.read_bytes() for p in source.rglob("*") if p.is_file()}
        path = case.given / f"archive.{kind}"
        entries = itertools.chain(members.items(), ((name, b"escaped") for name in hostile))
        if kind == "zip":
            with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "w") as archive:
                for name, content in entries:
                    archive.writestr(zipfile.ZipInfo(name), content)
        else:
            with tarfile.open(path, "w") as archive:
                for name, content in entries:
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
                if link:
                    member = tarfile.TarInfo("ogbg_molhiv/link")
                    member.type, member.linkname = tarfile.SYMTYPE, "../../../../etc/passwd"
                    archive.addfile(member)
        note(f"{kind}: {hostile}, link: {link}")
        case.run(
            ["preprocess", f"{kind}://ogbg_molhiv::{path}", str(case.out), "--workers", "1", "--limits", "40,40"],
            draw(st.sampled_from(_ENCODINGS)),
        )


CASES = (damaged_files, arguments, component_names, stored_names, archives)
