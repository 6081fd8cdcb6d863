"""PyG for the tests, random graphs of it, and what it means that two of them are equal.

Every test of PyG takes it from here, so that one place skips them where it is not installed.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st

pytest.importorskip("torch_geometric", reason="PyG is absent; install dgl_tuplepack[pyg]")

from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset

import dgl_tuplepack as tp
from tests.support.tensors import DTYPES, SHAPES, Spec, generator, random_tensor

RELATIONS = (("user", "follows", "user"), ("user", "buys", "item"), ("item", "pleases", "user"))
# Shapes whose values differ if they are moved.
FULL_SHAPES = tuple(shape for shape in SHAPES if 0 not in shape)


class InMemory(InMemoryDataset):
    """Some graphs in memory, collated as PyG's datasets are."""

    def __init__(self, graphs: Sequence[Any]) -> None:
        super().__init__(None)
        self._data, self.slices = self.collate(list(graphs))


class NewAxis(Data):
    """The graph of PyG's guide whose attribute `foo` gets a batch dimension."""

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return None if key == "foo" else super().__cat_dim__(key, value, *args, **kwargs)


class Pair(Data):
    """The pair of graphs of PyG's guide."""

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        sizes = {"edge_index_s": "x_s", "edge_index_t": "x_t"}
        return self[sizes[key]].size(0) if key in sizes else super().__inc__(key, value, *args, **kwargs)


class Bipartite(Data):
    """The bipartite graph of PyG's guide."""

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        if key == "edge_index":
            return torch.tensor([[self.x_s.size(0)], [self.x_t.size(0)]])
        return super().__inc__(key, value, *args, **kwargs)


# Of these two classes, users declare which nodes the endpoints refer to.
PAIR = {"edge_index_s": "x_s -> x_s", "edge_index_t": "x_t -> x_t"}
BIPARTITE = {"edge_index": "x_s -> x_t"}


class Told(Data):
    """A graph whose class tells the axis of each attribute, and what its rows are shifted by."""

    axes: ClassVar[dict[str, int | None]] = {}
    counted: ClassVar[dict[str, list[str]]] = {}

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        numbers = [self.number(name) for name in self.counted.get(key, [])]
        return torch.tensor(numbers).view(-1, 1) if len(numbers) > 1 else sum(numbers)

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return self.axes.get(key, 0)

    def number(self, name: str) -> int:
        """Number of the rows of an attribute, or of the nodes."""
        return int(self.num_nodes if name == "num_nodes" else self[name].size(self.axes.get(name, 0)))


def ring(nodes: int, **attributes: Any) -> Any:
    """Graph with as many edges as nodes."""
    ends = torch.arange(nodes)
    return Data(edge_index=torch.stack([ends, ends.roll(1)]), num_nodes=nodes, **attributes)


def molecule(nodes: int, edges: int, seed: int = 0) -> Any:
    """Graph with features of nodes and edges, and two labels."""
    gen = torch.Generator().manual_seed(seed + 100 * nodes)
    return Data(
        x=torch.randint(0, 9, (nodes, 3), generator=gen),
        edge_index=torch.randint(0, nodes, (2, edges), generator=gen),
        edge_attr=torch.randint(0, 4, (edges, 2), generator=gen),
        y=torch.randn(1, 2, generator=gen),
    )


def ends(gen: torch.Generator, sources: int, targets: int, edges: int) -> torch.Tensor:
    """Endpoints of edges between so many nodes."""
    return torch.stack([torch.randint(0, n, (edges,), generator=gen) for n in (sources, targets)])


def pair(gen: torch.Generator, nodes: tuple[int, int], edges: tuple[int, int]) -> Any:
    """Pair of graphs of these sizes, with features and a label."""
    made = Pair(y=torch.rand(1, generator=gen))
    for name, n, e in zip("st", nodes, edges, strict=True):
        made[f"x_{name}"] = torch.rand(n, 2, generator=gen)
        made[f"edge_index_{name}"] = ends(gen, n, n, e)
        made[f"edge_attr_{name}"] = torch.rand(e, 3, generator=gen)
    return made


def pairs_of(gen: torch.Generator) -> list[Any]:
    """Three pairs of different sizes."""
    return [pair(gen, (3, 4), (5, 6)), pair(gen, (5, 2), (1, 7)), pair(gen, (2, 2), (3, 3))]


