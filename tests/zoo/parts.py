"""What all models of the zoo share: encoders of categories, base classes, and perceptrons with batch norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Categories(NamedTuple):
    """Number of categories in each column of the node and the edge features."""

    nodes: Sequence[int]
    edges: Sequence[int]


class Encoder(nn.Module):
    """The sum of an embedding for each column of integer features."""

    def __init__(self, categories: Sequence[int], width: int) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(number, width) for number in categories)

    def forward(self, features: Tensor) -> Tensor:
        return torch.stack([embed(features[:, i]) for i, embed in enumerate(self.embeddings)]).sum(0)


class AtomModel(nn.Module):
    """A model that begins with encoded atoms; `build` makes its other parts."""

    encodes_bonds = False

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.categories, self.encode = categories, Encoder(categories.nodes, width)
        if self.encodes_bonds:
            self.encode_edges = Encoder(categories.edges, width)
        self.build(width, layers)

    def build(self, width: int, layers: int) -> None:
        raise NotImplementedError


class BondModel(AtomModel):
    """A model that begins with encoded atoms and bonds."""

    encodes_bonds = True


def perceptron(width: int) -> nn.Sequential:
    """Two linear maps with a batch norm between them."""
    return nn.Sequential(nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(), nn.Linear(2 * width, width))
