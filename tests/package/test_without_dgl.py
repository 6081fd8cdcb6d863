"""Everything but DGLGraphs works where DGL is not installed; what needs DGL says how to get it.

Each test runs a program of its own in which DGL cannot be imported, so that it says the same where DGL is installed.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import dgl_tuplepack as tp
from dgl_tuplepack._core import optional
from tests.support import processes
from tests.support.ogb_folder import write_ogb_folder

pytestmark = [pytest.mark.without_dgl, pytest.mark.processes]

BEGIN = """
import dgl_tuplepack as tp, torch

store = tp.GraphStore.write(path, source)
limits = tp.Limits(nodes=30, edges=60, graphs=8)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables of a process in which a module that cannot be imported stands for the absent package."""
    folder = tmp_path / "absent"
    folder.mkdir()
    (folder / "dgl.py").write_text("raise ModuleNotFoundError(\"No module named 'dgl'\", name='dgl')")
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(processes.ROOT)])}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An OGB folder of twenty graphs."""
    generator = np.random.default_rng(0)
    sizes = tp.GraphSizes(np.stack([generator.integers(1, 9, 20), generator.integers(0, 12, 20)], axis=1))
    return write_ogb_folder(tmp_path / "ogb", sizes) / "ogbg_molhiv"


def output_of(environment: dict[str, str], source: Path, tmp_path: Path, program: str) -> list[str]:
    """Lines that a program prints, which begins with a store of the graphs; it must end well and say nothing else."""
    names = f"source, path = {str(source)!r}, {str(tmp_path / 'store')!r}\n"
    return processes.output_of(names + BEGIN + textwrap.dedent(program), **environment)


def test_a_network_of_torch_trains_on_batches_of_a_store(
    environment: dict[str, str], source: Path, tmp_path: Path
) -> None:
    program = """
    loader = tp.packed_loader(store, graphs_per_batch=5, sort_edges=True)
    encode, head = torch.nn.Embedding(200, 8), torch.nn.Linear(8, 1)
    norm = tp.nn.MaskedBatchNorm1d(8)

    def loss_of(t, count):
        x = encode(t.node_features["feat"][:, 0])
        x = norm(x + torch.zeros_like(x).index_add(0, t.dst, x.index_select(0, t.src)), t.node_mask).relu()
        sums = torch.zeros(len(t.graph_mask), 8).index_add(0, t.node_graph_slots, x)
        losses = (head(sums) - t.labels).square()
        return tp.nn.masked_mean(losses, t.graph_mask, count=count)

    step = torch.compile(loss_of, backend="eager", fullgraph=True, dynamic=False)
    seen = []
    for epoch in range(2):
        loader.set_epoch(epoch)
        for batch in loader:
            loss = step(batch.tensors, loader.sampler.count_tensor)
            loss.backward()
            seen += batch.graph_ids[batch.graph_mask].tolist()
            torch.testing.assert_close(loss, loss_of(batch.tensors, loader.sampler.count_tensor))
    print(sorted(seen) == sorted(2 * list(range(len(store)))), encode.weight.grad.abs().sum() > 0)
    print(batch.tensors.graph.in_degrees().sum() == len(batch.edge_mask))
    """
    assert output_of(environment, source, tmp_path, program) == ["True tensor(True)", "tensor(True)"]


def test_a_folder_is_loaded_at_once_and_batches_move_and_change(
    environment: dict[str, str], source: Path, tmp_path: Path
) -> None:
    program = """
    import pickle

    first = next(iter(tp.packed_loader(source, graphs_per_batch=5, shuffle=False)))
    there = pickle.loads(pickle.dumps(first)).to("cpu")
    print(torch.equal(there.node_features["feat"], first.node_features["feat"]), first.num_real_graphs > 0)
    plan = tp.pack(store, limits)
    sampler = tp.PackBatchSampler(store, plan.limits, plan=plan)
    view = store.subset(range(10)).padded(sampler.limits)
    whole, there = store.padded(sampler.limits), store.to("cpu").padded(sampler.limits)
    for batch in (view[[0, 3]], there[[0, 3]], whole[[0, 3]]):
        print(batch.num_real_nodes == store.sizes.array[[0, 3], 0].sum(), len(batch.node_mask))
    store.verify()
    """
    lines = output_of(environment, source, tmp_path, program)
    assert lines[0] == "True True"
    assert lines[1] == lines[2] == lines[3]
    assert lines[1].startswith("True ")


NEED_DGL = (
    "store.padded(limits)[[0]].graph",
    "graph, labels = store.padded(limits)[[0]]",
    "store[0]",
    "store.batched()[[0, 1]]",
    "tp.unpad(store.padded(limits)[[0]])",
    "tp.PaddedCollate(limits, example=object())",
    "tp.PackedDataset",
    "tp.GraphDataLoader",
    "tp.transforms.PadToLimits",
    "tp.GraphStore.write(path + '2', [object()])",
)


def test_what_needs_dgl_says_how_to_get_it(environment: dict[str, str], source: Path, tmp_path: Path) -> None:
    program = f"""
    for asked in {NEED_DGL!r}:
        try:
            exec(asked)
        except tp.errors.MissingDependencyError as error:
            print(error)
        else:
            print("nothing was missing")
    """
    messages = output_of(environment, source, tmp_path, program)
    for asked, message in zip(NEED_DGL, messages, strict=True):
        assert message.startswith("dgl is not installed"), asked
        for part in ("dgl_tuplepack[dgl]", "pip install dgl==1.1.3", optional.KNOWN_GOOD):
            assert part in message, asked
        assert ("has wheels for Python" in message) == (sys.version_info >= (3, 12)), asked


def test_a_folder_is_preprocessed(environment: dict[str, str], source: Path, tmp_path: Path) -> None:
    arguments = ("preprocess", source, "--out", tmp_path / "out", "--graphs-per-batch", 4)
    done = processes.run("-m", "dgl_tuplepack", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    written = tp.GraphStore(tmp_path / "out")
    written.verify()
    assert (len(written), set(written.splits)) == (20, {"train", "valid", "test"})


def test_the_demo_runs_on_pyg_and_without_a_compiler(environment: dict[str, str], tmp_path: Path) -> None:
    # Without a compiler it takes a tenth of the time.
    arguments = "-m", "dgl_tuplepack", "demo", "--graphs", 100, "--json", "--out", tmp_path / "out"
    done = processes.run(*arguments, **environment, CXX="/nonexistent/c++")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["framework"], result["training"]["compiled"]) == ("pyg", False)
    assert "batches of 70" not in [row["name"] for row in result["contenders"]]
    assert np.isfinite([result["training"]["first_loss"], result["training"]["last_loss"]]).all()
    said = " ".join(done.stderr.split())
    assert "dgl is not installed" in said
    assert said.count("tp.compile leaves GIN uncompiled") == said.count("uncompiled, which is slower") == 1
    assert sorted(os.listdir(tmp_path / "out")) == ["fill.png", "sizes.png"]
