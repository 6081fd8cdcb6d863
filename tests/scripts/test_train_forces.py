"""Training on forces from positions: the list of neighbours, the structures, and the script as a user runs it."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tests.support.pyg  # noqa: F401
from tests.support.processes import ROOT, run_each

SCRIPT = ROOT / "scripts" / "train_forces.py"
spec = importlib.util.spec_from_file_location("train_forces", SCRIPT)
assert spec is not None
assert spec.loader is not None
script: Any = importlib.util.module_from_spec(spec)
sys.modules["train_forces"] = script
spec.loader.exec_module(script)


def brute_force(pos: np.ndarray, cell: np.ndarray, pbc: np.ndarray, cutoff: float, reach: int) -> Counter[Any]:
    """All edges with shifts of at most `reach` along each periodic vector: (source, destination, shift)."""
    shifts = np.array([*itertools.product(*(range(-reach, reach + 1) if along else (0,) for along in pbc))])
    vectors = pos - pos[:, None] + (shifts @ cell)[:, None, None]
    near = np.linalg.norm(vectors, axis=3) < cutoff
    near[~shifts.any(1)] &= ~np.eye(len(pos), dtype=bool)
    return Counter((src, dst, *shifts[image]) for image, src, dst in np.argwhere(near).tolist())


@settings(max_examples=60, deadline=None)
@example(seed=0, atoms=1, pbc=(True, True, True), cutoff=3.0)
@example(seed=1, atoms=2, pbc=(True, False, True), cutoff=3.0)
@example(seed=2, atoms=3, pbc=(False, False, False), cutoff=0.5)
@given(
    seed=st.integers(0, 2**31),
    atoms=st.integers(1, 4),
    pbc=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    cutoff=st.floats(0.3, 3.0),
)
def test_edges_are_those_of_brute_force(seed: int, atoms: int, pbc: tuple[bool, ...], cutoff: float) -> None:
    """Skewed cells that are smaller than the cutoff too, atoms outside of their cell, and cells without a vector."""
    rng = np.random.default_rng(seed)
    cell = np.diag(rng.uniform(1, 4, 3)) + rng.uniform(-0.3, 0.3, (3, 3))
    pos = rng.uniform(-1.5, 1.5, (atoms, 3)) @ cell
    cell[[not along and seed % 2 == 0 for along in pbc]] = 0
    ends, shift = script.edges_within(*map(torch.from_numpy, (pos, cell, np.array(pbc))), cutoff)
    found = Counter(tuple(map(int, row)) for row in torch.cat([ends.T, shift], 1).tolist())
    # Atoms are at most 3 cells apart.
    assert found == brute_force(pos, cell, np.array(pbc), cutoff, reach=10)


def test_made_structures_have_exact_forces_and_small_cells() -> None:
    structures = script.made_structures(40, seed=0)
    assert {bool(each.pbc.all()) for each in structures} == {True, False}
    assert any(len(each.z) == 1 for each in structures)
    for each in structures[:6]:
        for atom, axis in itertools.product(range(min(2, len(each.z))), range(3)):
            energies = []
            for step in (1e-5, -1e-5):
                pos = each.pos.clone()
                pos[atom, axis] += step
                moved = script.Structure(each.z, pos, each.cell, each.pbc, 0.0, each.forces)
                energies.append(script.morse(moved)[0])
            expected = -(energies[0] - energies[1]) / 2e-5
            assert float(each.forces[atom, axis]) == pytest.approx(expected, abs=1e-6)


def test_the_page_has_the_list_of_neighbours_of_the_script() -> None:
    page = (ROOT / "docs" / "howto" / "positions.md").read_text(encoding="utf-8")
    code = SCRIPT.read_text(encoding="utf-8").partition("\n\n\ndef edges_within")[2].partition("\n\n\n")[0]
    # The page has no annotations, and a shorter docstring.
    body = code.partition('"""')[2].partition('"""\n')[2]
    assert body in page


# Code from C++ takes a minute here; the script's own part is the same without it.
TRAIN = f"""
import functools, runpy
import dgl_tuplepack as tp
tp.compile = functools.partial(tp.compile, backend="aot_eager")
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""
SMALL = ("--epochs", 2, "--width", 8, "--layers", 2, "--batch-size", 8, "--valid", 0.25)
LOSSES = re.compile(r"mean loss ([\d.]+); valid, mean absolute errors: energy per atom ([\d.]+), forces ([\d.]+)")


