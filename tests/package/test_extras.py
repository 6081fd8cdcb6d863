"""Optional packages: the table by which errors name an extra, and the extras themselves."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

from dgl_tuplepack._core.optional import EXTRAS


def test_errors_name_an_extra_that_installs_the_package() -> None:
    setup = ConfigParser(interpolation=None)
    setup.read(Path(__file__).parents[2] / "setup.cfg")
    extras = setup["options.extras_require"]
    wrong = {package: extra for package, extra in EXTRAS.items() if package.lower() not in extras[extra].lower()}
    assert not wrong
