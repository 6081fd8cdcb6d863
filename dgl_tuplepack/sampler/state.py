"""Where a sampler stands, as a small dict that survives the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgl_tuplepack._checks import UINT64_MAX, whole_number
from dgl_tuplepack.errors import SamplerError

VERSION = 1

# The setting that a state holds only where `content` does not tell it.
_PERIOD = "replan_every"


def as_state(settings: Mapping[str, Any], plan: str, epoch: int, position: int) -> dict[str, Any]:
    """State of a sampler that has delivered `position` batches of an epoch; plain values.

    `settings` decide, with the fingerprint of the epoch's plan, which graphs a batch holds.
    """
    return {"version": VERSION, "epoch": epoch, "position": position, **settings, "plan": plan}


def read_state(state: Any, settings: Mapping[str, Any]) -> tuple[int, int]:
    """Epoch and position of a state; its plan is left to the caller, who knows that of the epoch.

    Raises
    ------
    SamplerError
        It is no state, of another version, or of a sampler with other settings; both values are named.
    """
    if not isinstance(state, Mapping) or "version" not in state:
        raise SamplerError(f"a state must be what state_dict() returned, but is {state!r:.100}; give that.")
    if state["version"] != VERSION:
        raise SamplerError(
            f"the state has version {state['version']!r}, but this release reads version {VERSION}; "
            "use the release that saved it, or start the epoch anew."
        )
    missing = [name for name in as_state(settings, "", 0, 0) if name not in state and name != _PERIOD]
    if missing:
        raise SamplerError(f"the state lacks {', '.join(missing)}; give what state_dict() returned.")
    for name in (*settings, _PERIOD):
        check_same(name, state.get(name), settings.get(name))
    epoch = whole_number("epoch of a state", state["epoch"], 0, UINT64_MAX, SamplerError)
    return epoch, whole_number("position of a state", state["position"], 0, error=SamplerError)


def check_same(name: str, saved: Any, value: Any) -> None:
    """Refuse a state that was saved under another setting.

    Raises
    ------
    SamplerError
        Names the setting and both values.
    """
    if saved != value:
        raise SamplerError(
            f"the state was saved with {name} {saved!r}, but this sampler has {value!r}; resuming would repeat or lose "
            "graphs, so use the same settings and graphs, or start the epoch anew."
        )
