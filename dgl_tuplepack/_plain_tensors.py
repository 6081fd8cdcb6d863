"""Which tensors a compiled loop may read and write by their address."""

from __future__ import annotations

import torch
from torch import Tensor


def has_memory(tensor: Tensor) -> bool:
    """Whether a tensor is its memory on the CPU, and nothing else: not a subclass, fake, freed, or a negative view."""
    try:
        return (
            type(tensor) in (Tensor, torch.nn.Parameter)
            and tensor.is_cpu
            and not tensor.is_neg()
            and (tensor.data_ptr() != 0 or tensor.numel() == 0)
        )
    except RuntimeError:
        # Batches of tensors, for instance, have no memory of their own.
        return False


# Torch has no public names for these.
_are_transforms_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_number_of_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)


def is_transformed() -> bool:
    """Whether ``torch.func``, forward-mode AD or a dispatch mode handles operations of torch."""
    level: int = getattr(torch.autograd.forward_ad, "_current_level", -1)
    return level >= 0 or _are_transforms_active() or _number_of_modes() > 0
