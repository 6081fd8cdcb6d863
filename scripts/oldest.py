"""Install the lowest versions that setup.cfg allows, and run a smoke test with them. Run by hand, with Python 3.11.

    python3.11 scripts/oldest.py [FOLDER]

The environment is made anew in FOLDER (`.venv-oldest`). The test packs, reads a store, makes loaders for DGL and for
PyG, and calls the command line, the demo included. `tp.compile` is not part of it: docs/explain/compile.md says which
torch it needs.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# All extras but those for tests and documentation.
EXTRAS = ("dgl", "ogb", "pyg", "report", "dask", "parquet", "ase")
SMOKE = """
import sys
import ase.io, dgl, torch, torch_geometric
import dgl_tuplepack as tp
from torch_geometric.data import Data

graphs = [dgl.rand_graph(n, 2 * n) for n in range(3, 43)]
for graph in graphs:
    graph.ndata["x"] = torch.rand(graph.num_nodes(), 4)
labels = torch.arange(40.0)
items = list(zip(graphs, labels))

plan = tp.pack(tp.sizes_of(graphs), tp.Limits(100, 200))
assert plan.lower_bound <= plan.num_packs < 40
tp.GraphStore.write(sys.argv[1], items)
for source in (items, tp.GraphStore(sys.argv[1])):
    seen = []
    for batch in tp.packed_loader(source, graphs_per_batch=8):
        loss = tp.nn.masked_loss(torch.nn.MSELoss(reduction="none"), 0 * batch.labels, batch.labels, batch)
        assert loss.isfinite()
        seen += batch.labels[batch.graph_mask].tolist()
    assert sorted(seen) == labels.tolist()
    (batch, _), *_ = tp.GraphDataLoader(source, batch_size=8, num_workers=2)
    assert batch.batch_size == 8
data = [Data(x=g.ndata["x"], edge_index=torch.stack(g.edges()), y=y) for g, y in items]
assert sum(batch.num_graphs for batch in tp.pyg.DataLoader(data, batch_size=8)) == 40
assert sum(int(batch.graph_mask.sum()) for batch in tp.packed_loader(data, graphs_per_batch=8)) == 40
"""
COMMANDS = (
    "--version", "info --system", "verify store", "info store", "sizes store", "limits store", "plan store --json",
    "preprocess store --out copy", "report store --out report.html", "plot sizes store --out sizes.png",
    "chunk store --out chunks --chunks 2 --edges-as parquet", "partition store --out parts --parts 2",
    "demo --graphs 300 --epochs 1",
)  # fmt: skip


def lowest() -> list[str]:
    """Return the lowest version of each dependency, as lines of a constraints file; `EXTRAS` are included."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    # Interpolation inserts the other extras.
    extras = "\n".join(setup["options.extras_require"][extra] for extra in EXTRAS)
    lines = f"{setup['options']['install_requires']}\n{extras}".splitlines()
    # Lines for newer Pythons have markers.
    found = (re.fullmatch(r"([\w-]+)>=([\d.]+)(; python_version < .*)?", line.strip()) for line in lines)
    return sorted({f"{match[1]}=={match[2]}" for match in found if match})


def main(folder: Path) -> None:
    """Make the environment, and run the test in it."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    with tempfile.TemporaryDirectory() as work:
        constraints = Path(work) / "lowest.txt"
        constraints.write_text("\n".join(lowest()))
        package = f"{ROOT}[{','.join(EXTRAS)}]"
        call(python, "-m", "pip", "install", "--quiet", "--constraint", constraints, "--editable", package, folder=work)
        call(python, "-c", SMOKE, "store", folder=work)
        for command in COMMANDS:
            print(f"dgl-tuplepack {command}", flush=True)
            call(python, "-m", "dgl_tuplepack", *command.split(), folder=work)
    print(f"oldest.py: the lowest versions work: {', '.join(lowest())}")


def call(*command: object, folder: str) -> None:
    """Run a command that must succeed."""
    subprocess.run([str(part) for part in command], cwd=folder, check=True)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]).absolute() if sys.argv[1:] else ROOT / ".venv-oldest")
    except subprocess.CalledProcessError as error:
        sys.exit(f"oldest.py: {error}")
