"""Random graph networks: each is a few choices, drawn from a seed, and the module that is built from them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

import dgl_tuplepack as tp

TARGETS, EDGE_FEATURES, ENCODED = 3, 2, 6

Aggregation = Literal["sum", "mean", "max", "attention"]
# The common widths come several times; the odd ones leave a tail beside the vectors of a loop.
_WIDTHS = (5, 7, 8, 8, 13, 16, 16, 16, 17, 24, 31, 32, 32, 33, 48, 64, 64, 65, 96, 127, 128, 200, 300)
_ACTIVATIONS = {
    "relu": nn.ReLU, "leaky_relu": nn.LeakyReLU, "elu": nn.ELU, "gelu": nn.GELU, "tanh": nn.Tanh, "silu": nn.SiLU,
    "prelu": nn.PReLU,
}  # fmt: skip


@dataclass(frozen=True)
class Network:
    """The choices of a network; its repr makes it again.

    Generated code is cut at every matrix product, and each piece is a call of the C++ compiler. So most layers scale
    and shift instead, which leaves more to the scheduler.
    """

    seed: int
    width: int
    aggregations: tuple[Aggregation, ...]
    products: tuple[bool, ...]
    encoder: bool
    head: bool
    by_graph: bool
    norm: Literal["batch", "layer", "none"]
    activation: str
    residual: Literal["none", "sum", "layer"]
    jumping: Literal["last", "sum", "concat", "readouts"]
    virtual_node: bool
    readout: Aggregation
    edge_features: bool
    dropout: float | None
    sorted_edges: bool
    getitem: bool
    nodes: int
    edges: int
    graphs: int

    @classmethod
    def of(cls, seed: int) -> Network:
        """Draw the network of a seed."""
        draw = random.Random(seed)
        layers = draw.choice((*[2] * 14, *[3] * 4, 4, 5))
        kinds: list[Aggregation] = ["sum", "sum", "sum", "mean", "mean", "max", "attention"]
        same = [draw.choice(kinds)] * layers
        nodes = draw.randrange(150, 700)
        return cls(
            seed=seed,
            width=draw.choice(_WIDTHS),
            aggregations=tuple(draw.choice((same, [draw.choice(kinds) for _ in range(layers)]))),
            products=tuple(draw.random() < 0.2 for _ in range(layers)),
            encoder=draw.random() < 0.3,
            head=draw.random() < 0.3,
            by_graph=draw.random() < 0.5,
            norm=draw.choice(("batch", "layer", "none", "none")),
            activation=draw.choice((*_ACTIVATIONS, "relu", "relu")),
            residual=draw.choice(("none", "sum", "layer")),
            jumping=draw.choice(("last", "sum", "concat", "readouts")),
            virtual_node=draw.random() < 0.3,
            readout=draw.choice(("sum", "sum", "mean", "max", "attention")),
            edge_features=draw.random() < 0.4,
            dropout=draw.choice((None, None, 0.0)),
            sorted_edges=draw.random() < 0.5,
            getitem=draw.random() < 0.3,
            nodes=nodes,
            edges=round(nodes * draw.uniform(1.1, 3.5)) + 1,
            graphs=draw.randrange(4, 40),
        )

    @property
    def node_features(self) -> int:
        """Width of the features of nodes."""
        return ENCODED if self.encoder else self.width

    def build(self) -> Module:
        """Return the network, with parameters that are a function of the seed."""
        torch.manual_seed(self.seed)
        return tp.nn.convert(Module(self), verbose=False)


class Module(nn.Module):
    """What a `Network` describes: called on the tensors of a batch, it returns a loss and all results."""

    def __init__(self, of: Network) -> None:
        super().__init__()
        self.of = of
        self.encoder = nn.Linear(ENCODED, of.width) if of.encoder else nn.Identity()
        parts = zip(of.aggregations, of.products, strict=True)
        self.layers = nn.ModuleList(Layer(of, kind, product) for kind, product in parts)
        self.virtual = Scale(of.width) if of.virtual_node else None
        last = of.width * (len(self.layers) if of.jumping == "concat" else 1)
        self.gate = nn.Parameter(torch.randn(last) / last**0.5) if of.readout == "attention" else None
        self.head = nn.Linear(last, TARGETS) if of.head else Sums(last, TARGETS)

    def forward(self, t: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        rows = _Rows(t, self.of)
        virtual = t.labels.new_zeros(t.graph_mask.shape[0], self.of.width)
        with tp.nn.masked(t):
            h, states = self.encoder(t.node_features["x"]), []
            for layer in self.layers:
                if self.virtual is not None:
                    virtual = torch.relu(self.virtual(virtual + rows.pool(h, "mean")))
                    h = h + rows.spread(virtual)
                h = layer(rows, h)
                states.append(h)
        readouts = [self._read(rows, h) for h in self._jumped(states)]
        out = self.head(torch.stack(readouts).sum(0))
        loss = tp.nn.masked_mean((out - t.labels).square(), t.graph_mask, count=self.of.graphs)
        return loss, (out, states[-1], *readouts)

    def _jumped(self, states: list[Tensor]) -> list[Tensor]:
        """Features of nodes that are read out."""
        if self.of.jumping == "readouts":
            return states
        if self.of.jumping == "concat":
            return [torch.cat(states, 1)]
        return [torch.stack(states).sum(0) if self.of.jumping == "sum" else states[-1]]

    def _read(self, rows: _Rows, h: Tensor) -> Tensor:
        if self.gate is None:
            return rows.pool(h, self.of.readout)
        return rows.pool(h * rows.pool_softmax((h * self.gate).sum(1, keepdim=True)), "sum")


class Scale(nn.Module):
    """A layer without a product of matrices."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width) * 0.3)

    def forward(self, h: Tensor) -> Tensor:
        return h * self.weight + self.bias


