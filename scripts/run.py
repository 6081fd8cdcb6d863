"""Set an environment up and run something in it: the demo or the tests. Needs Python and nothing else.

    python3 scripts/run.py demo [options of dgl-tuplepack demo]
    python3 scripts/run.py tests [options of pytest]

The environment is `.venv` in the checkout, or the folder in the variable TUPLEPACK_ENVIRONMENT; it is made once, and
again when the pinned versions change.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"
COMMANDS = {
    "demo": ["-m", "dgl_tuplepack", "demo"],
    "tests": ["-m", "pytest", "-n", "2"],
}


def main(arguments: list[str]) -> int:
    """Run ``arguments[0]`` in the environment; return its exit code."""
    if not arguments or arguments[0] not in COMMANDS:
        print(f"usage: python3 scripts/run.py {{{','.join(COMMANDS)}}} [options]", file=sys.stderr)
        return 2
    if not (3, 10) <= sys.version_info < (3, 12):
        found = ".".join(map(str, sys.version_info[:3]))
        print(
            f"run.py: this is Python {found}, but the pinned set is tested on Python 3.11 and its DGL has wheels up to "
            "3.11; run this script with python3.11.",
            file=sys.stderr,
        )
        return 1
    folder = Path(os.environ.get("TUPLEPACK_ENVIRONMENT", ROOT / ".venv"))
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    prepare(folder, python)
    return subprocess.call([str(python), *COMMANDS[arguments[0]], *arguments[1:]], cwd=ROOT)


def prepare(folder: Path, python: Path) -> None:
    """Make the environment unless one for these versions is there."""
    wanted = hashlib.sha256(CONSTRAINTS.read_bytes() + (ROOT / "setup.cfg").read_bytes()).hexdigest()
    stamp = folder / "tuplepack-environment"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print(f"run.py: setting up {folder} (once; this takes a few minutes)", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.check_call([*install, "--constraint", str(CONSTRAINTS), "--editable", f"{ROOT}[all]"])
    stamp.write_text(wanted)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        print(f"run.py: setting up failed: {error}", file=sys.stderr)
        sys.exit(1)
