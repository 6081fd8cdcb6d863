"""Build the site with Sphinx: ``python3 scripts/run.py docs``. It needs no network, and neither do the pages."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.autosummary import Autosummary

from dgl_tuplepack import __version__

project = "dgl_tuplepack"
author = "dgl_tuplepack contributors"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "tutorials"]
# The language of blocks that are not marked; most are commands or output.
highlight_language = "text"
# Otherwise two hyphens of an option become a dash.
smartquotes = False

myst_enable_extensions = ["attrs_inline", "colon_fence"]
# As on GitHub, headings down to this level can be linked to.
myst_heading_anchors = 3

autosummary_generate = True


# Methods that other files of the package call, but users do not.
_INTERNAL = {
    "batch_schema", "batches_of", "ids_in_store", "maker", "selection", "settings", "stored_spec", "unshuffled",
}  # fmt: skip


def members_of_package(module: str, name: str) -> list[tuple[str, str]]:
    """Return the directive and the name of each public method and property that a class has from this package."""
    bases = getattr(importlib.import_module(module), name).__mro__
    members = {n: v for base in bases if base.__module__.startswith("dgl_tuplepack") for n, v in vars(base).items()}
    kinds = {"automethod": (FunctionType, classmethod, staticmethod), "autoproperty": (property, cached_property)}
    return [
        (directive, n)
        for n, v in sorted(members.items())
        for directive, types in kinds.items()
        if n[0] != "_" and n not in _INTERNAL and isinstance(v, types) and v.__doc__
    ]


def as_imported(name: str) -> str:
    """Return the name as examples write it: `tp.packed_loader` for `dgl_tuplepack.packed_loader`."""
    return "tp" + name.removeprefix("dgl_tuplepack") if name.startswith("dgl_tuplepack.") else name


class Summary(Autosummary):
    """A table of names as examples write them."""

    def get_items(self, names: list[str]) -> list[Any]:
        """Return the names to show, and what the table says of each."""
        return [(as_imported(real), *rest, real) for _, *rest, real in super().get_items(names)]


def shorten_names(app: Sphinx, domain: str, kind: str, content: nodes.Element) -> None:
    """Show `tp.` in the signatures of a description, in place of the name of the package."""
    for name in content.parent.findall(addnodes.desc_addname):
        shown = as_imported(name.astext())
        name.children = [nodes.Text(shown)]


autosummary_context = {"members_of_package": members_of_package, "as_imported": as_imported}
# Sphinx cannot store a function, so it would warn that these pages are written each time.
suppress_warnings = ["config.cache"]
autodoc_mock_imports = [] if importlib.util.find_spec("dgl") else ["dgl"]
# A name in single backticks is a link if this package has it.
default_role = "py:obj"
autodoc_typehints = "none"
# Template pages list the methods.
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False


def forget_tutorial(gallery_conf: dict[str, Any], name: str) -> None:
    """Let torch forget the last tutorial: all run in one process as `__main__`, which torch keeps by name."""
    from torch._dynamo.symbolic_convert import _import_module

    _import_module.cache_clear()
    for module in [*sys.modules.values()]:
        if "__import___main__" in vars(module):
            delattr(module, "__import___main__")


sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "gallery",
    "reset_modules": ("matplotlib", forget_tutorial),
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "within_subsection_order": "FileNameSortKey",
    # Only what tutorials print is shown, not the value of their last line.
    "capture_repr": (),
    "download_all_examples": False,
    "show_signature": False,
    # That page would load scripts from the network.
    "write_computation_times": False,
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = f"{project} {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
# Summaries are fetched, which browsers refuse to pages that are opened from disk.
html_show_search_summary = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}
# These pages list no pages below them.
_alone = ("index", "install", "quickstart", "troubleshooting", "trust", "changes", "assistants")
html_sidebars = {name: [] for name in _alone}


def command_line() -> Iterator[str]:
    """Yield the lines of a Markdown page about all commands, from their help."""
    import typer

    from dgl_tuplepack.tools.cli.commands import app as commands

    group = typer.main.get_command(commands)
    root = group.make_context("dgl-tuplepack", [], resilient_parsing=True)
    for name, command in group.commands.items():
        context = command.make_context(name, [], parent=root, resilient_parsing=True)
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        yield f"\n## {name}\n\n```sh\n{usage}\n```\n\n{command.help}\n\n| option | meaning |\n|---|---|"
        for parameter in command.params:
            if record := parameter.get_help_record(context):
                option, meaning = (text.replace("|", r"\|") for text in record)
                yield f"| `{option}` | {meaning} |"


def add_commands(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the help of all commands to the page about the command line."""
    if page == "reference/cli":
        source[0] += "\n".join(command_line())


def link_tutorials(app: Sphinx, page: str, source: list[str]) -> None:
    """Let links to the scripts of tutorials, which the repository has, lead to their pages."""
    source[0] = re.sub(r"\]\([./]*tutorials/(\w+)\.py\)", r"](/gallery/\1.rst)", source[0])


def setup(app: Sphinx) -> None:
    """Register the page about the command line, and remove the pages of former names."""
    for page in Path(app.srcdir, "reference", "generated").glob("*.rst"):
        page.unlink()
    app.add_directive("autosummary", Summary, override=True)
    app.connect("object-description-transform", shorten_names)
    app.connect("source-read", add_commands)
    app.connect("source-read", link_tutorials)
