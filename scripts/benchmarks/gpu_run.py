"""A run of the benchmark on a GPU: its time, the file of its results, and how it measures."""

from __future__ import annotations

import gc
import json
import math
import os
import platform
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks.tables import show

Rows = Iterator[dict[str, Any]]


@dataclass(frozen=True)
class Size:
    """How much to measure."""

    graphs: int
    batch: int
    # Numbers of training steps for the comparison, for warming up, and in each round.
    check_steps: int
    warm_up: int
    steps: int
    rounds: int
    # (layer, number of layers, width, graphs in a batch, ways), the most valuable first.
    checked: tuple[tuple[str, int, int], ...]
    trained: tuple[tuple[str, int, int, int, tuple[str, ...]], ...]
    programs: int
    small: bool = False


@dataclass
class Run:
    """A run: its device, its time, and the file of its results."""

    out: Path
    device: str
    size: Size
    # Part -> share of `minutes` after which it starts nothing more.
    shares: Mapping[str, float]
    minutes: float = math.inf
    began: float = field(default_factory=time.perf_counter)
    # The longest that anything in the current part has taken: that much of `minutes` must be left to start something.
    longest: float = 0.0

    def __post_init__(self) -> None:
        self.results: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": _machine(self.device),
            "versions": _versions(),
            "device": self.device,
            "small": self.size.small,
            "matmul precision": torch.get_float32_matmul_precision(),
            "parts": {},
        }
        self.save()

    def part(self, name: str, rows: Callable[[Run], Rows]) -> None:
        """Run a part; save after each of its rows, and record an error that ends it."""
        self.name, self.longest, begin = name, 0.0, time.perf_counter()
        part: dict[str, Any] = {"seconds": 0.0, "rows": []}
        self.results["parts"][name] = part
        try:
            for row in rows(self):
                part["rows"].append(row)
                part["seconds"] = time.perf_counter() - begin
                self.save()
        except Exception as error:
            part["error"] = _text(error)
        part["seconds"] = time.perf_counter() - begin
        self.save()
        shown = [{k: _shown(x) for k, x in row.items() if not isinstance(x, dict | list)} for row in part["rows"]]
        show(f"{name}: {part['seconds']:.0f} s {part.get('error', '')[:200]}", shown)

    def attempt(self, about: dict[str, Any], function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return `about` with what `add` adds to it, unless too little time is left."""
        elapsed, end = time.perf_counter() - self.began, 60 * self.minutes
        if elapsed > self.shares[self.name] * end or elapsed + self.longest > end:
            return {**about, "skipped": "no time is left"}
        row = dict(about)
        self.add(row, function)
        return row

    def add(self, row: dict[str, Any], function: Callable[[], dict[str, Any]]) -> None:
        """Add the results of a function to a row, and its seconds, its warnings, and its error if it fails."""
        begin = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                row |= function()
            except Exception as error:
                row["error"] = _text(error)
        row["seconds"] = row.get("seconds", 0.0) + time.perf_counter() - begin
        self.longest = max(self.longest, row["seconds"])
        if texts := {str(each.message)[:500] for each in caught if each.category is UserWarning}:
            row["warnings"] = sorted({*row.get("warnings", ()), *texts})

    def save(self) -> None:
        """Write all results; the file is whole at any time."""
        new = self.out.with_name(f"{self.out.name}.new")
        new.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")
        new.replace(self.out)

    def synchronise(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def rates(
        self, steps: dict[str, Callable[[], int]], rows: dict[str, dict[str, Any]] | None = None
    ) -> dict[str, list[tuple[int, float]]]:
        """Return, for each way, the graphs and the seconds of each interleaved round; an error goes to its row."""
        found: dict[str, list[tuple[int, float]]] = {name: [] for name in steps}
        gc.collect()
        for name in [name for _ in range(self.size.rounds) for name in steps]:
            if name in found:
                try:
                    self.synchronise()
                    begin = time.perf_counter()
                    number = sum(steps[name]() for _ in range(self.size.steps))
                    self.synchronise()
                    found[name].append((number, time.perf_counter() - begin))
                except Exception as error:
                    if rows is None:
                        raise
                    rows[name]["error"] = _text(error)
                    del found[name]
        return found

    def busy_seconds(self, step: Callable[[], Any], steps: int) -> float:
        """Return the seconds of a step in which the GPU runs a kernel or copies; on the CPU, those within operators."""
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        on_cuda = self.device == "cuda"
        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
        with profile(activities=kinds) as profiled:
            for _ in range(steps):
                step()
            self.synchronise()
        kind = DeviceType.CUDA if on_cuda else DeviceType.CPU
        spans = sorted(
            (event.time_range.start, event.time_range.end)
            for event in profiled.events() or ()
            # The range of a user's annotation, such as a step of the optimiser, contains the time between its kernels.
            if event.device_type == kind and not getattr(event, "is_user_annotation", False)
        )
        return united(spans) / 1e6 / steps

    def forget(self) -> None:
        """Free what earlier calls have compiled and cached."""
        torch.compiler.reset()
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()


def _text(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:3000]} ({last.filename}, line {last.lineno})"


def _shown(value: Any) -> Any:
    return value if isinstance(value, float | int) and not isinstance(value, bool) else str(value)[:60]


def _machine(device: str) -> dict[str, Any]:
    machine: dict[str, Any] = {"platform": platform.platform(), "cores": os.cpu_count()}
    if device == "cuda":
        of = torch.cuda.get_device_properties(0)
        machine |= {"gpu": of.name, "gpu memory": of.total_memory, "capability": f"{of.major}.{of.minor}"}
    return machine


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for name in ("dgl_tuplepack", "torch", "torch_geometric", "triton", "numpy", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def united(spans: list[tuple[float, float]]) -> float:
    """Return the length of the union of sorted intervals."""
    total, until = 0.0, float("-inf")
    for begin, end in spans:
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
