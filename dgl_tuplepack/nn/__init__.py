"""Losses, means and norms that leave out the padding of a batch.

In: the outputs, labels and masks of a padded batch. Out: the same results as without padding. It uses `_core` and
`compiling`::

    loss = masked_loss(loss_fn, out, labels, batch)     over real labels only; masked_mean for other values
    model = convert(model)                              layers that mix rows now leave padding out
    with masked(batch):                                 sets the masks that these layers read, in this thread
        out = model(batch.graph, ...)
    x = attention(query, key, value, batch)             among the nodes of each graph
    rows = dense(x, batch, loader.max_nodes)            [N, ...] -> [G, M, ...] for other attention inside graphs
    x = rows.to_nodes(attend(rows.values))              and back; same_graph is the mask for flex_attention
"""

from dgl_tuplepack.nn.conversion import convert
from dgl_tuplepack.nn.dense_rows import Dense, dense, same_graph
from dgl_tuplepack.nn.graph_attention import attention
from dgl_tuplepack.nn.losses import distributed_masked_mean, masked_loss, masked_mean
from dgl_tuplepack.nn.masks import masked
from dgl_tuplepack.nn.norm import MaskedBatchNorm1d

__all__ = [
    "Dense", "MaskedBatchNorm1d", "attention", "convert", "dense", "distributed_masked_mean", "masked", "masked_loss",
    "masked_mean", "same_graph",
]  # fmt: skip
