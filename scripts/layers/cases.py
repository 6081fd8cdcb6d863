"""The arguments and inputs of every layer of dgl.nn that accepts a graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dgl.nn
import torch
from torch import nn

from layers.contents import (
    Content,
    Input,
    content,
    edge_scalars,
    edge_types,
    edges,
    graph_scalars,
    heterographs,
    node_types,
    nodes,
)

WIDTH, OUT, EDGE, HEADS = 6, 4, 5, 2


class Made:
    """A module argument of a layer, created once per layer; its repr is the call that creates it."""

    def __init__(self, module: Callable[..., nn.Module], *arguments: object) -> None:
        self.module, self.arguments = module, arguments

    def __repr__(self) -> str:
        return f"{self.module.__name__}({', '.join(map(repr, self.arguments))})"

    def __call__(self) -> nn.Module:
        """Create the module."""
        return self.module(*self.arguments)


class Values(Made):
    """A tensor argument of a layer."""

    def __init__(self, *values: float) -> None:
        super().__init__(nn.Identity, *values)

    def __repr__(self) -> str:
        return f"tensor({list(self.arguments)})"

    def __call__(self) -> Any:
        """Create the tensor."""
        return torch.tensor(self.arguments)


Call = Callable[..., Any]


def _on_graph(layer: nn.Module, graph: Any, *inputs: Any, **named: Any) -> Any:
    return layer(graph, *inputs, **named)


@dataclass(frozen=True)
class Case:
    """A layer, its constructor arguments, and the inputs of its forward after the graph.

    With ``covered``, every node of the graphs has an incoming edge; with ``hetero``, they are heterographs. ``call``
    calls the layer with a graph and the inputs.
    """

    name: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    inputs: tuple[Input, ...]
    named_inputs: Mapping[str, Input]
    covered: bool = False
    without_empty_graph: bool = False
    hetero: bool = False
    call: Call = _on_graph

    @property
    def shown(self) -> str:
        """The Python call that creates the layer, and the names of further inputs of its forward."""
        given = [*map(repr, self.arguments), *(f"{name}={value!r}" for name, value in self.keywords.items())]
        further = "".join(f", with {name}" for name in self.named_inputs)
        return f"`{self.name}({', '.join(given)})`{further}"

    def content(self, number: int) -> Content:
        """Return batch 0 or 1 of the graphs for the layer."""
        if self.hetero:
            return heterographs(number)
        return content(number, covered=self.covered, without_empty_graph=self.without_empty_graph)

    def layer(self) -> nn.Module:
        """Return the layer, in training mode."""
        made = [_made(value) for value in self.arguments]
        with warnings.catch_warnings():
            # Layers such as SetTransformerDecoder(k=1) warn about gradients that are 0.
            warnings.simplefilter("ignore")
            layer = getattr(dgl.nn, self.name)(*made, **{name: _made(value) for name, value in self.keywords.items()})
        # Some layers have float32 parameters even with another default dtype.
        return layer.double()

    def tensors(self, content: Content) -> dict[str, torch.Tensor]:
        """Return the inputs of the forward for a graph; positional inputs are named 0, 1, ..."""
        inputs = {**{str(i): value for i, value in enumerate(self.inputs)}, **self.named_inputs}
        return {name: value(content) for name, value in inputs.items()}


def _made(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _made(each) for name, each in value.items()}
    return value() if isinstance(value, Made) else value


def case(name: str, *arguments: Any, **keywords: Any) -> Callable[..., Case]:
    """Return a function from the inputs of a layer's forward to its Case."""

    def on(
        *inputs: Input, covered: bool = False, without_empty_graph: bool = False, hetero: bool = False,
        call: Call = _on_graph, **named: Input,
    ) -> Case:  # fmt: skip
        return Case(name, arguments, keywords, inputs, named, covered, without_empty_graph, hetero, call)

    return on


linear = Made(nn.Linear, WIDTH, OUT)
gate = Made(nn.Linear, WIDTH, 1)
SCALES = ("identity", "amplification", "attenuation")
ZERO = {"allow_zero_in_degree": True}

