"""What is published: the long description, the files of a release, and the script of a user who installed them."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tarfile
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from dgl_tuplepack import __version__
from tests.package.test_docs import BLOCK

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "https://git.example/packs"
README = """# Title

<picture>
  <source srcset="docs/dark.svg">
  <img alt="bars" src="docs/light.svg">
</picture>

![bars](docs/bars.png)

See [the guide](docs/guide.md#first) and [elsewhere](https://other.example/a).
"""


def long_description(readme: str, address: str) -> str:
    text: str = runpy.run_path(str(ROOT / "setup.py"))["long_description"](readme, address)
    return text


def test_links_and_pictures_of_the_long_description_are_absolute_or_left_out() -> None:
    text = long_description(README, ADDRESS)
    assert '<source srcset="https://git.example/packs/raw/HEAD/docs/dark.svg">' in text
    assert '<img alt="bars" src="https://git.example/packs/raw/HEAD/docs/light.svg">' in text
    assert "![bars](https://git.example/packs/raw/HEAD/docs/bars.png)" in text
    assert "[the guide](https://git.example/packs/blob/HEAD/docs/guide.md#first)" in text
    assert "[elsewhere](https://other.example/a)" in text
    text = long_description(README, "")
    assert text == "# Title\n\nSee the guide and [elsewhere](https://other.example/a).\n"
    text = long_description((ROOT / "README.md").read_text(encoding="utf-8"), ADDRESS)
    found = re.findall(r"\]\(([^)]*)\)|(?:src|srcset)=\"([^\"]*)\"", text)
    assert len(found) > 5
    assert all(link.startswith("https://") for pair in found for link in pair if link)


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert f"## {__version__} ({citation['date-released']})" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """Return the output of a command that must succeed, without this checkout on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Files in folders of the sdist that git ignores.
IGNORED = ("docs/_build/index.html", "docs/gallery/a.png", "docs/reference/generated/a.rst", "tests/__pycache__/a.pyc")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel, built from the files that git tracks."""
    for package in ("build", "twine"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is absent; install dgl_tuplepack[test].")
    folder = tmp_path_factory.mktemp("release")
    copy = folder / "checkout"
    copy.mkdir()
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, cwd=ROOT)
    if listed.returncode:
        pytest.skip("this folder is no git checkout, so its own files are not known.")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    for name in IGNORED:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", copy, folder=folder)
    return folder / "dist"


@pytest.mark.slow
@pytest.mark.processes
def test_the_package_index_would_accept_the_release_with_the_files_of_the_repository(release: Path) -> None:
    files = sorted(release.iterdir())
    assert [file.name for file in files] == [
        f"dgl_tuplepack-{__version__}-py3-none-any.whl", f"dgl_tuplepack-{__version__}.tar.gz"
    ]  # fmt: skip
    checked = run(sys.executable, "-m", "twine", "check", "--strict", *files, folder=release)
    assert checked.count("PASSED") == 2
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, cwd=ROOT).stdout.split("\0")
    expected = {name for name in listed if name and name != ".gitignore" and (ROOT / name).is_file()}
    with tarfile.open(next(release.glob("*.tar.gz"))) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert expected <= found
    assert {"CHANGELOG.md", "scripts/constraints.txt", ".ci/run", "docs/index.md", "tests/conftest.py"} <= found
    assert not found & {*IGNORED}


@pytest.fixture(scope="module")
def installed(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with nothing but the wheel, which finds other packages in this one."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    (packages,) = (folder / "lib").glob("*/site-packages")
    (wheel,) = release.glob("*.whl")
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", packages, wheel]
    run(sys.executable, *pip, folder=folder)
    # The .pth files of these folders, which may add this checkout, are not read.
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others) + "\n")
    place = run(python, "-c", "import dgl_tuplepack; print(dgl_tuplepack.__file__)", folder=folder)
    assert Path(place.strip()).is_relative_to(packages)
    return python


def quickstart() -> list[tuple[str, str]]:
    """The blocks of the quickstart with what they print: PyG, DGL and plain torch."""
    blocks = BLOCK.findall((ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8"))
    assert len(blocks) == 3
    return blocks


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.dgl
def test_an_installed_wheel_runs_the_quickstart(installed: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric", reason="PyG is absent; install dgl_tuplepack[pyg].")
    (tmp_path / "script.py").write_text("\n".join(block for block, _ in quickstart()), encoding="utf-8")
    # `test_docs.py` compiles the models of this page; without a compiler it runs uncompiled.
    found = run(installed, "script.py", folder=tmp_path, CXX="/nonexistent/c++")
    assert found == "".join(shown for _, shown in quickstart())


# A call that type checkers must refuse.
WRONG = "import dgl_tuplepack as tp\n\ntp.packed_loader([], graphs_per_batch='64')\n"


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """A folder with the scripts of the quickstart, and with a wrong one."""
    first, second, third = (block for block, _ in quickstart())
    # DGL has no types; pyright does not find what its packages import with a star.
    second = second.replace("from dgl.nn import GraphConv", "from dgl.nn import GraphConv  # pyright: ignore")
    scripts = {"of_pyg": first, "of_dgl": second, "of_torch": third, "wrong": WRONG}
    for name, text in scripts.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.dgl
@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_the_quickstart_passes_the_checks_of_types(checker: str, installed: Path, typed: Path) -> None:
    pytest.importorskip(checker, reason=f"{checker} is absent; install dgl_tuplepack[test].")
    # DGL has no types. Following torch takes long, and pyright follows it.
    (typed / "mypy.ini").write_text("[mypy]\n[mypy-torch.*,torch_geometric.*]\nfollow_imports = skip\n")
    others = ["--ignore-missing-imports", "--no-warn-return-any", "--allow-subclassing-any"]
    options: list[str | Path] = ["--strict", *others, "--python-executable", installed, "--cache-dir", typed / "cache"]
    if checker == "basedpyright":
        (typed / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}', encoding="utf-8")
        options = ["--pythonpath", installed]
    command = [sys.executable, "-m", checker, *options, *sorted(typed.glob("*.py"))]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=typed)
    assert checked.returncode == 1
    # Only the wrong call is an error.
    errors = [line for line in checked.stdout.splitlines() if " error" in line and ".py" in line]
    assert errors, checked.stdout
    assert all("wrong.py" in line for line in errors), checked.stdout
    assert "graphs_per_batch" in checked.stdout
