"""The command line as a process: its streams, what is missing around it, and Ctrl-C at any time."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dgl
import pytest

from dgl_tuplepack import GraphStore
from dgl_tuplepack.errors import FormatError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="streams and signals are those of POSIX here")

COMMAND = f"{sys.executable} -m dgl_tuplepack "
EXAMPLE = "example:ogbg-molhiv"


def shell(line: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this package in a shell; `{}` stands for it."""
    return subprocess.run(
        ["bash", "-c", line.replace("{}", COMMAND)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | settings,
    )


def check_one_line(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("dgl-tuplepack: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert all(part in done.stderr for part in parts)


# --- streams


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{} --version >/dev/full", "No space left"),
        ("{} --help >/dev/full", "No space left"),
        (f"{{}} sizes {EXAMPLE} >/dev/full", "No space left"),
        (f"{{}} sizes {EXAMPLE} --csv >/dev/full", "No space left"),
        (f"{{}} sizes {EXAMPLE} --json >&-", "Bad file descriptor"),
        ("{} --version >&-", "Bad file descriptor"),
        (f"set -o pipefail; {{}} sizes {EXAMPLE} | true", "Broken pipe"),
    ],
)
def test_output_that_cannot_be_written_is_an_error(line: str, reason: str) -> None:
    check_one_line(shell(line), 1, "cannot write to standard output", reason)


def test_closed_input_is_an_error_where_it_is_read_and_nothing_elsewhere() -> None:
    check_one_line(shell("{} sizes - <&-"), 1, "standard input is closed")
    done = shell(f"{{}} sizes {EXAMPLE} <&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert "32,901 graphs" in done.stdout


def test_closed_streams_do_not_become_files(tmp_path: Path) -> None:
    """The next file that is opened takes the number of a closed stream, and would get what is printed."""
    out = tmp_path / "plan.json"
    for streams in (">&-", "<&- >&- 2>&-"):
        done = shell(f"{{}} plan {EXAMPLE} --nodes 222 --edges 502 --method next_fit --save {out} {streams}")
        assert done.returncode == 1
        assert out.read_text(encoding="utf-8").startswith("{")
        assert "cannot write" not in out.read_text(encoding="utf-8")


@pytest.mark.parametrize("stream", ["2>/dev/full", "2>&-"])
def test_without_a_place_for_messages_the_exit_code_stays(stream: str) -> None:
    for arguments, code in ((f"sizes {EXAMPLE}", 0), ("sizes absent.json", 1), ("sizes", 2)):
        assert shell(f"{{}} {arguments} {stream}").returncode == code


# --- what is missing

WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])
sys.meta_path.insert(0, Absent())
from dgl_tuplepack.cli import main
sys.argv[0] = "dgl-tuplepack"
main()
"""


@pytest.mark.parametrize("command", ["preprocess", "info", "verify", "sizes", "report", "demo"])
def test_without_torch_one_line_says_what_is_missing(command: str, tmp_path: Path) -> None:
    GraphStore.write(tmp_path / "store", [dgl.rand_graph(3, 4)])
    before = sorted(tmp_path.rglob("*"))
    arguments = {"preprocess": ["out"], "report": ["--out", "report.html"], "demo": ["--out", "out"]}.get(command, [])
    source = [] if command == "demo" else ["store"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(names=("torch", "dgl", "ogb")), command, *source, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    check_one_line(done, 1, "torch is not installed", "dgl_tuplepack[torch]")
    assert sorted(tmp_path.rglob("*")) == before


# --- Ctrl-C

# It says when its entry point imports for the first time; what comes before is Python's own.
BEGIN = """
import os, sys
class Tell:
    def find_spec(self, name, path=None, target=None):
        if name == "dgl_tuplepack.cli.process":
            os.write({number}, b"x")
sys.meta_path.insert(0, Tell())
from dgl_tuplepack.cli import main
sys.argv[0] = "dgl-tuplepack"
main()
"""


def begin(arguments: list[str], folder: Path, **settings: str) -> subprocess.Popen[str]:
    """Start a command in a group of its own, as a terminal does; return when its entry point is reached."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN.format(number=write), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[write],
        cwd=folder,
        env=os.environ | settings,
        start_new_session=True,
    )
    os.close(write)
    assert os.read(read, 1) == b"x"
    os.close(read)
    return process


