"""The hierarchy of exceptions, and how an optional package is asked for."""

from __future__ import annotations

import inspect
from configparser import ConfigParser
from pathlib import Path

import pytest

from dgl_tuplepack import errors
from dgl_tuplepack._core import optional
from tests.support.messages import refused

EVERY = [e for _, e in inspect.getmembers(errors, inspect.isclass) if e.__module__ == errors.__name__]


def test_every_exception_has_the_same_base() -> None:
    assert issubclass(errors.GraphTooLargeError, errors.LimitsError)
    assert all(issubclass(error, errors.TuplepackError) for error in EVERY)
    for error in EVERY:
        if error.__name__.endswith("Error") and error is not errors.TuplepackError:
            assert issubclass(error, ImportError if error is errors.MissingDependencyError else ValueError)


@pytest.mark.parametrize(
    ("package", "extra"), [("torch", "torch"), ("dgl", "dgl"), ("ogb", "ogb"), ("matplotlib", "plots")]
)
def test_an_absent_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, package: str, extra: str) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(optional.importlib, "import_module", absent)
    says = (f"{package} is not installed", f"dgl_tuplepack[{extra}]", "constraints.txt")
    with refused(errors.MissingDependencyError, *says):
        optional.load(package)
    message = str(optional.missing(package, ModuleNotFoundError(name=package)))
    # Only DGL needs certain versions of the others.
    assert (optional.KNOWN_GOOD in message) == (package == "dgl")


@pytest.mark.parametrize(
    "reason",
    [OSError("libcusparse.so.11 not found"), ModuleNotFoundError("No module named 'torchdata'", name="torchdata")],
)
def test_a_package_that_does_not_load_is_not_called_absent(monkeypatch: pytest.MonkeyPatch, reason: Exception) -> None:
    def broken(name: str) -> None:
        raise reason

    monkeypatch.setattr(optional.importlib, "import_module", broken)
    with refused(errors.MissingDependencyError, "dgl is installed but cannot be loaded", str(reason)):
        optional.load("dgl.dataloading")


def test_errors_name_an_extra_that_installs_the_package() -> None:
    setup = ConfigParser(interpolation=None)
    setup.read(Path(__file__).parents[2] / "setup.cfg")
    extras = setup["options.extras_require"]
    wrong = {name: extra for name, extra in optional.EXTRAS.items() if name.lower() not in extras[extra].lower()}
    assert not wrong