def losses_of(done: Any) -> np.ndarray:
    assert done.returncode == 0, done.stderr
    assert "uncompiled" not in done.stderr
    return np.array(LOSSES.findall(done.stdout), float)


@pytest.mark.processes
@pytest.mark.slow
def test_training_on_made_structures_compiled_and_plain(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    runs = [("--number", 40, *SMALL, way) for way in ("--compile", "--plain")]
    runs += [("--structures", tmp_path / "none.extxyz"), ("--number", 2)]
    compiled, plain, absent, few = run_each(tmp_path / "train.py", *runs, folder=ROOT, PYTHONPATH=str(ROOT))
    losses = losses_of(compiled)
    assert losses.shape == (2, 3)
    assert (losses[1] < losses[0]).all()
    np.testing.assert_allclose(losses, losses_of(plain), rtol=2e-3, atol=2e-4)
    assert "train: 30 structures in 4 batches" in compiled.stdout
    assert "none.extxyz does not exist" in absent.stderr
    assert "--number" in few.stderr
    assert [absent.returncode, few.returncode] == [1, 2]


@pytest.mark.processes
@pytest.mark.slow
def test_files_that_ase_reads_and_those_that_are_wrong(tmp_path: Path) -> None:
    io = pytest.importorskip("ase.io", reason="ASE is absent; install dgl_tuplepack[ase]")
    from ase import Atoms
    from ase.calculators.singlepoint import SinglePointCalculator

    frames = []
    for each in script.made_structures(24, seed=1):
        frame = Atoms(each.z.numpy(), each.pos.numpy(), cell=each.cell.numpy(), pbc=each.pbc.numpy())
        frame.calc = SinglePointCalculator(frame, energy=each.energy, forces=each.forces.numpy())
        frames.append(frame)
    io.write(tmp_path / "good.extxyz", frames)
    for one, other in zip(
        script.read_structures(tmp_path / "good.extxyz", "energy", "forces"), script.made_structures(24, 1), strict=True
    ):
        torch.testing.assert_close(one.pos, other.pos, atol=1e-7, rtol=0)
        torch.testing.assert_close(one.forces, other.forces, atol=1e-7, rtol=0)
        assert (one.energy, one.pbc.tolist()) == (pytest.approx(other.energy, abs=1e-6), other.pbc.tolist())

    def written(name: str, change: Any) -> Path:
        frame = frames[0].copy()
        frame.calc = SinglePointCalculator(frame, **frames[0].calc.results)
        change(frame)
        io.write(tmp_path / name, [frames[1], frame])
        return tmp_path / name

    def without_forces(frame: Any) -> None:
        del frame.calc.results["forces"]

    def not_finite(frame: Any) -> None:
        frame.calc.results["energy"] = float("nan")

    def other_names(frame: Any) -> None:
        frame.info["E"], frame.arrays["F"] = 1.0, np.zeros((len(frame), 3))
        frame.calc = None

    (tmp_path / "damaged.extxyz").write_text("3\nProperties=species:S:1:pos:R:3\nH 0 0\n")
    (tmp_path / "text.abc").write_text("nothing that ASE reads")
    wrong = [
        (written("no.extxyz", without_forces), "structure 1 of", "has no 'forces', but energy"),
        (written("nan.extxyz", not_finite), "structure 1 of", "not finite"),
        (written("names.extxyz", other_names), "has no 'energy', but E", "--energy-key and --forces-key"),
        (tmp_path / "damaged.extxyz", "ASE cannot read", "damaged.extxyz"),
        (tmp_path / "text.abc", "ASE cannot read", "UnknownFileTypeError"),
        (tmp_path, "is a folder"),
    ]
    good = ("--structures", tmp_path / "good.extxyz", "--plain", *SMALL)
    runs = [
        good,
        *(("--structures", path) for path, *_ in wrong),
        (*good, "--cutoff", "0.1"),
        (*good, "--device", "cuda"),
    ]
    wrong += [("", "nearer than --cutoff 0.1"), *([] if torch.cuda.is_available() else [("", "needs CUDA")])]
    done, *refused = run_each(SCRIPT, *runs[: len(wrong) + 1], folder=ROOT, PYTHONPATH=str(ROOT))
    assert losses_of(done).shape == (2, 3)
    for each, (_, *messages) in zip(refused, wrong, strict=True):
        assert each.returncode == 1
        assert each.stderr.startswith("train_forces.py: ")
        assert "Traceback" not in each.stderr
        for message in messages:
            assert message in each.stderr
