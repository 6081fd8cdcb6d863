"""Which files of the tests need DGL: those that import it, themselves or through another file of the tests.

Where DGL is not installed, they are left out, and so are tests marked ``dgl``. Where it is installed, none of them is.
Nothing else may skip a test because DGL is absent (`tests/package/test_needs.py`).

Tests marked ``without_dgl`` hide DGL from their programs, so they say the same in both environments. Where DGL is
installed they are skipped, unless their file is named on the command line; CI runs them without DGL.

    python -m tests.needs

prints the files that CI runs without DGL.
"""

from __future__ import annotations

import ast
import functools
from importlib.util import find_spec
from pathlib import Path

TESTS = Path(__file__).parent
HAS_DGL = find_spec("dgl") is not None

# What needs torch, PyG or JAX, and no DGL. Tests of planning alone need neither, so most of them run only with DGL.
WITHOUT = (
    "package/test_without_dgl.py",
    "_core/test_assemble.py",
    "batches/test_jraph.py",
    "batches/test_pyg_properties.py",
    "nn/test_pyg_layers.py",
    "sampling/test_resume.py",
    "sampling/test_sampler_properties.py",
    "package/test_needs.py",
    "nn/test_norm.py",
    "batches/test_pyg.py",
    "graphs/test_pyg_increments.py",
    "sampling/test_exchange.py",
    "sampling/test_other_loops.py",
    "sampling/test_static_sampler.py",
    "loading/test_static_model_pyg.py",
    "loading/test_static_pyg.py",
    "scripts/test_gpu_benchmark.py",
    "scripts/test_train_forces.py",
    # What newer versions of HiGHS and of Typer may change.
    "tools/test_command_options.py",
)


@functools.cache
def needs_dgl(file: Path) -> bool:
    """Whether a file imports DGL anywhere, also inside a function, or imports another file of the tests that does."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    if any(module.partition(".")[0] == "dgl" for module in modules):
        return True
    files = (TESTS.parent / f"{module.replace('.', '/')}.py" for module in modules if module.startswith("tests."))
    return any(needs_dgl(other) for other in files if other.is_file())


if __name__ == "__main__":
    print(*(f"tests/{name}" for name in WITHOUT))
