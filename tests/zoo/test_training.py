"""Whole models train the same in plain batches, batches of a store, padded batches and compiled code.

In CI every model is compiled in one framework, with one layer: one by C++, the others traced and split into forward
and backward pass. With `TUPLEPACK_ZOO=all python -m pytest tests/zoo` all of them are compiled by C++, in both
frameworks and both precisions, which takes well over half an hour. `TUPLEPACK_ZOO_DEVICE=cuda` has compiled code run
there; not run yet.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from dgl.dataloading import GraphCollator
from torch import Tensor, nn

import dgl_tuplepack as tp
from tests.support.pyg import batch_of
from tests.zoo.graphs import CATEGORIES, molecules
from tests.zoo.models import MODELS, Model, graph_of

pytestmark = [pytest.mark.compile, pytest.mark.slow]

ALL = os.environ.get("TUPLEPACK_ZOO") == "all"
DEVICE = os.environ.get("TUPLEPACK_ZOO_DEVICE", "cpu")
# The framework in which each model is compiled, if only traced and split.
TRACED = {
    **dict.fromkeys(
        ("GatedGCN", "SchNet", "GIN-JK", "GIN-VN", "AttentiveFP", "GraphGPS", "R-GCN", "ALIGNN", "Graphormer"), "dgl"
    ),
    **dict.fromkeys(("MPNN", "GAT", "DeeperGCN", "Autoencoder"), "pyg"),
}
# Backends of the training step and of the evaluation. C++ takes a second for each kernel, of which this model has few;
# of DGL, networks of the fuzzer and the demo are compiled by C++.
COMPILED = {case: ("aot_eager", "eager") for case in TRACED.items()} | {("GraphSAGE", "pyg"): ("inductor", "eager")}
WIDTH, LAYERS, GRAPHS = 8, 2, 18
# Sums in another order; float32 has 7 digits, of which norms and gradients of a few rows lose some.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3}


@dataclass
class Way:
    """A model, the loss of a batch of ids, and the outputs for these graphs."""

    model: nn.Module
    loss: Callable[[list[int]], Tensor]
    outputs: Callable[[list[int]], list[Tensor]]


@dataclass
class Case:
    """A model in one framework, and its graphs."""

    kind: Model
    framework: str
    dataset: list[Any]
    loader: Any
    model: nn.Module

    @classmethod
    def of(cls, name: str, framework: str, dtype: torch.dtype, layers: int, folder: Path) -> Case:
        kind = MODELS[name]
        dataset = [kind.item(framework, graph, label) for graph, label in molecules(GRAPHS, dtype)]
        store = tp.GraphStore.write(folder / "store", dataset, ties=kind.ties.get(framework))
        # Where edges are the nodes of another graph, sorting them moves these too.
        loading: dict[str, Any] = {"packs_per_batch": 2, "seed": 1, "sort_edges": bool(kind.ties), **kind.loading}
        loader = tp.packed_loader(store, graphs_per_batch=7, **loading)
        torch.manual_seed(0)
        return cls(kind, framework, dataset, loader, kind.new(framework, WIDTH, layers, CATEGORIES).to(dtype))

    def batches(self) -> list[list[int]]:
        """Ids of three batches of the sampler, and of one nearly empty one."""
        batches = [batch.graph_ids[batch.graph_mask].tolist() for batch in self.loader][:3]
        return [*batches, [*self.kind.smallest]]

    def unpadded(self, batched: Callable[[list[int]], Any]) -> Way:
        """Train on batches without padding, with the model as it is."""
        model = copy.deepcopy(self.model)
        return Way(
            model,
            lambda ids: self.kind.loss_of_plain(self.framework, model, batched(ids), self.loader.graphs_per_batch),
            lambda ids: _parts(model(batched(ids)[0] if self.framework == "dgl" else batched(ids))),
        )

    def padded(self, backends: Sequence[str] | None = None) -> Way:
        """Train on padded batches, compiled by these backends of the step and of the evaluation if there are any."""
        # DGL may be built for the CPU only, which compiled code does not need.
        device = DEVICE if backends else "cpu"
        model = tp.nn.convert(copy.deepcopy(self.model), verbose=False).to(device)

        def loss_of(batch: Any, count: Any) -> Tensor:
            return self.kind.loss_of_padded(self.framework, model, batch, count)

        def outputs_of(batch: Any) -> Any:
            with tp.nn.masked(batch):
                return model(graph_of(self.framework, batch))

        def argument(ids: list[int]) -> Any:
            batch = self.loader.view[ids].to(device)
            if self.framework == "pyg":
                return batch.pyg
            return batch.tensors if backends else batch

        functions: list[Callable[..., Any]] = [loss_of, outputs_of]
        if backends:
            settings = self.kind.compiling.get(self.framework, {})
            functions = [
                tp.compile(f, shapes=1, backend=b, **settings) for f, b in zip(functions, backends, strict=True)
            ]
        step, predict = functions
        count = self.loader.sampler.count_tensor.to(device)

        def outputs(ids: list[int]) -> list[Tensor]:
            batch = argument(ids)
            return [part[mask] for part, mask in zip(_parts(predict(batch)), self.kind.masks(batch), strict=True)]

        return Way(model, lambda ids: step(argument(ids), count), outputs)

    def plain_batch(self, ids: list[int]) -> Any:
        """Return what the framework's own loader makes of the graphs."""
        items = [self.dataset[i] for i in ids]
        if self.framework == "pyg":
            return batch_of(items)
        batch: Any = GraphCollator().collate(items)
        return batch


