"""A drop-in for PyG's loader that reads whole batches from stores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch_geometric.loader
from torch_geometric.loader.dataloader import Collater

from dgl_tuplepack._core.checks import shown, true_or_false
from dgl_tuplepack.batches.pyg_batch import follow_and_exclude
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.items import WithIds
from dgl_tuplepack.loading.opened import is_collated_alike_by_pyg, stored_copy
from dgl_tuplepack.loading.packed_loader import CollateWithIds, WholeBatches, log_workers, whole_batches

__all__ = ["DataLoader"]


class DataLoader(torch_geometric.loader.DataLoader):  # type: ignore[misc]
    """Drop-in `torch_geometric.loader.DataLoader`, many times as fast as PyG's loader for lists and stores.

    Batches, their order and the random numbers are the same as in PyG's loader on the same graphs. Any dataset works;
    lists, in-memory datasets without a transform, stores, subsets of these (including `torch.utils.data.Subset`) and
    ``store.batched(framework="pyg")`` are faster. A `collate_fn`, which PyG's loader ignores, raises InputError.

    Parameters
    ----------
    dataset
        A store or its path, an `OgbFolder` or its path, or any dataset that PyG's loader accepts.
    batch_size, shuffle
        As in PyG's loader.
    follow_batch, exclude_keys
        Names of attributes that get batch vectors, ``NAME_batch`` and ``NAME_ptr``; and of those to leave out.
    with_ids
        Whether batches have the positions of their graphs in `dataset`, int64 ``[n]``, as the attribute `graph_ids`.
        For the result of `GraphStore.split`, they are the ids before the split.
    in_memory
        Whether graphs are copied to a temporary store first; later changes of the dataset then have no effect. None:
        copy lists, tuples and in-memory datasets without a transform, if graphs have only tensors and numbers. True:
        copy any dataset of such graphs (else InputError), which must return the same item each time. False: do not
        copy.
    **kwargs
        Arguments of `torch.utils.data.DataLoader`. Leave num_workers at 0 for a store or a copied list: sending a batch
        from a worker takes much longer than making it.

    Examples
    --------
    >>> import tempfile, torch
    >>> from torch_geometric.data import Data
    >>> import dgl_tuplepack as tp
    >>> graphs = [Data(x=torch.rand(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]])) for _ in range(5)]
    >>> store = tp.GraphStore.write(tempfile.mkdtemp(), graphs)
    >>> [batch.num_graphs for batch in tp.pyg.DataLoader(store, batch_size=2, shuffle=True)]
    [2, 2, 1]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
        *,
        with_ids: bool = False,
        in_memory: bool | None = None,
        **kwargs: Any,
    ) -> None:
        # Lightning, for instance, rebuilds a loader from attributes that have the names of the arguments.
        self.with_ids, self.in_memory = true_or_false("with_ids", with_ids), in_memory
        collate = kwargs.pop("collate_fn", None)
        # A framework that rebuilds the loader passes the loader's own function back, which is made again below.
        is_ours = isinstance(collate, Collater | CollateWithIds) or getattr(collate, "func", None) is follow_and_exclude
        if not (collate is None or is_ours):
            raise InputError(
                f"this loader collates as PyG's loader does, which ignores collate_fn={shown(collate)}; leave it out, "
                "or give it to torch.utils.data.DataLoader or to packed_loader(..., padded=False, collate_fn=...)."
            )
        whole = whole_batches(dataset, "pyg", with_ids)
        if whole is None and batch_size is not None:
            store = stored_copy(dataset, in_memory, is_collated_alike_by_pyg)
            if store is not None:
                whole = WholeBatches(dataset, store.batched(framework="pyg", with_ids=with_ids))
        if whole is not None:
            dataset = whole
        elif with_ids and not isinstance(dataset, WithIds):
            dataset = WithIds(dataset)
        if whole is not None and kwargs.get("num_workers"):
            log_workers()
        super().__init__(dataset, batch_size, shuffle, follow_batch, exclude_keys, **kwargs)
        if whole is not None:
            self.collate_fn = partial(follow_and_exclude, tuple(follow_batch or ()), tuple(exclude_keys or ()))
        elif with_ids:
            self.collate_fn = CollateWithIds(self.collate_fn)  # type: ignore[assignment]
