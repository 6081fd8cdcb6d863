"""Apply a transform to single graphs: seed random generators for each graph, and check the results."""

from __future__ import annotations

import contextlib
import functools
import inspect
import pickle
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from dgl_tuplepack._core.checks import INT64_MAX, UINT64_MAX, shown, whole_number
from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.errors import TransformError
from dgl_tuplepack.graphs.blocks import GraphType
from dgl_tuplepack.graphs.items import Parts
from dgl_tuplepack.graphs.named import (
    by_name,
    features_of,
    graph_names,
    is_graph,
    is_pyg,
    located_types,
    name_of_type,
    own_type,
)
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.readers.datasets import counts_with_levels

# Identifier of the random stream that transforms use.
_GRAPHS = 5


class GraphTransform:
    """A transform of single graphs, such as one of `dgl.transforms`; each graph has random numbers of its own.

    Before the transform of each graph, the global generators of torch, numpy and Python are seeded from the seed, the
    epoch and the graph's id. After all graphs of a call, the states of the generators are restored. With `may_grow`,
    the transform may add nodes and edges, or change types; set `may_grow` only if sizes are read after the transform.
    """

    def __init__(
        self, transform: Callable[[Any], Any], seed: int, *, may_grow: bool = False, levels: Levels | None = None
    ) -> None:
        self.name = check_callable(transform, "a DGLGraph")
        self.transform, self.draws, self.may_grow, self.levels = transform, Draws(seed), may_grow, levels
        # Type that a label indexes -> name of the label. Transforms must not remove nodes (edges) of these types.
        self.numbered: Mapping[GraphType, str] = {}

    def __call__(self, parts: Sequence[Parts], where: Sequence[str], epoch: int | None) -> list[Parts]:
        """Return the parts of each item, with a transformed copy of the graph; `epoch` is None if it is unknown."""
        epoch, epoch_is_known = self.draws.epoch(epoch)
        stream = int(key_of(self.draws.seed, epoch, _GRAPHS))
        with kept_generators() if parts else nullcontext():
            return [
                part._replace(graph=self._transformed(part, item_name, stream, epoch_is_known))
                for part, item_name in zip(parts, where, strict=True)
            ]

    def _transformed(self, part: Parts, where: str, stream: int, epoch_is_known: bool) -> Any:
        seed_generators(int(key_of(stream, part.id or 0, _GRAPHS)))
        # Drawing random numbers is an error without an id; without a known epoch, they may repeat in each epoch.
        is_watched = part.id is None or (not epoch_is_known and self.draws.may_repeat(part.id))
        before = states() if is_watched else None
        # Some DGL transforms change the features of their argument in place.
        graph = _copied(part.graph)
        counts = counts_with_levels(graph, where, self.levels)
        try:
            found = self.transform(graph)
        except Exception as error:
            raise TransformError(
                f"the transform {self.name} failed for {where}: {type(error).__name__}: {error!s:.500}; correct the "
                "transform, or the graph."
            ) from error
        found = self._checked(found, graph, counts, where)
        if is_watched and states() != before:
            if part.id is None:
                raise TransformError(
                    f"the transform {self.name} draws random numbers, but {where} has no id to derive them from; use "
                    "with_ids(dataset) instead of the dataset, also for the example of PaddedCollate."
                )
            self.draws.notice_repetition(part.id, self.name)
        return found

    def _checked(self, found: Any, given: Any, counts: dict[Any, int], where: str) -> Any:
        """Return `found`, the result for `given`, with named graphs sorted by name; TransformError if not allowed."""
        names = graph_names(given)
        if is_pyg(given):
            is_allowed, what = is_pyg(found), "a PyG Data or HeteroData"
        else:
            if isinstance(found, dict) and all(isinstance(name, str) for name in found):
                found = {name: found[name] for name in sorted(found)}
            # With `may_grow`, one graph may become several named graphs, such as a graph and its line graph.
            is_allowed = graph_names(found) == names or (self.may_grow and found != {})
            is_allowed = is_allowed and all(is_graph(each) and not each.is_block for each in by_name(found).values())
            what = f"a dict of the DGLGraphs {list(names)}" if names else "a DGLGraph that is not a block"
        if not is_allowed:
            raise TransformError(
                f"the transform {self.name} returned {shown(found)} for {where}, but must return {what}; return "
                f"{'the dict, even if its graphs are' if names else 'the graph, even if it is'} changed in place."
            )
        sizes = [1] if is_pyg(found) else [graph.batch_size for graph in by_name(found).values()]
        if max(sizes) != 1:
            raise TransformError(
                f"the transform {self.name} returned a batch of {max(sizes)} graphs for {where}, but must return one "
                "graph; if it pads or joins graphs, apply it to whole batches instead."
            )
        if not self.may_grow:
            self._check_size(found, counts, where)
        return found

    def _check_size(self, found: Any, counts: dict[Any, int], where: str) -> None:
        """Refuse (TransformError) other types, more nodes (edges), or fewer nodes (edges) if a label indexes them."""
        now, problem = counts_with_levels(found, where, self.levels), ""
        if now.keys() != counts.keys():
            problem = f"gave {where} the types {list(now)} instead of {list(counts)}"
        names = graph_names(found)
        for t, number in () if problem else now.items():
            # For messages: "nodes" or "edges", and the type, unless the graph has only one node type and edge type.
            nodes, own = ("nodes" if isinstance(t, str) else "edges"), (own_type(t) if names else t)
            nodes += "" if len(counts) == 2 else f" of type {own!r}"
            nodes += f" of the graph {name_of_type(t)!r}" if names else ""
            if number > counts[t]:
                problem = f"returned {number} {nodes} instead of {counts[t]} for {where}"
                break
            # Labels of a PyG graph are attributes, so the transform can change them too.
            if number < counts[t] and t in self.numbered and not is_pyg(found):
                label = f"label {self.numbered[t]!r}" if self.numbered[t] else "label"
                raise TransformError(
                    f"the transform {self.name} left {number} of {counts[t]} {nodes} of {where}, but the {label} "
                    "indexes them, and transforms do not get labels; use a mask as a feature instead, or transform "
                    "the graphs before the label is made."
                )
        if problem:
            raise TransformError(
                f"the transform {self.name} {problem}, but sizes were read before the transform, and plans and limits "
                "depend on these sizes; pass the transform as pre_transform when you write a store, or apply it to the "
                "dataset before sizes are read."
            )


