"""What padding would otherwise disturb in a model: means over graphs, and norms over nodes, edges or graphs.

::

    means = masked_mean, distributed_masked_mean        losses
    model = convert(model)                              norms of any model read masks from here on
    with masked(batch):                                 the masks they read
        out = model(batch.graph, ...)
"""

from dgl_tuplepack.nn.conversion import convert
from dgl_tuplepack.nn.masks import masked
from dgl_tuplepack.nn.means import distributed_masked_mean, masked_mean
from dgl_tuplepack.nn.norm import MaskedBatchNorm1d

__all__ = ["MaskedBatchNorm1d", "convert", "distributed_masked_mean", "masked", "masked_mean"]