def interrupt(process: subprocess.Popen[str], delay_s: float) -> bool:
    """Send Ctrl-C to the whole group after some time; whether the command had not ended before."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(delay_s)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    if process.returncode == 0:
        return False
    assert process.returncode in (130, -signal.SIGINT), (process.returncode, err)
    # What was written before may have been told.
    told = [line for line in err.splitlines() if not line.startswith("dgl-tuplepack: wrote ")]
    assert told in (["dgl-tuplepack: interrupted"], []), err
    return True


def _bin_file(folder: Path, name: str = "graphs.bin") -> None:
    dgl.save_graphs(str(folder / name), [dgl.rand_graph(4 + i % 5, 6 + i % 7) for i in range(2000)])


def _shards(folder: Path) -> None:
    for number in range(3):
        _bin_file(folder, f"{number}.bin")


def _nothing(folder: Path) -> None:
    pass


def _leftovers(folder: Path) -> list[Path]:
    """Files half written; the lock of a store, which is empty, stays always."""
    return [path for path in folder.rglob("*") if path.suffix == ".partial" or path.match(".[!l]*")]


def _check_whole(folder: Path) -> None:
    """What a command writes is absent or whole; a store may be refused instead, and another run writes it."""
    with contextlib.suppress(FormatError):
        GraphStore(folder / "out").verify()
    if (folder / "report.html").exists():
        assert (folder / "report.html").read_text(encoding="utf-8").endswith("</html>")


INTERRUPTED: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "limits": (_nothing, ["limits", EXAMPLE]),
    "report": (_nothing, ["report", EXAMPLE, "--out", "report.html"]),
    "preprocess": (_bin_file, ["preprocess", "graphs.bin", "out"]),
    "shards": (_shards, ["preprocess", "0.bin", "1.bin", "2.bin", "out", "--workers", "2"]),
    "compiling": (_nothing, ["sizes", EXAMPLE]),
}


def interrupted_often(name: str, folder: Path, times: int, seed: int) -> int:
    """Interrupt a command at random times from its first line to its end; return how often it was still running.

    The times are spread, one in each of `times` parts of the run, the last part first: a run that ended before tells
    how long one takes, and another one is begun for that part.
    """
    make, arguments = INTERRUPTED[name]
    numbers, hits, whole_s = random.Random(f"{name} {seed}"), 0, 10.0
    source = folder / "source"
    source.mkdir()
    make(source)
    for number in range(3 * times):
        if hits == times:
            break
        place = folder / str(number)
        shutil.copytree(source, place)
        given = {path.name for path in place.iterdir()}
        settings = {"NUMBA_CACHE_DIR": str(place / "numba")} if name == "compiling" else {}
        # The early part, of imports, is short and holds most of what can go wrong.
        delay = whole_s * ((times - 1 - hits + numbers.random()) / times) ** 2
        process = begin(arguments, place, **settings)
        start = time.monotonic()
        if interrupt(process, delay):
            hits += 1
            assert _leftovers(place) == []
            # An interrupt may come when what the command was told to write is there, just before it ends.
            assert {path.name for path in place.iterdir()} - given <= {"numba", *arguments}
            _check_whole(place)
        else:
            # It ended before: about what a whole run takes on this machine; the next one may be faster.
            whole_s = min(whole_s, 0.9 * (time.monotonic() - start))
    return hits


@pytest.mark.parametrize("name", INTERRUPTED)
def test_ctrl_c_at_any_time_is_one_line_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    assert interrupted_often(name, tmp_path, 6, seed=0) > 0


def _is_worker(process: Path, group: int) -> bool:
    try:
        return os.getpgid(int(process.name)) == group and b"spawn_main" in (process / "cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="workers are found in /proc")
@pytest.mark.parametrize("delay_s", [0.0, 0.3, 1.5])
def test_ctrl_c_while_workers_start_is_one_line(delay_s: float, tmp_path: Path) -> None:
    """The whole group gets it, the workers in the middle of their imports."""
    _shards(tmp_path)
    given = sorted(tmp_path.iterdir())
    process = begin(INTERRUPTED["shards"][1], tmp_path)
    while process.poll() is None and not any(_is_worker(p, process.pid) for p in Path("/proc").glob("[0-9]*")):
        time.sleep(0.01)
    assert interrupt(process, delay_s)
    assert _leftovers(tmp_path) == []
    assert set(tmp_path.iterdir()) - set(given) <= {tmp_path / "out"}