def check_callable(transform: Any, what: str) -> str:
    """Return the display name of a transform; raise TransformError if the transform is a class or is not callable."""
    if not callable(transform) or isinstance(transform, type):
        hint = "; make an object of the class" if isinstance(transform, type) else ""
        raise TransformError(
            f"a transform must be a callable that accepts and returns {what}, but is {shown(transform)}{hint}."
        )
    return name_of(transform)


def name_of(transform: Any) -> str:
    """Return the name of a function, or of a partial's function; for any other object, return the name of its class."""
    if isinstance(transform, functools.partial):
        return name_of(transform.func)
    return str(getattr(transform, "__qualname__", type(transform).__qualname__))


def identity_of(transform: Any, name: str | None = None) -> str:
    """Return the text that identifies a transform on disk: the user's name, or else a name or `repr` with settings.

    Raise TransformError if the text holds a memory address, or "..." in place of omitted values.
    """
    if name is not None:
        if isinstance(name, str) and name:
            return name
        raise TransformError(f"transform_name must be a string that is not empty, but is {shown(name)}.")
    text = _text(transform)
    if " at 0x" in text or "..." in text:
        raise TransformError(
            f"the transform {text:.200} cannot be identified in another process; give transform_name=..., a name that "
            "you change whenever the transform changes, or use a function without enclosed variables, or a class with "
            "a __repr__."
        )
    return text


def _text(value: Any) -> str:
    """Return the text of a transform, or of one of its settings, for `identity_of`."""
    shown_as, settings = repr(value), getattr(value, "__dict__", {})
    if inspect.isroutine(value) and getattr(value, "__self__", None) is None:
        is_named = "<lambda>" not in value.__qualname__ and getattr(value, "__closure__", None) is None
        return f"{value.__module__}.{value.__qualname__}" if is_named else shown_as
    if isinstance(value, functools.partial):
        return f"partial({_text(value.func)}, {_text(list(value.args))}, {_text(value.keywords)})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)}: {_text(inner)}" for key, inner in value.items()) + "}"
    # The repr of a DGL transform, or of a Compose, does not show its settings.
    is_bare = shown_as.startswith((f"{type(value).__name__}()", "Compose(")) or " object at 0x" in shown_as
    if settings and is_bare:
        return f"{type(value).__qualname__}({', '.join(f'{name}={_text(each)}' for name, each in settings.items())})"
    return shown_as


