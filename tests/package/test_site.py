"""The site builds without warnings, nothing in it leads nowhere or to another host, and a browser can use it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import typer
from filelock import FileLock

import dgl_tuplepack as tp
from dgl_tuplepack.tools.cli.commands import app
from tests.support.browser import chromium, requests_of, show

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.dgl]

DOCS = Path(__file__).resolve().parents[2] / "docs"
# What torch 2.13 prints if it aborts at the exit of a process that has trained with gloo, as a tutorial does. On a busy
# machine, a script without this package, which only uses DistributedDataParallel, does so in every fifth run.
ABORTED = "terminate called without an active exception"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once for all test processes."""
    for package in ("sphinx", "myst_parser", "numpydoc", "pydata_sphinx_theme", "sphinx_design", "sphinx_gallery"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is absent; install dgl_tuplepack[docs].")
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    pages = base / "site"
    with FileLock(base / "site.lock"):
        if not pages.exists():
            # Sphinx writes next to its sources.
            made = shutil.ignore_patterns("_build", "gallery", "generated")
            sources = base / "site-sources" / "docs"
            shutil.copytree(DOCS, sources, ignore=made)
            # Pages include them.
            for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
                shutil.copy(DOCS.parent / name, sources.parent)
            options = ["--fail-on-warning", "--keep-going", "--quiet"]
            command = [sys.executable, "-m", "sphinx", *options, str(sources), str(pages)]
            for _ in range(4):
                done = subprocess.run(command, capture_output=True, text=True, cwd=DOCS.parent)
                if ABORTED not in done.stderr:
                    break
            (base / "site.log").write_text(f"{done.returncode}\n{done.stderr}")
    code, _, messages = (base / "site.log").read_text().partition("\n")
    assert code == "0", messages
    return pages


class Page(HTMLParser):
    """Addresses and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attributes}
        self.anchors |= {named[name] for name in ("id", "name") if name in named}
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        elif tag in ("img", "script", "link", "source", "iframe"):
            self.loaded += [named[name] for name in ("src", "href", "srcset") if named.get(name)]


def pages_of(site: Path) -> list[Path]:
    """All pages, without the templates that the theme leaves among its files."""
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


def is_local(address: str) -> bool:
    return not urlsplit(address).scheme and not urlsplit(address).netloc


def test_every_link_anchor_and_picture_exists(site: Path) -> None:
    pages = {path: Page(path) for path in pages_of(site)}
    assert len(pages) > 70
    dead = []
    for path, page in pages.items():
        for address in [*filter(is_local, page.links), *page.loaded]:
            assert is_local(address), f"{path.name} loads {address}"
            parts = urlsplit(address)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else None
            if not target.is_file() or (anchors is not None and unquote(parts.fragment) not in {"", *anchors}):
                dead.append(f"{path.relative_to(site)}: {address}")
    assert not dead


def test_the_reference_has_every_public_name(site: Path) -> None:
    pytest.importorskip("torch_geometric", reason="PyG is absent; install dgl_tuplepack[pyg].")
    modules = {"errors": [name for name in vars(tp.errors) if name.endswith("Error")]}
    modules |= {name: getattr(tp, name).__all__ for name in ("nn", "pyg", "tensor_graph", "transforms")}
    # It has a page as tp.TensorGraph.
    names = {f"{module}.{name}" for module, names in modules.items() for name in names} - {"tensor_graph.TensorGraph"}
    names |= {name for name in dir(tp) if name not in ("__version__", *modules)}
    shown = {path.stem for path in (site / "reference" / "generated").glob("*.html")}
    assert shown == {f"dgl_tuplepack.{name}" for name in names}


def test_the_reference_has_every_command_and_option(site: Path) -> None:
    page = re.sub(r"</?(code|span|a)\b[^>]*>", "", (site / "reference" / "cli.html").read_text(encoding="utf-8"))
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        section = page.partition(f'<section id="{name}">')[2].partition("</section>")[0]
        for parameter in command.params:
            for option in parameter.opts if parameter.opts[0].startswith("-") else [parameter.metavar]:
                assert option in section, f"{name} {option}"


def test_tutorials_show_output_and_pictures(site: Path) -> None:
    tutorials = sorted((DOCS / "tutorials").glob("*.py"))
    assert len(tutorials) >= 4
    gallery = (site / "gallery" / "index.html").read_text(encoding="utf-8")
    for tutorial in tutorials:
        page = (site / "gallery" / f"{tutorial.stem}.html").read_text(encoding="utf-8")
        assert "sphx-glr-script-out" in page
        assert f"sphx_glr_{tutorial.stem}_001.png" in page
        assert f"sphx_glr_{tutorial.stem}_thumb.png" in gallery


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def problems_of(driver: Any) -> list[str]:
    """Requests to a host, and errors of the page."""
    asked = [url for url in requests_of(driver) if urlsplit(url).scheme in ("http", "https")]
    return asked + [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def wait_for(driver: Any, script: str) -> Any:
    """Return the result of a script once it is true."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, 60).until(lambda opened: opened.execute_script(f"return {script}"))


def colours_of(driver: Any, selector: str) -> tuple[list[float], list[float]]:
    """Colours of the text and of the background of an element, as red, green and blue from 0 to 255."""
    script = """const found = [...document.querySelectorAll(arguments[0])];
        const style = getComputedStyle(found.find(each => each.offsetParent || each === document.body));
        return [style.color, style.backgroundColor]"""
    text, background = (
        [float(each) for each in re.findall(r"[\d.]+", colour)[:3]]
        for colour in driver.execute_script(script, selector)
    )
    return text, background


def contrast(first: list[float], second: list[float]) -> float:
    """The contrast of two colours, as WCAG 2.1 defines it: from 1 to 21."""

    def luminance(colour: list[float]) -> float:
        parts = [c / 255 / 12.92 if c <= 10.3 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    dark, light = sorted(map(luminance, (first, second)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("width", [1280, 400])
def test_the_first_screen_has_the_two_lines(driver: Any, site: Path, width: int) -> None:
    show(driver, site / "index.html", width)
    block = "[...document.querySelectorAll('.highlight-diff')].find(each => each.offsetParent)"
    wait_for(driver, f"{block}.querySelector('.copybtn')")
    for tab, loader in (("DGL", "GraphDataLoader"), ("PyG", "DataLoader")):
        labels = "[...document.querySelectorAll('.sd-tab-label')]"
        driver.execute_script(f"{labels}.find(each => each.textContent.trim() == '{tab}').click()")
        text, bottom = driver.execute_script(f"return [{block}.innerText, {block}.getBoundingClientRect().bottom]")
        assert f"-loader = {loader}(" in text
        assert "+model = tp.compile(model, loader)" in text
        assert bottom < 800
    assert not problems_of(driver)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_removed_lines_are_red_and_added_lines_green(driver: Any, site: Path, scheme: str) -> None:
    show(driver, site / "index.html", 1280, scheme)
    for kind, strongest in (("gd", 0), ("gi", 1)):
        text, background = colours_of(driver, f".highlight-diff .{kind}")
        assert max(range(3), key=text.__getitem__) == strongest
        assert contrast(text, background) >= 4.5
    page = colours_of(driver, "body")[1]
    assert (sum(page) < 3 * 128) == (scheme == "dark")


def test_code_fits_its_column(driver: Any, site: Path) -> None:
    """Apart from the reference, whose signatures may scroll."""
    wide = []
    for page in pages_of(site):
        if "reference" not in page.parts:
            show(driver, page, 1280)
            script = """return [...document.querySelectorAll('pre')].filter(e => e.scrollWidth > e.clientWidth)
                .map(each => each.innerText.split('\\n').sort((a, b) => b.length - a.length)[0])"""
            wide += [f"{page.stem}: {line}" for line in driver.execute_script(script)]
    assert not wide, "\n".join(wide)


def test_symptoms_lead_to_their_sections_on_a_phone(driver: Any, site: Path) -> None:
    show(driver, site / "troubleshooting.html", 400)
    script = """return [...document.querySelectorAll('article ul a[href^="#"]')].map(link => {
        const box = link.getBoundingClientRect();
        return [link.getAttribute('href').slice(1), box.left, box.right]})"""
    links = driver.execute_script(script)
    assert len(links) >= 20
    for anchor, left, right in links:
        assert 0 <= left < right <= 400, anchor
    named = driver.execute_script("return [...document.querySelectorAll('section[id]')].map(each => each.id)")
    assert {anchor for anchor, *_ in links} >= {*named} - {"troubleshooting"}


def test_the_reference_names_functions_as_examples_do(site: Path) -> None:
    api = (site / "reference" / "api.html").read_text(encoding="utf-8")
    for name in ("tp.packed_loader", "tp.compile", "tp.pyg.DataLoader", "tp.nn.masked_loss", "tp.errors.CompileError"):
        assert f">{name}<" in api
        page = site / "reference" / "generated" / f"dgl_{name.replace('tp', 'tuplepack', 1)}.html"
        text = re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8"))
        assert name in text


def test_search_needs_no_network(driver: Any, site: Path) -> None:
    show(driver, site / "index.html", 1280)
    driver.execute_script("document.querySelector('.search-button, .search-button-field').click()")
    field = wait_for(driver, "document.querySelector('dialog[open] input[type=search]')")
    field.send_keys("packed_loader\n")
    wait_for(driver, "document.querySelector('#search-results li a[href*=\"dgl_tuplepack.packed_loader\"]')")
    assert not problems_of(driver)


def test_no_page_is_wider_than_a_phone(driver: Any, site: Path) -> None:
    """The longest page of a function, and the twenty longest other pages, which have all tables and pictures."""
    wide = []
    of_functions = {*(site / "reference" / "generated").glob("*.html")}
    by_length = sorted(pages_of(site), key=lambda path: -path.stat().st_size)
    longest = next(path for path in by_length if path in of_functions)
    for path in [longest, *[path for path in by_length if path not in of_functions][:20]]:
        show(driver, path, 360)
        if driver.execute_script("return document.documentElement.scrollWidth") > 360:
            wide.append(path.name)
        assert not problems_of(driver), path.name
    assert not wide
