"""Apply a transform to graphs, one by one: seeded for each graph, and checked."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from dgl_tuplepack._checks import shown
from dgl_tuplepack._random import key_of
from dgl_tuplepack.errors import TransformError
from dgl_tuplepack.graphs.draws import Draws, kept_generators, seed_generators, states
from dgl_tuplepack.graphs.items import Parts, is_graph, is_pyg

# Purpose of a random stream: 1 to 4 are those of the sampler.
_GRAPHS = 5


class GraphTransform:
    """A transform of single graphs, such as those of `dgl.transforms`, with random numbers for each graph.

    Before each graph, the global generators of torch, numpy and Python are seeded from seed, epoch and id; afterwards
    they have their states back.

    Parameters
    ----------
    transform
        Takes a DGLGraph and returns one.
    seed
        0..2**64-1.
    may_grow
        Whether graphs may get more nodes or edges, or other types: not once sizes were taken.
    """

    def __init__(self, transform: Callable[[Any], Any], seed: int, *, may_grow: bool = False) -> None:
        self.name = check_callable(transform, "a DGLGraph")
        self.transform, self.draws, self.may_grow = transform, Draws(seed), may_grow

    def __call__(
        self, parts: Sequence[Parts], where: Sequence[str], epoch: int | None, *, copies: bool = True
    ) -> list[Parts]:
        """Transform the graphs of items, which errors call `where`.

        `copies`: graphs are copied before, since some transforms of DGL write into the features that they are given.
        TransformError if the transform fails, returns something else than one graph, makes a graph larger, or draws
        random numbers for a graph without an id.
        """
        with kept_generators() if parts else nullcontext():
            return [
                part._replace(graph=self._of_one(part, place, epoch, copies))
                for part, place in zip(parts, where, strict=True)
            ]

    def _of_one(self, part: Parts, where: str, told: int | None, copies: bool) -> Any:
        epoch, is_known = self.draws.epoch(told)
        seed_generators(int(key_of(int(key_of(self.draws.seed, epoch, _GRAPHS)), part.id or 0, _GRAPHS)))
        is_watched = part.id is None or not is_known
        before = states() if is_watched else None
        graph = _copied(part.graph) if copies else part.graph
        counts = _counts(graph, where)
        try:
            found = self.transform(graph)
        except Exception as error:
            raise TransformError(
                f"the transform {self.name} failed for {where}: {type(error).__name__}: {error!s:.500}; correct the "
                "transform, or the graph."
            ) from error
        self._check(found, counts, where, is_pyg(graph))
        if is_watched and states() != before:
            if part.id is None:
                raise TransformError(
                    f"the transform {self.name} draws random numbers, but {where} has no id, so nothing tells which "
                    "ones are its own; wrap the dataset in with_ids(dataset), the example too."
                )
            self.draws.notice_repetition(part.id, self.name)
        return found

    def _check(self, found: Any, counts: dict[Any, int], where: str, of_pyg: bool) -> None:
        if not (is_pyg(found) if of_pyg else is_graph(found)):
            raise TransformError(
                f"the transform {self.name} returned {shown(found)} for {where}, but must return a "
                f"{'Data or HeteroData of PyG' if of_pyg else 'DGLGraph'}; return the graph, also if it is changed in "
                "place."
            )
        if not of_pyg and found.batch_size != 1:
            raise TransformError(
                f"the transform {self.name} returned a batch of {found.batch_size} graphs for {where}, but must return "
                "one graph; transforms that pad or join graphs take whole batches."
            )
        if self.may_grow:
            return
        now = _counts(found, where)
        remedy = (
            "but sizes were taken before it, and plans and limits rest on them; give it as pre_transform to what "
            "writes a store, or apply it to the dataset before sizes are read."
        )
        if now.keys() != counts.keys():
            raise TransformError(
                f"the transform {self.name} gave {where} the types {list(now)} instead of {list(counts)}, {remedy}"
            )
        for t, number in now.items():
            if number > counts[t]:
                kind = "nodes" if isinstance(t, str) else "edges"
                of_type = "" if len(counts) == 2 else f" of type {t!r}"
                raise TransformError(
                    f"the transform {self.name} gave {where} {number} {kind}{of_type} instead of {counts[t]}, {remedy}"
                )


def check_callable(transform: Any, what: str) -> str:
    """Return what messages call a transform; TransformError if it cannot be called. It takes and returns `what`."""
    if not callable(transform) or isinstance(transform, type):
        hint = "; make an object of the class" if isinstance(transform, type) else ""
        raise TransformError(
            f"a transform must be a callable that takes and returns {what}, but is {shown(transform)}{hint}."
        )
    return name_of(transform)


def name_of(transform: Any) -> str:
    """Return a short name: of the class of an object, or of a function."""
    if isinstance(transform, functools.partial):
        return name_of(transform.func)
    return str(getattr(transform, "__qualname__", type(transform).__qualname__))


def _copied(graph: Any) -> Any:
    """Return a graph with features of its own: DGL's clone shares their memory."""
    if is_pyg(graph):
        return graph.clone()
    copy = graph.clone()
    views = [copy.nodes[t].data for t in copy.ntypes] + [copy.edges[e].data for e in copy.canonical_etypes]
    for view in views:
        for name in list(view):
            view[name] = view[name].clone()
    return copy


def _counts(graph: Any, where: str) -> dict[Any, int]:
    """Nodes and edges of each type."""
    if is_pyg(graph):
        from dgl_tuplepack.graphs.pyg_items import PygGraph

        graph = PygGraph(graph, where)
    nodes = {t: graph.num_nodes(t) for t in graph.ntypes}
    return {**nodes, **{t: graph.num_edges(t) for t in graph.canonical_etypes}}
