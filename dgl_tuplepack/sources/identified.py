"""A dataset whose items know their own id."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Identified:
    """An item of a dataset together with its id."""

    id: int
    item: Any


class WithIds:
    """Thin view of a dataset: item i is ``Identified(i, dataset[i])``."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Identified:
        index = operator.index(index)
        # Counted from the end; -1 as an id stands for padding.
        return Identified(index + len(self) if index < 0 else index, self.dataset[index])


def with_ids(dataset: Any) -> WithIds:
    """Wrap a dataset so that `PaddedCollate` can fill ``graph_ids``; take its example from there too.

    Examples
    --------
    >>> with_ids(["first", "second"])[1]
    Identified(id=1, item='second')
    """
    return WithIds(dataset)