class Sums(nn.Module):
    """What a linear layer computes, also without one."""

    def __init__(self, width: int, targets: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(targets, width) / width**0.5)

    def forward(self, h: Tensor) -> Tensor:
        return (h[:, None] * self.weight).sum(2)


class Layer(nn.Module):
    """One round of messages, and what is made of them."""

    def __init__(self, of: Network, kind: Aggregation, product: bool) -> None:
        super().__init__()
        self.of, self.kind, width = of, kind, of.width
        self.update = nn.Linear(width, width) if product else Scale(width)
        self.edge = nn.Parameter(torch.randn(width)) if of.edge_features else None
        # Scores of the node where an edge begins, and of the one where it ends.
        self.scores = nn.Parameter(torch.randn(2, width) / width**0.5) if kind == "attention" else None
        self.norm = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm, "none": nn.Identity}[of.norm](width)
        self.act = _ACTIVATIONS[of.activation]()
        self.drop = nn.Identity() if of.dropout is None else nn.Dropout(of.dropout)

    def forward(self, rows: _Rows, h: Tensor) -> Tensor:
        edge = None if self.edge is None else rows.t.edge_features["w"][:, :1] * self.edge
        weights = None
        if self.scores is not None:
            weights = rows.attention(*((h * score).sum(1, keepdim=True) for score in self.scores))
        total = rows.aggregate(h, edge, weights, self.kind)
        if self.of.residual == "sum":
            total = h + total
        new = self.drop(self.act(self.norm(self.update(total))))
        return h + new if self.of.residual == "layer" else new


