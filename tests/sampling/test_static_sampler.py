"""Batches with exact numbers of graphs: each graph once, within one shape, for random sizes, batch sizes and ranks."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError, LimitsError, SamplerError, SizesError
from dgl_tuplepack.sampling.exact_batches import Cut
from dgl_tuplepack.sampling.static_sampler import StaticBatchSampler
from tests.support.messages import refused
from tests.support.samplers import flat, materials

pytestmark = [
    pytest.mark.filterwarnings("ignore:batches of .* graphs need a shape:UserWarning"),
    pytest.mark.filterwarnings("ignore:epoch .* is iterated again:UserWarning"),
    pytest.mark.filterwarnings("ignore:.* epochs could not be repaired:UserWarning"),
]


def molhiv() -> tp.GraphSizes:
    histogram = tp.load_example("ogbg-molhiv")
    return tp.GraphSizes(histogram.sizes.repeat(histogram.counts, axis=0))


def distribution(number: int, seed: int) -> tp.GraphSizes:
    """Sizes of one to four components: uniform, of few values, with a long tail, or often 0."""
    random = np.random.default_rng(seed)
    k = int(random.integers(1, 5))
    ways = [
        random.integers(1, 60, (number, k)),
        random.choice([7, 11, 13], (number, k)),
        np.minimum(1 + 4 * random.pareto(1.8, (number, k)), 300).astype(np.int64),
        random.integers(0, 9, (number, k)) * (random.random((number, k)) < 0.3),
    ]
    return tp.GraphSizes(ways[seed % 4], ("nodes", "edges", "triplets", "angles")[:k])


def check_epoch(samplers: list[StaticBatchSampler], sizes: tp.GraphSizes, epoch: int) -> None:
    """Each graph once, the promised numbers of graphs, nothing above the shape."""
    for sampler in samplers:
        sampler.set_epoch(epoch)
    by_rank = [list(sampler) for sampler in samplers]
    assert {len(batches) for batches in by_rank} == {len(samplers[0])}
    batches = [batch for step in zip(*by_rank, strict=True) for batch in step]
    seen = flat(batches)
    assert len(set(seen)) == len(seen)
    limits, size = samplers[0].limits, samplers[0].batch_size
    assert limits.graphs == size
    assert all((sizes.array[batch].sum(axis=0) <= limits.array).all() for batch in batches)
    if samplers[0].drop_last:
        assert {len(batch) for batch in batches} == {size}
        assert len(sizes) - len(seen) < size * len(samplers)
    else:
        assert sorted(seen) == list(range(len(sizes)))


@pytest.mark.parametrize("seed", range(8))
def test_epochs_of_random_distributions(seed: int) -> None:
    random = np.random.default_rng(seed)
    number, size = int(random.integers(40, 400)), int(random.integers(2, 33))
    sizes = distribution(number, seed)
    sampler = StaticBatchSampler(sizes, size, seed=seed)
    for epoch in range(50):
        check_epoch([sampler], sizes, epoch)
    assert sampler.fallbacks <= 1


@given(
    st.integers(1, 90), st.integers(1, 20), st.integers(1, 4), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1)
)
def test_every_graph_once_on_any_number_of_ranks(
    number: int, size: int, ranks: int, shuffle: bool, drop_last: bool, seed: int
) -> None:
    sizes = distribution(number, seed)
    settings: Any = {"shuffle": shuffle, "drop_last": drop_last, "seed": seed, "num_replicas": ranks}
    try:
        samplers = [StaticBatchSampler(sizes, size, rank=rank, **settings) for rank in range(ranks)]
    except SamplerError:
        impossible = number < size * ranks if drop_last else number < ranks or (size == 1 and number % ranks)
        assert impossible
        return
    for epoch in range(2):
        check_epoch(samplers, sizes, epoch)


@given(st.integers(1, 300), st.integers(2, 20), st.integers(1, 8))
def test_the_rest_is_divided_over_the_ranks(graphs: int, size: int, ranks: int) -> None:
    if graphs < ranks:
        with refused(SamplerError, f"{graphs} graphs in batches of {size}", f"{ranks} ranks"):
            Cut.of(graphs, size, ranks, drop_last=False)
        return
    cut = Cut.of(graphs, size, ranks, drop_last=False)
    steps = cut.counts.reshape(-1, ranks)
    full, rest = divmod(graphs, size * ranks)
    assert cut.counts.sum() == graphs
    assert cut.delivered == len(cut.counts)
    assert cut.counts.max() <= size
    if rest == 0:
        assert len(steps) == full
    elif ranks == 1 or rest >= 2 * ranks:
        assert (steps[:full] == size).all()
        assert len(steps) == full + 1
        assert np.ptp(steps[full]) <= 1
    elif full:
        # A step in which some rank has no graph, or a single one, takes graphs from the last full step.
        assert (steps[: full - 1] == size).all()
        assert len(steps) == full + 1
        assert np.ptp(steps[full - 1 :]) <= 1
    else:
        assert len(steps) == 1
    assert cut.counts.min() >= 1


def test_513_graphs_on_eight_ranks() -> None:
    assert Cut.of(513, 64, 8, drop_last=False).counts.tolist() == [33] + [32] * 15
    assert Cut.of(528, 64, 8, drop_last=False).counts.tolist() == [64] * 8 + [2] * 8
    assert Cut.of(527, 64, 8, drop_last=False).counts.tolist() == [33] * 15 + [32]
    assert Cut.of(11, 64, 8, drop_last=False).counts.tolist() == [2, 2, 2, 1, 1, 1, 1, 1]
    assert Cut.of(513, 64, 8, drop_last=True).counts.tolist() == [64] * 8 + [1]
    assert Cut.of(513, 64, 8, drop_last=True).delivered == 8


@pytest.mark.parametrize(
    ("size", "most"),
    [(16, 1.012), (32, 1.006), (64, 1.006), (256, 1.004)],
)
def test_batches_of_molecules_hardly_need_padding(size: int, most: float) -> None:
    sizes = molhiv()
    sampler = StaticBatchSampler(sizes, size)
    assert (sampler.limits.array <= most * size * sizes.array.mean(axis=0)).all()
    check_epoch([sampler], sizes, 3)
    assert not sampler.fallbacks


def test_most_molecules_stay_in_their_shuffled_batch() -> None:
    sizes = molhiv()
    sampler = StaticBatchSampler(sizes, 64)
    # Without limits that are ever reached, nothing is exchanged.
    free = StaticBatchSampler(sizes, 64, shape=tp.Limits(10**6, 10**6))
    stay = [len(set(one) & set(other)) for one, other in zip(sampler, free, strict=True)]
    assert sum(stay) >= 0.92 * len(sizes)


def test_a_batch_with_fewer_graphs_does_not_collect_large_graphs() -> None:
    """The last batch of 44 graphs has the mean size of the others."""
    sizes = molhiv().take(np.arange(0, 32_900, 110))
    sampler = StaticBatchSampler(sizes, 64)
    means = []
    for epoch in range(200):
        sampler.set_epoch(epoch)
        last = list(sampler)[-1]
        assert len(last) == 300 % 64
        means.append(sizes.array[last].mean(axis=0))
    ratio = np.mean(means, axis=0) / sizes.array.mean(axis=0)
    assert (abs(ratio - 1) < 0.02).all()


# Sizes for which little can be chosen ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "size", "limits"),
    [
        ([[3, 4]], 1, (3, 4)),
        ([[3, 4]], 7, (3, 4)),
        # Batches of one graph need the shape of the largest.
        ([[3, 4], [5, 1], [1, 1]], 1, (5, 4)),
        ([[3, 4], [5, 1]], 64, (8, 5)),
        ([[3, 0]] * 40, 8, (24, 1)),
    ],
)
def test_sizes_for_which_little_can_be_chosen(rows: list[list[int]], size: int, limits: tuple[int, int]) -> None:
    sampler = StaticBatchSampler(rows, size)
    assert sampler.limits == tp.Limits(*limits, graphs=size)
    assert sorted(flat(list(sampler))) == list(range(len(rows)))


def test_equal_sizes_need_no_padding() -> None:
    sampler = StaticBatchSampler(np.tile([[3, 4]], (100, 1)), 10)
    assert sampler.limits == tp.Limits(30, 40, graphs=10)
    shuffled = list(sampler)
    sampler.set_epoch(1)
    again = list(sampler)
    assert sorted(flat(shuffled)) == sorted(flat(again)) == list(range(100))
    assert shuffled != again


def test_one_giant_is_named_in_a_warning() -> None:
    rows = np.tile([[10, 20]], (200, 1))
    rows[77] = [900, 1900]
    with pytest.warns(UserWarning, match=r"need a shape with \d+% more slots .* the largest graph has \{'nodes': 900"):
        sampler = StaticBatchSampler(rows, 8)
    # Nothing can be smaller beside the giant.
    assert sampler.limits == tp.Limits(970, 2040, graphs=8)
    check_epoch([sampler], tp.GraphSizes(rows), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        StaticBatchSampler(np.delete(rows, 77, axis=0), 8)


def test_sizes_too_large_for_a_repair_are_refused() -> None:
    rows = np.random.default_rng(0).integers(2**59, 2**60, (6, 1))
    with refused(SamplerError, "too large for 64-bit integers"):
        StaticBatchSampler(tp.GraphSizes(rows, ("nodes",)), 2)
    with refused(SizesError, "exceed 64-bit integers"):
        StaticBatchSampler(np.full((10, 2), 2**62), 2)


# Shapes ------------------------------------------------------------------------------------------------------


def test_a_given_shape_is_kept_and_may_leave_graphs_out() -> None:
    sizes = molhiv().take(np.arange(0, 32_900, 20))
    shape = tp.Limits(nodes=1700, edges=3700, graphs=70)
    sampler = StaticBatchSampler(sizes, 64, shape=shape)
    assert sampler.limits == shape
    with_giants = tp.GraphSizes(np.insert(sizes.array, [5, 700], [[2000, 4000], [10, 9000]], axis=0))
    with pytest.warns(UserWarning, match=f"2 of {len(with_giants)} graphs exceed"):
        sampler = StaticBatchSampler(with_giants, 64, shape=shape, oversize="drop")
    assert sampler.dropped_ids.tolist() == [5, 701]
    assert sorted(flat(list(sampler))) == [i for i in range(len(with_giants)) if i not in (5, 701)]
    with refused(GraphTooLargeError, "2 of", "graphs exceed Limits(nodes=1700"):
        StaticBatchSampler(with_giants, 64, shape=shape)


def test_slack_buys_randomness_with_padding() -> None:
    sizes = molhiv()
    mean = 16 * sizes.array.mean(axis=0)
    free = StaticBatchSampler(sizes, 16, shape=tp.Limits(10**6, 10**6))
    stay = []
    for slack in (0.005, 0.1):
        sampler = StaticBatchSampler(sizes, 16, slack=slack)
        assert (abs(sampler.limits.array / mean - 1 - slack) < 0.005).all()
        stay.append(sum(len(set(one) & set(two)) for one, two in zip(sampler, free, strict=True)))
    assert stay[0] < stay[1]


@pytest.mark.parametrize("shuffle", [True, False])
def test_padded_shapes_are_multiples(shuffle: bool) -> None:
    sampler = StaticBatchSampler(materials(300, 0), 8, multiple_of=64, shuffle=shuffle)
    assert [(sampler.limits.nodes + 2) % 64, (sampler.limits.edges + 2) % 64] == [0, 0]


def test_without_shuffle_graphs_keep_their_order() -> None:
    sizes = materials(100, 1)
    sampler = StaticBatchSampler(sizes, 8, shuffle=False)
    batches = list(sampler)
    assert batches == [list(range(first, min(first + 8, 100))) for first in range(0, 100, 8)]
    contents = np.array([sizes.array[batch].sum(axis=0) for batch in batches])
    assert sampler.limits.array.tolist() == contents.max(axis=0).tolist()
    assert batches == list(sampler)
    needed = tp.Limits(*contents.max(axis=0).tolist())
    assert list(StaticBatchSampler(sizes, 8, shuffle=False, shape=needed)) == batches
    with refused(SamplerError, "of the graphs in their order has", "give at least"):
        StaticBatchSampler(sizes, 8, shuffle=False, shape=tp.Limits(int(needed.nodes) - 1, needed.edges))


def test_a_shape_that_no_order_meets_names_one_that_suffices() -> None:
    sizes = materials(400, 2)
    mean = (16 * sizes.array.mean(axis=0)).astype(int)
    with pytest.raises(
        SamplerError, match=r"no order of the 400 graphs was found .* these suffice: Limits\("
    ) as caught:
        StaticBatchSampler(sizes, 16, shape=tp.Limits(int(mean[0]) - 1, int(mean[1])))
    nodes, edges = (
        int(word.split("=")[1].strip(",)")) for word in str(caught.value).split("suffice: Limits(")[1].split()[:2]
    )
    check_epoch([StaticBatchSampler(sizes, 16, shape=tp.Limits(nodes, edges))], sizes, 0)


# Epochs that cannot be repaired ------------------------------------------------------------------------------


def test_an_epoch_that_cannot_be_repaired_uses_an_order_that_fits(caplog: pytest.LogCaptureFixture) -> None:
    """The shape is so tight that some epochs cannot be repaired."""
    sizes = materials(200, 0)
    sampler = StaticBatchSampler(sizes, 16, slack=0.002)

    def epochs() -> None:
        for epoch in range(100):
            check_epoch([sampler], sizes, epoch)

    match = "3 epochs could not be repaired .* more slack"
    with caplog.at_level(logging.INFO, "dgl_tuplepack"), pytest.warns(UserWarning, match=match):
        epochs()
    assert repr(sampler).startswith("StaticBatchSampler(13 batches of 16 graphs within Limits(nodes=")
    assert f"{sampler.fallbacks} epochs did so far" in caplog.text
    # They are still random.
    orders = {tuple(sampler._exact.stirred(np.arange(200), np.zeros(200, int), 0, epoch)) for epoch in range(5)}
    assert len(orders) == 5


# Where epochs begin ------------------------------------------------------------------------------------------


def test_an_epoch_resumes_at_every_step() -> None:
    sampler = StaticBatchSampler(materials(150, 3), 8, num_replicas=3, rank=1, seed=7)
    sampler.set_epoch(5)
    whole = list(sampler)
    for skip in range(len(whole) + 1):
        sampler.set_epoch(5, skip=skip)
        assert list(sampler) == whole[skip:]


def test_states_of_other_graphs_with_equal_sizes_differ() -> None:
    sizes, large = materials(60, 3).array.tolist(), [10_000, 10_000]
    shape = StaticBatchSampler(tp.GraphSizes(sizes), 6).limits
    with pytest.warns(UserWarning, match="1 of 61 graphs"):
        first, last = (
            StaticBatchSampler(tp.GraphSizes(rows), 6, shape=shape, oversize="drop")
            for rows in ([large, *sizes], [*sizes, large])
        )
    assert first.settings().keys() == last.settings().keys()
    assert first.settings() != last.settings()


def test_epochs_and_seeds_differ_and_the_shape_depends_on_neither() -> None:
    sizes = materials(200, 4)
    one, two = StaticBatchSampler(sizes, 8), StaticBatchSampler(sizes, 8, seed=1)
    assert one.limits == two.limits
    first = list(one)
    assert first != list(two)
    one.set_epoch(1)
    assert first != list(one)
    with pytest.warns(UserWarning, match="epoch 1 is iterated again, .* it is shuffled"):
        list(one)


def test_an_epoch_is_the_same_on_every_platform_and_in_every_release() -> None:
    sampler = StaticBatchSampler(molhiv().take(np.arange(0, 32_900, 300)), 16, seed=3)
    sampler.set_epoch(2)
    first = [31, 30, 45, 82, 44, 88, 60, 41, 84, 94, 87, 28, 12, 101, 52, 51]
    assert (sampler.limits, next(iter(sampler))) == (tp.Limits(nodes=401, edges=859, graphs=16), first)


def test_mean_numbers_of_graphs_and_labels() -> None:
    sampler = StaticBatchSampler(materials(100, 5), 8)
    assert sampler.graphs_per_batch == 100 / 13
    assert sampler.labels_per_batch(np.ones((100, 2), dtype=bool)) == 200 / 13
    dropping = StaticBatchSampler(materials(100, 5), 8, drop_last=True)
    assert dropping.graphs_per_batch == 8
    assert len(dropping) == 12


# What is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "settings", "error", "parts"),
    [
        (0, {}, SamplerError, ("batch_size", "0")),
        (4, {"shuffle": 1}, SamplerError, ("shuffle",)),
        (4, {"seed": -1}, SamplerError, ("seed", "-1")),
        (4, {"slack": -0.1}, SamplerError, ("slack", "-0.1")),
        (4, {"slack": 0.1, "shuffle": False}, SamplerError, ("slack is for shuffled batches",)),
        (4, {"slack": 0.1, "shape": tp.Limits(99, 99)}, SamplerError, ("shape is given",)),
        (4, {"multiple_of": 8, "shape": tp.Limits(99, 99)}, SamplerError, ("shape is given",)),
        (4, {"multiple_of": 0}, SamplerError, ("multiple_of", "0")),
        (4, {"shape": tp.Limits(99)}, LimitsError, ("components without a limit: edges",)),
        (4, {"shape": tp.Limits(99, 99, graphs=3)}, LimitsError, ("room for 3 graphs", "batch_size is 4")),
        (4, {"oversize": "drop"}, SamplerError, ("oversize='drop'", "shape is None")),
        (4, {"oversize": "keep"}, SamplerError, ("oversize", "'keep'")),
        (4, {"num_replicas": 9, "rank": 0}, SamplerError, ("8 graphs in batches of 4", "9 ranks")),
        (1, {"num_replicas": 3, "rank": 0}, SamplerError, ("8 graphs in batches of 1", "3 ranks")),
        (9, {"drop_last": True}, SamplerError, ("drop_last=True would leave nothing", "9 graphs on each of 1")),
    ],
)
def test_wrong_arguments_are_refused(
    size: Any, settings: dict[str, Any], error: type[Exception], parts: tuple[str, ...]
) -> None:
    with refused(error, *parts):
        StaticBatchSampler([[1, 2]] * 8, size, **settings)


def test_a_single_batch_that_finds_a_partner_late_does_not_enlarge_the_shape() -> None:
    """Each batch must hold exactly one of the large graphs."""
    sizes = tp.GraphSizes(np.where(np.arange(4000) % 8 == 0, 500, 10)[:, None] * np.array([1, 3]))
    sampler = StaticBatchSampler(sizes, 8)
    assert (sampler.limits.array <= 1.02 * 8 * sizes.array.mean(axis=0)).all()
    check_epoch([sampler], sizes, 0)


def test_multiples_are_no_fault_of_a_graph() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        sampler = StaticBatchSampler(materials(400, 0), 64, multiple_of=10_000)
        empty = StaticBatchSampler(tp.GraphSizes(np.zeros((30, 2), dtype=int)), 4)
    # The multiples are much larger than a mean batch.
    assert sampler.limits.nodes == 9_998
    assert empty.limits == tp.Limits(1, 1, graphs=4)
