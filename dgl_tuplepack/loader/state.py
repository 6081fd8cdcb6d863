"""States of loaders: the position and the settings, as a small dict that outlives the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dgl_tuplepack._checks import UINT64_MAX, shown, whole_number
from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.sampler import PackBatchSampler

VERSION = 1


@dataclass
class Position:
    """Batches of an epoch that a loop got; `length` is that of the epoch, and 0 unless the position was loaded."""

    epoch: int
    batches: int = 0
    length: int = 0

    @property
    def in_middle(self) -> bool:
        """Whether the position was loaded, and some but not all batches of the epoch are left."""
        return 0 < self.batches < self.length


def state_of(sampler: PackBatchSampler, position: Position) -> dict[str, Any]:
    """Return plain values: the position, and whatever else decides which batches are left."""
    plan = sampler._epochs.plans.of(position.epoch).plan.fingerprint
    place = {"version": VERSION, "epoch": position.epoch, "position": position.batches}
    return {**place, **sampler._settings(), "plan": plan}


def position_of(state: Any, sampler: PackBatchSampler) -> Position:
    """Return the position in a state; refuse (SamplerError) a state of other settings or graphs."""
    if not isinstance(state, Mapping) or "version" not in state:
        raise SamplerError(f"a state must be what state_dict() returned, but is {shown(state)}; give that.")
    if state["version"] != VERSION:
        raise SamplerError(
            f"the state has version {state['version']!r}, but this release reads version {VERSION}; "
            "use the release that saved it, or begin the epoch again."
        )
    settings = sampler._settings()
    missing = [name for name in ("epoch", "position", *settings, "plan") if name not in state]
    if missing:
        raise SamplerError(f"the state lacks {', '.join(missing)}; give what state_dict() returned.")
    for name, value in settings.items():
        _check_same(name, state[name], value)
    epoch = whole_number("epoch of a state", state["epoch"], 0, UINT64_MAX, SamplerError)
    # Last, since the plan of that epoch may have to be made.
    _check_same("plan", state["plan"], sampler._epochs.plans.of(epoch).plan.fingerprint)
    length = sampler._length(epoch)
    batches = whole_number("position of a state", state["position"], 0, length, SamplerError)
    return Position(epoch, batches, length)


def _check_same(name: str, saved: Any, value: Any) -> None:
    """Refuse a state that was saved with another `value` of a setting."""
    if saved != value:
        raise SamplerError(
            f"the state was saved with {name} {saved!r}, but this sampler has {value!r}; resuming would repeat or lose "
            "graphs, so use the same settings and graphs, or begin the epoch again."
        )
