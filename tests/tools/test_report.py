"""The report: what it says, where it is written, and how a real browser shows it."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, GraphTooLargeError, LimitsError, SizesError
from dgl_tuplepack.tools.report import joined_batches, padded_shape, write_report
from tests.support.browser import chromium, requests_of, show
from tests.support.messages import refused

pytestmark = pytest.mark.processes

HISTOGRAM = tp.load_example("ogbg-molhiv")
TIMES = "\N{MULTIPLICATION SIGN}"
TINY = tp.SizeHistogram.from_counts({(3, 4): 5, (2, 2): 7, (9, 1): 1})


def text_of(page: Path) -> str:
    """Words of the page, without tags, one blank between them."""
    source = page.read_text(encoding="utf-8").partition("<body>")[2]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", source)).split())


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the embedded example, made as a user makes it."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    command = ["report", "example:ogbg-molhiv", "--out"]
    named = ["--name", "ogbg-molhiv <training & more>"]
    subprocess.run([sys.executable, "-m", "dgl_tuplepack", *command, path, *named], check=True, capture_output=True)
    return path


def test_the_figures_are_those_of_the_plan_and_the_search(page: Path) -> None:
    text = text_of(page)
    search = tp.search_limits(HISTOGRAM, graphs_per_batch=64, packs_per_batch="auto")
    best = search.best.limits
    plan = tp.pack(HISTOGRAM, best)
    assert f"Batches of 2 packs hold {search.graphs_per_batch:.1f} graphs on average" in text
    assert f"Advised: {best.nodes:,} nodes, {best.edges:,} edges." in text
    assert f"32,901 graphs fit into {plan.num_packs:,} packs" in text
    assert f"{len(search)} limits were tried" in text
    for value in plan.efficiency.values():
        assert f"{100 * value:.2f} %" in text
    assert "nodes 25.26 23 69 222 830,936" in text
    packed = -(-plan.num_packs // 2) * (2 * best.nodes + 1 + 2 * best.edges)
    plain = 32_901 * (222 + 502)
    assert f"Packing with the reserved node of each batch {packed:,} 1.00 {TIMES}" in text
    assert f"the usual way to get a static shape {plain:,} {plain / packed:.2f} {TIMES}" in text
    assert f"would take {plain / packed:.1f} times as many slots" in text
    assert "left out" not in text
    assert "ogbg-molhiv &lt;training &amp; more&gt;" in page.read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:10 of 50 graphs exceed")
def test_left_out_graphs_are_counted(tmp_path: Path) -> None:
    sizes = tp.GraphSizes([[n, n] for n in (2, 3, 9, 4, 5) * 10])
    for limits, dropped in ((None, 0), (tp.Limits(8, 8), 10)):
        write_report(sizes, tmp_path / "page.html", graphs_per_batch=4, limits=limits, oversize="drop")
        text = text_of(tmp_path / "page.html")
        assert f"{50 - dropped} graphs fit into" in text
        assert (f"{dropped} of 50 graphs exceed these limits and are left out." in text) == bool(dropped)
        assert "dgl-tuplepack inspect SOURCE --graphs-per-batch 4." in text


def test_equal_input_makes_equal_pages(tmp_path: Path) -> None:
    one, two = tmp_path / "one.html", tmp_path / "two.html"
    write_report(TINY, one, seed=7)
    # The user's own settings of matplotlib change nothing, and are not changed.
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black"}):
        write_report(TINY, two, seed=7)
        assert matplotlib.rcParams["font.size"] == 30
    assert one.read_bytes() == two.read_bytes()
    assert "with seed 7" in text_of(one)


@pytest.mark.parametrize(
    "histogram",
    [
        tp.SizeHistogram.from_counts({(7,): 1}),
        tp.SizeHistogram.from_counts({(1, 0): 4}),
        tp.SizeHistogram.from_sizes(
            tp.GraphSizes([[2, 3, 4], [5, 6, 7]], ("nodes:user", "nodes:item", "edges:user:likes:item"))
        ),
        tp.SizeHistogram.from_counts({(1, 1): 10**9, (30, 60): 10**8}),
    ],
    ids=["one graph", "no edges", "heterograph", "very many graphs"],
)
def test_any_histogram_gets_a_page(tmp_path: Path, histogram: tp.SizeHistogram) -> None:
    write_report(histogram, tmp_path / "page.html")
    text = text_of(tmp_path / "page.html")
    assert f"{histogram.num_graphs:,} graphs fit into" in text
    assert "nan" not in text
    assert "inf " not in text


def test_only_components_that_count_nodes_have_a_reserved_node() -> None:
    for components, nodes in ((("nodes", "edges"), {"nodes"}), (("nodes:u", "nodesets"), {"nodes:u"})):
        limits = tp.Limits.from_components(dict.fromkeys(components, 9))
        assert padded_shape(limits, 3) == {name: 27 + (name in nodes) for name in components}


def test_joined_batches_are_those_of_one_order() -> None:
    histogram = tp.SizeHistogram.from_counts({(3, 4): 2, (5, 2): 1})
    # Of three graphs, two batches; the two small ones are together, or not.
    for seed in range(4):
        assert joined_batches(histogram, 2, seed) in ({"nodes": 12, "edges": 16}, {"nodes": 16, "edges": 12})


def test_wrong_input_is_refused_and_leaves_the_old_page(tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    path = tmp_path / "report.html"
    path.write_text("old")
    for place, words in (("folder.html", "cannot write"), ("report.pdf", "ends in .html")):
        with refused(FormatError, words, place):
            write_report(TINY, tmp_path / place)
    with refused(LimitsError, "one limit for each component"):
        write_report(TINY, path, limits=tp.Limits(9))
    with refused(SizesError, "no graphs"):
        write_report([], path)
    with refused(GraphTooLargeError, "exceed"):
        write_report(TINY, path, limits=tp.Limits(5, 5))
    assert path.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.html", "report.html"]


def test_a_browser_shows_it(page: Path, tmp_path: Path) -> None:
    with chromium(tmp_path / "profile") as browser:
        for width, scheme in ((360, "light"), (1280, "dark")):
            show(browser, page, width, scheme)
            assert browser.title == "Packing ogbg-molhiv <training & more>"
            assert browser.get_log("browser") == []
            facts = "i => [i.complete, i.naturalWidth, i.clientWidth, i.alt.length]"
            images = browser.execute_script(f"return [...document.images].map({facts})")
            assert len(images) == 4
            assert all(complete and natural and 0 < shown <= width for complete, natural, shown, _ in images)
            assert all(described > 20 for *_, described in images)
            # Nothing reaches beyond the screen, and nothing inside scrolls sideways.
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            beyond = "filter(e => e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.tagName)"
            assert browser.execute_script(f"return [...document.querySelectorAll('body *')].{beyond}") == []
            asked = requests_of(browser)
            assert asked[0] == page.as_uri()
            assert {url.partition(":")[0] for url in asked[1:]} <= {"data"}
