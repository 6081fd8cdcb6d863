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
    if sys.version_info[:2] != (3, 11):
        found = ".".join(map(str, sys.version_info[:3]))
        print(
            f"run.py: this is Python {found}, but the pinned set is for 3.11; run it with python3.11.", file=sys.stderr
        )
        return 1
    folder = Path(os.environ.get("TUPLEPACK_ENVIRONMENT", ROOT / ".venv"))
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    prepare(folder, python)
    return subprocess.call([str(python), *COMMANDS[arguments[0]], *arguments[1:]], cwd=ROOT)


def prepare(folder: Path, python: Path) -> None:
    """Make the environment unless one for these versions exists."""
    wanted = hashlib.sha256(CONSTRAINTS.read_bytes() + (ROOT / "setup.cfg").read_bytes()).hexdigest()
    marker = folder / "made-by-tuplepack"
    if marker.is_file() and marker.read_text() == wanted:
        return
    if not marker.is_file() and folder.is_dir() and any(folder.iterdir()):
        # Only what this script has made may be cleared.
        sys.exit(f"run.py: {folder} is not empty and is not ours; name another folder in TUPLEPACK_ENVIRONMENT.")
    print(f"run.py: setting up {folder} (once; this takes a few minutes)", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    venv.create(folder, with_pip=True, clear=True)
    marker.write_text("unfinished")
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.check_call([*install, "--constraint", str(CONSTRAINTS), "--editable", f"{ROOT}[all]"])
    marker.write_text(wanted)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        print(f"run.py: setting up failed: {error}", file=sys.stderr)
        sys.exit(1)
