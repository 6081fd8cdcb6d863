"""The report: what it says, where it is written, and how a real browser shows it."""

from __future__ import annotations

import html
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

from dgl_tuplepack import GraphSizes, Limits, SizeHistogram, load_example, pack, search_limits, sizes_of
from dgl_tuplepack.errors import FormatError, GraphTooLargeError, InputError, LimitsError, SizesError
from dgl_tuplepack.report import write_report
from dgl_tuplepack.report.findings import find
from dgl_tuplepack.report.page import use
from dgl_tuplepack.report.plain_batching import padded_to_largest
from tests.browser import chromium, requests_of, show
from tests.messages import refused

HISTOGRAM = load_example("ogbg-molhiv")
TIMES = "\N{MULTIPLICATION SIGN}"
TINY = SizeHistogram.from_counts({(3, 4): 5, (2, 2): 7, (9, 1): 1})


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


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


# --- what it says


def test_the_figures_are_those_of_the_plan_and_the_search(page: Path) -> None:
    text = text_of(page)
    search = search_limits(HISTOGRAM, graphs_per_batch=64, packs_per_batch="auto")
    best = search.best.limits
    plan = pack(HISTOGRAM, best)
    assert f"Batches of 2 packs hold {search.graphs_per_batch:.1f} graphs on average" in text
    assert f"Advised: {best.nodes:,} nodes, {best.edges:,} edges." in text
    assert f"32,901 graphs fit into {plan.num_packs:,} packs" in text
    assert f"{len(search)} limits were tried" in text
    for value in plan.efficiency.values():
        assert f"{100 * value:.2f} %" in text
    assert f"{best.nodes + 1:,} {TIMES} {best.edges:,} {TIMES} {plan.max_graphs + 1:,}" in text
    assert "795 distinct sizes" in text
    packed = plan.num_packs * (best.nodes + 1 + best.edges)
    plain = sum(padded_to_largest(HISTOGRAM).values())
    assert f"Packing with the reserved node of each pack {packed:,} 1.00 {TIMES}" in text
    assert f"the usual way to a static shape {plain:,} {plain / packed:.2f} {TIMES}" in text
    assert f"would take {plain / packed:.1f} times as many slots" in text


