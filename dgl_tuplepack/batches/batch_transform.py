"""Apply a transform to whole padded batches: seed random generators, check the result, and restore the padding."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.compiling.torch_private import version_of
from dgl_tuplepack.errors import TransformError
from dgl_tuplepack.graphs.schema import ArraySpec, as_label, listed, specs_of
from dgl_tuplepack.graphs.transform import Draws, check_callable, kept_generators, seed_generators, states

# Fields of a batch that a transform may change, directly or through the graph of the batch.
_CHANGEABLE = ("labels", "features_by_type", "_graph", "_agreed")
# A column is a feature or label. A group of columns has a content, "node feature", "edge feature" or "label", and a
# type, which is None for labels.
_Group = tuple[str, Any]


class BatchTransform:
    """A transform of padded batches, with all padding rows restored after each call.

    The global random generators are seeded from the `seed`, the epoch and the ids of the graphs. `empty`, a
    padding-only batch, is transformed first; all later results must have the same columns as its result.
    """

    def __init__(self, transform: Callable[[PaddedBatch], Any], seed: int, empty: PaddedBatch) -> None:
        self.name = check_callable(transform, "a PaddedBatch")
        self.transform, self.draws = transform, Draws(seed)
        # None while the empty batch is transformed, so that its result is not compared with anything.
        self._specs: dict[_Group, dict[str, ArraySpec]] | None = None
        self._specs = {group: specs_of(columns) for group, columns, *_ in _columns(self(empty, [], 0))}

    def __call__(self, batch: PaddedBatch, ids: Sequence[int | None], epoch: int | None) -> PaddedBatch:
        """Transform a batch in place; raise TransformError if the transform fails, or if its result is not allowed.

        `ids` has the ids of the real graphs in the batch. An unknown id or epoch is None.
        """
        where = _display_name(ids)
        epoch, is_known = self.draws.epoch(epoch)
        unknown = any(i is None for i in ids)
        # If an id or the epoch is unknown, random numbers cannot be derived from it. So check whether any are drawn.
        is_watched = bool(ids) and (unknown or not is_known)
        structure, padding = _structure(batch), _padding(batch)
        with kept_generators():
            seed_generators(_key(self.draws.seed, epoch, [-1 if i is None else i for i in ids]))
            before = states() if is_watched else None
            try:
                found = self.transform(batch)
            except Exception as error:
                raise TransformError(
                    f"the transform {self.name} failed for {where}: {type(error).__name__}: {error!s:.500}; correct "
                    "the transform, which also gets padding-only batches."
                ) from error
            has_drawn = is_watched and states() != before
        if has_drawn and unknown:
            raise TransformError(
                f"the transform {self.name} draws random numbers, but items of {where} have no ids to seed the "
                "generators; use with_ids(dataset), also for the example."
            )
        if has_drawn:
            # This warns if a batch with the same first graph draws random numbers again.
            self.draws.notice_repetition(int(ids[0] or 0), self.name)
        self._check(found, batch, structure, where)
        _restore(batch, padding)
        return batch

    def _check(self, found: Any, batch: PaddedBatch, structure: dict[str, Any], where: str) -> None:
        """Raise TransformError if `found`, the result for `batch`, is not allowed; `structure` is from before."""
        if found is not batch:
            raise TransformError(
                f"the transform {self.name} returned {shown(found)} for {where}, but must return the given "
                "batch; change the batch in place and return it."
            )
        batch.sync_with_graph()
        changed = [name for name, value in _structure(batch).items() if not _same(value, structure[name])]
        if changed:
            names = ", ".join(name.removesuffix("_by_type") for name in changed)
            raise TransformError(
                f"the transform {self.name} changed {names} of {where}, but "
                "may change only features and labels; transform graphs before they are batched (transform=)."
            )
        for (content, t), columns, _, slots in _columns(batch):
            for name, value in columns.items():
                if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != slots:
                    shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
                    raise TransformError(
                        f"after the transform {self.name}, the {content} {name!r} of {where} is {shape}, but must have "
                        f"{slots} rows, one for each slot."
                    )
            found_specs = specs_of(columns)
            expected = found_specs if self._specs is None else self._specs[content, t]
            if found_specs != expected:
                raise TransformError(
                    f"after the transform {self.name}, {where} has these {content}s: {listed(found_specs)}, but a "
                    f"padding-only batch has {listed(expected)}; all batches need the same names, shapes and dtypes."
                )


def _display_name(ids: Sequence[int | None]) -> str:
    if not ids:
        return "a padding-only batch"
    more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
    known = ", ".join(str(i) for i in ids[:5] if i is not None)
    return f"the batch of graphs {known}{more}" if known else f"a batch of {len(ids)} graphs"


def _key(seed: int, epoch: int, ids: Sequence[int]) -> int:
    """Return a hash in 0..2**64-1, from which the random generators are seeded."""
    text = f"{seed} {epoch} ".encode() + np.asarray(ids, "<i8").tobytes()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _columns(batch: PaddedBatch) -> Iterator[tuple[_Group, dict[str, Tensor], int, int]]:
    """Yield, for each group of columns: content and type, tensors by name, number of real rows, number of all rows."""
    for t, features in batch.features_by_type.items():
        content = "node feature" if isinstance(t, str) else "edge feature"
        yield (content, t), features, batch.num_real_by_type[t], len(batch.masks_by_type[t])
    yield ("label", None), batch.labels_by_name(), batch.num_real_graphs, len(batch.graph_mask)


def _structure(batch: PaddedBatch) -> dict[str, Any]:
    """Return the fields that must not change; each tensor becomes (tensor, torch's number of in-place changes)."""

    def seen(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: seen(inner) for key, inner in value.items()}
        # Torch counts no changes of inference tensors.
        return (value, -1 if value.is_inference() else version_of(value)) if isinstance(value, Tensor) else value

    return {field.name: seen(getattr(batch, field.name)) for field in fields(batch) if field.name not in _CHANGEABLE}


def _same(found: Any, expected: Any) -> bool:
    """Return whether two values in results of `_structure` are equal."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(_same(found[key], expected[key]) for key in found)
    if isinstance(found, tuple) and found and isinstance(found[0], Tensor):
        return isinstance(expected, tuple) and found[0] is expected[0] and found[1] == expected[1]
    return bool(found == expected)


def _padding(batch: PaddedBatch) -> dict[_Group, dict[str, Tensor]]:
    """Return copies of the padding rows of all features and labels."""
    batch.sync_with_graph()
    return {
        group: {name: value[real:].clone() for name, value in columns.items()}
        for group, columns, real, _ in _columns(batch)
    }


def _restore(batch: PaddedBatch, padding: dict[_Group, dict[str, Tensor]]) -> None:
    """Set padding rows to the values in `padding`, or to 0 if a column is new or has another dtype or shape."""
    for group, columns, real, _ in _columns(batch):
        restored = {}
        for name, value in columns.items():
            before = padding[group].get(name)
            if before is None or before.shape[1:] != value.shape[1:] or before.dtype != value.dtype:
                before = torch.zeros_like(value[real:])
            # Do not write in place: the transform may still use the tensor, or rows of the tensor may share memory.
            restored[name] = torch.cat([value[:real], before]).contiguous()
        if group[0] == "label":
            batch.labels = as_label(restored)
        else:
            columns.update(restored)
    batch.sync_with_graph()
