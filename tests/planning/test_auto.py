from __future__ import annotations

import ast
import contextlib
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgl_tuplepack import Limits, SizeHistogram, load_example, lower_bound, pack
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.planning.bounds.instance import Instance
from dgl_tuplepack.planning.bounds.pattern_lp import Effort, work_of
from dgl_tuplepack.planning.packing import METHODS
from dgl_tuplepack.planning.packing.auto import Round, auto, search_longer
from dgl_tuplepack.planning.packing.fit import Settings, names_for
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning
from tests.support.engine_helpers import NAMES as NAMES_OF_COMPONENTS
from tests.support.engine_helpers import exact_optimum, random_histogram, small_instances

# The package has a function of the same name as this file.
AUTO = sys.modules["dgl_tuplepack.planning.packing.auto"]


def best_of_best_fit(histogram: SizeHistogram, limits: Limits) -> int:
    packs = []
    for heuristic in names_for(histogram.components):
        with contextlib.suppress(MethodError):
            packs.append(pack(histogram, limits, "best_fit", heuristic=heuristic).num_packs)
    return min(packs)


@given(small_instances())
def test_auto_finds_the_optimum_of_few_graphs(case):
    histogram, limits = case
    plan = pack(histogram, limits)
    optimum = exact_optimum(histogram, limits)
    assert plan.lower_bound <= optimum == plan.num_packs
    assert pack(histogram, limits, effort=0.02).num_packs <= best_of_best_fit(histogram, limits)
    assert lower_bound(histogram, limits, effort=0.02) <= optimum


@st.composite
def loose_instances(draw):
    """Few classes with large counts, of which some components never bind, and some graphs have no size at all."""
    k = draw(st.integers(2, 3))
    size = st.tuples(*[st.integers(0, 20)] * k)
    counts = draw(st.dictionaries(size, st.sampled_from([1, 84, 1000, 33_482, 10**6]), min_size=2, max_size=6))
    histogram = SizeHistogram.from_counts(counts, NAMES_OF_COMPONENTS[:k])
    maxima = {name: draw(st.integers(max(1, most), 60)) for name, most in histogram.maxima().items()}
    loose = draw(st.sets(st.sampled_from(histogram.components), max_size=k - 1))
    maxima |= {name: draw(st.sampled_from([100, 10_000, 2**62])) for name in loose}
    return histogram, Limits.from_components(maxima, draw(st.none() | st.integers(1, 40)))


@given(loose_instances())
@settings(max_examples=60)
def test_limits_that_do_not_bind_never_spoil_a_plan(case):
    histogram, limits = case
    plan = pack(histogram, limits, effort=0.3)
    plan.validate()
    assert plan.lower_bound <= plan.num_packs <= best_of_best_fit(histogram, limits)


@pytest.mark.parametrize(("limits", "packs"), [((222, 502, 256), 3744), ((256, 550), 3249), ((1024, 2200), 813)])
def test_molhiv_is_packed_as_tightly_as_can_be(limits, packs):
    plan = pack(load_example("ogbg-molhiv"), Limits(*limits))
    assert plan.num_packs <= packs
    assert plan.gap <= 3
    if packs == 3744:
        assert plan.is_optimal
        assert plan.lower_bound == 3744


@pytest.mark.parametrize(("size", "most_count"), [(400, 1), (200, 40), (90, 1)])
def test_more_effort_never_gives_a_worse_plan(size, most_count):
    histogram = random_histogram(5, 300, 2, most_size=size, most_count=most_count)
    limits = Limits.from_components({"a": 500, "b": 600})
    plans = [pack(histogram, limits, effort=effort) for effort in (0, 0.003, 0.01, 0.1, 0.5, 1.5)]
    packs, bounds = [plan.num_packs for plan in plans], [plan.lower_bound for plan in plans]
    assert packs == sorted(packs, reverse=True)
    assert bounds == sorted(bounds)


