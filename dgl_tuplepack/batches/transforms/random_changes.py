"""Transforms of whole padded batches, without a loop over graphs.

The transforms draw random numbers from torch's global generator, which loaders with ``batch_transform=`` seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import real_number, shown
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.errors import SchemaError, TransformError


@dataclass(frozen=True)
class AddNoise:
    """Add normal noise to a node feature, such as positions.

    Parameters
    ----------
    name
        Name of a floating-point feature; in heterographs, every node type with this feature is changed.
    scale
        Standard deviation, >= 0.
    """

    name: str
    scale: float

    def __post_init__(self) -> None:
        real_number("scale", self.scale, least=0, error=TransformError)

    def __call__(self, batch: PaddedBatch) -> PaddedBatch:
        """Change the feature of real nodes, and return the batch."""
        for features, real, _ in _with_feature(batch, self.name, floating=True):
            before = features[self.name]
            noise = torch.randn(before[:real].shape, dtype=before.dtype, device=before.device)
            features[self.name] = torch.cat([before[:real] + self.scale * noise, before[real:]])
        return batch


@dataclass(frozen=True)
class FlipSigns:
    """Multiply each column of a node feature by a random sign, drawn for each graph; for Laplacian encodings.

    Eigenvectors are defined only up to their sign, so a model should not depend on the sign.

    Parameters
    ----------
    name
        Name of a floating-point feature ``[V, ...]``, such as ``"PE"`` of `dgl.transforms.LapPE`.
    """

    name: str

    def __call__(self, batch: PaddedBatch) -> PaddedBatch:
        """Change the feature of real nodes, and return the batch."""
        for features, real, slots in _with_feature(batch, self.name, floating=True):
            before = features[self.name]
            signs = torch.randint(0, 2, (len(batch.graph_mask), *before.shape[1:]), device=before.device) * 2 - 1
            flipped = before[:real] * signs.to(before.dtype)[slots[:real]]
            features[self.name] = torch.cat([flipped, before[real:]])
        return batch


@dataclass(frozen=True)
class MaskNodes:
    """Replace a feature of randomly chosen nodes by one value, and mark these nodes, for masked pretraining.

    Parameters
    ----------
    name
        Name of the feature.
    p
        Probability that a node is chosen, in 0..1.
    value
        The new value of the feature: a number, or an array with the shape of one entry.
    mask
        Name of a new feature, bool ``[V]``: True for chosen nodes, False for other nodes and for padding.
    """

    name: str
    p: float
    value: Any = 0
    mask: str = "masked"

    def __post_init__(self) -> None:
        real_number("p", self.p, least=0, most=1, error=TransformError)
        if self.mask == self.name:
            raise TransformError(f"name and mask are both {self.name!r}; choose another name for the mask.")

    def __call__(self, batch: PaddedBatch) -> PaddedBatch:
        """Change the feature of the chosen real nodes, and return the batch."""
        for features, real, slots in _with_feature(batch, self.name):
            before = features[self.name]
            chosen = torch.rand(len(slots), device=before.device) < self.p
            chosen[real:] = False
            value = torch.as_tensor(self.value, dtype=before.dtype, device=before.device)
            if value.shape not in ((), before.shape[1:]):
                raise SchemaError(
                    f"value has shape {list(value.shape)}, but an entry of {self.name!r} has {list(before.shape[1:])}; "
                    "give one number, or an array with the shape of an entry."
                )
            features[self.name] = torch.where(chosen.reshape(-1, *[1] * (before.dim() - 1)), value, before)
            features[self.mask] = chosen
        return batch


def _with_feature(
    batch: PaddedBatch, name: str, floating: bool = False
) -> Iterator[tuple[dict[str, Tensor], int, Tensor]]:
    """Yield, for each node type with the feature, its features, its number of real nodes, and its graph slots."""
    if not isinstance(batch, PaddedBatch):
        raise SchemaError(f"a batch transform needs a PaddedBatch, but got {shown(batch)}; see batch_transform.")
    batch.sync_with_graph()
    of_types = {t: batch.features_by_type[t] for t in batch.node_types}
    types = [t for t, features in of_types.items() if name in features]
    if not types:
        known = sorted({n for features in of_types.values() for n in features})
        raise SchemaError(
            f"the batch has no node feature {shown(name)}; its node features are {known}; correct the name."
        )
    slots = batch.node_graph_slots
    for t in types:
        dtype = of_types[t][name].dtype
        if floating and not dtype.is_floating_point:
            raise SchemaError(f"the node feature {name!r} is {dtype}, but must be floating-point; convert it first.")
        if batch.indexed_by(("node_feature", t, name), of_types[t][name]) is not None:
            raise SchemaError(
                f"the node feature {name!r} holds indices, which the transform would break; name another feature."
            )
        type_slots = slots[t] if isinstance(slots, dict) else slots
        yield of_types[t], batch.num_real_by_type[t], type_slots