def _copied(graph: Any) -> Any:
    """Return a copy of a graph, or of named graphs. DGL's clone shares the features, so the features are copied too."""
    if isinstance(graph, dict):
        return {name: _copied(each) for name, each in graph.items()}
    copied = graph.clone()
    if is_pyg(graph):
        return copied
    for t, _, _ in located_types(copied):
        features = features_of(copied, t)
        for name in list(features):
            features[name] = features[name].clone()
    return copied


def seed_generators(key: int) -> None:
    """Seed the global generators of torch, numpy and Python by a key in 0..2**64-1.

    `torch.manual_seed` would also set the seed of CUDA devices that are not in use yet.
    """
    for generator in _torch_generators():
        generator.manual_seed(key)
    np.random.seed([key & 0xFFFFFFFF, key >> 32])  # noqa: NPY002 - the generator that DGL draws from
    random.seed(key)


@contextlib.contextmanager
def kept_generators() -> Iterator[None]:
    """Restore the states of the global generators on exit."""
    of_torch = [(generator, generator.get_state()) for generator in _torch_generators()]
    of_numpy, of_python = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        for generator, state in of_torch:
            generator.set_state(state)
        np.random.set_state(of_numpy)  # noqa: NPY002
        random.setstate(of_python)


def states() -> tuple[Any, ...]:
    """Return the states of the global generators."""
    of_torch = [bytes(generator.get_state().numpy()) for generator in _torch_generators()]
    return (*of_torch, pickle.dumps(np.random.get_state(legacy=False)), random.getstate())  # noqa: NPY002


def _torch_generators() -> list[torch.Generator]:
    """Return torch's global generators: the CPU generator, and the generators of CUDA devices in use."""
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return [torch.default_generator, *(torch.cuda.default_generators if in_use else ())]


class Draws:
    """The seed of a transform, and the epoch to use if the ids of a batch carry no epoch (see `items.EpochIds`).

    All worker processes share the epoch, including persistent workers.
    """

    def __init__(self, seed: int) -> None:
        self.seed = whole_number("the seed of a transform", seed, 0, UINT64_MAX, TransformError)
        # The epoch; 1 if it was set, else 0; the id of the first graph for which the transform drew random numbers
        # while the epoch was unknown, or -1.
        self._shared = torch.tensor([0, 0, -1], device="cpu")
        self._shared.share_memory_()  # type: ignore[no-untyped-call]
        self._warned = False

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch to use if the ids of a batch carry no epoch."""
        self._shared[0] = whole_number("epoch", epoch, 0, INT64_MAX, TransformError)
        self._shared[1] = 1

    def epoch(self, of_ids: int | None) -> tuple[int, bool]:
        """Return the epoch, and whether it is known; `of_ids` is the epoch that the ids of a batch carry, or None."""
        epoch, is_set, _ = self._shared.tolist()
        return (epoch, bool(is_set)) if of_ids is None else (of_ids, True)

    def may_repeat(self, graph_id: int) -> bool:
        """Return whether to check if the transform draws for this graph: all until one draws, then only that one."""
        return int(self._shared[2]) in (-1, graph_id) and not self._warned

    def notice_repetition(self, graph_id: int, name: str) -> None:
        """Handle a draw for a graph while the epoch is unknown: store the first graph, and warn if it comes again."""
        first = int(self._shared[2])
        if first < 0:
            self._shared[2] = graph_id
        elif first == graph_id and not self._warned:
            self._warned = True
            warnings.warn(
                f"the transform {name} draws random numbers for graph {graph_id} again, the same as before, because "
                "the epoch is unknown; before each epoch, call set_epoch(epoch) of the object that has the transform, "
                "or take the batches from a PackBatchSampler, whose ids carry the epoch.",
                UserWarning,
                stacklevel=2,
            )
