"""Write docs/results/training.md and its picture."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import matplotlib
from scipy.stats import ttest_ind

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

from dgl_tuplepack._core.files import write_text
from study.runs import ARMS, Arm, Run

PICTURE = "training-curves.png"


def write_page(runs: list[Run], out: Path) -> None:
    """Write the page and its picture from the runs and, if it exists, the count of pairs."""
    by_arm: dict[Arm, list[Run]] = defaultdict(list)
    most = max((run.epochs for run in runs), default=0)
    for run in runs:
        if run.epochs == most:
            by_arm[run.arm].append(run)
    arms = [arm for arm in ARMS if by_arm[arm]]
    _draw(arms, by_arm, out / PICTURE)
    sections = [_head(arms, by_arm, most), _scores(arms, by_arm), _comparisons(arms, by_arm), _pairs(out)]
    write_text(out / "training.md", "\n\n".join(section for section in sections if section) + "\n")


def _head(arms: list[Arm], by_arm: dict[Arm, list[Run]], epochs: int) -> str:
    seeds = min(len(by_arm[arm]) for arm in arms)
    return f"""# Training on packs and on shuffled batches

This study compares packs with shuffled batches of as many graphs, on ogbg-molhiv with OGB's split and encoders: GINE
with 2 layers of width 64, and Adam with a learning rate of 0.001; {epochs} epochs, {seeds} seeds (for parameters and
batches). Packs hold at most 222 nodes and 502 edges.

