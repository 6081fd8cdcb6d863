"""Items of the models, made of molecules: as they are, or with types, a line graph, distances or asked pairs.

A function takes the framework, a DGLGraph and its label, and returns an item for the framework's own loader.
"""

from __future__ import annotations

from typing import Any

import dgl
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, pad
from torch_geometric.data import Data, HeteroData

# Dense attention runs over this many slots in each graph, and distances end at a number of bonds.
MOST_NODES, FAR = 64, 6
# Atoms with several bonds are inner ones, all others outer ones.
TYPES = ("inner", "outer")
RELATIONS = (
    ("inner", "chain", "inner"),
    ("inner", "start", "outer"),
    ("outer", "end", "inner"),
    ("outer", "pair", "outer"),
)


def as_it_is(framework: str, graph: Any, label: Tensor) -> Any:
    """The molecule, in PyG as a `Data` whose `feat` are `x` and `edge_attr`."""
    return (graph, label) if framework == "dgl" else _data(graph, label)


def _data(graph: Any, label: Tensor, **others: Tensor) -> Data:
    of_nodes = {"x" if name == "feat" else name: value for name, value in graph.ndata.items()}
    y = label.view(1, -1)
    return Data(edge_index=torch.stack(graph.edges()), edge_attr=graph.edata["feat"], y=y, **of_nodes, **others)


def typed(framework: str, graph: Any, label: Tensor) -> Any:
    """A heterograph of inner and outer atoms, with a relation for each pair of types."""
    src, dst = graph.edges()
    is_outer = graph.in_degrees() < 2
    members = {"inner": (~is_outer).nonzero()[:, 0], "outer": is_outer.nonzero()[:, 0]}
    number = torch.where(is_outer, is_outer.long().cumsum(0), (~is_outer).long().cumsum(0)) - 1
    features = {t: graph.ndata["feat"][ids] for t, ids in members.items()}
    ends = {}
    for relation in RELATIONS:
        chosen = (is_outer[src] == (relation[0] == "outer")) & (is_outer[dst] == (relation[2] == "outer"))
        ends[relation] = number[src[chosen]], number[dst[chosen]]
    if framework == "dgl":
        made = dgl.heterograph(ends, {t: len(ids) for t, ids in members.items()})
        made.ndata["feat"] = features
        return made, label
    data = HeteroData(y=label.view(1, -1))
    for t, own in features.items():
        data[t].x = own
    for relation, each in ends.items():
        data[relation].edge_index = torch.stack(each)
    return data


def with_line_graph(framework: str, graph: Any, label: Tensor) -> Any:
    """A molecule with lengths of bonds, and its line graph, whose edges have the cosines of angles."""
    src, dst = graph.edges()
    vectors = graph.ndata["pos"][dst] - graph.ndata["pos"][src]
    lengths, bonds = vectors.norm(dim=1), dgl.line_graph(graph, backtracking=False)
    before, after = bonds.edges()
    cosines = cosine_similarity(vectors[before], vectors[after])
    if framework == "dgl":
        atoms = graph.clone()
        atoms.edata["length"], bonds.edata["cosine"] = lengths, cosines
        return {"atoms": atoms, "bonds": bonds}, label
    data = HeteroData(y=label.view(1, -1))
    data["atom"].x, data["bond"].length = graph.ndata["feat"], lengths
    data["bond"].num_nodes = len(lengths)
    data["atom", "bond", "atom"].edge_index = torch.stack((src, dst))
    data["bond", "angle", "bond"].edge_index = torch.stack((before, after))
    data["bond", "angle", "bond"].cosine = cosines
    return data


def with_distances(framework: str, graph: Any, label: Tensor) -> Any:
    """A molecule with distances in bonds: for DGL a row of all distances for each atom, for PyG all pairs of atoms."""
    number = graph.num_nodes()
    adjacent, reached = torch.zeros(number, number), torch.eye(number, dtype=torch.bool)
    adjacent[graph.edges()] = 1
    distances = torch.zeros(number, number, dtype=torch.int64)
    for _ in range(FAR):
        distances += ~reached
        reached |= (reached.float() @ adjacent) > 0
    if framework == "dgl":
        made = graph.clone()
        made.ndata["distance"] = pad(distances, (0, MOST_NODES - number))
        return made, label
    pairs = torch.cartesian_prod(torch.arange(number), torch.arange(number)).T
    return _data(graph, label, pair_index=pairs, pair_distance=distances.flatten())


def with_asked_pairs(framework: str, graph: Any, label: Tensor) -> Any:
    """A molecule and pairs of its atoms, about half of them bonds: which ones has to be predicted."""
    bonds = torch.stack(graph.edges())
    number, gen = graph.num_nodes(), torch.Generator().manual_seed(graph.num_edges())
    others = torch.randint(0, number, bonds.shape, generator=gen)
    others = others[:, ~torch.isin(others[0] * number + others[1], bonds[0] * number + bonds[1])]
    pairs = torch.cat([bonds, others], dim=1)
    is_bond = (torch.arange(pairs.shape[1]) < bonds.shape[1]).to(torch.get_default_dtype())
    if framework == "pyg":
        return _data(graph, label, edge_label_index=pairs, edge_label=is_bond)
    ends = {("atom", "bond", "atom"): tuple(bonds), ("atom", "asked", "atom"): tuple(pairs)}
    made = dgl.heterograph(ends, {"atom": number})
    made.nodes["atom"].data["feat"] = graph.ndata["feat"]
    made.edges["asked"].data["is_bond"] = is_bond
    return made, label
