"""Values as they are stored, and as torch sees them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.graphs.blocks import Array


def as_array(tensor: Tensor) -> Array:
    """Values of a tensor as they are stored; numpy knows no bfloat16, so its bits are."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def as_tensor(stored: Array, dtype: torch.dtype) -> Tensor:
    """Stored values as a tensor of the dtype that is handed out; a copy."""
    if dtype == torch.bfloat16:
        return torch.from_numpy(stored.view(np.int16).copy()).view(dtype)
    return torch.from_numpy(stored.copy()).to(dtype)
