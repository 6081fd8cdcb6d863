"""Layers of `torch_geometric.nn`, and how each is called on a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from torch_geometric import nn as gnn  # isort: skip

W, E = 4, 3
DEGREES = torch.tensor([1, 3, 5, 2, 1])
TWO = (["n"], [("n", "a", "n"), ("n", "b", "n")])
Call = Callable[[Any, Any], Any]
Case = tuple[Callable[[], nn.Module], Call]


def by(*names: str) -> Call:
    """Call a layer with these attributes of the batch."""
    return lambda layer, data: layer(*(data[name] for name in names))


on_nodes, on_edges, on_graphs, on_edge_index = by("x"), by("edge_attr"), by("x", "batch"), by("x", "edge_index")
with_features, with_kinds = by("x", "edge_index", "edge_attr"), by("x", "edge_index", "kind")
with_points, with_graphs = by("x", "pos", "edge_index"), by("x", "edge_index", "batch")


def with_weights(layer: Any, data: Any) -> Any:
    return layer(data.x, data.edge_index, data.edge_attr[:, 0].sigmoid())


def pooled(layer: Any, data: Any) -> Any:
    return layer(data.x, data.batch, dim_size=data.num_graphs)


def two_types(layer: Any, data: Any) -> Any:
    return layer({"n": data.x}, dict(zip(TWO[1], (data.edge_index, data.edge_index.flip(0)), strict=True)))["n"]


def mlp(inputs: int = W, outputs: int = W) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs))


def _global_polynormer(model: Any, data: Any) -> Any:
    model._global = True
    return model(data.x, data.edge_index, data.batch)


def _reconstruction(model: Any, data: Any) -> Any:
    loss = model.recon_loss(model(data.x, data.edge_index), data.edge_index, data.edge_index[:, :1])
    return loss.repeat(data.num_graphs, 1)


# Layers for which `convert` has nothing to do.
EXACT: Mapping[str, Case] = {
    **{
        f"SAGEConv {aggr}": (lambda aggr=aggr: gnn.SAGEConv(W, W, aggr=aggr), on_edge_index)
        for aggr in ("sum", "mean", "max", "min", "mul", "var", "std", "softmax", "VariancePreservingAggregation")
    },
    **{
        f"{name}Aggregation": (lambda name=name, given=given: getattr(gnn.aggr, f"{name}Aggregation")(*given), pooled)
        for name, given in {
            "Sum": (), "Mean": (), "Max": (), "Min": (), "Mul": (), "Var": (), "Std": (), "Median": (), "Softmax": (),
            "Quantile": ([0.25, 0.5],), "Sort": (2,), "Attentional": (mlp(W, 1), mlp()),
            "DeepSets": (mlp(), mlp()), "SetTransformer": (W,), "VariancePreserving": (),
            "DegreeScaler": (["mean"], ["amplification", "linear"], DEGREES), "Multi": (["mean", "std"],),
        }.items()
    },
    "MLPAggregation": (lambda: gnn.aggr.MLPAggregation(W, W, 30, num_layers=1), pooled),
    "PowerMeanAggregation": (
        gnn.aggr.PowerMeanAggregation, lambda m, d: m(d.x.abs() + 1, d.batch, dim_size=d.num_graphs)
    ),
    "Set2Set": (lambda: gnn.aggr.Set2Set(W, 3), pooled),
    "GraphMultisetTransformer": (lambda: gnn.aggr.GraphMultisetTransformer(W, k=3), pooled),
    "SimpleConv": (gnn.SimpleConv, on_edge_index),
    "GCNConv": (lambda: gnn.GCNConv(W, W), with_weights),
    "ChebConv": (lambda: gnn.ChebConv(W, W, 3), with_weights),
    "GraphConv": (lambda: gnn.GraphConv(W, W), with_weights),
    "GatedGraphConv": (lambda: gnn.GatedGraphConv(W, 2), on_edge_index),
    "ResGatedGraphConv": (lambda: gnn.ResGatedGraphConv(W, W, edge_dim=E), with_features),
    "GATConv": (lambda: gnn.GATConv(W, W, edge_dim=E), with_features),
    "GATv2Conv": (lambda: gnn.GATv2Conv(W, W, edge_dim=E), with_features),
    "TransformerConv": (lambda: gnn.TransformerConv(W, W, edge_dim=E), with_features),
    "AGNNConv": (gnn.AGNNConv, on_edge_index),
    "TAGConv": (lambda: gnn.TAGConv(W, W), on_edge_index),
    "GINConv": (lambda: gnn.GINConv(mlp()), on_edge_index),
    "GINEConv": (lambda: gnn.GINEConv(mlp(), edge_dim=E), with_features),
    "ARMAConv": (lambda: gnn.ARMAConv(W, W, 2, 2), on_edge_index),
    "SGConv": (lambda: gnn.SGConv(W, W, 2), on_edge_index),
    "SSGConv": (lambda: gnn.SSGConv(W, W, 0.1, 2), on_edge_index),
    "APPNP": (lambda: gnn.APPNP(3, 0.1), on_edge_index),
    "MFConv": (lambda: gnn.MFConv(W, W), on_edge_index),
    "RGCNConv": (lambda: gnn.RGCNConv(W, W, 3), with_kinds),
    "FastRGCNConv": (lambda: gnn.FastRGCNConv(W, W, 3), with_kinds),
    "RGATConv": (lambda: gnn.RGATConv(W, W, 3), with_kinds),
    "SignedConv": (lambda: gnn.SignedConv(W, W, True), lambda m, d: m(d.x, d.edge_index, d.edge_index.flip(0))),
    "DNAConv": (lambda: gnn.DNAConv(W), lambda m, d: m(d.x[:, None].repeat(1, 2, 1), d.edge_index)),
    "PointNetConv": (lambda: gnn.PointNetConv(mlp(W + 3)), with_points),
    "GMMConv": (lambda: gnn.GMMConv(W, W, E, 2), with_features),
    "NNConv": (lambda: gnn.NNConv(W, W, nn.Linear(E, W * W)), with_features),
    "CGConv": (lambda: gnn.CGConv(W, E), with_features),
    "EdgeConv": (lambda: gnn.EdgeConv(mlp(2 * W)), on_edge_index),
    "PPFConv": (lambda: gnn.PPFConv(mlp(W + 4)), lambda m, d: m(d.x, d.pos, d.pos + 1, d.edge_index)),
    "FeaStConv": (lambda: gnn.FeaStConv(W, W, 2), on_edge_index),
    "PointTransformerConv": (lambda: gnn.PointTransformerConv(W, W), with_points),
    "HypergraphConv": (lambda: gnn.HypergraphConv(W, W), on_edge_index),
    "LEConv": (lambda: gnn.LEConv(W, W), with_weights),
    "PNAConv": (lambda: gnn.PNAConv(W, W, ["std"], ["amplification"], DEGREES, edge_dim=E), with_features),
    "ClusterGCNConv": (lambda: gnn.ClusterGCNConv(W, W), on_edge_index),
    "GENConv layer": (lambda: gnn.GENConv(W, W, norm="layer", edge_dim=E), with_features),
    "GCN2Conv": (lambda: gnn.GCN2Conv(W, 0.1), lambda m, d: m(d.x, d.x + 1, d.edge_index)),
    "WLConvContinuous": (gnn.WLConvContinuous, with_weights),
    "FiLMConv": (lambda: gnn.FiLMConv(W, W), on_edge_index),
    "SuperGATConv": (lambda: gnn.SuperGATConv(W, W), on_edge_index),
    "FAConv": (lambda: gnn.FAConv(W), lambda m, d: m(d.x, d.x + 1, d.edge_index)),
    "EGConv": (lambda: gnn.EGConv(W, W, num_heads=2, aggregators=["sum", "std", "symnorm"]), on_edge_index),
    "PDNConv": (lambda: gnn.PDNConv(W, W, E, 4), with_features),
    "GeneralConv": (lambda: gnn.GeneralConv(W, W, E, attention=True), with_features),
    "HGTConv": (lambda: gnn.HGTConv(W, W, TWO), two_types),
    "HEATConv": (
        lambda: gnn.HEATConv(W, W, 3, 3, 3, E, 3), lambda m, d: m(d.x, d.edge_index, d.color, d.kind, d.edge_attr)
    ),
    "LGConv": (gnn.LGConv, on_edge_index),
    "PointGNNConv": (lambda: gnn.PointGNNConv(mlp(W, 3), mlp(W + 3), mlp()), with_points),
    "GPSConv": (lambda: gnn.GPSConv(W, gnn.SAGEConv(W, W), norm=None), with_graphs),
    "AntiSymmetricConv": (lambda: gnn.AntiSymmetricConv(W), on_edge_index),
    "DirGNNConv": (lambda: gnn.DirGNNConv(gnn.SAGEConv(W, W)), on_edge_index),
    "MixHopConv": (lambda: gnn.MixHopConv(W, W), on_edge_index),
    "HeteroConv": (lambda: gnn.HeteroConv({e: gnn.SAGEConv(W, W) for e in TWO[1]}), two_types),
    **{
        f"{name} with batch": (lambda name=name, given=given: getattr(gnn, name)(*given), on_graphs)
        for name, given in {
            "GraphNorm": (W,), "InstanceNorm": (W,), "LayerNorm": (W,), "PairNorm": (), "GraphSizeNorm": (),
            "MeanSubtractionNorm": (),
        }.items()
    },
    "LayerNorm node": (lambda: gnn.LayerNorm(W, mode="node"), on_nodes),
    "HeteroLayerNorm": (lambda: gnn.HeteroLayerNorm(W, 3), lambda m, d: m(d.x, d.color)),
    "MessageNorm": (lambda: gnn.MessageNorm(True), lambda m, d: m(d.x, d.x + 1)),
    "MLP": (lambda: gnn.MLP([W, W, W], norm=None), on_nodes),
    "GCN": (lambda: gnn.GCN(W, W, 2), on_edge_index),
    "GraphSAGE": (lambda: gnn.GraphSAGE(W, W, 2), on_edge_index),
    "GAT": (lambda: gnn.GAT(W, W, 2, jk="lstm"), on_edge_index),
    "PNA": (lambda: gnn.PNA(W, W, 2, aggregators=["mean"], scalers=["identity"], deg=DEGREES), on_edge_index),
    "EdgeCNN": (lambda: gnn.EdgeCNN(W, W, 2), on_edge_index),
    "RECT_L": (lambda: gnn.RECT_L(W, W), on_edge_index),
    "ARLinkPredictor": (lambda: gnn.models.ARLinkPredictor(W, W), on_edge_index),
    "AttentiveFP": (
        lambda: gnn.AttentiveFP(W, W, W, E, 2, 2), lambda m, d: m(d.x, d.edge_index, d.edge_attr, d.batch)
    ),
    "NeuralFingerprint": (
        lambda: gnn.models.NeuralFingerprint(W, W, W, 2), lambda m, d: m(d.x, d.edge_index, d.batch, d.num_graphs)
    ),
    "MetaLayer": (gnn.MetaLayer, lambda m, d: m(d.x, d.edge_index, d.edge_attr, None, d.batch)[0]),
    "LabelPropagation": (lambda: gnn.LabelPropagation(2, 0.5), lambda m, d: m(d.color, d.edge_index)),
    "MaskLabel": (lambda: gnn.MaskLabel(3, W), lambda m, d: m(d.x, d.color, d.color > 1)),
    "MemPooling": (lambda: gnn.MemPooling(W, W, 2, 3), lambda m, d: m(d.x, d.batch)[0]),
}  # fmt: skip

# Layers whose real rows are wrong on padded batches until they are converted.
CONVERTED: Mapping[str, Case] = {
    "BatchNorm": (lambda: gnn.BatchNorm(W), on_nodes),
    "DiffGroupNorm": (lambda: gnn.DiffGroupNorm(W, 3), on_nodes),
    "GENConv": (lambda: gnn.GENConv(W, W, edge_dim=E), with_features),
    "CGConv batch_norm": (lambda: gnn.CGConv(W, E, batch_norm=True), with_features),
    "PMLP": (lambda: gnn.PMLP(W, W, W, 2), on_edge_index),
    "DeepGCNLayer": (
        lambda: gnn.DeepGCNLayer(gnn.GENConv(W, W), gnn.LayerNorm(W), nn.ReLU(), dropout=0.0), on_edge_index
    ),
    **{
        f"{name} {where}": (lambda make=make, width=width: make(width), call)
        for name, make in {
            "GraphNorm": gnn.GraphNorm,
            "InstanceNorm": lambda width: gnn.InstanceNorm(width, affine=True),
            "LayerNorm": gnn.LayerNorm,
            "LayerNorm plain": lambda width: gnn.LayerNorm(width, eps=0.1, affine=False),
            "PairNorm": lambda _: gnn.PairNorm(),
            "PairNorm individually": lambda _: gnn.PairNorm(scale_individually=True),
            "GraphSizeNorm": lambda _: gnn.GraphSizeNorm(),
            "MeanSubtractionNorm": lambda _: gnn.MeanSubtractionNorm(),
        }.items()
        for where, width, call in (("of nodes", W, on_nodes), ("of edges", E, on_edges))
    },
    **{
        f"{name} {norm}": (lambda make=make, norm=norm: make(norm), call)
        for norm in ("graph_norm", "instance_norm", "layer_norm", "batch_norm")
        for name, make, call in (
            ("MLP", lambda norm: gnn.MLP([W, W, W], norm=norm), on_nodes),
            ("GIN", lambda norm: gnn.GIN(W, W, 2, norm=norm), on_edge_index),
            # The layers get the graphs, but the MLPs inside of them do not.
            (
                "GIN with batch", lambda norm: gnn.GIN(W, W, 2, norm=norm),
                lambda m, d: m(d.x, d.edge_index, batch=d.batch),
            ),
        )
    },
    **{
        f"{name}Aggregation of {where}": (make, call)
        for name, make in {
            "LSTM": lambda: gnn.aggr.LSTMAggregation(W, W),
            "GRU": lambda: gnn.aggr.GRUAggregation(W, W),
            "LCM": lambda: gnn.aggr.LCMAggregation(W, W),
            "PatchTransformer": lambda: gnn.aggr.PatchTransformerAggregation(W, W, 2, 4, 1),
            "Multi": lambda: gnn.aggr.MultiAggregation(["mean", gnn.aggr.GRUAggregation(W, W)], mode="sum"),
        }.items()
        for where, make, call in (
            ("nodes", make, pooled), ("edges", lambda make=make: gnn.SimpleConv(aggr=make()), on_edge_index)
        )
    },
    "SAGEConv lstm": (lambda: gnn.SAGEConv(W, W, aggr="lstm"), on_edge_index),
    "GraphSAGE lstm": (lambda: gnn.GraphSAGE(W, W, 2, aggr="lstm"), on_edge_index),
    "GPSConv performer": (lambda: gnn.GPSConv(W, None, heads=2, norm=None, attn_type="performer"), with_graphs),
    "GPSConv without batch": (lambda: gnn.GPSConv(W, gnn.SAGEConv(W, W), norm="graph_norm"), on_edge_index),
    "GPSConv performer without batch": (lambda: gnn.GPSConv(W, None, heads=2, attn_type="performer"), on_edge_index),
    "SGFormer": (lambda: gnn.models.SGFormer(W, W, W, trans_dropout=0.0, gnn_dropout=0.0), with_graphs),
    "Polynormer": (lambda: gnn.models.Polynormer(W, W, W, 2, 1, 0.0, 0.0, 0.0), with_graphs),
    "Polynormer global": (
        lambda: gnn.models.Polynormer(W, W, W, 2, 1, 0.0, 0.0, 0.0, post_bn=False), _global_polynormer
    ),
}  # fmt: skip

# Layers that `convert` warns of.
WARNED: Mapping[str, Case] = {
    "EquilibriumAggregation": (lambda: gnn.aggr.EquilibriumAggregation(W, W, [8], 2), pooled),
    "HANConv": (lambda: gnn.HANConv(W, W, TWO), two_types),
    "HeteroBatchNorm": (lambda: gnn.HeteroBatchNorm(W, 3), lambda m, d: m(d.x, d.color)),
    "InstanceNorm": (lambda: gnn.InstanceNorm(W, track_running_stats=True), on_graphs),
    "DeepGraphInfomax": (
        lambda: gnn.DeepGraphInfomax(
            W, gnn.GCN(W, W, 1), summary=lambda z, *_: z.mean(0).sigmoid(), corruption=lambda x, ends: (x.flip(1), ends)
        ),
        lambda m, d: m(d.x, d.edge_index)[2].repeat(d.num_graphs, 1),
    ),
    "GAE": (lambda: gnn.GAE(gnn.GCN(W, W, 1)), _reconstruction),
    "ARGA": (lambda: gnn.ARGA(gnn.GCN(W, W, 1), nn.Linear(W, 1)), _reconstruction),
    **{
        name: (make, lambda m, d: m.kl_loss(m(d.x, d.edge_index), d.x).repeat(d.num_graphs, 1))
        for name, make in {
            "VGAE": lambda: gnn.VGAE(gnn.GCN(W, W, 1)),
            "ARGVA": lambda: gnn.ARGVA(gnn.GCN(W, W, 1), nn.Linear(W, 1)),
        }.items()
    },
}

# Layers that are not compared, and why.
LEFT_OUT = {
    "a base class": {"MessagePassing", "Aggregation"},
    "needs a package that is not installed here": {
        "CuGraphSAGEConv", "CuGraphGATConv", "CuGraphRGCNConv", "FusedGATConv", "GravNetConv", "DynamicEdgeConv",
        "XConv", "SplineConv", "PANConv", "PANPooling", "SchNet", "DimeNet", "DimeNetPlusPlus", "GNNFF", "ViSNet",
        "KNNIndex", "L2KNNIndex", "MIPSKNNIndex", "ApproxL2KNNIndex", "ApproxMIPSKNNIndex",
    },
    "drops nodes, so that shapes differ": {
        "TopKPooling", "SAGPooling", "EdgePooling", "ClusterPooling", "ASAPooling", "GraphUNet"
    },
    "is of one graph, or has one row of parameters for each node": {
        "Node2Vec", "MetaPath2Vec", "TGNMemory", "LINKX", "LightGCN", "RENet", "SignedGCN", "CorrectAndSmooth",
        "LPFormer", "WLConv", "MeshCNNConv",
    },
    "has no layer that sees rows of a batch": {
        "JumpingKnowledge", "HeteroJumpingKnowledge", "InnerProductDecoder", "GPSE", "GPSENodeEncoder", "GroupAddRev",
    },
}  # fmt: skip
