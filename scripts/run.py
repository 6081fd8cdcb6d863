"""Set up an environment and run the demo or the tests in it, or build the site. Needs only Python 3.11 or newer.

    python3 scripts/run.py [--without-dgl | --newest] demo [options of dgl-tuplepack demo]
    python3 scripts/run.py [--without-dgl | --newest] tests [options of pytest]
    python3 scripts/run.py [--without-dgl | --newest] docs [options of sphinx]

`docs` runs the tutorials, and builds the site in docs/_build.

DGL has wheels for Python 3.11 on common machines. Elsewhere, or with --without-dgl, the script installs everything but
DGL. The demo then runs on PyG, and only tests that need no DGL run, including the JAX tests. So it is with
--newest, which needs Python 3.12 or newer, and installs the versions of constraints-newest.txt.

The environment has the Python that runs this script. It is `.venv` in the checkout (`.venv-without-dgl` without DGL,
`.venv-newest` with --newest), or the folder in the variable TUPLEPACK_ENVIRONMENT. It is created once, and again when
the pinned versions change.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"
NEWEST_CONSTRAINTS = ROOT / "scripts" / "constraints-newest.txt"
WITHOUT, NEWEST = "--without-dgl", "--newest"
COMMANDS = {
    "demo": ["-m", "dgl_tuplepack", "demo"],
    "tests": ["-m", "pytest", "-n", "3", "--dist", "worksteal"],
    # Warnings are errors.
    "docs": ["-m", "sphinx", "--fail-on-warning", "--quiet", "docs", "docs/_build"],
}
OLDEST = (3, 11)
# Some packages in constraints-newest.txt need this Python.
OLDEST_FOR_NEWEST = (3, 12)
# DGL 1.1.3 has wheels for this Python and for these (system, machine).
DGL_PYTHON = (3, 11)
DGL_MACHINES = {("linux", "x86_64"), ("darwin", "x86_64"), ("darwin", "arm64"), ("windows", "amd64")}


def main(arguments: list[str]) -> int:
    """Run a command in the environment; return its exit code."""
    newest, asked_without = arguments[:1] == [NEWEST], arguments[:1] in ([WITHOUT], [NEWEST])
    arguments = arguments[asked_without:]
    if not arguments or arguments[0] not in COMMANDS:
        names = ",".join(COMMANDS)
        print(f"usage: python3 scripts/run.py [{WITHOUT} | {NEWEST}] {{{names}}} [options]", file=sys.stderr)
        return 2
    found, oldest = ".".join(map(str, sys.version_info[:3])), OLDEST_FOR_NEWEST if newest else OLDEST
    if sys.version_info[:2] < oldest:
        needed = ".".join(map(str, oldest))
        print(f"run.py: this is Python {found}, but {needed} or newer is needed.", file=sys.stderr)
        return 1
    machine = platform.system().lower(), platform.machine().lower()
    has_wheels = sys.version_info[:2] == DGL_PYTHON and machine in DGL_MACHINES
    if not has_wheels and not asked_without:
        platform_text = f"Python {found} on {' '.join(machine)}"
        print(f"run.py: DGL has no wheels for {platform_text}; installing everything else.", file=sys.stderr)
    with_dgl = has_wheels and not asked_without
    name = ".venv-newest" if newest else ".venv" if with_dgl else ".venv-without-dgl"
    folder = Path(os.environ.get("TUPLEPACK_ENVIRONMENT", ROOT / name))
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    prepare(folder, python, "all" if with_dgl else "plain", NEWEST_CONSTRAINTS if newest else CONSTRAINTS)
    command = list(COMMANDS[arguments[0]])
    if arguments[0] == "tests" and not with_dgl:
        # Most examples in docstrings need DGL.
        command += ["--override-ini", "testpaths=tests"]
    return subprocess.call([str(python), *command, *arguments[1:]], cwd=ROOT)


def prepare(folder: Path, python: Path, extra: str, constraints: Path) -> None:
    """Create the environment with an extra of setup.cfg, unless it exists with these versions."""
    files = constraints.read_bytes() + (ROOT / "setup.cfg").read_bytes()
    fingerprint = hashlib.sha256(files + f"{extra} {sys.version}".encode()).hexdigest()
    marker = folder / "made-by-tuplepack"
    if marker.is_file() and marker.read_text() == fingerprint:
        return
    if not marker.is_file() and folder.is_dir() and any(folder.iterdir()):
        # Clear only folders that this script created.
        sys.exit(f"run.py: {folder} is not empty and is not ours; set TUPLEPACK_ENVIRONMENT to another folder.")
    print(f"run.py: setting up {folder} (once; this takes a few minutes)", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    venv.create(folder, with_pip=True, clear=True)
    marker.write_text("unfinished")
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.check_call([*install, "--constraint", str(constraints), "--editable", f"{ROOT}[{extra}]"])
    marker.write_text(fingerprint)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        print(f"run.py: setting up failed: {error}", file=sys.stderr)
        sys.exit(1)