def bipartites_of(gen: torch.Generator) -> list[Any]:
    """Three bipartite graphs of different sizes."""
    return [
        Bipartite(
            x_s=torch.rand(s, 3, generator=gen), x_t=torch.rand(t, 4, generator=gen), edge_index=ends(gen, s, t, e)
        )
        for s, t, e in ((2, 3, 4), (5, 1, 3), (4, 4, 4))
    ]


def random_data(
    gen: torch.Generator,
    nodes: int,
    edges: int,
    node_spec: Spec,
    edge_spec: Spec,
    graph_spec: Spec,
    counted: bool = True,
) -> Any:
    """Graph of this size with these attributes; with `counted`, it tells num_nodes."""
    edges = edges if nodes else 0
    data = Data(edge_index=torch.randint(0, max(nodes, 1), (2, edges), generator=gen))
    if counted:
        data.num_nodes = nodes
    for rows, spec in ((nodes, node_spec), (edges, edge_spec), (1, graph_spec)):
        for name, (shape, dtype) in spec.items():
            data[name] = random_tensor(gen, (rows, *shape), dtype)
    return data


def random_heterodata(
    gen: torch.Generator, nodes: Mapping[str, int], edges: Mapping[Any, int], specs: Mapping[Any, Spec]
) -> Any:
    """Heterogeneous graph of this size; `specs` are by type, None for the graph."""
    data = HeteroData()
    for t, number in nodes.items():
        data[t].num_nodes = number
    for e, number in edges.items():
        number = number if nodes[e[0]] and nodes[e[2]] else 0
        ends = [torch.randint(0, max(nodes[t], 1), (number,), generator=gen) for t in (e[0], e[2])]
        data[e].edge_index = torch.stack(ends)
    for t, spec in specs.items():
        rows = 1 if t is None else nodes[t] if isinstance(t, str) else data[t].edge_index.shape[1]
        for name, (shape, dtype) in spec.items():
            (data if t is None else data[t])[name] = random_tensor(gen, (rows, *shape), dtype)
    return data


def specs(names: Sequence[str]) -> st.SearchStrategy[Spec]:
    """Attributes of some of these names, of any dtype and shape."""
    return st.dictionaries(
        st.sampled_from(list(names)), st.tuples(st.sampled_from(FULL_SHAPES), st.sampled_from(DTYPES)), max_size=3
    )


@st.composite
def data_lists(draw: st.DrawFn, *, least: int = 1) -> list[Any]:
    """Homogeneous graphs with the same attributes, whose names or sizes tell their level."""
    gen = generator(draw(st.integers(0, 2**31)))
    node_spec, edge_spec = draw(specs(["x", "pos", "node_a", "b"])), draw(specs(["edge_attr", "edge_w", "c"]))
    graph_spec = draw(specs(["y", "graph_u", "d"]))
    counted = "x" not in node_spec or draw(st.booleans())
    sizes = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=least, max_size=5))
    # Two graphs tell all levels apart.
    sizes += [(2, 3), (5, 4)]
    return [random_data(gen, n, e, node_spec, edge_spec, graph_spec, counted) for n, e in sizes]


@st.composite
def hetero_lists(draw: st.DrawFn) -> list[Any]:
    """Heterogeneous graphs with the same attributes."""
    gen = generator(draw(st.integers(0, 2**31)))
    by_type: dict[Any, Spec] = {t: draw(specs(["x", "a"])) for t in ("user", "item")}
    by_type |= {e: draw(specs(["edge_attr", "b"])) for e in RELATIONS}
    by_type[None] = draw(specs(["y", "u"]))
    number = draw(st.integers(1, 4))
    few = st.integers(0, 4)
    return [
        random_heterodata(
            gen, {"user": draw(few), "item": draw(few)}, {e: draw(few) for e in RELATIONS}, by_type
        )
        for _ in range(number)
    ]  # fmt: skip


