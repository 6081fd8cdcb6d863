"""States of samplers: the position and the settings, as a small dict that outlives the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgl_tuplepack._checks import UINT64_MAX, shown, whole_number
from dgl_tuplepack.errors import SamplerError

VERSION = 1

# The setting that a state holds only where `content` does not imply it.
_PERIOD = "replan_every"


def as_state(settings: Mapping[str, Any], plan: str, epoch: int, position: int) -> dict[str, Any]:
    """State of a sampler that has delivered `position` batches of an epoch; plain values.

    `settings` and `plan`, the fingerprint of the epoch's plan, decide which graphs a batch holds.
    """
    return {"version": VERSION, "epoch": epoch, "position": position, **settings, "plan": plan}


def epoch_of(state: Any, settings: Mapping[str, Any]) -> int:
    """Epoch of a state; refuse what is not a state, or one of another version or of a sampler with other settings.

    The caller checks the plan and the position, which depend on the epoch.
    """
    if not isinstance(state, Mapping) or "version" not in state:
        raise SamplerError(f"a state must be what state_dict() returned, but is {shown(state)}; give that.")
    if state["version"] != VERSION:
        raise SamplerError(
            f"the state has version {state['version']!r}, but this release reads version {VERSION}; "
            "use the release that saved it, or begin the epoch again."
        )
    missing = [name for name in as_state(settings, "", 0, 0) if name not in state and name != _PERIOD]
    if missing:
        raise SamplerError(f"the state lacks {', '.join(missing)}; give what state_dict() returned.")
    for name in (*settings, _PERIOD):
        check_same(name, state.get(name), settings.get(name))
    return whole_number("epoch of a state", state["epoch"], 0, UINT64_MAX, SamplerError)


def check_same(name: str, saved: Any, value: Any) -> None:
    """Refuse a state that was saved with another `value` of a setting."""
    if saved != value:
        raise SamplerError(
            f"the state was saved with {name} {saved!r}, but this sampler has {value!r}; resuming would repeat or lose "
            "graphs, so use the same settings and graphs, or begin the epoch again."
        )
