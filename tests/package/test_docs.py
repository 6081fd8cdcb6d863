"""Every Python example in the README and in docs/ runs, and every link between pages leads somewhere."""

from __future__ import annotations

import functools
import io
import json
import re
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.storage import format as store_format

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
# A block, and what it prints if the page shows it.
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
DIFF = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_blocks(page: Path) -> dict[str, Any]:
    """Run the blocks of a page one after another, as a reader would; return what they define.

    Without JAX, a page ends before its first block with JAX; `tests/batches/test_jraph.py` runs these pages too.
    """
    namespace: dict[str, Any] = {}
    for block, shown in BLOCK.findall(page.read_text(encoding="utf-8")):
        if "import jax" in block and find_spec("jax") is None:
            break
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, str(page), "exec"), namespace)
        assert not shown or printed.getvalue() == shown
    return namespace


def of_smiles(text: str) -> dict[str, Any]:
    """A chain of the atoms in a text, in the form of OGB's `smiles2graph`, which needs RDKit."""
    number = sum(map(str.isalpha, text))
    one_way = np.stack([np.arange(number - 1), np.arange(1, number)])
    ends = np.concatenate([one_way, one_way[::-1]], axis=1)
    of_edges, of_nodes = np.zeros((ends.shape[1], 3), np.int64), np.zeros((number, 9), np.int64)
    return {"edge_index": ends, "edge_feat": of_edges, "node_feat": of_nodes, "num_nodes": number}