def test_the_dataset_is_summed_up(page: Path) -> None:
    nodes = np.repeat(HISTOGRAM.sizes[:, 0], HISTOGRAM.counts)
    nodes.sort()
    half, most = nodes[-(-len(nodes) // 2) - 1], nodes[-(-99 * len(nodes) // 100) - 1]
    assert f"nodes {nodes.mean():.2f} {half} {most} {nodes[-1]} {nodes.sum():,}" in text_of(page)


def test_names_are_escaped(page: Path) -> None:
    source = page.read_text(encoding="utf-8")
    assert "ogbg-molhiv &lt;training &amp; more&gt;" in source
    assert "<training" not in source


def test_equal_input_makes_equal_pages(tmp_path: Path) -> None:
    one, two = tmp_path / "one.html", tmp_path / "two.html"
    write_report(TINY, one, seed=7)
    # The user's own settings of matplotlib change nothing, and are not changed.
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black"}):
        write_report(TINY, two, seed=7)
        assert matplotlib.rcParams["font.size"] == 30
    assert one.read_bytes() == two.read_bytes()
    assert "seed=7" in text_of(one)


def test_limits_can_be_given(tmp_path: Path) -> None:
    write_report(TINY, tmp_path / "given.html", limits=Limits(40, 90, 12), batch_sizes=(3,))
    text = text_of(tmp_path / "given.html")
    assert "The rest of this page is for other limits, which were asked for: 40 nodes, 90 edges." in text
    assert f"{pack(TINY, Limits(40, 90, 12)).num_packs} packs of at most 40 nodes, 90 edges" in text
    assert "limits = tp.Limits(nodes=40, edges=90, graphs=12)" in text
    assert "largest of each 3 graphs" in text
    assert "largest of each 32 graphs" not in text


@pytest.mark.parametrize(
    "histogram",
    [
        SizeHistogram.from_counts({(7,): 1}),
        SizeHistogram.from_counts({(1, 0): 4}),
        SizeHistogram.from_counts({(3, 4, 9): 5, (2, 2, 1): 7, (9, 1, 1): 1}, ("nodes", "edges", "triplets")),
        SizeHistogram.from_sizes(
            GraphSizes([[2, 3, 4], [5, 6, 7]], ("nodes:user", "nodes:item", "edges:user:likes:item"))
        ),
        SizeHistogram.from_counts({(1, 1): 10**9, (30, 60): 10**8}),
    ],
    ids=["one graph", "no edges", "three components", "heterograph", "very many graphs"],
)
def test_any_histogram_gets_a_page(tmp_path: Path, histogram: SizeHistogram) -> None:
    write_report(histogram, tmp_path / "page.html")
    text = text_of(tmp_path / "page.html")
    assert f"{histogram.num_graphs:,} graphs fit into" in text
    assert "nan" not in text
    assert "inf " not in text


@pytest.mark.dgl
def test_the_lines_of_python_run(tmp_path: Path) -> None:
    dgl = importlib.import_module("dgl")
    dataset = [dgl.graph((list(range(n)), [0] * n)) for n in (2, 3, 3, 4, 5)]
    findings = find(SizeHistogram.from_sizes(sizes_of(dataset)), None, (2,), seed=0)
    shapes: set[tuple[int, int]] = set()
    lines = use(findings, 0).replace("...", "shapes.add((len(batch.node_mask), len(batch.edge_mask)))")
    exec(lines, {"dataset": dataset, "epochs": 2, "shapes": shapes})
    assert shapes == {(findings.limits.nodes + 1, findings.limits.edges)}


@pytest.mark.dgl
def test_the_lines_of_python_leave_out_what_the_page_does(tmp_path: Path) -> None:
    dgl = importlib.import_module("dgl")
    dataset = [dgl.graph((list(range(n)), [0] * n)) for n in (2, 3, 9, 4, 5)]
    histogram = SizeHistogram.from_sizes(sizes_of(dataset))
    with pytest.warns(UserWarning, match=r"^1 of 5 graphs exceed Limits\(nodes=8, edges=8"):
        write_report(histogram, tmp_path / "page.html", limits=Limits(8, 8), oversize="drop")
    text = text_of(tmp_path / "page.html")
    assert "4 graphs fit into" in text
    assert "1 of 5 graphs exceed these limits and are left out." in text
    source = (tmp_path / "page.html").read_text(encoding="utf-8")
    lines = html.unescape(source.partition("<pre><code>")[2].partition("</code>")[0])
    numbers: list[int] = []
    with pytest.warns(UserWarning, match="1 of 5 graphs"):
        exec(
            lines.replace("...", "numbers.append(int(batch.node_mask.sum()))"),
            {"dataset": dataset, "epochs": 1, "numbers": numbers},
        )
    assert sum(numbers) == 2 + 3 + 4 + 5


def test_a_page_of_all_graphs_says_nothing_of_leaving_out(page: Path) -> None:
    assert "left out" not in text_of(page)
    assert "oversize" not in text_of(page)


# --- where it is written


def test_a_bad_place_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").touch()
    with refused(FormatError, "it is a folder", "report.html"):
        write_report(TINY, tmp_path / "folder.html")
    with refused(FormatError, "ends in .html", "report.pdf"):
        write_report(TINY, tmp_path / "report.pdf")
    with refused(FormatError, "does not exist", "choose another"):
        write_report(TINY, tmp_path / "absent" / "report.html")
    with refused(FormatError, "does not exist"):
        write_report(TINY, tmp_path / "file" / "report.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.html"]


def test_a_failed_report_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with refused(GraphTooLargeError, "exceed"):
        write_report(TINY, path, limits=Limits(5, 5))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    write_report(TINY, path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_other_wrong_input_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    with refused(InputError, "the batch size", "0"):
        write_report(TINY, path, batch_sizes=(0,))
    with refused(InputError, "seed", "-1"):
        write_report(TINY, path, seed=-1)
    with refused(LimitsError, "limits must be Limits"):
        write_report(TINY, path, limits=(3, 4))  # type: ignore[arg-type]
    with refused(LimitsError, "exactly one limit for each component"):
        write_report(TINY, path, limits=Limits(9))
    with refused(SizesError, "no graphs"):
        write_report([], path)
    with refused(LimitsError, "oversize 'ignore'", "'error' or 'drop'"):
        write_report(TINY, path, oversize="ignore")
    assert not path.exists()


# --- how a browser shows it


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it(browser: Any, page: Path, width: int, scheme: str) -> None:
    show(browser, page, width, scheme)
    assert browser.title == "Packing ogbg-molhiv <training & more>"
    assert browser.get_log("browser") == []
    widths = browser.execute_script(
        "return [...document.images].map(i => [i.complete, i.naturalWidth, i.clientWidth, i.alt.length])"
    )
    assert len(widths) == 9
    for complete, natural, shown, described in widths:
        assert complete
        assert natural > 0
        assert 0 < shown <= width
        assert described > 20
    # Nothing reaches beyond the screen, and nothing inside scrolls sideways.
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    beyond = "filter(e => e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.tagName)"
    assert browser.execute_script(f"return [...document.querySelectorAll('body *')].{beyond}") == []
    asked = requests_of(browser)
    assert asked[0] == page.as_uri()
    assert {url.partition(":")[0] for url in asked[1:]} <= {"data"}
    assert "http" not in {url.partition(":")[0] for url in asked}


def test_no_number_breaks_over_two_lines(browser: Any, page: Path) -> None:
    show(browser, page, 1000, "light")
    lines = """
        return [...document.querySelectorAll("td")].map(cell => {
            const range = document.createRange();
            range.selectNodeContents(cell);
            return [cell.textContent, new Set([...range.getClientRects()].map(box => Math.round(box.top))).size];
        })
    """
    cells = browser.execute_script(lines)
    assert len(cells) > 50
    assert [text for text, count in cells if count != 1] == []


def test_text_stands_out_from_its_ground(browser: Any, page: Path) -> None:
    script = (
        "const s = e => getComputedStyle(document.querySelector(e));"
        "return [s('body').backgroundColor, s('body').color, s('.faint').color, s('.cards dt').color]"
    )
    for scheme in ("light", "dark"):
        show(browser, page, 1280, scheme)
        ground, *inks = browser.execute_script(script)
        for ink in inks:
            assert contrast(ground, ink) >= 4.5, (scheme, ground, ink)


def test_without_looking_it_can_be_read_too(browser: Any, page: Path) -> None:
    show(browser, page, 1280)
    count = "return document.querySelectorAll(arguments[0]).length"
    assert browser.execute_script("return document.documentElement.lang") == "en"
    assert browser.execute_script(count, "h1") == 1
    assert browser.execute_script(count, "section[aria-labelledby] > h2") == 5
    assert browser.execute_script(count, "main") == 1
    assert browser.execute_script(count, "img:not([alt])") == 0
    # Every cell belongs to a row and a column with a header.
    assert browser.execute_script(count, "tbody tr > th[scope=row]") == browser.execute_script(count, "tbody tr")
    assert browser.execute_script(count, "td:not([data-label])") == 0


def contrast(one: str, other: str) -> float:
    """Contrast ratio by the Web Content Accessibility Guidelines; text needs 4.5."""

    def light(colour: str) -> float:
        parts = np.array([int(part) / 255 for part in re.findall(r"\d+", colour)[:3]])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ (0.2126, 0.7152, 0.0722))

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)
