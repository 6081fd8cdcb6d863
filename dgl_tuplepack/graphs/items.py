"""Items of a dataset: their graph, label and id. `with_ids` gives each item its position as id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from dgl_tuplepack._core.checks import as_integer, shown, whole_number
from dgl_tuplepack.errors import InputError, SchemaError
from dgl_tuplepack.graphs.named import by_name, checked_graphs, holds_graphs, is_graph, is_pyg

# Enough for the full speed of `dgl.batch` and PyG's `collate`; few enough to need little memory.
_ITEMS_PER_BLOCK = 512


class EpochIds(list[int]):
    """Ids of the graphs of a batch, with the epoch (for random transforms) and the shape bucket of the batch.

    `shape` is the index of the shape bucket; None if there is only one bucket. Loaders pass the ids on to workers.
    """

    def __init__(self, ids: Sequence[int], epoch: int, shape: int | None = None) -> None:
        super().__init__(ids)
        self.epoch, self.shape = epoch, shape


class BatchItems(list[Any]):
    """Items of a batch. `shape` is the index of the batch's shape bucket; None if the index is unknown."""

    def __init__(self, items: Iterable[Any], shape: int | None) -> None:
        super().__init__(items)
        self.shape = shape


def epoch_of(ids: Any) -> int | None:
    """Return the epoch of the ids of a batch; None if it is unknown."""
    return ids.epoch if isinstance(ids, EpochIds) else None


def shape_index_of(batch: Any) -> int | None:
    """Return the index of a batch's shape bucket; None if it is unknown. `batch` has the ids or items of the batch."""
    return batch.shape if isinstance(batch, EpochIds | BatchItems) else None


@dataclass(frozen=True)
class Identified:
    """An item of a dataset with its id, and the epoch in which it is read; None if the epoch is unknown."""

    id: int
    item: Any
    epoch: int | None = field(default=None, repr=False, compare=False)


class Examples(list[Any]):
    """Items that define a schema together: for each type that any graph has, one of them has nodes (edges) of it."""


class Parts(NamedTuple):
    """The graph (or named graphs), label and id of an item of a dataset; a missing label or id is None."""

    graph: Any
    label: Any
    id: int | None


def parts_of(item: Any, where: str) -> Parts:
    """Unpack an item: a DGLGraph, (graph, label) or (graph, label, id), or one of these wrapped by `with_ids`.

    The graph may also be a dict of named graphs, which is returned sorted by name. A PyG graph is an item by itself:
    its labels are attributes. The id of `with_ids` replaces an id inside the item. SchemaError for other items.
    """
    if isinstance(item, Identified):
        graph, label, _ = parts_of(item.item, where)
        return Parts(graph, label, whole_number(f"the id of {where}", item.id, 0, error=SchemaError))
    if is_pyg(item):
        return Parts(item, None, None)
    given, item = item, item if isinstance(item, tuple | list) else (item,)
    graph = item[0] if item else None
    if not is_graph(graph):
        if not isinstance(graph, Mapping) or (graph and not holds_graphs(graph)):
            # `item is given` if the dataset returned a tuple or list.
            begins = f" that begins with {type(graph).__name__}" if item is given and item else ""
            raise SchemaError(
                f"{where} is {type(given).__name__}{begins}, but must be a DGLGraph, a pair (DGLGraph, label) or "
                "(DGLGraph, label, id), one of these with a dict of named graphs in place of the DGLGraph, or a PyG "
                "Data or HeteroData; let the dataset return one of them."
            )
        graph = checked_graphs(graph, where)
    if len(item) > 3:
        raise SchemaError(
            f"{where} has {len(item)} parts, but must be a DGLGraph, (DGLGraph, label) or (DGLGraph, label, id); put "
            "several labels into one dict."
        )
    if any(each.is_block for each in by_name(graph).values()):
        raise SchemaError(
            f"{where} is a block (message flow graph), which DGL cannot batch; convert it by dgl.block_to_graph."
        )
    return Parts(graph, item[1] if len(item) > 1 else None, _id(item[2], where) if len(item) > 2 else None)


def taken_apart(items: Sequence[Any]) -> tuple[list[Parts], list[str], int | None]:
    """Return, for a batch, the parts of each item, the display name of each item, and the epoch (None if unknown)."""
    where = [f"graph {shown(item.id)}" if isinstance(item, Identified) else f"item {n}" for n, item in enumerate(items)]
    epoch = items[0].epoch if items and isinstance(items[0], Identified) else None
    return list(map(parts_of, items, where)), where, epoch


