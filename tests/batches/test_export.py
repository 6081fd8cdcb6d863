"""The tensors of a batch as the argument of an exported program, which is saved and loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
from torch import Tensor, nn

import dgl_tuplepack as tp
from dgl_tuplepack.batches.tensors import BatchTensors

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Model(nn.Module):
    """A layer of DGL, a masked norm and a readout."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = dgl.nn.GraphConv(3, 4, allow_zero_in_degree=True)
        self.norm = tp.nn.convert(nn.BatchNorm1d(4), verbose=False)
        self.head = nn.Linear(4, 1)

    def forward(self, t: BatchTensors) -> Tensor:
        graph = t.graph
        with tp.nn.masked(t):
            graph.ndata["h"] = self.norm(self.layer(graph, graph.ndata["x"])).relu()
        return self.head(dgl.mean_nodes(graph, "h"))


def graphs() -> list[Any]:
    """Graphs with labels."""
    made = [(dgl.rand_graph(n, 2 * n), torch.tensor([float(n)])) for n in range(3, 9)]
    for graph, _ in made:
        graph.ndata["x"] = torch.randn(graph.num_nodes(), 3)
    return made


def batches() -> list[tp.PaddedBatch]:
    """A full one, one of other graphs, and an empty one."""
    items = graphs()
    pad = tp.PaddedCollate(tp.Limits(30, 60, graphs=4), example=items[0])
    return [pad(items[:4]), pad(items[4:]), pad([])]


@pytest.fixture(scope="module")
def exported() -> tuple[Model, list[tp.PaddedBatch], torch.export.ExportedProgram]:
    torch.manual_seed(0)
    model, made = Model().eval(), batches()
    with torch.no_grad():
        return model, made, torch.export.export(model, (made[0].tensors,))


def test_a_saved_program_gives_equal_results(exported: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, made, program = exported
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for batch in made:
        assert torch.equal(loaded(batch.tensors), model(batch.tensors))
    # The example of the arguments needs no unsafe unpickling.
    assert not caplog.records


def test_a_process_that_only_collates_loads_a_program(exported: Any, tmp_path: Path) -> None:
    model, made, program = exported
    torch.export.save(program, tmp_path / "model.pt2")
    torch.save((made[1].tensors, model(made[1].tensors)), tmp_path / "pair.pt")
    script = """
import sys, torch, dgl_tuplepack as tp
tp.PaddedCollate
tensors, right = torch.load(sys.argv[1] + "/pair.pt")
assert torch.equal(torch.export.load(sys.argv[1] + "/model.pt2").module()(tensors), right)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_packaged_program_gives_the_same_results(exported: Any, tmp_path: Path) -> None:
    model, made, program = exported
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    loaded = torch._inductor.aoti_load_package(path)
    for batch in made:
        torch.testing.assert_close(loaded(batch.tensors), model(batch.tensors))
