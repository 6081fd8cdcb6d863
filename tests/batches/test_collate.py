"""What collate refuses: settings, items that differ, labels and fills, and content beyond the limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dgl
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError, InputError, LimitsError, SchemaError
from dgl_tuplepack.graphs.items import Identified
from tests.support.graphs import generator, random_graph
from tests.support.messages import refused
from tests.support.padding import LIMITS, collate, graph, hetero, item


@pytest.mark.parametrize(
    ("example", "items", "parts"),
    [
        (item(), [item(), Identified(3, item())], ("graph 3 has an id", "the example has none")),
        (item(), [(*item(), 5)], ("item 0 has an id", "the example has none")),
        (Identified(0, item()), [Identified(3, item()), item()], ("item 1 has no id", "the example has one")),
    ],
)
def test_ids_are_known_for_all_or_none(example: Any, items: list[Any], parts: tuple[str, ...]) -> None:
    """As in the example: else batches without graphs, which have no item to tell, would be another kind."""
    with refused(SchemaError, *parts, "with_ids(dataset)"):
        collate(example=example)(items)


@pytest.mark.parametrize(
    ("settings", "error", "parts"),
    [
        ({"limits": tp.Limits(6, 8)}, LimitsError, ("limits.graphs is None", "use sampler.limits")),
        ({"limits": tp.Limits(nodes=6, graphs=4)}, LimitsError, ("needs a limit on edges", "use sampler.limits")),
        ({"example": hetero()}, LimitsError, ("nodes:item", "exactly one limit for each component")),
        ({"idtype": torch.int16}, SchemaError, ("idtype must be torch.int32 or torch.int64", "torch.int16")),
        ({"cover_padding": 1}, InputError, ("cover_padding must be True or False", "1")),
        ({"feature_fill": {"x": 1, "y": 2}}, SchemaError, ("feature_fill", "names ['y']", "['w', 'x']", "correct")),
        ({"example": (graph(), {"b": 1}), "label_fill": {"a": 1}}, SchemaError, ("label_fill", "names ['a']")),
        # 0.5 suits "x" but not the integers "w".
        ({"feature_fill": 0.5}, SchemaError, ("feature_fill is 0.5 for w", "torch.int64")),
        ({"example": {"graph": 1}}, SchemaError, ("the example is", "dict", "DGLGraph")),
        ({"example": (graph(), 1, 2, 3)}, SchemaError, ("4 parts", "(DGLGraph, label)", "dict")),
    ],
    ids=str,
)
def test_settings_that_cannot_be(settings: dict[str, Any], error: Any, parts: tuple[str, ...]) -> None:
    with refused(error, *parts):
        collate(**settings)


@pytest.mark.parametrize(
    ("items", "parts"),
    [
        ([item(6, 3), item(1, 1)], ["7 nodes", "hold 6"]),
        ([item(2, 8), item(1, 1)], ["9 edges", "hold 8"]),
        ([item(1, 0)] * 5, ["5 graphs", "hold 4"]),
    ],
)
def test_content_beyond_the_limits(items: list[Any], parts: list[str]) -> None:
    with refused(
        GraphTooLargeError, *parts, "1 x Limits(nodes=6, edges=8, graphs=4)", "PackBatchSampler", "sampler.limits"
    ):
        collate()(items)
    # Two packs hold it.
    assert collate(packs_per_batch=2)(items).num_real_graphs == len(items)


@pytest.mark.parametrize(
    ("wrong", "parts"),
    [
        *[(value, (type(value).__name__, "a DGLGraph, a pair")) for value in (None, {"graph": 1})],
        ((dgl.batch([graph(), graph()]), torch.tensor([1.0])), ("a batch of 2 graphs", "single graph", "dgl.unbatch")),
        ((*item(), 5, 6), ("4 parts", "(DGLGraph, label)", "dict")),
        # The one thing about a graph that DGL cannot batch and a user hardly sees.
        ((graph().int(), torch.tensor([1.0])), ("torch.int32", "torch.int64", "graph.long()")),
        ((hetero(), torch.tensor([1.0])), ("['item', 'user']", "['_N']", "same types")),
        ((graph(), torch.tensor([1.0, 2.0])), ("labels", "found float32 [2], but the example has float32 [1]")),
        ((graph(), torch.tensor([1])), ("labels", "found int64 [1]", "same names, shapes and dtypes")),
        ((graph(), {"y": torch.tensor([1.0])}), ("labels", "found y float32 [1]", "in the dataset")),
        (graph(), ("labels", "found none, but the example has float32 [1]")),
    ],
    ids=lambda value: str(type(value)),
)
def test_items_that_differ(wrong: Any, parts: tuple[str, ...]) -> None:
    with refused(SchemaError, "item 1", *parts):
        collate()([item(), wrong])
    with refused(SchemaError, "graph 41", *parts):
        collate(example=Identified(0, item()))([Identified(3, item()), Identified(41, wrong)])


CHANGES: dict[str, Callable[[Any], object]] = {
    "missing": lambda other: other.ndata.pop("x"),
    "dtype": lambda other: other.ndata.update(x=other.ndata["x"].double()),
    "shape": lambda other: other.ndata.update(x=torch.zeros(2, 3)),
    "name": lambda other: other.ndata.update(y=other.ndata.pop("x")),
    "more": lambda other: other.ndata.update(y=torch.zeros(2)),
    "edge": lambda other: other.edata.pop("w"),
}


def changed(what: str) -> Any:
    """A graph that differs from `graph()` in one thing."""
    other = graph()
    CHANGES[what](other)
    return other


@pytest.mark.parametrize(
    ("what", "found", "remedy"),
    [
        ("missing", "node features: found none, but the example has x float32 [2]", "add 'x' in"),
        ("dtype", "node features: found x float64 [2], but the example has x float32 [2]", "convert 'x' to float32 in"),
        ("shape", "node features: found x float32 [3], but the example has x float32 [2]", "give 'x' the shape [2] in"),
        ("name", "node features: found y float32 [2], but the example has x float32 [2]", "add 'x' and delete 'y' in"),
        ("more", "y float32 [], but the example has x float32 [2]", "delete 'y' in"),
        ("edge", "edge features: found none, but the example has w int64 []", "add 'w' in"),
    ],
)
def test_mixed_features(what: str, found: str, remedy: str, tmp_path: Path) -> None:
    items = [item(), (changed(what), torch.tensor([1.0]))]

    def corrected(g: Any) -> Any:
        g.ndata["x"] = torch.zeros(g.num_nodes(), 2)
        g.edata["w"] = torch.zeros(g.num_edges(), dtype=torch.int64)
        g.ndata.pop("y", None)
        return g

    says = found, "same names, shapes and dtypes", remedy, "pre_transform=", "transform= of PaddedCollate"
    with refused(SchemaError, "item 1", *says):
        collate()(items)
    # Graphs that agree with each other, but not with the example.
    for others in (items[1:], items[1:] * 2):
        with refused(SchemaError, "item 0", *says):
            collate()(others)
    with refused(SchemaError, "graph 1", *says):
        list(tp.packed_loader(items, limits=LIMITS))
    with refused(SchemaError, "item 1", *says):
        tp.GraphStore.write(tmp_path, items)
    # All that the message names helps.
    assert collate(transform=corrected)(items).num_real_graphs == 2
    assert next(iter(tp.packed_loader(items, limits=LIMITS, transform=corrected))).num_real_graphs == 2
    assert len(tp.GraphStore.write(tmp_path, items, pre_transform=corrected)) == 2


def test_the_culprit_is_named_behind_graphs_of_nothing() -> None:
    """Graphs without nodes may lack features, so the first graph with nodes shows what there is."""
    bare = dgl.graph([]), torch.tensor([1.0])
    with refused(SchemaError, "item 2", "found none"):
        collate()([bare, item(), (changed("missing"), torch.tensor([1.0])), bare])
    assert collate()([bare, item(), bare]).nodes_per_graph.tolist() == [0, 2, 0, 0, 5]


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        *[(value, ["must be a tensor, array or number"]) for value in ("text", {"y": "text"}, [1, "a"], {"y": None})],
        ({"y": 1.0, "id": "mol-7"}, ["'mol-7'", "with_ids(dataset)"]),
        (torch.eye(2).to_sparse(), ["must be a dense tensor with values", ".to_dense()"]),
        (np.ma.array([1, 2], mask=[True, False]), ["masked"]),
        (np.array(["a"]), ["must be a tensor, array or number"]),
    ],
    ids=lambda value: str(type(value)),
)  # fmt: skip
def test_labels_whose_values_are_out_of_reach(label: Any, parts: list[str]) -> None:
    with refused(SchemaError, "label", *parts):
        collate(example=(graph(), label))


@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("of", ["the label", "'y'", "'x'"])
def test_quantised_values_are_refused_by_name(of: str, tmp_path: Path) -> None:
    quantised, own = torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8), graph()
    if of == "'x'":
        own.ndata["x"] = quantised
    example = (own, quantised if of == "the label" else {"y": quantised} if of == "'y'" else 1.0)
    calls: list[Callable[[], Any]] = [
        lambda: collate(example=example), lambda: tp.packed_loader([example] * 3, 2),
        lambda: tp.packed_loader([example] * 3, 2, in_memory=False), lambda: tp.GraphStore.write(tmp_path, [example]),
    ]  # fmt: skip
    for call in calls:
        with refused(SchemaError, f"{of} is qint8 [2", "quantised", ".dequantize()"):
            call()


class Measured(NamedTuple):
    """A label with two parts."""

    id: Any
    value: Any


# A number of each kind, in the forms that datasets return. The integers have no float32, one of them no float64.
NUMBERS: dict[str, list[Any]] = {
    "bool": [True, np.bool_(False), torch.tensor(True)],
    "int": [2**24 + 1, np.int64(2**53 + 1), np.uint8(7), torch.tensor(2**24 + 1), torch.tensor(3, dtype=torch.int32)],
    "float": [0.5, np.float64(0.1), np.float32(0.5), torch.tensor(0.5), torch.tensor(0.1, dtype=torch.float64)],
}  # fmt: skip


@given(data=st.data(), in_dict=st.booleans())
def test_a_list_of_numbers_is_one_exact_tensor_or_refused(data: st.DataObject, in_dict: bool) -> None:
    kinds = data.draw(st.lists(st.sampled_from([*NUMBERS]), min_size=2, max_size=3))
    numbers = [data.draw(st.sampled_from(NUMBERS[kind])) for kind in kinds]
    label: Any = data.draw(st.sampled_from([numbers, tuple(numbers), [numbers, numbers], deque(numbers)]))
    if len(numbers) == 2 and data.draw(st.booleans()):
        label = Measured(*numbers)
    given = {"y": label} if in_dict else label
    if len({*kinds}) > 1:
        with refused(SchemaError, "the label 'y' is" if in_dict else "the label is", "mixes", *kinds, "'id': number"):
            collate(example=(graph(), given))
        return
    labels = collate(example=(graph(), given))([(graph(), given)]).labels
    found = (labels["y"] if in_dict else labels)[0]
    # Exact: no number has lost a digit, apart from Python's floats, which are all exact here.
    assert found.reshape(-1, len(numbers))[0].tolist() == [float(x) if kinds[0] == "float" else int(x) for x in numbers]


@pytest.mark.parametrize("dtypes", [(torch.int64, torch.float32), (torch.float32, torch.int64)], ids=str)
def test_the_advice_for_two_dtypes_does_not_round(dtypes: tuple[torch.dtype, ...]) -> None:
    items = [(graph(), torch.ones((), dtype=dtype)) for dtype in dtypes]
    with refused(SchemaError, "labels: found", "convert the label to float32"):
        collate(example=items[0])(items)


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        *[(torch.int64, fill) for fill in (0.5, float("nan"), 2**63, "a")],
        (torch.bool, 2), (torch.uint8, -1), (torch.uint8, 256), (torch.float32, None), (torch.float32, 1e300),
        (torch.float64, 10**400),
    ],
)  # fmt: skip
def test_fill_that_a_feature_or_label_cannot_hold(dtype: torch.dtype, fill: Any) -> None:
    example = random_graph(generator(0), 1, 0, {"x": ((), dtype)})
    with refused(SchemaError, "feature_fill is", repr(fill)[:90], "for x", f"{dtype} cannot hold", "choose a value"):
        tp.PaddedCollate(LIMITS, example=example, feature_fill=fill)
    with refused(SchemaError, "label_fill is", repr(fill)[:90], f"{dtype} cannot hold"):
        collate(example=(graph(), torch.zeros(2, dtype=dtype)), label_fill=fill)
