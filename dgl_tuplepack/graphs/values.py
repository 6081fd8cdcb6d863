"""Conversion between tensors and stored arrays."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import Array


def as_array(tensor: Tensor) -> Array:
    """Return the values of a tensor as an array that a store can hold.

    numpy has no bfloat16, so the bits of bfloat16 values are stored as uint16.
    Raise SchemaError for a tensor that requires gradients, or of a dtype that numpy does not have.
    """
    if tensor.requires_grad:
        raise SchemaError(
            "graphs have features or labels that require gradients, which a store cannot keep; detach them "
            "(graph.ndata['x'] = graph.ndata['x'].detach()), or pad the graphs without a store (PaddedCollate, "
            "in_memory=False)."
        )
    tensor = tensor.cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    try:
        return tensor.numpy()
    except TypeError as error:
        raise SchemaError(f"a feature or label is {tensor.dtype}, which stores cannot hold; convert it.") from error


def as_tensor(stored: Array, dtype: torch.dtype, copy: bool = True) -> Tensor:
    """Return stored values as a tensor of `dtype`; without `copy`, the tensor may share the memory of `stored`."""
    values = stored.copy() if copy else stored
    if dtype == torch.bfloat16:
        return torch.from_numpy(values.view(np.int16)).view(dtype)
    return torch.from_numpy(values).to(dtype)
