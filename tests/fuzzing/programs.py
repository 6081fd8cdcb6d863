"""Compile random graph networks and compare all that they compute with the same networks uncompiled.

    python -m tests.fuzzing.programs --count 500 --log FILE [--first SEED] [--options JSON] [--threads N]
    python -m tests.fuzzing.programs --log FILE --summary
    python -m tests.fuzzing.programs --seed SEED [--options JSON] [--threads N]

``--device cuda`` runs networks there; not run yet.

A network is a function of its seed. The log has a line of JSON for each that is done; a second run with the same log
does the others. That the fuzzer finds what it is for, an earlier fault of torch, is seen with
``--options '{"max_fusion_size": 64}'``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

# Set before torch and DGL are imported.
import tests.conftest  # noqa: F401

CACHE = "TORCHINDUCTOR_CACHE_DIR"
# Networks of a process: their compiled code stays in its memory.
_AT_ONCE = 25
# Differences that the summary shows of a network.
_SHOWN = 6


def main() -> int:
    """Run the networks that are not in the log, or one."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing.programs")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--options", default="{}", help="JSON, merged into options= of tp.compile")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="where networks run, such as cuda")
    parser.add_argument("--check", action="store_true", help="let tp.compile compare its first calls, too")
    parser.add_argument("--seed", type=int, help="run one network and show what was compared")
    parser.add_argument("--summary", action="store_true", help="show what the log has")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if (asked.log is None) == (asked.seed is None):
        parser.error("give either --log or --seed")
    if asked.seed is not None:
        with tempfile.TemporaryDirectory(prefix="compiled-") as cache:
            os.environ |= _environment(cache)
            result = run_one(asked.seed, json.loads(asked.options), asked.threads, asked.check, asked.device)
        print(json.dumps(result, indent=4))
        return int(is_wrong(result))
    for each in read(asked.log):
        if (each["options"], each["threads"]) != (json.loads(asked.options), asked.threads) and not asked.summary:
            parser.error(f"{asked.log} is of options {each['options']} and {each['threads']} threads; give another log")
    if asked.here:
        return _run_here(asked)
    return _show(asked.log) if asked.summary else _run(asked)


def _run(asked: argparse.Namespace) -> int:
    """Run networks in processes, one after the other, and note where one of them ends early."""
    cache = tempfile.mkdtemp(prefix="compiled-")
    command = [sys.executable, "-m", "tests.fuzzing.programs", *sys.argv[1:], "--here"]
    try:
        while pending := _pending(asked):
            ended = subprocess.run(command, env={**os.environ, **_environment(cache)})
            left = _pending(asked)
            if ended.returncode and left:
                network = {"seed": left[0], "error": f"the process ended with {ended.returncode}"}
                _write(asked, {**network, "differences": {}, "switched": {}})
            elif left == pending:
                raise RuntimeError("a process has done nothing")
    except KeyboardInterrupt:
        print("interrupted; the same command goes on")
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    return _show(asked.log)


def _environment(cache: str) -> dict[str, str]:
    """Return variables for a new folder of compiled code, and for compiling it without optimisation.

    What is generated does not depend on it, and compiling takes half as long; ``CXX=g++`` optimises.
    """
    compiler = Path(cache, "g++")
    linker = "-fuse-ld=gold" if shutil.which("ld.gold") else ""
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@" -O0 {linker}\n')
    compiler.chmod(0o755)
    return {CACHE: cache, "CXX": os.environ.get("CXX", str(compiler))}


def _run_here(asked: argparse.Namespace) -> int:
    for seed in _pending(asked)[:_AT_ONCE]:
        try:
            result = run_one(seed, json.loads(asked.options), asked.threads, asked.check, asked.device)
        except KeyboardInterrupt:
            return 0
        _write(asked, result)
        # Headers stay: they are the same for all.
        for folder in Path(os.environ[CACHE]).iterdir():
            if folder.name != "precompiled_headers":
                shutil.rmtree(folder, ignore_errors=True)
    return 0


def run_one(seed: int, options: dict[str, Any], threads: int, check: bool, device: str) -> dict[str, Any]:
    """Compile and compare the network of a seed; an error is part of the result."""
    # Torch reads where compiled code goes when its compiler is imported.
    import torch

    from tests.fuzzing.comparison import Finding, compare, compiled
    from tests.fuzzing.networks import Network

    torch.set_num_threads(threads)
    network, finding, error, start = Network.of(seed), Finding(), None, time.monotonic()
    try:
        with warnings.catch_warnings():
            # tp.compile warns where it leaves a function uncompiled.
            warnings.simplefilter("error", UserWarning)
            finding = compare(network, lambda module: compiled(module, options, check), device)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"[:2000]
    torch._dynamo.reset()
    seconds = round(time.monotonic() - start, 2)
    return {"seed": seed, "network": repr(network), "seconds": seconds, "error": error, **asdict(finding)}


def is_wrong(result: dict[str, Any]) -> bool:
    """Whether a network was not compiled, or not rightly."""
    return bool(result["error"] or result["differences"])


def read(log: Path) -> list[dict[str, Any]]:
    """Return the lines of a log; a line that was cut short is not one."""
    lines = []
    for line in log.read_text().splitlines() if log.exists() else []:
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines


def _pending(asked: argparse.Namespace) -> list[int]:
    done = {each["seed"] for each in read(asked.log)}
    return [seed for seed in range(asked.first, asked.first + asked.count) if seed not in done]


def _write(asked: argparse.Namespace, result: dict[str, Any]) -> None:
    line = json.dumps({**result, "options": json.loads(asked.options), "threads": asked.threads})
    with asked.log.open("a") as file:
        file.write(f"{line}\n")


def _show(log: Path) -> int:
    """Print what a log has; return 1 if a network is wrong."""
    results = read(log)
    whole = [each for each in results if not each["error"]]
    seconds = sorted(each["seconds"] for each in whole)
    for each in filter(is_wrong, results):
        print(f"seed {each['seed']}: {each['error'] or ''}\n    {each.get('network', '')}")
        for name, ratio in list(each["differences"].items())[:_SHOWN]:
            print(f"    {ratio:.3g} times what is allowed: {name}")
    if whole:
        print(f"{sum(seconds):.0f} s, median {seconds[len(seconds) // 2]:.1f} s a network")
        right = [each for each in whole if not each["differences"]]
        worst = max(right, key=lambda each: each["ratio"], default=None)
        if worst is not None:
            print(f"largest ratio of what is right: {worst['ratio']:.3g} (seed {worst['seed']})")
        loosest = max(whole, key=lambda each: each["yardstick"])
        print(f"largest distance of float32 from float64: {loosest['yardstick']:.2g} (seed {loosest['seed']})")
        switched = [each["seed"] for each in whole if each["switched"]]
        print(f"{len(switched)} differed with some numbers and not with others: {switched}")
    differ = [each["seed"] for each in whole if each["differences"]]
    failed = [each["seed"] for each in results if each["error"]]
    print(f"{len(results)} networks, {len(differ)} differ: {differ}, {len(failed)} failed: {failed}")
    return int(bool(differ or failed))


if __name__ == "__main__":
    sys.exit(main())
