"""Whether a compiled network computes what it computes uncompiled: all results, all gradients, in three modes."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import dgl_tuplepack as tp
from tests.fuzzing.networks import EDGE_FEATURES, TARGETS, Module, Network

MODES = ("training", "eval with gradients", "eval")
# How much farther from float32 compiled code may be than float32 from float64. Kernels of uncompiled code add up in
# float64, so that they are some 10 times nearer to it than generated code.
_FACTOR = 30.0
# What counts as equal to rounding in float32, however small the distance to float64 is.
_FLOOR = 1e-6
# New numbers in the same compiled code: a relu or a maximum that rounding has switched is then right.
_REPEATS = 3

Results = dict[str, Tensor]


@dataclass
class Finding:
    """What comparing a network has shown: the largest distances, and what differs.

    `ratio` is the distance of compiled code from float32 in units of what is allowed, and `yardstick` the distance of
    float32 from float64. `switched` is what differed with one draw of the numbers, but not with others.
    """

    ratio: float = 0.0
    yardstick: float = 0.0
    differences: dict[str, float] = field(default_factory=dict)
    switched: dict[str, float] = field(default_factory=dict)


def batches_of(network: Network, framework: str = "dgl", device: str = "cpu") -> list[Any]:
    """Return batches of one shape: two that are full, one of a single graph, one of none."""
    gen = torch.Generator().manual_seed(network.seed)
    share = network.nodes // network.graphs, network.edges // network.graphs
    graphs = [_graph(gen, *share, network.node_features, framework) for _ in range(2 * network.graphs)]
    limits = tp.Limits(network.nodes, network.edges, network.graphs)
    levels = {"w": "edge"} if framework == "pyg" else None
    collate = tp.PaddedCollate(limits, example=graphs[0], sort_edges=network.sorted_edges, levels=levels)
    parts = graphs[: network.graphs], graphs[network.graphs :], graphs[:1], []
    return [collate(part).to(device).tensors for part in parts]


def _graph(gen: torch.Generator, nodes: int, edges: int, features: int, framework: str) -> Any:
    """A random graph and its label; most have fewer nodes and edges than there may be."""
    nodes = int(torch.randint(max(1, nodes // 2), nodes + 1, (), generator=gen))
    edges = int(torch.randint(edges // 2, edges + 1, (), generator=gen))
    ends = torch.randint(0, nodes, (2, edges), generator=gen)
    x, w = torch.randn(nodes, features, generator=gen), torch.randn(edges, EDGE_FEATURES, generator=gen)
    label = torch.randn(TARGETS, generator=gen)
    if framework == "pyg":
        from torch_geometric.data import Data

        return Data(x=x, edge_index=ends, w=w, y=label[None])
    import dgl

    graph = dgl.graph(tuple(ends), num_nodes=nodes)
    graph.ndata["x"], graph.edata["w"] = x, w
    return graph, label


def compiled(module: Module, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Compile by `tp.compile`, without comparing its first calls itself."""
    return tp.compile(module, options=dict(options), check=False)


def compare(
    network: Network,
    compiler: Callable[[Module], Callable[..., Any]],
    modes: Sequence[str] = MODES,
    framework: str = "dgl",
    device: str = "cpu",
) -> Finding:
    """Compare what a compiler makes of a network with the network itself; with "pyg", give it ``by_graph=False``."""
    module, batches = network.build().to(device), batches_of(network, framework, device)
    function = compiler(module)
    found = Finding()
    # Modes in turn, so that each is compiled once.
    for mode in modes:
        ratios = _ratios(mode, module, function, batches, found)
        wrong = {name: ratio for name, ratio in ratios.items() if not ratio <= 1}
        again = dict(wrong)
        for repeat in range(_REPEATS if wrong else 0):
            _draw_again(network, repeat + 1, module, batches)
            ratios = _ratios(mode, module, function, batches, Finding())
            again = {name: ratio for name, ratio in again.items() if not ratios[name] <= 1}
        found.differences |= {f"{mode}: {name}": wrong[name] for name in again}
        found.switched |= {f"{mode}: {name}": wrong[name] for name in wrong if name not in again}
    return found