def parts_in_blocks(items: Iterable[Any]) -> Iterator[tuple[list[Parts], list[str]]]:
    """Yield the parts and the display names of a few hundred items at a time.

    Raise SchemaError for an item whose id is not its position, since ids in a store are positions.
    """
    iterator, position = iter(items), 0
    while block := list(islice(iterator, _ITEMS_PER_BLOCK)):
        where = [f"item {position + i}" for i in range(len(block))]
        parts = list(map(parts_of, block, where))
        for item_name, part in zip(where, parts, strict=True):
            if part.id is not None and part.id != position:
                raise SchemaError(
                    f"{item_name} has the id {part.id}, but ids in a store are positions; keep other ids as a label, "
                    "(graph, {'y': label, 'id': id}), or return (graph, label)."
                )
            position += 1
        yield parts, where


def begins_with_pyg(item: Any) -> bool:
    """Return whether an item, or its first part, is a PyG graph or a dict with a PyG graph."""
    first = _first(item)
    return any(map(is_pyg, first.values() if isinstance(first, Mapping) else [first]))


def begins_with_graph(item: Any) -> bool:
    """Return whether an item, or its first part, is a DGL or PyG graph, or a dict with such a graph."""
    return holds_graphs(_first(item))


def _first(item: Any) -> Any:
    """Return the first part of an item, or the item if it has no parts; an id of `with_ids` is ignored."""
    inner = item.item if isinstance(item, Identified) else item
    return inner[0] if isinstance(inner, tuple | list) and inner else inner


def as_item(parts: Parts) -> Any:
    """Return parts as one item; the inverse of `parts_of`."""
    if is_pyg(parts.graph):
        return parts.graph if parts.id is None else Identified(parts.id, parts.graph)
    return parts if parts.id is not None else (parts.graph, parts.label)


def _id(value: Any, where: str) -> int:
    """Return the third part of an item as an id; raise SchemaError if it is not an integer in 0..2**63-1."""
    number = as_integer(value)
    if number is None or not 0 <= number < 2**63:
        raise SchemaError(
            f"{where} has {shown(value)} ({type(value).__name__}) as its third part, which must be the id, an integer "
            "in 0..2**63-1; let the dataset return (DGLGraph, label), with several labels in one dict, and wrap it in "
            "with_ids(dataset): ids are then positions, by which you can look up names in a list."
        )
    return number


def is_iterable(source: Any) -> bool:
    """Return whether a source can be iterated; False for single graphs, classes and 0-dimensional arrays."""
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
        return self._identified(number, self.dataset[number])

    def __getitems__(self, indices: Sequence[int]) -> list[Identified]:
        """Return the items of a batch for a loader, with the epoch and shape bucket that the sampler's ids carry."""
        numbers, epoch = [self._position(index) for index in indices], epoch_of(indices)
        items = fetched(self.dataset, indices, numbers)
        found = (self._identified(number, item, epoch) for number, item in zip(numbers, items, strict=True))
        return BatchItems(found, shape_index_of(indices))

    def _identified(self, number: int, item: Any, epoch: int | None = None) -> Identified:
        # The id of a negative index is counted from the start: an id is never negative, since -1 stands for padding.
        return Identified(number + len(self) if number < 0 else number, item, epoch)

    def _position(self, index: int) -> int:
        """Return the index as an int; raise InputError if it is not one integer."""
        number = as_integer(index)
        if number is None:
            raise InputError(
                f"a dataset with ids is indexed by one integer, but got {shown(index)}; give the position of an item. "
                "If your items have names, look up the position in a list of the names."
            )
        return number


def fetched(dataset: Any, ids: Any, positions: Sequence[int]) -> list[Any]:
    """Return the items at these positions, by ``dataset.__getitems__(ids)`` if the dataset has it.

    `ids` are the positions as the loader gave them. Raise InputError unless there is one item for each id.
    """
    fetch = getattr(dataset, "__getitems__", None)
    items: list[Any] = fetch(ids) if fetch is not None and len(ids) else [dataset[i] for i in positions]
    if len(items) != len(ids):
        raise InputError(
            f"a dataset returned {len(items)} items for {len(ids)} ids, but must return one item for each id; correct "
            "its __getitems__."
        )
    return items


def with_ids(dataset: Any) -> WithIds:
    """Wrap a dataset so that `PaddedCollate` can fill ``graph_ids``: ids are positions in `dataset`.

    They replace ids inside the items. The `example` of `PaddedCollate` must come from the wrapped dataset, too.

    Examples
    --------
    >>> with_ids(["first", "second"])[1]
    Identified(id=1, item='second')
    """
    return WithIds(dataset)
