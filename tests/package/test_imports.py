"""Planning runs where neither torch nor DGL is installed, and importing the package costs nothing.

Each test runs a program of its own, since this process may have loaded everything already.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import dgl_tuplepack as tp
from tests.support.ogb_folder import write_ogb_folder
from tests.support.processes import output_of, without

pytestmark = pytest.mark.processes

HIDDEN = without("torch", "dgl", "ogb", "matplotlib")


def test_the_package_alone_loads_none_of_the_heavy_modules() -> None:
    heavy = ("numpy", "numba", "scipy", "torch", "dgl", "ogb", "matplotlib")
    loaded = output_of(f"import sys, dgl_tuplepack; print([m for m in {heavy!r} if m in sys.modules])")
    assert loaded == ["[]"]


def test_help_and_usage_errors_of_the_command_line_load_no_kernels() -> None:
    lines = output_of(
        """
        import contextlib, io, sys
        from dgl_tuplepack.tools.cli import main

        for arguments in (["--help"], ["plan", "--help"], ["limits", "--help"], ["--version"], ["--versoin"]):
            sys.argv[1:] = arguments
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
                try:
                    main()
                except SystemExit as stopped:
                    code = stopped.code
            print(code, bool(out.getvalue()), [m for m in ("numba", "torch", "matplotlib") if m in sys.modules])
        """
    )
    assert lines == ["0 True []"] * 4 + ["2 True []"]


def test_planning_from_end_to_end_without_torch_and_dgl(tmp_path: Path) -> None:
    root = write_ogb_folder(tmp_path / "ogb", tp.GraphSizes(np.array([[3, 4], [2, 2]])))
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "metadata.json").touch()
    lines = output_of(
        HIDDEN
        + f"""
path, store = {str(root / "ogbg_molhiv")!r}, {str(tmp_path / "store")!r}
"""
        + """
import os, tempfile
import dgl_tuplepack as tp
import dgl_tuplepack.planning.plan

sizes = tp.sizes_of(([3, 2, 3], [4, 2, 4]))
histogram = tp.SizeHistogram.from_sizes(sizes) + tp.load_example("ogbg-molhiv")
limits = tp.Limits(nodes=222, edges=502, graphs=256)
plan = tp.pack(histogram, limits, method="best_fit")
with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "plan.json")
    plan.save(file)
    assert tp.PackPlan.load(file).fingerprint == plan.fingerprint
assert plan.num_packs >= tp.lower_bound(histogram, limits) > 0
assert tp.search_limits(histogram, target=0.9).best.harmonic_mean >= 0.9
print(histogram.num_graphs, dgl_tuplepack.planning.plan.summarise(plan)["graphs"])
print(tp.sizes_of(path).array.tolist(), tp.pack(path, tp.Limits(5, 6)).num_packs)
try:
    tp.sizes_of(store)
except tp.errors.MissingDependencyError as error:
    print(str(error).partition(";")[0])
print([m for m in ("torch", "dgl", "ogb", "matplotlib") if m in sys.modules])
names = {}
exec("from dgl_tuplepack import *", names)
print("pack" in names, "PackBatchSampler" in names)
for name in ("PackBatchSampler", "PaddedCollate", "nn", "tensor_graph", "transforms"):
    try:
        getattr(tp, name)
    except tp.errors.MissingDependencyError as error:
        print(error)
"""
    )
    assert lines[:5] == ["32904 32904", "[[3, 4], [2, 2]] 1", "torch is not installed", "[]", "True False"]
    assert len(lines) == 10
    for message in lines[5:]:
        assert message.startswith("torch is not installed")
        for part in ("dgl_tuplepack[torch]", 'pip install "torch>=2.14"', "constraints.txt"):
            assert part in message


@pytest.mark.dgl
def test_every_public_name_can_be_had() -> None:
    # A star import leaves subclasses of DGL's and PyG's classes out if nothing has imported these.
    importlib.import_module("dgl")
    assert {*dir(tp)} - {*tp.__all__} <= {"pyg"}
    assert {*tp.__all__} <= {*dir(tp)}
    for name in tp.__all__:
        assert getattr(tp, name) is not None
    with pytest.raises(AttributeError, match="'dgl_tuplepack' has no attribute 'pakc'"):
        tp.pakc  # noqa: B018


@pytest.mark.parametrize(("name", "package"), [("GraphDataLoader", "dgl"), ("pyg", "torch_geometric")])
def test_loaders_name_the_package_that_is_missing(name: str, package: str) -> None:
    program = (
        without(package)
        + f"""
import dgl_tuplepack as tp
print({name!r} in dir(tp), {name!r} in tp.__all__)
try:
    tp.{name}
except tp.errors.MissingDependencyError as error:
    print(error)
"""
    )
    offered, message = output_of(program)
    assert offered == "True False"
    assert message.startswith(f"{package} is not installed")


def test_every_module_can_be_imported() -> None:
    """Examples in docstrings are left out where an import fails, so it may fail for a package that is absent only."""
    program = """
        import importlib, pkgutil, warnings, dgl_tuplepack
        # PyG itself.
        warnings.filterwarnings("ignore", ".*torch.jit", DeprecationWarning)
        for module in pkgutil.walk_packages(dgl_tuplepack.__path__, "dgl_tuplepack."):
            if module.name.endswith("__main__"):
                continue
            try:
                importlib.import_module(module.name)
            except ImportError as error:
                print(module.name, error.name)
    """
    absent = dict.fromkeys(("dgl_tuplepack.batches.pyg_batch", "dgl_tuplepack.loading.pyg_loader"), "torch_geometric")
    assert dict(line.split() for line in output_of(program)).items() <= absent.items()
