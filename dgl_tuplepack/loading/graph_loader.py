"""DGL's loader, with whole batches of stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl

from dgl_tuplepack.loading.whole import WholeBatches, given_and_view


class GraphDataLoader(dgl.dataloading.GraphDataLoader):  # type: ignore[misc]
    """Drop-in `dgl.dataloading.GraphDataLoader` that makes batches of a store several times as fast.

    Batches, their order and the random numbers used are those of DGL's loader on the same graphs. Any dataset works;
    only stores, their subsets (including `torch.utils.data.Subset`) and ``store.batched()`` are faster.

    Parameters
    ----------
    dataset
        A store, or any dataset that DGL's loader accepts.
    collate_fn
        Function from a list of items to a batch. With it, graphs of a store are read one by one.
    use_ddp, ddp_seed
        As in DGL's loader: give each process different graphs, by a `DistributedSampler` with this seed. Call
        `set_epoch` before each epoch.
    **kwargs
        Arguments of `torch.utils.data.DataLoader`, such as ``batch_size=64`` and ``shuffle=True``.

    Examples
    --------
    >>> import dgl, tempfile
    >>> import dgl_tuplepack as tp
    >>> store = tp.GraphStore.write(tempfile.mkdtemp(), [dgl.graph(([0, 1], [1, 2])) for _ in range(5)])
    >>> [batch.batch_size for batch in tp.GraphDataLoader(store, batch_size=2, shuffle=True)]
    [2, 2, 1]
    """

    def __init__(
        self,
        dataset: Any,
        collate_fn: Callable[[Any], Any] | None = None,
        use_ddp: bool = False,
        ddp_seed: int = 0,
        **kwargs: Any,
    ) -> None:
        dataset, view = given_and_view(dataset, "dgl")
        batches = kwargs.get("batch_size", 1) is not None
        if view is not None and (collate_fn in (None, as_collated) or not batches):
            dataset = WholeBatches(dataset, view)
            collate_fn = as_collated if batches else collate_fn
        super().__init__(dataset, collate_fn, use_ddp, ddp_seed, **kwargs)


def as_collated(batch: Any) -> Any:
    """Return a whole batch as DGL's collate does: graph and labels in a list."""
    return list(batch) if isinstance(batch, tuple) else batch
