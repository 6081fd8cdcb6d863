"""Compile random graph networks and compare all that they compute with the same networks uncompiled.

    python -m tests.fuzzing.programs --log FILE [--count 500] [--first SEED] [--options JSON]
    python -m tests.fuzzing.programs --seed SEED [--options JSON]

A network is a function of its seed. The log has a line of JSON for each that is done; a second run with the same log
does the others. That the fuzzer finds what it is for, an earlier fault of torch, is seen with
``--options '{"max_fusion_size": 64}'``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

# Set before torch and DGL are imported.
import tests.conftest  # noqa: F401


def main() -> int:
    """Run the networks that are not in the log, or one."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing.programs")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--options", default="{}", help="JSON, merged into options= of tp.compile")
    parser.add_argument("--seed", type=int, help="run one network and show what was compared")
    asked = parser.parse_args()
    if (asked.log is None) == (asked.seed is None):
        parser.error("give either --log or --seed")
    options = json.loads(asked.options)
    if asked.seed is not None:
        result = run_one(asked.seed, options)
        print(json.dumps(result, indent=4))
        return int(is_wrong(result))
    done = read(asked.log)
    with tempfile.TemporaryDirectory(prefix="compiled-") as os.environ["TORCHINDUCTOR_CACHE_DIR"]:
        for seed in range(asked.first, asked.first + asked.count):
            if seed not in done:
                # It stays if this network ends the process.
                _write(asked.log, {"seed": seed, "error": "the process ended", "differences": {}, "ratio": 0.0})
                _write(asked.log, run_one(seed, options))
    return _show(asked.log)


def run_one(seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Compile and compare the network of a seed; an error is part of the result."""
    # Torch reads where compiled code goes when its compiler is imported.
    import torch

    from tests.fuzzing.comparison import Finding, compare, compiled
    from tests.fuzzing.networks import Network

    torch.set_num_threads(1)
    network, finding, error, start = Network.of(seed), Finding(), None, time.monotonic()
    try:
        with warnings.catch_warnings():
            # tp.compile warns where it leaves a function uncompiled.
            warnings.simplefilter("error", UserWarning)
            finding = compare(network, lambda module: compiled(module, options))
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"[:2000]
    torch._dynamo.reset()
    seconds = round(time.monotonic() - start, 2)
    return {"seed": seed, "network": repr(network), "seconds": seconds, "error": error, **asdict(finding)}


def is_wrong(result: dict[str, Any]) -> bool:
    """Whether a network was not compiled, or not rightly."""
    return bool(result["error"] or result["differences"])


def read(log: Path) -> dict[int, dict[str, Any]]:
    """Return the last line of each seed in a log; a line that was cut short is not one."""
    lines = {}
    for line in log.read_text().splitlines() if log.exists() else []:
        try:
            result = json.loads(line)
        except ValueError:
            continue
        lines[result["seed"]] = result
    return lines


def _write(log: Path, result: dict[str, Any]) -> None:
    with log.open("a") as file:
        file.write(f"{json.dumps(result)}\n")


def _show(log: Path) -> int:
    """Print what a log has; return 1 if a network is wrong."""
    results = read(log).values()
    wrong = [each for each in results if is_wrong(each)]
    for each in wrong:
        print(f"seed {each['seed']}: {each['error'] or ''}\n    {each.get('network', '')}")
        for name, ratio in list(each["differences"].items())[:6]:
            print(f"    {ratio:.3g} times what is allowed: {name}")
    worst = max((each["ratio"] for each in results if not is_wrong(each)), default=0)
    switched = [each["seed"] for each in results if each.get("switched")]
    print(f"{len(results)} networks, {len(wrong)} wrong: {[each['seed'] for each in wrong]}")
    print(f"largest ratio of what is right: {worst:.3g}; differed with some numbers and not with others: {switched}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
