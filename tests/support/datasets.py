"""Small datasets that take the places of those that scripts download, with the same attributes and data types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from tests.support.ogb_folder import write_raw_folder

NUM_ATOMS, NUM_BONDS = 6, 4


def draw(number: int, seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield kinds of atoms, int64 [V], both directions of bonds, [2, E], and their kinds, [E], of chains with rings."""
    generator = np.random.default_rng(seed)
    for _ in range(number):
        n = int(generator.integers(4, 16))
        after = np.arange(1, n)
        before = after - generator.integers(1, np.minimum(after, 3) + 1)
        if generator.random() < 0.6:
            before, after = np.append(before, 0), np.append(after, n - 1)
        atoms = generator.choice(NUM_ATOMS, n, p=[0.6, 0.15, 0.15, 0.05, 0.03, 0.02])
        bonds = generator.choice(NUM_BONDS, len(after), p=[0.6, 0.3, 0.09, 0.01])
        ends = np.stack([np.append(before, after), np.append(after, before)])
        yield torch.from_numpy(atoms), torch.from_numpy(ends), torch.from_numpy(np.append(bonds, bonds))


def zinc(split: str, subset: bool) -> Iterator[dict[str, Any]]:
    """Yield the attributes of ZINC's graphs."""
    number, seed = {"train": (80, 0), "val": (20, 1), "test": (20, 2)}[split]
    for atoms, ends, bonds in draw(number if subset else 2 * number, seed):
        y = ((atoms == 1).sum() - 0.3 * len(atoms) + 2).view(1)
        yield {"x": atoms.view(-1, 1), "edge_index": ends, "edge_attr": bonds, "y": y.float()}


def qm9() -> Iterator[dict[str, Any]]:
    """Yield the attributes of QM9's graphs, of which two are text."""
    for i, (atoms, ends, bonds) in enumerate(draw(80, seed=3)):
        pos = torch.randn(len(atoms), 3).cumsum(0)
        x = torch.cat([one_hot(atoms, NUM_ATOMS), torch.randint(3, (len(atoms), 5))], 1).float()
        y = (pos - pos.mean(0)).norm(dim=1).mean() + (atoms == 2).sum() + torch.arange(19)
        attributes = {
            "x": x,
            "z": atoms,
            "pos": pos,
            "edge_index": ends,
            "edge_attr": one_hot(bonds, NUM_BONDS).float(),
        }
        yield attributes | {"y": y[None], "smiles": "C" * len(atoms), "name": f"gdb_{i}", "idx": i}


def md17(name: str) -> Iterator[dict[str, Any]]:
    """Yield the attributes of structures of MD17, which all have the same atoms."""
    assert name == "revised aspirin"
    kinds, rest = torch.randint(1, 9, (9,)), 2 * torch.randn(9, 3)
    for _ in range(4000):
        shift = 0.1 * torch.randn(9, 3)
        energy = 10 * shift.square().sum() - 400
        yield {"z": kinds, "pos": rest + shift, "energy": energy, "force": -20 * shift}


def provide_pyg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace PyG's ZINC, QM9 and MD17 by small datasets in memory, whose floats have the default dtype."""
    import torch_geometric.datasets
    from torch_geometric.data import Data, InMemoryDataset

    def as_default(value: Any) -> Any:
        return value.to(torch.get_default_dtype()) if torch.is_tensor(value) and value.is_floating_point() else value

    for given, graphs in (("ZINC", zinc), ("QM9", qm9), ("MD17", md17)):

        def replaced(self: Any, root: str, transform: Any = None, pre_transform: Any = None, **names: Any) -> None:
            InMemoryDataset.__init__(self, None, transform)
            rows = [Data(**{name: as_default(value) for name, value in row.items()}) for row in self.graphs(**names)]
            self.data, self.slices = self.collate([*map(pre_transform, rows)] if pre_transform else rows)

        original = getattr(torch_geometric.datasets, given)
        members = {"__init__": replaced, "graphs": staticmethod(graphs), "has_download": False, "has_process": False}
        monkeypatch.setattr(torch_geometric.datasets, given, type(given, (original,), members))


def provide_gin_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace DGL's GINDataset by a small dataset in memory, whose features have the default dtype."""

    class GINDataset(dgl.data.DGLDataset):
        dim_nfeats, gclasses = NUM_ATOMS, 2

        def __init__(self, name: str, self_loop: bool) -> None:
            assert not self_loop
            super().__init__(name=name)

        def process(self) -> None:
            self.graphs, labels = [], []
            for atoms, (src, dst), _ in draw(100, seed=4):
                graph = dgl.graph((src, dst), num_nodes=len(atoms))
                graph.ndata["label"] = atoms
                graph.ndata["attr"] = one_hot(atoms, NUM_ATOMS).to(torch.get_default_dtype())
                self.graphs.append(graph)
                labels.append(int((atoms == 2).sum() > 1))
            self.labels = torch.tensor(labels)

        def __getitem__(self, index: int) -> tuple[Any, Tensor]:
            return self.graphs[index], self.labels[index]

        def __len__(self) -> int:
            return len(self.graphs)

    monkeypatch.setattr(dgl.data, "GINDataset", GINDataset)


def write_tox21(root: Path) -> None:
    """Write ogbg-moltox21 in OGB's layout: twelve labels, a fifth of which are missing."""
    generator = np.random.default_rng(5)
    drawn = [*draw(112, seed=5)]
    nodes = [len(atoms) for atoms, *_ in drawn]
    # OGB stores each bond once.
    edges = [ends.numpy().T[: ends.shape[1] // 2] for _, ends, _ in drawn]
    labels = np.array([[float((atoms == 1).sum() > task % 3) for task in range(12)] for atoms, *_ in drawn])
    labels[generator.random(labels.shape) < 0.2] = np.nan
    atoms = np.pad(np.concatenate([atoms.numpy() for atoms, *_ in drawn])[:, None], ((0, 0), (0, 8)))
    tables = {"node-feat": atoms, "edge-feat": generator.integers(0, 2, (sum(map(len, edges)), 3))}
    write_raw_folder(root / "ogbg_moltox21", nodes, edges, labels, tables, splits_of("scaffold"))


def splits_of(scheme: str) -> dict[str, dict[str, list[int]]]:
    """Return the splits of 112 graphs."""
    return {scheme: {"train": [*range(64)], "valid": [*range(64, 88)], "test": [*range(88, 112)]}}


def write_code2(root: Path) -> None:
    """Write ogbg-code2 in OGB's layout: trees with words as labels."""
    generator = np.random.default_rng(6)
    nodes = generator.integers(3, 16, 112).tolist()
    edges = [np.stack([[generator.integers(child) for child in range(1, n)], np.arange(1, n)], 1) for n in nodes]
    total = sum(nodes)
    kinds = generator.integers(0, 3, (total, 2))
    depths = np.concatenate([np.arange(n) for n in nodes])[:, None]
    of_graphs = np.split(kinds[:, 0], np.cumsum(nodes)[:-1])
    words = [["get", *["first", "second", "third"][kinds[0] : kinds[1] + 1]] for kinds in of_graphs]
    tables = {"node-feat": kinds, "node_is_attributed": kinds[:, 1:], "node_dfs_order": depths, "node_depth": depths}
    labels = np.array([[" ".join(text)] for text in words])
    write_raw_folder(root / "ogbg_code2", nodes, edges, labels, tables, splits_of("project"))