@st.composite
def told_lists(draw: st.DrawFn) -> tuple[list[Any], dict[str, str], dict[str, Any]]:
    """Graphs of a class that joins them in a way of its own, the levels of their attributes, and all else of these."""
    gen, few = generator(draw(st.integers(0, 2**31))), st.integers(1, 4)
    groups = draw(st.lists(st.sampled_from(["num_nodes", "x_a", "x_b"]), min_size=1, unique=True))
    of_groups = st.sampled_from(groups)
    edges = draw(
        st.dictionaries(st.sampled_from(["edge_index", "e_b", "links"]), st.tuples(of_groups, of_groups), min_size=1)
    )
    homes = [*groups, *edges, "graph"]
    attributes = draw(st.dictionaries(
        st.sampled_from(["p", "q_index", "r", "s"]),
        st.tuples(
            st.sampled_from(homes), st.sampled_from([0, 1, -1, None]), st.sampled_from(FULL_SHAPES),
            st.sampled_from(DTYPES), st.none() | st.sampled_from(homes[:-1]), st.integers(1, 2),
        ),
    ))  # fmt: skip
    axes: dict[str, int | None] = dict.fromkeys(edges, -1)
    counted = {key: list(ends) for key, ends in edges.items()}
    for key, (home, axis, shape, _, target, _) in attributes.items():
        axes[key] = axis if home == "graph" or axis is not None else 0
        axes[key] = 0 if axes[key] is not None and not shape else axes[key]
        counted |= {} if target is None else {key: [target]}
    kind = type("Joined", (Told,), {"axes": axes, "counted": counted})
    graphs = []
    for _ in range(draw(st.integers(2, 4))):
        sizes = {name: draw(few) for name in homes[:-1]}
        data = kind()
        for name in groups:
            data[name] = sizes[name] if name == "num_nodes" else torch.rand(sizes[name], 2, generator=gen)
        for key, (source, target) in edges.items():
            ends = [torch.randint(0, sizes[t], (sizes[key],), generator=gen) for t in (source, target)]
            data[key] = torch.stack(ends)
        for key, (home, _, shape, dtype, target, rows) in attributes.items():
            axis, rows = axes[key], rows if home == "graph" else sizes[home]
            full = tuple(shape) if axis is None else (rows, *shape)
            if target is None:
                value = random_tensor(gen, full, dtype)
            else:
                value = torch.randint(0, sizes[target], full, generator=gen)
            data[key] = value if axis is None else value.movedim(0, axis)
        graphs.append(data)
    levels = {name: name for name in groups if name != "num_nodes"}
    levels |= {key: home for key, (home, *_) in attributes.items()}
    called = {name: "_N" if name == "num_nodes" else name for name in groups}
    components = {name: f"nodes:{called[name]}" for name in groups}
    components |= {key: f"edges:{called[s]}:{key}:{called[t]}" for key, (s, t) in edges.items()}
    if len(groups) == len(edges) == 1:
        components = {groups[0]: "nodes", next(iter(edges)): "edges"}
    indices = {key: components[target] for key, (*_, target, _) in attributes.items() if target is not None}
    arrows = {key: " -> ".join(ends) for key, ends in edges.items()}
    return graphs, levels, {"levels": levels | arrows, "indices": indices}


def contents(data: Any, without: set[str] | frozenset[str] = frozenset()) -> dict[Any, Any]:
    """All attributes of a graph or batch, by storage and name."""
    return {
        (store._key, key): value for store in data.stores for key, value in store.items() if key not in without
    }  # fmt: skip


def assert_same(found: Any, expected: Any, without: set[str] | frozenset[str] = frozenset()) -> None:
    """Both have the same attributes with equal values, of the same dtype and shape."""
    ours, theirs = contents(found, without), contents(expected, without)
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        if isinstance(value, torch.Tensor):
            assert (ours[key].dtype, ours[key].shape) == (value.dtype, value.shape), key
            # Labels that are not there are NaN.
            assert torch.equal(ours[key].isnan(), value.isnan()), key
            assert torch.equal(ours[key][~value.isnan()], value[~value.isnan()]), key
        else:
            assert ours[key] == value, key


def batch_of(graphs: Sequence[Any], **settings: Any) -> Any:
    """PyG's own batch of graphs."""
    with warnings.catch_warnings():
        # It guesses the number of nodes of a bipartite graph.
        warnings.simplefilter("ignore")
        return Batch.from_data_list(list(graphs), **settings)


few = settings(max_examples=15)
# Lists of graphs, homogeneous or not.
LISTS = st.one_of(data_lists(), hetero_lists())


def stored(source: Any, **others: Any) -> tp.GraphStore:
    """A store of graphs; its files are mapped, so the folder may go."""
    # Nobody cuts the power here; a wait for the disk would be most of the time.
    with tempfile.TemporaryDirectory() as folder, patch("os.fsync"):
        return tp.GraphStore.write(folder + "/store", source, **others)


def room_for(graphs: Any) -> tp.Limits:
    """Limits with room for all graphs of a store or a list, for one more, and for two more nodes and edges of each."""
    sizes = graphs.sizes if isinstance(graphs, tp.GraphStore) else tp.sizes_of(graphs)
    return tp.Limits.from_components({name: n + 2 for name, n in sizes.totals().items()}, graphs=len(sizes) + 1)