# torchdata 0.11 and Lightning call what torch 2.13 deprecates.
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*exceed Limits.*are dropped:UserWarning")
@pytest.mark.filterwarnings("error:graphs_per_batch is:UserWarning")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```python" in page.read_text()], ids=lambda page: str(page.relative_to(ROOT))
)
def test_examples_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "torch_geometric" in page.read_text(encoding="utf-8"):
        # Skips where PyG is absent.
        import tests.support.pyg  # noqa: F401
    if find_spec("rdkit") is None:
        monkeypatch.setattr("ogb.utils.smiles2graph", of_smiles, raising=False)
    assert "tp" in run_blocks(page)


def script_of(diff: str, side: str) -> str:
    """A script before ("-") or after ("+") a change."""
    return "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in (" ", side, "\n"))


def trained(diff: str, side: str) -> dict[str, Any]:
    """Run a script of the README on small graphs of the library that it imports; return what it defines."""
    layer, numbers = torch.nn.Linear(8, 1), range(5, 65)
    features = {n: torch.randn(n, 8) for n in numbers}
    if "torch_geometric" in diff:
        from torch_geometric.data import Data
        from torch_geometric.nn import global_add_pool

        import tests.support.pyg  # noqa: F401

        edges = torch.zeros(2, 4, dtype=torch.long)
        dataset: list[Any] = [Data(features[n], edges[:, : n % 5], y=torch.ones(1, 1)) for n in 9 * [*numbers]]

        def pooled(data: Any) -> Any:
            return layer(global_add_pool(data.x, data.batch, data.num_graphs))
    else:
        dataset = [(dgl.rand_graph(n, 2 * n), torch.ones(1)) for n in 9 * [*numbers]]
        for graph, _ in dataset:
            graph.ndata["x"] = features[graph.num_nodes()]

        def pooled(data: Any) -> Any:
            return layer(dgl.sum_nodes(data, "x"))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, data: Any) -> Any:
            return pooled(data)

    given = {"torch": torch, "dataset": dataset, "model": Model(), "epochs": 2, "layer": layer}
    given["optimiser"] = torch.optim.SGD(layer.parameters(), lr=1e-9)
    exec(compile(script_of(diff, side), "README.md", "exec"), given)
    return given


@pytest.mark.parametrize("number", [0, 1])
def test_the_readme_s_two_lines_train_on_one_shape(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Torch's tracer without its C++ compiler, which takes long.
    monkeypatch.setattr(tp, "compile", functools.partial(tp.compile, backend="eager"), raising=False)
    # The first diff is an extract of the second one.
    diff = DIFF.findall((ROOT / "README.md").read_text(encoding="utf-8"))[1:][number]
    assert trained(diff, "-")["loss"].isfinite()
    names = trained(diff, "+")
    loader = names["loader"]
    assert len(loader) == 9
    assert {each.num_graphs if number == 0 else each.batch_size for each in map(graph_of, loader)} == {64, 540 - 8 * 64}
    # One call was compiled, so all batches had one shape.
    assert len(names["model"]._static_calls._calls) == 1
    assert names["layer"].weight.grad.isfinite().all()


def graph_of(batch: Any) -> Any:
    return batch[0] if isinstance(batch, tuple) else batch


def test_the_readme_has_the_figures_of_the_documentation() -> None:
    rows = [line for page in ROOT.glob("docs/**/*.md") for line in page.read_text(encoding="utf-8").splitlines()]
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Results")[2]
    for row in re.findall(r"^\| (?!loader).*\d.*(?= \|$)", table, re.MULTILINE):
        assert any(line.startswith(row) for line in rows), row


def anchors_of(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub and Sphinx make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_local_links_lead_somewhere() -> None:
    for page in PAGES:
        for file, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
            target = page.parent / file if file else page
            assert target.exists(), f"{page.name} links to {file}"
            assert not anchor or anchor in anchors_of(target), f"{page.name} links to {file}#{anchor}"


def keys_in(section: str) -> set[str]:
    """Names in the first column of the tables of a section."""
    return set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE))))


def test_the_format_page_names_every_key(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "format.md").read_text(encoding="utf-8")
    sections = dict(part.split("\n", 1) for part in page.split("\n## ")[1:])
    histogram, plan = (tmp_path / f"{name}.json" for name in ("histogram", "plan"))
    tp.SizeHistogram.from_counts({(1, 2): 3}).save(histogram)
    tp.pack(tp.SizeHistogram.load(histogram), tp.Limits(5, 6)).save(plan)
    for title, file in zip(("Histogram, `.json`", "Plan, `.json`"), (histogram, plan), strict=True):
        assert keys_in(sections[title]) == set(json.loads(file.read_text()))
    of_one = set(json.loads(plan.read_text()))
    tp.pack([[1, 1], [9, 9]], [tp.Limits(2, 2), tp.Limits(9, 9)]).save(plan)
    assert set(json.loads(plan.read_text())) == of_one | {"buckets"}


def test_the_format_page_tells_all_of_a_store(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "format.md").read_text(encoding="utf-8")
    section = page.partition("## Store")[2].partition("\n## ")[0]
    of_file, of_array, of_content = re.split(r"^Each array|^\| content", section, flags=re.MULTILINE)
    tp.GraphStore.write(tmp_path / "store", [dgl.graph(([0], [1]))])
    metadata = json.loads((tmp_path / "store" / "metadata.json").read_text())
    assert keys_in(of_file) == set(metadata)
    assert keys_in(of_array) == set(metadata["arrays"][0])
    assert keys_in(of_content) == set(store_format.CONTENTS)
    assert set(store_format.DTYPES) <= set(re.findall(r"\w+", of_content))


def test_the_format_page_tells_all_of_a_large_graph(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "format.md").read_text(encoding="utf-8")
    of_arrays, of_document = page.partition("## The record of one large graph")[2].split("| key of `document`")
    store = tp.GraphStore.write(tmp_path / "store", [(dgl.graph(([0], [1])), 1.0)], splits={"train": [0]})
    tp.partition(store, tmp_path / "parts", 1, workers=1)
    with np.load(tmp_path / "parts" / "part0" / "graphs.npz") as arrays:
        assert keys_in(of_arrays) - {"label1", "split1"} == {*arrays}
        assert keys_in(of_document) == {*json.loads(arrays["document"].item())}
    for file in ("part0/part.json", "partition.json"):
        for key in json.loads((tmp_path / "parts" / file).read_text()):
            assert f"`{key}`" in of_document


def test_the_format_page_tells_all_of_shards(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "format.md").read_text(encoding="utf-8")
    of_manifest, of_shard, of_source = re.split(
        r"^The object|^`source", page.partition("## Shards")[2].partition("\n## ")[0], flags=re.MULTILINE
    )
    graphs = [dgl.graph(([0], [1]))]
    tp.preprocess_shards({"one": graphs}, tmp_path, limits=tp.Limits(9, 9), workers=1)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (file,) = (tmp_path / "one").glob("data-*/source.json")
    assert keys_in(of_manifest) == set(manifest)
    assert keys_in(of_shard) == set(manifest["shards"][0])
    assert keys_in(of_source) == set(json.loads(file.read_text()))
    assert manifest["shards"][0]["store"] == json.loads((tmp_path / "one" / "metadata.json").read_text())["checksum"]