def _parts(out: Any) -> list[Tensor]:
    """Return the outputs of a model, of which most have one."""
    return [*out] if isinstance(out, tuple) else [out]


def trained(way: Way, batches: list[list[int]]) -> Iterator[tuple[str, Any]]:
    """Train for a step on each batch; yield what must be equal, with a name."""
    optimiser = torch.optim.SGD(way.model.parameters(), lr=0.05)
    for number, ids in enumerate(batches):
        loss = way.loss(ids)
        optimiser.zero_grad()
        loss.backward()
        yield f"loss {number}", loss.detach()
        for name, parameter in way.model.named_parameters():
            yield f"gradient {number} of {name}", parameter.grad
        optimiser.step()
    yield from way.model.state_dict().items()
    way.model.eval()
    with torch.no_grad():
        for number, ids in enumerate(batches):
            yield f"outputs {number}", way.outputs(ids)


def cases() -> list[Any]:
    """Name, framework, precision and backends of each test."""
    return [
        pytest.param(*(name, framework, dtype, backends), id=f"{name}-{framework}-{dtype}-{backends and backends[0]}")
        for name in MODELS
        for framework in ("dgl", "pyg")
        for dtype in (torch.float64, torch.float32)
        if ALL or dtype == torch.float64
        for backends in [("inductor", "inductor") if ALL else COMPILED.get((name, framework))]
    ]


@pytest.mark.parametrize(("name", "framework", "dtype", "backends"), cases())
def test_all_ways_train_the_same(
    name: str, framework: str, dtype: torch.dtype, backends: tuple[str, str] | None, tmp_path: Path
) -> None:
    # Compiling a second layer takes as long as compiling the first.
    case = Case.of(name, framework, dtype, 1 if backends and not ALL else LAYERS, tmp_path)
    batches = case.batches()
    batched = tp.GraphStore(tmp_path / "store").batched(framework=framework)
    ways = {"a store's batches": case.unpadded(batched.__getitem__), "padded": case.padded()}
    if backends:
        ways["compiled"] = case.padded(backends)
    expected = dict(trained(case.unpadded(case.plain_batch), batches))
    tolerance = TOLERANCES[dtype]
    for way_name, way in ways.items():
        for what, value in trained(way, batches):
            said = f"{what}, {way_name}: {{}}".format
            torch.testing.assert_close(
                value, expected[what], check_device=False, rtol=tolerance, atol=tolerance, msg=said
            )  # fmt: skip
    torch.compiler.reset()
