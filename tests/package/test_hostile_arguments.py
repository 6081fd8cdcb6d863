"""One table of hostile values, for each kind of argument: a public function refuses them by an error of ours."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError, SchemaError, TuplepackError
from tests.support.messages import refused

# By name, since some fail to show themselves.
HOSTILE: dict[str, Any] = {
    "nan": float("nan"),
    "beyond int64": 2**63,
    "negative": -1,
    "zero": 0,
    "half": 0.5,
    "true": True,
    "text": "text",
    "none": None,
    "empty list": [],
    "empty dict": {},
    "list": [1, 2],
    "ragged": [[1, 2], [3]],
    "list of nan": [[float("nan"), 1.0]],
    "dict of lists": {"a": [1]},
    "list of text": ["a", "b"],
    "list of none": [None, None],
    "object": object(),
    "path": Path("nowhere/at all"),
    "0-d tensor": torch.tensor(3),
    "three dimensions": np.ones((1, 1, 2), int),
    "float tensor": torch.ones(2, 2),
    "graph": dgl.graph(([0], [0])),
    "limits": tp.Limits(9, 9, graphs=4),
    "sizes": tp.GraphSizes([[1, 2, 3]], ("a", "b", "c")),
}  # fmt: skip

SIZES = tp.GraphSizes([[3, 4], [2, 2], [1, 0]])
HISTOGRAM = tp.SizeHistogram.from_sizes(SIZES).without_ids()
LIMITS = tp.Limits(9, 9, graphs=4)
GRAPHS = [dgl.graph(([0, 1], [1, 0])) for _ in range(3)]
ITEMS = [(graph, 1.0) for graph in GRAPHS]
COLLATE = tp.PaddedCollate(LIMITS, ITEMS[0])


def under(key: Any, value: Any) -> dict[Any, Any]:
    """A dict of one entry; what cannot be a key is no argument of ours."""
    try:
        return {key: value}
    except TypeError as error:
        raise InputError("no key") from error


# Each call with valid arguments; every one of them is replaced in turn.
CALLS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "sizes_of": (tp.sizes_of, {"source": GRAPHS}),
    "sizes_of items": (lambda item: tp.sizes_of([item]), {"item": ITEMS[0]}),
    "sizes_of columns": (lambda nodes, edges: tp.sizes_of((nodes, edges)), {"nodes": [1, 2], "edges": [0, 1]}),
    "GraphSizes": (tp.GraphSizes, {"array": [[1, 2]], "components": ("nodes", "edges")}),
    "SizeHistogram": (
        tp.SizeHistogram,
        {"sizes": [[1, 2], [3, 4]], "counts": [1, 2], "components": ("nodes", "edges")},
    ),
    "SizeHistogram.from_sizes": (tp.SizeHistogram.from_sizes, {"sizes": SIZES}),
    "SizeHistogram.from_counts values": (
        lambda size, count: tp.SizeHistogram.from_counts(under(size, count)), {"size": (1, 2), "count": 3},
    ),
    "SizeHistogram.load": (tp.SizeHistogram.load, {"path": "nowhere"}),
    "load_example": (tp.load_example, {"name": "ogbg-molhiv"}),
    "Limits": (tp.Limits, {"nodes": 3, "edges": 4, "graphs": 5}),
    "Limits of types": (
        lambda node_type, nodes, edge_type, edges: tp.Limits(under(node_type, nodes), under(edge_type, edges)),
        {"node_type": "user", "nodes": 3, "edge_type": ("user", "buys", "item"), "edges": 4},
    ),
    "Limits.from_components": (tp.Limits.from_components, {"maxima": {"nodes": 3}, "graphs": 5}),
    "Limits.from_components names": (
        lambda name, value: tp.Limits.from_components(under(name, value)), {"name": "nodes", "value": 3},
    ),
    "Limits.from_padded_shape": (tp.Limits.from_padded_shape, {"nodes": 4, "edges": 4, "graphs": 5}),
    "Limits.fits": (LIMITS.fits, {"sizes": SIZES}),
    "pack": (
        tp.pack,
        {
            "sizes": HISTOGRAM, "limits": LIMITS, "method": "auto", "heuristic": "product", "seed": 0,
            "random_ties": False, "effort": 0.001, "time_limit": 1.0,
        },
    ),
    "PackPlan.load": (tp.PackPlan.load, {"path": "nowhere"}),
    "lower_bound": (tp.lower_bound, {"histogram": HISTOGRAM, "limits": LIMITS}),
    "search_limits": (
        tp.search_limits,
        {
            "histogram": HISTOGRAM, "graphs_per_batch": 2, "packs_per_batch": 1, "graphs": 4, "multiple_of": 1,
            "oversize": "error", "holding": HISTOGRAM, "shapes": None,
        },
    ),
    "search_limits for a budget": (tp.search_limits, {"histogram": HISTOGRAM, "budget": 90, "cost": None}),
    "PackBatchSampler": (
        tp.PackBatchSampler,
        {
            "sizes": SIZES, "limits": LIMITS, "plan": None, "content": "fixed", "packs_per_batch": 1, "shuffle": True,
            "seed": 0, "num_replicas": 1, "rank": 0, "drop_last": False, "oversize": "error",
        },
    ),
    "packed_loader": (
        tp.packed_loader,
        {"source": GRAPHS, "graphs_per_batch": 2, "shuffle": True, "padded": True, "multiple_of": 1, "seed": 0},
    ),
    "packed_loader within limits": (
        tp.packed_loader,
        {"source": GRAPHS, "limits": LIMITS, "packs_per_batch": 1, "plan": None, "oversize": "error"},
    ),
    "packed_loader of exact batches": (
        tp.packed_loader,
        {
            "source": GRAPHS, "batch_size": 2, "shuffle": True, "padded": None, "multiple_of": 1, "seed": 0,
            "drop_last": False, "num_replicas": 1, "rank": 0,
        },
    ),
    "packed_loader of exact batches within limits": (
        tp.packed_loader,
        {"source": GRAPHS, "batch_size": 2, "limits": LIMITS, "oversize": "drop", "with_ids": True},
    ),
    "packed_loader of splits": (
        tp.packed_loader,
        {"source": GRAPHS, "graphs_per_batch": 1, "splits": {"train": [0]}, "shuffle": ("train",), "plan": {}},
    ),
    "packed_loader of a mixture": (
        tp.packed_loader,
        {"source": {"a": GRAPHS, "b": GRAPHS}, "batch_size": 3, "shares": {"a": 1, "b": 1.5}, "share_of": "graphs"},
    ),
    "packed_loader of a mixture by its sizes": (
        tp.packed_loader, {"source": {"a": GRAPHS, "b": GRAPHS}, "graphs_per_batch": 3, "temperature": 2},
    ),
    "packed_loader of shares": (
        lambda name, share: tp.packed_loader({"a": GRAPHS, "b": GRAPHS}, 3, shares={"b": 1} | under(name, share)),
        {"name": "a", "share": 1},
    ),
    "PackBatchSampler.set_epoch": (tp.PackBatchSampler(SIZES, LIMITS).set_epoch, {"epoch": 1, "skip": 0}),
    "PackedLoader.load_state_dict": (tp.packed_loader(GRAPHS, 2).load_state_dict, {"state": {}}),
    "StreamPacker": (
        lambda **settings: list(tp.StreamPacker(**settings)), {"source": GRAPHS, "limits": LIMITS, "lookahead": 4},
    ),
    "PaddedCollate": (
        tp.PaddedCollate,
        {
            "limits": LIMITS, "example": ITEMS[0], "packs_per_batch": 1, "label_fill": 0, "feature_fill": 0,
            "cover_padding": False, "idtype": torch.int64, "sort_edges": False,
        },
    ),
    "PaddedCollate()": (COLLATE, {"items": ITEMS}),
    "PaddedCollate of items": (
        lambda item, label: COLLATE([item, (GRAPHS[0], label)]), {"item": ITEMS[0], "label": 1.0},
    ),
    "unpad": (tp.unpad, {"batch": COLLATE(ITEMS), "with_labels": False}),
    "GraphStore": (tp.GraphStore, {"path": "nowhere"}),
    "MultiStore": (tp.MultiStore, {"path": "nowhere"}),
}  # fmt: skip

# Kind of argument -> hostile values that may be right; all others must be refused. A "?" allows None as well.
ALLOWED: dict[str, set[str]] = {
    "whole": {"0-d tensor"},
    "from 0": {"zero", "beyond int64", "0-d tensor"},
    "real": {"beyond int64", "zero", "half"},
    "temperature": {"beyond int64", "half"},
    # Three graphs come at most twice in two batches.
    "share": {"half"},
    "truth": {"true"},
    "choice": set(),
    "path": set(),
    "limits": {"limits"},
    "plan": set(),
    "sizes": {"list", "sizes"},
    "ids": {"empty list", "list"},
    "names": {"empty list", "list of text"},
    "type": {"text"},
    "graphs": {"empty list", "empty dict", "graph"},
    "heuristic": {"list"},
    "counts": {"list"},
    "splits": {"empty list", "empty dict", "dict of lists"},
    "shuffled": {"true", "empty list"},
    # What only DGL, torch or the data can judge: refused by us, or right.
    "any": set(HOSTILE),
}
KINDS = {
    "source": "graphs", "splits": "splits?", "shuffle": "truth", "sizes": "sizes", "array": "sizes",
    "components": "names", "ids": "ids", "counts": "counts", "path": "path", "name": "choice", "limits": "limits",
    "nodes": "whole", "edges": "whole?", "graphs": "whole?", "node_type": "type", "edge_type": "type",
    "maxima": "choice", "value": "whole", "method": "choice?", "heuristic": "heuristic?", "seed": "from 0",
    "random_ties": "truth", "effort": "real", "time_limit": "real?",
    "histogram": "sizes", "multiple_of": "whole", "oversize": "choice", "holding": "sizes?",
    "shapes": "whole?", "budget": "real?", "cost": "choice?", "target": "real?", "skip": "from 0",
    "plan": "plan?", "content": "choice?", "packs_per_batch": "whole?", "num_replicas": "whole",
    "rank": "from 0", "drop_last": "truth", "graphs_per_batch": "whole", "padded": "truth?", "epoch": "from 0",
    "batch_size": "whole?", "with_ids": "truth",
    "state": "choice", "lookahead": "whole", "example": "graphs", "label_fill": "any",
    "feature_fill": "any", "cover_padding": "truth", "idtype": "choice", "sort_edges": "truth", "items": "graphs",
    "item": "any", "label": "any", "batch": "choice", "with_labels": "truth", "index": "any",
    "size": "from 0", "count": "whole", "as_stored": "truth", "separate": "truth",
    "compact": "truth", "overwrite": "truth", "shares": "choice", "share_of": "choice", "temperature": "temperature",
    "share": "share",
}  # fmt: skip
# Arguments of the same name, of another kind.
OTHERS = {
    "sizes_of.source": "sizes", "sizes_of columns.nodes": "counts", "sizes_of columns.edges": "counts",
    "Limits.nodes": "any", "Limits.edges": "any", "Limits.from_components names.name": "type",
    "Limits.from_padded_shape.edges": "whole",
    "packed_loader of splits.shuffle": "shuffled", "packed_loader of splits.plan": "splits?", "pack.heuristic": "any",
    "write.name": "any", "write.ids": "ids", "padded.ids": "ids",
}  # fmt: skip


def wrong_outcomes(function: str, call: Callable[..., object], given: dict[str, Any]) -> list[str]:
    """What is not refused although it must be, or fails otherwise, for every argument and every hostile value."""
    wrong = []
    for argument in given:
        kind = OTHERS.get(f"{function}.{argument}", KINDS.get(argument, ""))
        allowed = ALLOWED[kind.rstrip("?")] | ({"none"} if kind.endswith("?") else set())
        for name, value in HOSTILE.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    call(**{**given, argument: value})
                problem = "" if name in allowed else "accepted"
            except TuplepackError as error:
                problem = f"a message of {len(str(error))} characters" if len(str(error)) > 1500 else ""
            except Exception as error:
                # An index beyond a list is Python's own.
                own = argument == "index" and isinstance(error, IndexError)
                problem = "" if own else f"{type(error).__name__}: {error!s:.200}"
            if problem:
                wrong.append(f"{argument} = {name}: {problem}")
    return wrong


@pytest.mark.parametrize("function", CALLS)
def test_every_hostile_argument_is_refused_by_us(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = wrong_outcomes(function, *CALLS[function])
    assert not wrong, "\n" + "\n".join(wrong)
    assert not list(tmp_path.iterdir())


def test_every_hostile_argument_of_a_store_is_refused_by_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = tp.GraphStore.write("store", ITEMS)
    calls: list[tuple[str, Callable[..., object], dict[str, Any]]] = [
        ("item", lambda index: store[index], {"index": 0}),
        ("subset", store.subset, {"ids": [0, 1]}),
        ("padded", store.padded(LIMITS).__getitem__, {"ids": [0, 1]}),
        (
            "padded",
            store.padded,
            {
                "limits": LIMITS, "packs_per_batch": 1, "label_fill": 0, "feature_fill": 0, "cover_padding": False,
                "idtype": torch.int64, "sort_edges": False, "as_stored": False, "separate": False,
            },
        ),
        (
            "write",
            lambda source, **settings: tp.GraphStore.write("new", source, overwrite=True, **settings),
            {"source": ITEMS, "splits": {}, "compact": False},
        ),
        (
            "write", lambda label: tp.GraphStore.write("new", [(GRAPHS[0], label)], overwrite=True), {"label": 1.0},
        ),
        ("write", lambda overwrite: tp.GraphStore.write("store", ITEMS, overwrite=overwrite), {"overwrite": True}),
        (
            "write",
            lambda name, ids: tp.GraphStore.write("new", ITEMS, splits=under(name, ids), overwrite=True),
            {"name": "a", "ids": [0]},
        ),
    ]  # fmt: skip
    wrong = [line for call in calls for line in wrong_outcomes(*call)]
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_batch_of_what_is_no_list() -> None:
    with refused(SchemaError, "a batch needs a list of items", "None"):
        COLLATE(None)
    assert COLLATE(iter([])).num_real_graphs == 0
    assert COLLATE(iter(ITEMS)).num_real_graphs == len(ITEMS)
