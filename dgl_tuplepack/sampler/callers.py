"""Who asks a sampler for batches: loaders that take them early, and Lightning, which resumes on its own."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch.utils.data.dataloader as torch_loader

# Lightning has two names for one package.
_FIT_LOOPS = ("pytorch_lightning.loops.fit_loop", "lightning.pytorch.loops.fit_loop")


def is_taken_early() -> bool:
    """Whether the caller is a plain DataLoader with workers, which takes batches long before it delivers them.

    torchdata's StatefulDataLoader does so too, but keeps the state of what it has delivered by itself.
    """
    # The name matters: a forked worker has the frames of its parent below its own.
    return any(
        name == "_next_index" and isinstance(caller, torch_loader._MultiProcessingDataLoaderIter)
        for name, caller in _methods_in({torch_loader.__file__})
    )


def position_in_lightning(sampler: Any) -> tuple[int, int] | None:
    """Epoch that Lightning's Trainer begins with `sampler`, and batches of it that it counts as done.

    What it reads is private to Lightning (tested with 2.6): a release in which it is called otherwise is told in a
    warning, and batches then come as without Lightning.

    Returns
    -------
    tuple or None
        None where no Trainer asks, or where its batches are not those of this sampler alone.
    """
    try:
        return _position_in_lightning(sampler)
    except AttributeError as error:
        _warn(
            f"this release of Lightning keeps its place in another way ({error}), so a training that it resumes in the "
            "middle of an epoch is not continued at the right batch; resume at the end of an epoch, or use torchdata's "
            "StatefulDataLoader."
        )
        return None


def _position_in_lightning(sampler: Any) -> tuple[int, int] | None:
    """What `position_in_lightning` returns.

    The Trainer asks for batches before it sets the epoch, where there are workers, and restores its own place in an
    epoch, but not that of a plain loader: it would train on the first batches twice and never on the last ones.
    """
    modules = [module for module in map(sys.modules.get, _FIT_LOOPS) if module is not None]
    kinds = tuple(module._FitLoop for module in modules)
    frames = _methods_in({module.__file__ for module in modules})
    name, loop = next((found for found in frames if isinstance(found[1], kinds)), ("", None))
    loaders = [] if loop is None or loop._combined_loader is None else loop._combined_loader.flattened
    taking = [getattr(loader, name, None) for loader in loaders for name in ("batch_sampler", "sampler")]
    if loop is None or not any(found is sampler for found in taking):
        return None
    epochs, progress = loop.epoch_progress.current, loop.epoch_loop.batch_progress
    epoch, batches = int(epochs.processed), progress.current
    ended = epochs.ready == epochs.started == epochs.processed
    if ended and loop.restarting and batches.completed:
        _warn(
            f"Lightning goes on behind epoch {epoch - 1}, but counts its {batches.completed} batches as done in epoch "
            f"{epoch} too, which will end early, since max_steps is set; resume with max_epochs alone, or from a "
            "checkpoint that every_n_train_steps saved."
        )
    if ended or not loop.restarting:
        return epoch, 0
    # A checkpoint of `on_train_batch_end` does not count its batch as completed yet.
    behind_a_batch = batches.ready == batches.started == batches.processed == batches.completed + 1
    done = int(batches.completed) + behind_a_batch
    # Loaders with workers begin in `setup_data`, where nothing is left to ask for behind the last batch.
    if name == "setup_data" and progress.is_last_batch and done == batches.ready:
        return epoch + 1, 0
    if done and len(loaders) > 1:
        if not all(hasattr(loader, "load_state_dict") for loader in loaders):
            _warn(
                f"Lightning goes on behind batch {done} of epoch {epoch} with {len(loaders)} loaders, and what each of "
                "them delivered is not known to the sampler; use torchdata's StatefulDataLoader for all of them, or "
                "graphs come twice and others not at all."
            )
        return None
    return epoch, done


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=2)


def _methods_in(files: set[Any]) -> Iterator[tuple[str, Any]]:
    """Name and object of each method of these files that waits for this call, innermost first."""
    frame = sys._getframe() if files else None
    while frame is not None:
        if frame.f_code.co_filename in files:
            yield frame.f_code.co_name, frame.f_locals.get("self")
        frame = frame.f_back
