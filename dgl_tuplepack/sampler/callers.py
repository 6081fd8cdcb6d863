"""Callers that matter: loaders that take batches early, Lightning, which resumes by itself, and samplers of torch."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch.utils.data.dataloader as torch_loader
import torch.utils.data.distributed as torch_distributed

# Lightning has two names for one package.
_FIT_LOOPS = ("pytorch_lightning.loops.fit_loop", "lightning.pytorch.loops.fit_loop")


def is_taken_early() -> bool:
    """Whether the caller is a plain DataLoader with workers, which takes batches long before it delivers them.

    torchdata's StatefulDataLoader takes them early too, but keeps the state of what it has delivered.
    """
    # The name matters: a forked worker has the frames of its parent below its own.
    return any(
        name == "_next_index" and isinstance(caller, torch_loader._MultiProcessingDataLoaderIter)
        for name, caller in _methods_in({torch_loader.__file__})
    )


def position_in_lightning(sampler: Any) -> tuple[int, int] | None:
    """Epoch that Lightning's Trainer begins with `sampler`, and the batches of it that the Trainer counts as done.

    None where the caller is not a Trainer, or where the Trainer takes batches of other samplers too. This reads private
    attributes of Lightning (tested with 2.6). Where a release names them differently, a warning says so, and batches
    come as without Lightning.
    """
    try:
        return _position_in_lightning(sampler)
    except AttributeError as error:
        _warn(
            f"this release of Lightning keeps its position in another way ({error}), so a training that it resumes in "
            "the middle of an epoch does not continue at the right batch; resume at the end of an epoch, or use "
            "torchdata's StatefulDataLoader."
        )
        return None


def in_distributed_sampler() -> bool:
    """Whether the caller is a DistributedSampler of torch that splits a dataset among several processes."""
    return any(
        isinstance(caller, torch_distributed.DistributedSampler) and caller.num_replicas > 1
        for _, caller in _methods_in({torch_distributed.__file__})
    )


def _position_in_lightning(sampler: Any) -> tuple[int, int] | None:
    """Read what `position_in_lightning` returns.

    With workers, the Trainer asks for batches before it sets the epoch. It restores its own position in an epoch, but
    not the one of a plain loader: it would train on the first batches twice and never on the last ones.
    """
    modules = [module for module in map(sys.modules.get, _FIT_LOOPS) if module is not None]
    loops = tuple(module._FitLoop for module in modules)
    frames = _methods_in({module.__file__ for module in modules})
    name, loop = next(((name, caller) for name, caller in frames if isinstance(caller, loops)), ("", None))
    loaders = [] if loop is None or loop._combined_loader is None else loop._combined_loader.flattened
    samplers = [getattr(loader, name, None) for loader in loaders for name in ("batch_sampler", "sampler")]
    if loop is None or not any(one is sampler for one in samplers):
        return None
    epochs, progress = loop.epoch_progress.current, loop.epoch_loop.batch_progress
    epoch, batches = int(epochs.processed), progress.current
    ended = epochs.ready == epochs.started == epochs.processed
    if ended and loop.restarting and batches.completed:
        _warn(
            f"Lightning resumes after epoch {epoch - 1}, but counts its {batches.completed} batches as done in epoch "
            f"{epoch} too, which will end early, since max_steps is set; resume with max_epochs alone, or from a "
            "checkpoint that every_n_train_steps saved."
        )
    if ended or not loop.restarting:
        return epoch, 0
    # A checkpoint of `on_train_batch_end` does not count its batch as completed yet.
    after_a_batch = batches.ready == batches.started == batches.processed == batches.completed + 1
    done = int(batches.completed) + after_a_batch
    # Loaders with workers begin in `setup_data`: after the last batch of an epoch, with the next epoch.
    if name == "setup_data" and progress.is_last_batch and done == batches.ready:
        return epoch + 1, 0
    if done and len(loaders) > 1:
        if not all(hasattr(loader, "load_state_dict") for loader in loaders):
            _warn(
                f"Lightning resumes after batch {done} of epoch {epoch} with {len(loaders)} loaders, and the sampler "
                "does not know what each of them delivered; use torchdata's StatefulDataLoader for all of them, or "
                "some graphs come twice and others not at all."
            )
        return None
    return epoch, done


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=2)


def _methods_in(files: set[Any]) -> Iterator[tuple[str, Any]]:
    """Name and object of each method in these files that is on the call stack, innermost first."""
    frame = sys._getframe() if files else None
    while frame is not None:
        if frame.f_code.co_filename in files:
            yield frame.f_code.co_name, frame.f_locals.get("self")
        frame = frame.f_back
