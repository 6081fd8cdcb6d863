"""A view of a store as a DGLDataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dgl.data import DGLDataset


class StoreDataset(DGLDataset):  # type: ignore[misc]
    """`dgl.data.DGLDataset` over a store, which it only reads."""

    def __init__(self, store: Any) -> None:
        self.store = store
        super().__init__(name=store.path.name, raw_dir=str(store.path), save_dir=str(store.path))

    def process(self) -> None:
        """Do nothing: the store is complete."""

    def has_cache(self) -> bool:
        """Return True: the store is the cache."""
        return True

    def __getitem__(self, index: int) -> Any:
        return self.store[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.store)

    def __len__(self) -> int:
        return len(self.store)