def _draw_again(network: Network, repeat: int, module: Module, batches: list[Any]) -> None:
    """Give parameters and features of nodes new values, in place."""
    seed = network.seed + repeat * 1_000_003
    module.load_state_dict(dataclasses.replace(network, seed=seed).build().state_dict())
    gen = torch.Generator().manual_seed(seed)
    for t in batches:
        x = t.node_features["x"]
        x.copy_(torch.randn(x.shape, generator=gen).to(x.device) * t.node_mask[:, None])


def _ratios(
    mode: str, module: Module, function: Callable[..., Any], batches: list[Any], found: Finding
) -> dict[str, float]:
    """Distances of compiled code from float32, in units of what is allowed, by name and number of the batch."""
    single, double = copy.deepcopy(module), copy.deepcopy(module).double()
    compared = []
    for t in batches:
        nodes, edges = _as_double(t.node_features), _as_double(t.edge_features)
        wide = t._replace(node_features=nodes, edge_features=edges, labels=t.labels.double())
        here, exact = results_of(mode, single, single, t), results_of(mode, double, double, wide)
        compared.append(distances(here, exact, results_of(mode, module, function, t)))
    ratios = {}
    for name in compared[0]:
        # Float32 may be near float64 by luck in one batch.
        rounding = max(_FLOOR, *(each[name][0] for each in compared))
        for number, each in enumerate(compared):
            ratio = each[name][1] / (_FACTOR * rounding)
            ratios[f"{name}, batch {number}"] = ratio
            # A maximum of NaN and a number may be the number.
            found.ratio = ratio if not ratio <= found.ratio else found.ratio
        found.yardstick = max(found.yardstick, rounding)
    return ratios


def _as_double(features: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.double() for name, value in features.items()}


def results_of(mode: str, module: Module, function: Callable[..., Any], t: Any) -> Results:
    """Return results, gradients and buffers of a call in a mode."""
    module.train(mode == "training")
    x = t.node_features["x"].clone().requires_grad_(mode != "eval")
    t = t._replace(node_features={"x": x})
    parameters = dict(module.named_parameters())
    with torch.set_grad_enabled(mode != "eval"):
        loss, results = function(t)
    gradients: dict[str, Tensor | None] = {}
    if mode != "eval":
        # Every result counts, as where several heads train together. Nodes of padding are equal, so that rounding would
        # choose which of them gets the gradient of a maximum.
        masks = {each.shape[0]: each[:, None] for each in (t.node_mask, t.graph_mask)}
        total = loss + sum((each.square() * masks[each.shape[0]]).mean() for each in results)
        of = torch.autograd.grad(total, [x, *parameters.values()], allow_unused=True)
        gradients = dict(zip(["input", *parameters], of, strict=True))
    named = {"loss": loss, **{f"result {i}": each for i, each in enumerate(results)}}
    named |= {f"gradient of {name}": each for name, each in gradients.items() if each is not None}
    named |= {f"buffer {name}": each for name, each in module.named_buffers()}
    return {name: each.detach().clone() for name, each in named.items()}


def distances(here: Results, exact: Results, there: Results) -> dict[str, tuple[float, float]]:
    """Return the distances of float32 from float64, and of compiled code from float32, relative to each tensor.

    What is nearly 0 is compared with the largest of its kind.
    """
    assert here.keys() == exact.keys() == there.keys()
    norms = {name: _norm(each) for name, each in exact.items()}
    found = {}
    for name in norms:
        kind = name.partition(" ")[0]
        scale = max(norms[name], *(1e-3 * norm for other, norm in norms.items() if other.startswith(kind)))
        rounding, distance = _norm(here[name].double() - exact[name]), _norm(there[name].double() - here[name].double())
        # In a batch of nothing, gradients are 0; then anything else is wrong.
        found[name] = (rounding / scale, distance / scale) if scale else (0.0, math.inf if distance else 0.0)
    return found


def _norm(tensor: Tensor) -> float:
    return float(tensor.double().norm())