CONVOLUTIONS = (
    case("AGNNConv", **ZERO)(nodes(WIDTH)),
    case("APPNPConv", 3, 0.2)(nodes(WIDTH)),
    case("AtomicConv", Values(2.0, 3.0), Values(0.0, 1.0), Values(1.0, 2.0), features_to_use=Values(1.0, 2.0))(
        node_types(3, column=True), edges(1)
    ),
    case("CFConv", WIDTH, EDGE, 8, OUT)(nodes(WIDTH), edges(EDGE)),
    case("ChebConv", WIDTH, OUT, 3)(nodes(WIDTH), lambda_max=graph_scalars()),
    case("DGNConv", WIDTH, WIDTH, ["dir1-av", "sum"], ["identity", "amplification"], 2.5)(
        nodes(WIDTH), eig_vec=nodes(3)
    ),
    case("DotGatConv", WIDTH, OUT, HEADS, **ZERO)(nodes(WIDTH)),
    case("EGATConv", WIDTH, EDGE, OUT, 3, HEADS)(nodes(WIDTH), edges(EDGE), covered=True),
    case("EGNNConv", WIDTH, 8, OUT, EDGE)(nodes(WIDTH), nodes(3), edges(EDGE)),
    case("EdgeConv", WIDTH, OUT, **ZERO)(nodes(WIDTH)),
    case("EdgeGATConv", WIDTH, EDGE, OUT, HEADS, **ZERO)(nodes(WIDTH), edges(EDGE)),
    case("EdgeWeightNorm", norm="right")(edge_scalars()),
    case("GATConv", WIDTH, OUT, HEADS, **ZERO)(nodes(WIDTH)),
    case("GATv2Conv", WIDTH, OUT, HEADS, **ZERO)(nodes(WIDTH)),
    case("GCN2Conv", WIDTH, 1, **ZERO)(nodes(WIDTH), nodes(WIDTH)),
    case("GINConv", linear, "max")(nodes(WIDTH)),
    case("GINEConv", linear, learn_eps=True)(nodes(WIDTH), edges(WIDTH)),
    case("GMMConv", WIDTH, OUT, 3, HEADS, "mean", **ZERO)(nodes(WIDTH), edges(3)),
    case("GatedGraphConv", WIDTH, 8, 3, 1)(nodes(WIDTH)),
    case("GraphConv", WIDTH, OUT, **ZERO)(nodes(WIDTH)),
    case("HGTConv", WIDTH, OUT, HEADS, 3, 4, dropout=0.0)(nodes(WIDTH), node_types(3), edge_types(4)),
    case("NNConv", WIDTH, OUT, Made(nn.Linear, EDGE, WIDTH * OUT), "mean")(nodes(WIDTH), edges(EDGE)),
    case("PNAConv", WIDTH, WIDTH, ["mean", "max"], list(SCALES), 2.5)(nodes(WIDTH), without_empty_graph=True),
    case("RelGraphConv", WIDTH, OUT, 4, "basis", 2)(nodes(WIDTH), edge_types(4)),
    case("SAGEConv", WIDTH, OUT, "mean")(nodes(WIDTH)),
    case("SGConv", WIDTH, OUT, 2, **ZERO)(nodes(WIDTH)),
    case("TAGConv", WIDTH, OUT, 2)(nodes(WIDTH)),
    case("TWIRLSConv", WIDTH, OUT, 8, 2)(nodes(WIDTH)),
    case("TWIRLSUnfoldingAndAttention", WIDTH, 0.5, 1.0, 2)(nodes(WIDTH)),
)
READOUTS = (
    case("SumPooling")(nodes(WIDTH)),
    case("AvgPooling")(nodes(WIDTH)),
    case("MaxPooling")(nodes(WIDTH)),
    case("SortPooling", 3)(nodes(WIDTH)),
    case("WeightAndSum", WIDTH)(nodes(WIDTH)),
    case("GlobalAttentionPooling", gate, linear)(nodes(WIDTH)),
    case("Set2Set", WIDTH, 2, 1)(nodes(WIDTH)),
    case("SetTransformerEncoder", WIDTH, HEADS, OUT, 8)(nodes(WIDTH), without_empty_graph=True),
    case("SetTransformerDecoder", WIDTH, HEADS, OUT, 8, 1, 2)(nodes(WIDTH), without_empty_graph=True),
)
OTHERS = (case("LabelPropagation", 3, 0.5)(nodes(WIDTH)),)
CONTAINERS = (
    case("GroupRevRes", Made(dgl.nn.SAGEConv, WIDTH // 2, WIDTH // 2, "mean"))(nodes(WIDTH)),
    case(
        "HeteroGraphConv",
        {
            "follows": Made(dgl.nn.SAGEConv, WIDTH, OUT, "mean"),
            "buys": Made(dgl.nn.SAGEConv, WIDTH, OUT, "pool"),
            "pleases": Made(dgl.nn.SAGEConv, WIDTH, OUT, "gcn"),
        },
        "max",
    )(
        nodes(WIDTH, "user"),
        nodes(WIDTH, "item"),
        hetero=True,
        call=lambda layer, graph, user, item: layer(graph, {"user": user, "item": item}),
    ),
    case("Sequential", Made(dgl.nn.SAGEConv, WIDTH, WIDTH, "mean"), Made(dgl.nn.SAGEConv, WIDTH, OUT, "mean"))(
        nodes(WIDTH)
    ),
)
# Other settings of the layers above; they are compared too, but each layer counts once.
SETTINGS = (
    case("EdgeConv", WIDTH, OUT, True, **ZERO)(nodes(WIDTH)),
    case("EdgeWeightNorm", norm="both")(edge_scalars()),
    case("EGNNConv", WIDTH, 8, OUT)(nodes(WIDTH), nodes(3)),
    case("GATConv", WIDTH, OUT, HEADS, residual=True, **ZERO)(nodes(WIDTH), edge_weight=edge_scalars()),
    case("GatedGraphConv", WIDTH, 8, 3, 2)(nodes(WIDTH), edge_types(2)),
    case("GINConv", linear, "mean")(nodes(WIDTH)),
    case("GMMConv", WIDTH, OUT, 3, HEADS, "max", **ZERO)(nodes(WIDTH), edges(3)),
    case("GraphConv", WIDTH, OUT, norm="right", **ZERO)(nodes(WIDTH), edge_weight=edge_scalars()),
    case("NNConv", WIDTH, OUT, Made(nn.Linear, EDGE, WIDTH * OUT), "max")(nodes(WIDTH), edges(EDGE)),
    case("RelGraphConv", WIDTH, WIDTH, 4, "bdd", 2)(nodes(WIDTH), edge_types(4)),
    case("RelGraphConv", WIDTH, OUT, 4)(nodes(WIDTH), edge_types(4)),
    case("SAGEConv", WIDTH, OUT, "gcn")(nodes(WIDTH)),
    case("SAGEConv", WIDTH, OUT, "lstm")(nodes(WIDTH)),
    case("SAGEConv", WIDTH, OUT, "pool")(nodes(WIDTH), edge_weight=edge_scalars()),
    case("TAGConv", WIDTH, OUT, 2)(nodes(WIDTH), edge_weight=edge_scalars()),
    case("TWIRLSUnfoldingAndAttention", WIDTH, 0.5, 1.0, 4, attn_aft=2, init_att=True)(nodes(WIDTH)),
)
