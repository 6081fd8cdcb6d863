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
            # A page includes it.
            shutil.copy(DOCS.parent / "CONTRIBUTING.md", sources.parent)
            options = ["--fail-on-warning", "--keep-going", "--quiet"]
            command = [sys.executable, "-m", "sphinx", *options, str(sources), str(pages)]
            done = subprocess.run(command, capture_output=True, text=True, cwd=DOCS.parent)
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
