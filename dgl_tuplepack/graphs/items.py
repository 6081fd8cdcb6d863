"""Items of a dataset, and datasets whose items know their own id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dgl_tuplepack._core.checks import as_integer, shown, whole_number
from dgl_tuplepack.errors import InputError, SchemaError
from dgl_tuplepack.graphs.named import by_name, checked_graphs, holds_graphs, is_graph, is_pyg


class EpochIds(list[int]):
    """Ids of the graphs of a batch, and the epoch that they are for, which random transforms draw from.

    `shape` is the number of the shape bucket of the batch; None if there is only one. A loader hands it on as it is,
    to a worker too, so that nobody else has to tell workers the epoch and the shape.
    """

    def __init__(self, ids: Sequence[int], epoch: int, shape: int | None = None) -> None:
        super().__init__(ids)
        self.epoch, self.shape = epoch, shape

    def __reduce__(self) -> tuple[Any, ...]:
        return EpochIds, (list(self), self.epoch, self.shape)


class BatchItems(list[Any]):
    """Items of a batch, and the number of its shape bucket; None if it is unknown."""

    def __init__(self, items: Iterable[Any], shape: int | None) -> None:
        super().__init__(items)
        self.shape = shape

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchItems, (list(self), self.shape)


def epoch_of(ids: Any) -> int | None:
    """Return the epoch that ids of a batch are for; None if they do not tell."""
    return ids.epoch if isinstance(ids, EpochIds) else None


def shape_of(batch: Any) -> int | None:
    """Return the number of the shape that ids or items of a batch are for; None if they do not tell."""
    return batch.shape if isinstance(batch, EpochIds | BatchItems) else None


@dataclass(frozen=True)
class Identified:
    """An item of a dataset together with its id, and the epoch that it is read for, if that is known."""

    id: int
    item: Any
    epoch: int | None = field(default=None, repr=False, compare=False)


class Parts(NamedTuple):
    """The graph (or named graphs), label and id of an item of a dataset; a missing label or id is None."""

    graph: Any
    label: Any
    id: int | None


def parts_of(item: Any, where: str) -> Parts:
    """Take an item apart: a DGLGraph, (graph, label) or (graph, label, id), or one of these with an id by `with_ids`.

    A dict of named graphs may stand for the graph; it is returned in the order of the names. A graph of PyG is one
    part: `Schema.of` and `graphs.merge` find its labels. An id by `with_ids` replaces an id inside the item.
    SchemaError for other items; `where` says which one it is.
    """
    if isinstance(item, Identified):
        graph, label, _ = parts_of(item.item, where)
        return Parts(graph, label, whole_number(f"the id of {where}", item.id, 0, error=SchemaError))
    if is_pyg(item):
        # What belongs to the graph is an attribute of it.
        return Parts(item, None, None)
    given, item = item, item if isinstance(item, tuple | list) else (item,)
    graph = item[0] if item else None
    if not is_graph(graph):
        graph = _named_graphs(given, item, where)
    if len(item) > 3:
        raise SchemaError(
            f"{where} has {len(item)} parts, but must be a DGLGraph, (DGLGraph, label) or (DGLGraph, label, id); join "
            "several labels in one dict."
        )
    if any(each.is_block for each in by_name(graph).values()):
        raise SchemaError(
            f"{where} is a block (message flow graph), which DGL cannot batch; convert it with dgl.block_to_graph."
        )
    return Parts(graph, item[1] if len(item) > 1 else None, _id(item[2], where) if len(item) > 2 else None)


def taken_apart(items: Sequence[Any]) -> tuple[list[Parts], list[str], int | None]:
    """Return the parts of the items of a batch, what messages call each, and the epoch if the items tell it."""
    where = [f"graph {shown(i.id)}" if isinstance(i, Identified) else f"item {n}" for n, i in enumerate(items)]
    epoch = items[0].epoch if items and isinstance(items[0], Identified) else None
    return [parts_of(item, name) for item, name in zip(items, where, strict=True)], where, epoch


def _named_graphs(given: Any, item: Sequence[Any], where: str) -> dict[str, Any]:
    """Return the named graphs of an item whose parts are `item`; SchemaError if it begins with something else."""
    graphs = item[0] if item else None
    if not isinstance(graphs, Mapping) or (graphs and not holds_graphs(graphs)):
        begins = f" that begins with {type(graphs).__name__}" if item is given and item else ""
        raise SchemaError(
            f"{where} is {type(given).__name__}{begins}, but must be a DGLGraph, a pair (DGLGraph, label) or "
            "(DGLGraph, label, id), one of these with a dict of named graphs, or a Data or HeteroData of PyG; let "
            "the dataset return one of them."
        )
    return checked_graphs(graphs, where)


def check_position(graph_id: int | None, position: int, where: str) -> None:
    """Refuse an item whose id is not its position, which ids in a store are."""
    if graph_id is not None and graph_id != position:
        raise SchemaError(
            f"{where} has the id {graph_id}, but ids in a store are positions; keep other ids as a label, "
            "(graph, {'y': label, 'id': id}), or return (graph, label)."
        )


def begins_with_pyg(item: Any) -> bool:
    """Whether an item is a graph of PyG, or begins with one or with named ones, which `parts_of` refuses."""
    first = _first(item)
    return any(map(is_pyg, first.values() if isinstance(first, Mapping) else [first]))


def begins_with_graph(item: Any) -> bool:
    """Whether an item is a graph of DGL or PyG, or begins with one or with named ones."""
    return holds_graphs(_first(item))


def _first(item: Any) -> Any:
    inner = item.item if isinstance(item, Identified) else item
    return inner[0] if isinstance(inner, tuple | list) and inner else inner


def as_item(parts: Parts) -> Any:
    """Return parts as one item again, which `parts_of` takes apart."""
    if is_pyg(parts.graph):
        return parts.graph if parts.id is None else Identified(parts.id, parts.graph)
    return parts if parts.id is not None else (parts.graph, parts.label)


def _id(value: Any, where: str) -> int:
    number = as_integer(value)
    if number is None or not 0 <= number < 2**63:
        raise SchemaError(
            f"{where} has {shown(value)} ({type(value).__name__}) as its third part, which is its id and must be an "
            "integer in 0..2**63-1, since a batch holds the ids as a tensor. Let the dataset return (DGLGraph, label) "
            "and wrap it in with_ids(dataset): ids are positions then, by which a list of yours finds names and all "
            "else; several labels belong in one dict."
        )
    return number


def is_iterable(source: Any) -> bool:
    """Whether a source can be iterated; False for graphs and 0-dimensional arrays, although they have the methods."""
    iterates = hasattr(source, "__iter__") or hasattr(source, "__getitem__")
    is_single = is_graph(source) or is_pyg(source) or isinstance(source, type)
    return iterates and not is_single and getattr(source, "ndim", 1) != 0


class WithIds:
    """Thin view of a dataset: item i is ``Identified(i, dataset[i])``."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Identified:
        number = self._position(index)
        # Negative indices become ids from 0; -1 as an id stands for padding.
        return Identified(number + len(self) if number < 0 else number, self.dataset[number])

    def __getitems__(self, indices: Sequence[int]) -> list[Identified]:
        """Return the items of a batch, as loaders ask for them, with the epoch and shape that the sampler gave."""
        numbers, epoch = [self._position(index) for index in indices], epoch_of(indices)
        fetch = getattr(self.dataset, "__getitems__", None)
        items = [self.dataset[number] for number in numbers] if fetch is None else fetch(indices)
        check_number(items, numbers)
        return BatchItems(
            (
                Identified(number + len(self) if number < 0 else number, item, epoch)
                for number, item in zip(numbers, items, strict=True)
            ),
            shape_of(indices),
        )

    def _position(self, index: int) -> int:
        number = as_integer(index)
        if number is None:
            raise InputError(
                f"a dataset with ids is indexed by one integer, but got {shown(index)}; ids are positions in the "
                "dataset, look up names of your own in a list."
            )
        return number


def check_number(items: Sequence[Any], ids: Sequence[int]) -> None:
    """Refuse (InputError) items that are not one for each id."""
    if len(items) != len(ids):
        raise InputError(
            f"a dataset gave {len(items)} items for {len(ids)} ids, but needs one for each; correct its __getitems__."
        )


def with_ids(dataset: Any) -> WithIds:
    """Wrap a dataset so that `PaddedCollate` can fill ``graph_ids``; take the example of `PaddedCollate` from it, too.

    Ids are positions in `dataset`, also if its items (graph, label, id) have other ids.

    Examples
    --------
    >>> with_ids(["first", "second"])[1]
    Identified(id=1, item='second')
    """
    return WithIds(dataset)
