"""Picture of a plan: how full its packs are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.plots import _drawing as drawing

# The axis begins here, or lower if packs are emptier, except for this share of them, which are only counted.
_FULL, _LEFT_OUT = 0.9, 0.005


def plot_fill(plan: PackPlan, ax: Any = None, *, components: Sequence[str] | None = None) -> Any:
    """Draw how many packs have which content of each component, as a fraction of the limit.

    Parameters
    ----------
    plan
        Any number of components.
    components
        Names of those shown; all if None.
    """
    columns = drawing.columns_of(plan.histogram.components, components, "the plan")
    ax = drawing.axes_or_new(ax, 5.8, 4.8)
    # A few very empty packs would leave no room for the rest; they are only counted.
    fills = [plan.pattern_contents[:, column] / plan.limits.values[column] for column in columns]
    low = np.floor(20 * min(_FULL, *(_quantile(fill, plan.repeats, _LEFT_OUT) for fill in fills))) / 20
    ends = []
    for number, (column, fill) in enumerate(zip(columns, fills, strict=True)):
        name, inside = plan.histogram.components[column], fill >= low
        edges = drawing.whole_cells(plan.pattern_contents[inside, column])
        packs = np.histogram(plan.pattern_contents[inside, column], bins=edges, weights=plan.repeats[inside])[0]
        full, less = plan.repeats[fill >= 1].sum() / plan.num_packs, plan.repeats[~inside].sum()
        text = f"{drawing.label(name)}: mean {plan.efficiency[name]:.2%}, {full:.1%} of the packs full"
        text += f", {less:,} below {low:.0%}" if less else ""
        style: dict[str, Any] = {"fill": True, "color": "0.7"}
        if number:
            style = drawing.line_style(number - 1) | {"linewidth": 1.6}
            del style["marker"]
        ax.stairs(packs, edges / plan.limits.values[column], label=text, **style)
        ends.append(edges[-1] / plan.limits.values[column])
    ax.set(xlabel="content / limit", ylabel="packs", yscale="log", ylim=(0.5, None), xlim=(low, max(ends)))
    ax.legend(**drawing.LEGEND_ABOVE)
    ax.grid(alpha=0.25)
    return ax


def _quantile(values: Any, packs: Any, share: float) -> float:
    """Return the least value that more than a share of the packs do not exceed."""
    order = np.argsort(values, kind="stable")
    return float(values[order][np.searchsorted(np.cumsum(packs[order]), share * packs.sum(), side="right")])
