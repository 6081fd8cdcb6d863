"""Check that all dependencies have wheels for each Python, without installing them. Run by hand.

    python3.11 scripts/resolve.py             # prints a table of Pythons
    python3.13 scripts/resolve.py --newest    # writes constraints-newest.txt for the Python that runs the script

For each Python, pip resolves the dependencies without DGL (the extra ``plain``) at the versions of constraints.txt,
from Linux wheels only. torch is too large to download for that. For torch, packages that need it, and DGL, the script
looks for their wheels with `pip index versions`. Exits with 1 if anything but DGL has no wheel.

With --newest, pip resolves the newest versions instead, except for torch, whose version stays.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"
NEWEST = ROOT / "scripts" / "constraints-newest.txt"
HEADER = """\
# The newest versions without DGL: Python {python}, Linux. Used by scripts/run.py --newest, and by .ci/run.
# Written by scripts/resolve.py --newest. torch is not refreshed: a CPU build is not published for every version.
"""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# The glibc versions of common systems.
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)] + [
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
]
# Resolving these would download torch.
WITH_TORCH = ("torch", "pytorch-lightning", "torchdata")


def main(arguments: list[str]) -> int:
    """Write constraints-newest.txt, or print a row for each Python; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--newest", action="store_true", help="write constraints-newest.txt")
    if parser.parse_args(arguments).newest:
        NEWEST.write_text(HEADER.format(python=sys.version.partition(" ")[0]) + newest(), encoding="utf-8")
        return 0
    missing = False
    print("| Python | the set without DGL | torch | DGL 1.1.3 | DGL 2.1.0 |\n|---|---|---|---|---|")
    for python in PYTHONS:
        found, outcome = resolved(python)
        others = {name: pinned(name) in versions(name, python) for name in WITH_TORCH}
        lacking = [name for name, has in others.items() if not has]
        missing |= not found or bool(lacking)
        dgl = versions("dgl", python)
        has_dgl = " | ".join("yes" if version in dgl else "no" for version in ("1.1.3", "2.1.0"))
        torch = f"no wheel of {', '.join(lacking)}" if lacking else f"{pinned('torch')}: yes"
        print(f"| {python} | {outcome} | {torch} | {has_dgl} |", flush=True)
    return int(missing)


def requirements() -> list[str]:
    """Return the requirements of the package and its extra ``plain``, except those that need torch."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    # Interpolation inserts the other extras.
    lines = f"{setup['options']['install_requires']}\n{setup['options.extras_require']['plain']}".splitlines()
    needed = {line for line in map(str.strip, lines) if line and not line.startswith("#")}
    return sorted(line for line in needed if name_of(line) not in WITH_TORCH)


def name_of(requirement: str) -> str:
    """Return the package name of a requirement."""
    return re.split(r"[^\w-]", requirement, maxsplit=1)[0].lower()


def pinned(name: str) -> str:
    """Return the version of a package in constraints.txt."""
    pins = dict(line.split("==") for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines() if "==" in line)
    return pins[name]


def target(python: str) -> list[str]:
    """Return pip's options for another Python."""
    platforms = [option for platform in PLATFORMS for option in ("--platform", platform)]
    return ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms]


def resolved(python: str) -> tuple[bool, str]:
    """Return whether the dependencies resolve, and the text to print: the number of packages or pip's error."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--dry-run", "--quiet", "--ignore-installed", "--target", folder, "--report", str(report)]
        done = pip("install", *options, *target(python), "--constraint", str(CONSTRAINTS), *requirements())
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return False, f"no: {errors[-1].removeprefix('ERROR: ') if errors else done.stderr[-200:]}"
        number = len(json.loads(report.read_text(encoding="utf-8"))["install"])
    return True, f"{number} packages: yes"


def newest() -> str:
    """Return the newest versions for this Python, in the format of a constraints file."""
    pins = dict(line.split("==") for line in NEWEST.read_text(encoding="utf-8").splitlines() if "==" in line)
    options = ["--dry-run", "--quiet", "--ignore-installed", "--report", "-"]
    done = pip("install", *options, f"torch=={pins['torch']}", f"{ROOT}[plain]")
    if done.returncode:
        sys.exit(done.stderr)
    found = {each["metadata"]["name"]: each["metadata"]["version"] for each in json.loads(done.stdout)["install"]}
    # A CPU build of torch has a suffix such as "+cpu"; other builds pin the versions of CUDA themselves.
    others = {name for name in found if re.match("nvidia|cuda|triton|dgl.tuplepack", name)}
    lines = {f"{name}=={version.partition('+')[0]}\n" for name, version in found.items() if name not in others}
    return "".join(sorted(lines, key=str.lower))


def versions(name: str, python: str) -> list[str]:
    """Return the versions of a package with a wheel for a Python."""
    done = pip("index", "versions", name, *target(python))
    listed = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    return listed[1].split(", ") if listed else []


def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pip and return the finished process with its output."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