- "Plain" batches are shuffled, and have the mean number of graphs in 1 or in 8 packs.
  ["Exact"](../explain/sampling.md#batches-with-exact-numbers-of-graphs) batches have as many, and fit one static shape.
- "Resample", "exchange" and "fixed" decide
  [which graphs share a pack in each epoch](../explain/sampling.md#what-changes-from-epoch-to-epoch).
- The "unbiased" loss divides by `sampler.graphs_per_batch`, and the "biased" loss by the number of graphs in this batch
  ([why](../howto/loss.md#why-not-the-mean-of-the-batch)).

These commands write this page:

    python scripts/study_training.py run --source ogb/ogbg_molhiv --seeds {seeds} --epochs {epochs}
    python scripts/study_training.py page

"Which graphs meet" also needs `python scripts/study_training.py pairs --epochs 50`."""


def _scores(arms: list[Arm], by_arm: dict[Arm, list[Run]]) -> str:
    lines = [
        "## ROC-AUC",
        "",
        "Mean ± standard deviation. *Validation* and *test* are at the epoch with the best validation score; *last* "
        "means the last epoch.",
        "",
        "| batches | graphs per batch | steps per epoch | validation | test | test, last | training loss, last |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm in arms:
        runs = by_arm[arm]
        cells = [_spread([getattr(run, name) for run in runs]) for name in ("valid", "test", "last_test")]
        loss = _spread([run.losses[-1] for run in runs])
        lines.append(f"| {arm} | {runs[0].graphs_a_batch:.1f} | {runs[0].steps:,} | {' | '.join(cells)} | {loss} |")
    return "\n".join([*lines, "", f"![Loss and validation by epoch]({PICTURE})"])


def _spread(values: list[float]) -> str:
    return f"{fmean(values):.4f} ± {stdev(values):.4f}" if len(values) > 1 else f"{values[0]:.4f}"


@dataclass(frozen=True)
class _Measure:
    """A column of the comparison: its name, the value of a run in the table's unit, and whether more is better."""

    name: str
    of: Callable[[Run], float]
    more_is_better: bool = True


_MEASURES = (
    _Measure("validation", lambda run: 100 * run.valid),
    _Measure("test", lambda run: 100 * run.test),
    _Measure("test, last", lambda run: 100 * run.last_test),
    _Measure("training loss, a quarter", lambda run: 1000 * run.losses[run.epochs // 4 - 1], more_is_better=False),
    _Measure("training loss, last", lambda run: 1000 * run.losses[-1], more_is_better=False),
)
# A difference counts as significant if its p-value is below this.
_CHANCE = 0.05


def _comparisons(arms: list[Arm], by_arm: dict[Arm, list[Run]]) -> str:
    lines = [
        "## Packs and exact batches compared with plain batches of as many graphs",
        "",
        "Difference of the means, with its standard error: ROC-AUC in points (1 point = 0.01), loss in thousandths. "
        f"Significant differences are bold (Welch's t test, p < {_CHANCE:.0%}). *A quarter* means after a quarter of "
        "the epochs.",
        "",
        f"| batches | {' | '.join(measure.name for measure in _MEASURES)} |",
        "|---|" + "---|" * len(_MEASURES),
    ]
    significant, number = [], 0
    for arm in arms:
        plain = next((other for other in arms if other.batches == "plain" and other.packs == arm.packs), None)
        if arm.batches == "plain" or plain is None or min(len(by_arm[arm]), len(by_arm[plain])) < 2:
            continue
        cells = []
        for measure in _MEASURES:
            own, other = ([measure.of(run) for run in by_arm[each]] for each in (arm, plain))
            difference, error, chance = _difference(own, other)
            text, number = f"{difference:+.2f} ± {error:.2f}", number + 1
            if chance < _CHANCE:
                text = f"**{text}**"
                better = (difference > 0) == measure.more_is_better
                significant.append(f"{arm}: {'better' if better else 'worse'} in {measure.name}")
            cells.append(text)
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    widest = max(100 * stdev([run.test for run in by_arm[arm]]) for arm in arms if len(by_arm[arm]) > 1)
    one = len(significant) == 1
    listed = f" {'It is' if one else 'They are'}: {'; '.join(significant)}." if significant else ""
    lines += [
        "",
        f"Of these {number} comparisons, about {_CHANCE * number:.0f} would look significant by chance, and "
        f"{len(significant)} {'does' if one else 'do'}.{listed} The test score has a standard deviation of up to "
        f"{widest:.1f} points over the seeds, so this many seeds cannot detect smaller differences.",
    ]
    return "\n".join(lines)


def _difference(own: list[float], other: list[float]) -> tuple[float, float, float]:
    """Return the difference of the means, its standard error, and its p-value by Welch's t test."""
    difference = fmean(own) - fmean(other)
    error = (stdev(own) ** 2 / len(own) + stdev(other) ** 2 / len(other)) ** 0.5
    return difference, error, float(ttest_ind(own, other, equal_var=False).pvalue)


def _pairs(out: Path) -> str:
    path = out / "training-pairs.csv"
    if not path.is_file():
        return ""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    number = rows[0]["epochs"]
    lines = [
        "## Which graphs meet",
        "",
        f'Share of the pairs of training graphs that meet in a batch at least once in {number} epochs. "Shuffling" is '
        "expected for shuffled batches with as many graphs as the packs hold on average.",
        "",
        "| batches | counted | shuffling |",
        "|---|---|---|",
    ]
    kept = [row for row in rows if row["content"] != "fixed"]
    for row in sorted(kept, key=lambda row: (int(row["packs"]), row["batches"] == "packed", row["batches"] == "exact")):
        name = str(Arm(row["batches"], int(row["packs"]), row["content"])).removesuffix(", unbiased loss")
        lines.append(f"| {name} | {float(row['share']):.3%} | {float(row['expected']):.3%} |")
    return "\n".join(lines)


def _draw(arms: list[Arm], by_arm: dict[Arm, list[Run]], path: Path) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), sharex=True, layout="constrained")
    for column, packs in enumerate((1, 8)):
        for arm in (each for each in arms if each.packs == packs):
            style = {"plain": "--", "exact": ":"}.get(arm.batches, "-")
            for row, curves in enumerate(("losses", "valids")):
                values = [getattr(run, curves) for run in by_arm[arm]]
                means = [fmean(each) for each in zip(*values, strict=True)]
                axes[row, column].plot(range(1, len(means) + 1), means, style, label=str(arm))
        axes[0, column].set_title(f"{packs} pack{'s' * (packs > 1)} a batch, or as many graphs")
        axes[0, column].legend(fontsize="small")
        axes[1, column].set_xlabel("epoch")
        axes[1, column].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0, 0].set_ylabel("training loss, mean over graphs")
    axes[1, 0].set_ylabel("ROC-AUC, validation")
    figure.savefig(path, dpi=120)
    plt.close(figure)
