"""Build entry point; everything but the long description is declared in setup.cfg."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent


def long_description(readme: str, address: str) -> str:
    """Return the README for a package index, with the links and pictures that it has in the repository at `address`.

    Without an address, a local link becomes its text, and a local picture is left out.
    """
    if not address:
        readme = re.sub(r"<picture>.*?</picture>\n*", "", readme, flags=re.DOTALL)
        readme = re.sub(r"!\[[^]]*\]\((?!https?:)[^)]*\)\n*", "", readme)
        return re.sub(r"(?<!!)\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", readme)
    readme = re.sub(r'(src|srcset)="(?!https?:)', rf'\1="{address}/raw/HEAD/', readme)
    readme = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\1{address}/raw/HEAD/", readme)
    return re.sub(r"((?<!!)\[[^]]*\]\()(?!https?:|#)", rf"\1{address}/blob/HEAD/", readme)


if __name__ == "__main__":
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    address = config["metadata"]["url"].rstrip("/")
    setup(long_description=long_description((ROOT / "README.md").read_text(encoding="utf-8"), address))
