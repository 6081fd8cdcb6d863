"""A store seen as a DGLDataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dgl.data import DGLDataset

from dgl_tuplepack.store.selection import Selection


class StoreDataset(DGLDataset):  # type: ignore[misc]
    """`dgl.data.DGLDataset` over a store; it reads the store and writes nothing."""

    def __init__(self, store: Selection) -> None:
        self.store = store
        super().__init__(name=store.path.name, raw_dir=str(store.path), save_dir=str(store.path))

    def process(self) -> None:
        """Nothing is left to do."""

    def has_cache(self) -> bool:
        """The store is there."""
        return True

    def __getitem__(self, index: int) -> Any:
        return self.store[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.store)

    def __len__(self) -> int:
        return len(self.store)