class _Rows:
    """Sums over edges and nodes of a batch, by DGL's functions on a `TensorGraph` or by operations of torch."""

    def __init__(self, t: Any, of: Network) -> None:
        self.t, self.of = t, of
        self.graph = t.graph if of.by_graph else None

    def aggregate(self, h: Tensor, edge: Tensor | None, weights: Tensor | None, kind: Aggregation) -> Tensor:
        """Reduce messages at the nodes where edges end."""
        if self.graph is None:
            messages = self._take(h, self.t.src)
            messages = messages if edge is None else torch.relu(messages + edge)
            messages = messages if weights is None else messages * weights
            return _reduced(messages, self.t.dst, h.shape[0], kind)
        import dgl.function as fn

        reduce = getattr(fn, "sum" if kind == "attention" else kind)("m", "total")
        with self.graph.local_scope():
            self.graph.ndata["h"] = h
            if edge is None and weights is None:
                self.graph.update_all(fn.copy_u("h", "m"), reduce)
            elif edge is None:
                self.graph.edata["a"] = weights
                self.graph.update_all(fn.u_mul_e("h", "a", "m"), reduce)
            else:
                self.graph.edata["e"] = edge
                self.graph.apply_edges(fn.u_add_e("h", "e", "m"))
                messages = torch.relu(self.graph.edata["m"])
                self.graph.edata["m"] = messages if weights is None else messages * weights
                self.graph.update_all(fn.copy_e("m", "m"), reduce)
            return self.graph.ndata["total"]

    def attention(self, at_src: Tensor, at_dst: Tensor) -> Tensor:
        """Return weights of edges, whose sum is 1 at every node."""
        if self.graph is None:
            scores = self._take(at_src, self.t.src) + self._take(at_dst, self.t.dst)
            return _softmax(nn.functional.leaky_relu(scores, 0.2), self.t.dst, at_src.shape[0])
        import dgl.function as fn
        from dgl.nn.functional import edge_softmax

        with self.graph.local_scope():
            self.graph.ndata.update({"u": at_src, "v": at_dst})
            self.graph.apply_edges(fn.u_add_v("u", "v", "s"))
            return edge_softmax(self.graph, nn.functional.leaky_relu(self.graph.edata["s"], 0.2))

    def pool(self, h: Tensor, kind: Aggregation) -> Tensor:
        """Reduce the nodes of each graph."""
        if self.graph is None:
            return _reduced(h, self.t.node_graph_slots, self.t.graph_mask.shape[0], kind)
        import dgl

        with self.graph.local_scope():
            self.graph.ndata["h"] = h
            return dgl.readout_nodes(self.graph, "h", op=kind)

    def pool_softmax(self, scores: Tensor) -> Tensor:
        """Return weights of nodes, whose sum is 1 in every graph."""
        if self.graph is None:
            return _softmax(scores, self.t.node_graph_slots, self.t.graph_mask.shape[0])
        import dgl

        with self.graph.local_scope():
            self.graph.ndata["s"] = scores
            return dgl.softmax_nodes(self.graph, "s")

    def spread(self, values: Tensor) -> Tensor:
        """Return the row of its graph for each node."""
        if self.graph is None:
            return self._take(values, self.t.node_graph_slots)
        import dgl

        return dgl.broadcast_nodes(self.graph, values)

    def _take(self, values: Tensor, index: Tensor) -> Tensor:
        return values[index] if self.of.getitem else values.index_select(0, index)


def _reduced(values: Tensor, index: Tensor, number: int, kind: Aggregation) -> Tensor:
    zeros = values.new_zeros(number, values.shape[1])
    if kind == "max":
        return zeros.scatter_reduce(0, index[:, None].expand_as(values), values, "amax", include_self=False)
    total = zeros.index_add(0, index, values)
    if kind != "mean":
        return total
    counts = values.new_zeros(number).index_add(0, index, values.new_ones(values.shape[0]))
    return total / counts.clamp(min=1)[:, None]


def _softmax(scores: Tensor, index: Tensor, number: int) -> Tensor:
    powers = torch.exp(scores - _reduced(scores.detach(), index, number, "max").index_select(0, index))
    return powers / _reduced(powers, index, number, "sum").index_select(0, index)
