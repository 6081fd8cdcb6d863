"""Compiled kernels are kept outside the package, and whatever is wrong with their files stops nobody.

Each test runs programs of their own, which compile the few kernels of one small file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dgl_tuplepack
from dgl_tuplepack.kernels.random import random_bits

PACKAGE = Path(dgl_tuplepack.__file__).parent
PROGRAM = """
import numpy as np
from dgl_tuplepack.kernels import random
kernels = (random.random_bits, random.derive_key, random.shuffle_segments)
print(int(random.random_bits(np.uint64(1), np.uint64(2))))
print(sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels))
"""
NUMBER = str(int(random_bits(np.uint64(1), np.uint64(2))))


def begin(program: str = PROGRAM, package: Path = PACKAGE, **variables: str) -> subprocess.Popen[str]:
    """Start a program with only these variables about folders."""
    about_folders = ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "LOCALAPPDATA", "PYTHONPATH", "PYTHONPYCACHEPREFIX")
    kept = {name: value for name, value in os.environ.items() if name not in about_folders}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=package.parent,
        env=kept | {"PYTHONPATH": str(package.parent)} | variables,
    )


def end(process: subprocess.Popen[str]) -> tuple[list[str], str]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.split(), err


def compiled_inside_package() -> set[Path]:
    return {path for ending in ("nbi", "nbc") for path in PACKAGE.rglob(f"*.{ending}")}


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="these have other folders for caches")
def test_compiled_kernels_are_kept_in_the_users_folder_and_not_in_the_package(tmp_path: Path) -> None:
    before = compiled_inside_package()
    assert end(begin(HOME=str(tmp_path))) == ([NUMBER, "0"], "")
    assert {path.suffix for path in (tmp_path / ".cache" / "dgl_tuplepack").iterdir()} == {".nbc"}
    assert compiled_inside_package() == before
    assert end(begin(HOME=str(tmp_path))) == ([NUMBER, "3"], "")
    # Another place that the user chose is empty at first.
    chosen = tmp_path / "chosen"
    for hits in ("0", "3"):
        assert end(begin(HOME=str(tmp_path), XDG_CACHE_HOME=str(chosen))) == ([NUMBER, hits], "")
    assert [path.name for path in chosen.iterdir()] == ["dgl_tuplepack"]


def test_the_folder_of_numba_is_heeded_and_may_be_read_only_once_it_is_full(tmp_path: Path) -> None:
    assert end(begin(NUMBA_CACHE_DIR=str(tmp_path))) == ([NUMBER, "0"], "")
    assert [path.name for path in tmp_path.iterdir()] == ["dgl_tuplepack"]
    without_writing = "import pathlib\npathlib.Path.write_bytes = None\n" + PROGRAM
    assert end(begin(without_writing, NUMBA_CACHE_DIR=str(tmp_path))) == ([NUMBER, "3"], "")


HOMELESS = """
import pwd
def getpwuid(number):
    raise KeyError(number)
pwd.getpwuid = getpwuid
"""


@pytest.mark.parametrize(
    "variables", [{"HOME": "/dev/null"}, {"XDG_CACHE_HOME": "a/b"}, {"NUMBA_CACHE_DIR": "/dev/null/folder"}]
)
def test_without_a_folder_kernels_work_and_one_warning_says_what_to_do(variables: dict[str, str]) -> None:
    """As in a container: an installation that cannot be written, and a user without a home."""
    out, err = end(begin(HOMELESS + PROGRAM, **variables))
    assert out == [NUMBER, "0"]
    assert err.count("Warning") == err.count("compiled code cannot be kept") == 1
    assert "set NUMBA_CACHE_DIR to a folder that can be written" in err


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    limited = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n" + PROGRAM
    out, err = end(begin(limited, NUMBA_CACHE_DIR=str(tmp_path)))
    assert out == [NUMBER, "0"]
    assert err.count(f"compiled code cannot be kept in {tmp_path / 'dgl_tuplepack'} (File too large)") == 1
    assert list((tmp_path / "dgl_tuplepack").iterdir()) == []


def damaged_forms(content: bytes) -> dict[str, bytes]:
    middle = len(content) // 2
    return {
        "truncated": content[:middle],
        "empty": b"",
        "changed": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "foreign": b"something else",
    }


def test_a_damaged_file_is_compiled_again(tmp_path: Path) -> None:
    end(begin(NUMBA_CACHE_DIR=str(tmp_path)))
    files = sorted((tmp_path / "dgl_tuplepack").iterdir())
    whole = {path: damaged_forms(path.read_bytes()) for path in files}
    for damage in ("truncated", "empty", "changed", "foreign"):
        for path, forms in whole.items():
            path.write_bytes(forms[damage])
        assert end(begin(NUMBA_CACHE_DIR=str(tmp_path))) == ([NUMBER, "0"], ""), damage
        assert sorted((tmp_path / "dgl_tuplepack").iterdir()) == files
    assert end(begin(NUMBA_CACHE_DIR=str(tmp_path))) == ([NUMBER, "3"], "")


def test_processes_compile_beside_each_other(tmp_path: Path) -> None:
    processes = [begin(NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(3)]
    assert all(end(process)[0][0] == NUMBER for process in processes)
    assert end(begin(NUMBA_CACHE_DIR=str(tmp_path))) == ([NUMBER, "3"], "")
    assert {path.suffix for path in (tmp_path / "dgl_tuplepack").iterdir()} == {".nbc"}


def test_a_change_in_a_kernel_that_another_files_kernel_calls_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "dgl_tuplepack"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "data"))
    caller = "\nfrom dgl_tuplepack.kernels.random import random_bits\n"
    (package / "kernels" / "caller.py").write_text(
        "import numpy as np\nfrom dgl_tuplepack.kernels._jit import jit"
        + caller
        + "@jit\ndef call(key: np.uint64, counter: np.uint64) -> np.uint64:\n    return random_bits(key, counter)\n"
    )
    program = "import numpy as np\nfrom dgl_tuplepack.kernels.caller import call\n"
    program += "print(int(call(np.uint64(1), np.uint64(2))))"
    assert end(begin(program, package, NUMBA_CACHE_DIR=str(tmp_path / "cache"))) == ([NUMBER], "")
    source = package / "kernels" / "random.py"
    source.write_text(source.read_text().replace("return bits ^ (bits >> np.uint64(31))", "return np.uint64(7)"))
    assert end(begin(program, package, NUMBA_CACHE_DIR=str(tmp_path / "cache"))) == (["7"], "")


def test_a_numba_with_other_inner_parts_keeps_kernels_in_its_own_way(tmp_path: Path) -> None:
    program = "from dgl_tuplepack.kernels import _cache\nclass Other: pass\n_cache._RESULT = Other\n" + PROGRAM
    for hits in ("0", "3"):
        assert end(begin(program, NUMBA_CACHE_DIR=str(tmp_path))) == ([NUMBER, hits], "")
    assert not (tmp_path / "dgl_tuplepack").exists()
    assert list(tmp_path.rglob("*.nbi"))