def test_no_turn_repeats_the_samples_of_an_earlier_turn_and_more_effort_goes_on(monkeypatch):
    histogram = random_histogram(5, 300, 2, most_size=400, most_count=1)
    limits = Limits.from_components({"a": 500, "b": 600})

    def turns(effort: float, seed: int = 0) -> list[tuple[int, float, int]]:
        seen = []

        def stage(current: Round) -> None:
            def search(instance: Instance, target: int, tuning: Tuning, effort: Effort) -> None:
                seen.append((current.number, tuning.turn, current.trial))
                effort.spend(work_of(1) // 5)

            current.growth, current.complete = 1, False
            # Only here: the first plan needs the real function.
            with monkeypatch.context() as patch:
                patch.setattr(AUTO, "minimum_bin_slack", search)
                search_longer(current)

        auto(histogram, limits, Settings(effort=effort, seed=seed), (stage,))
        return seen

    for seed in (0, 3):
        more = turns(30, seed)
        rounds, samples, trials = zip(*more, strict=True)
        # Up to an effort of 1, of 10, and of 20.
        assert [rounds.count(number) for number in range(3)] == [5, 45, 50]
        assert len({*samples}) == len({*trials}) == len(more)
        for effort in (0.5, 1, 4):
            few = turns(effort, seed)
            assert 0 < len(few) < len(more)
            assert more[: len(few)] == few
    assert {sample for _, sample, _ in turns(30)}.isdisjoint(sample for _, sample, _ in turns(30, 3))


def test_effort_counts_work_and_reads_no_clock(monkeypatch):
    def fail():
        raise AssertionError("a clock was read")

    histogram = random_histogram(7, 200, 2, most_size=200, most_count=2)
    limits = Limits.from_components({"a": 500, "b": 450})
    expected = pack(histogram, limits, effort=0.2)
    for clock in ("monotonic", "perf_counter", "process_time", "thread_time", "time"):
        monkeypatch.setattr(time, clock, fail)
    plan, bound = pack(histogram, limits, effort=0.2), lower_bound(histogram, limits)
    monkeypatch.undo()
    assert plan.fingerprint == expected.fingerprint
    assert bound <= plan.num_packs


@pytest.mark.parametrize(("classes", "size"), [(20, 8), (3000, 40), (20_000, 40)])
def test_a_plan_does_no_more_work_than_its_effort_and_a_step(classes, size):
    histogram = random_histogram(8, classes, 3, most_size=size, most_count=2)
    settings = Settings(effort=1)
    METHODS["auto"](histogram, Limits.from_components(dict.fromkeys(histogram.components, 64)), settings)
    assert settings.work.spent <= 1.1 * work_of(1)


@pytest.mark.processes
def test_a_plan_that_its_first_stages_prove_loads_no_other_kernels():
    program = (
        "import sys, dgl_tuplepack as tp\n"
        "assert tp.pack([[1, 1], [2, 3]], tp.Limits(5, 5)).is_optimal\n"
        "print(sorted(name.rpartition('.')[2] for name in sys.modules if '_core.kernels.' in name))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert ast.literal_eval(loaded) == ["_jit", "bin_slack", "types"]


@pytest.mark.parametrize("limit", [1000, 3000])
def test_many_classes_are_packed_by_best_fit_first(limit, monkeypatch):
    sizes = np.random.default_rng(0).integers(1, 1001, (16_000, 2))
    fitted = pack(sizes, Limits(limit, limit), "best_fit").num_packs
    assert pack(sizes, Limits(limit, limit), effort=0).num_packs == fitted
    # Without enough work for best fit, the first plan is another one, and valid.
    monkeypatch.setattr(AUTO, "_MOST_WORK_TOGETHER", 1000)
    assert fitted <= pack(sizes, Limits(limit, limit), effort=0).num_packs <= 1.02 * fitted
    monkeypatch.setattr(AUTO, "_MOST_WORK_OF_PARTS", 1000)
    plan = pack(sizes, Limits(limit, limit), effort=0)
    plan.validate()
    assert plan.method == "auto:minimum_bin_slack"


def test_the_first_plan_of_many_graphs_of_many_sizes_takes_hardly_more_work_than_an_effort_of_one():
    draw = np.random.default_rng(0)
    sizes = np.unique(draw.integers(1, 1001, (20_000, 2)), axis=0)
    settings = Settings(effort=0)
    histogram = SizeHistogram(sizes, draw.integers(1, 1001, len(sizes)))
    plan = METHODS["auto"](histogram, Limits(100_000, 100_000), settings)
    assert plan.gap <= 0.02 * plan.lower_bound
    assert settings.work.spent <= 1.5 * work_of(1)


def test_no_time_at_all_still_gives_a_valid_plan_and_the_plan_says_so():
    plan = pack(load_example("ogbg-molhiv"), Limits(256, 550), time_limit=0)
    plan.validate()
    assert plan.method.startswith("auto:")
    assert "time limit" in plan.method
    assert plan.num_packs < 3300
    assert "time limit" not in pack(load_example("ogbg-molhiv"), Limits(256, 550), effort=0).method


def test_a_large_count_of_a_small_size_does_not_open_a_pack_for_each_graph():
    histogram = SizeHistogram.from_counts({(100, 200): 5, (1, 1): 100_000})
    assert pack(histogram, Limits(200, 400)).num_packs == 503
