"""The page of `list_layers.py`: tables of layers, in Markdown."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dgl
import torch
from torch import nn

from layers.comparison import Row

# Layers that the comparison leaves out, by the begin of their names.
EXCLUDED = {"CuGraph": "kernels of cugraph-ops, which need its own graph format"}

_INTRODUCTION = """\
# Layers of dgl.nn on a TensorGraph

`python scripts/list_layers.py` writes this page and `python scripts/list_layers.py --check` checks it, with DGL {dgl}
and torch {torch}. Every layer of `dgl.nn` whose `forward` accepts a graph runs on a batch of DGLGraphs, which includes
empty graphs and nodes without edges, and on a `TensorGraph` of the same batch, with equal parameters in float64.

- *Equal*: outputs, and gradients with respect to all inputs and parameters, differ by at most 1e-10 (relative if they
  exceed 1).
- *Compiled once*: `tp.compile` compiles the layer as one graph, a second batch with other content compiles nothing, and
  outputs and gradients are equal again.

**{equal} of {number} layers are equal, and {compiled} of them compile as one graph, once.** Containers are not counted.

Some layers read degrees on the host, to refuse nodes without incoming edges. They compile with
`allow_zero_in_degree=True`. If a layer fails on a `TensorGraph`, its error states the reason.
"""
_MECHANISM = """\
## How DGL's functions accept a TensorGraph

Layers, models and users call DGL's free functions: `dgl.mean_nodes(graph, "h")`, `edge_softmax(graph, logits)`. These
functions use the C++ object of a DGLGraph, which a `TensorGraph` does not have. So the first `TensorGraph` that is made
after DGL was imported changes the functions below, in place and once:

- Each function object stays the same, but one line that checks the type of the graph replaces its code
  (`function.__code__`). Every reference to the function gets the change: `from dgl import mean_nodes` in any file,
  before or after; dicts, partial functions, defaults; DGL's own modules.
- A call with a `TensorGraph` runs our implementation. All other calls run the original code with the same arguments, so
  results on DGLGraphs stay the same bit for bit. A call takes a fraction of a microsecond longer.
- `segment_reduce`, `segment_softmax`, `segment_mm` and `gather_mm` accept no graph. They run our implementation in code
  that torch.compile traces, and for tensors on a device that this build of DGL does not support.
- The signature, the docstring and the source that `inspect` shows do not change.
- `dgl_tuplepack.tensor_graph.restore()` restores the code of all functions. `install()` changes them without waiting
  for a graph, which is needed if DGL is imported after the only graph was made.

The functions are {functions}.
Functions that call one of them accept a `TensorGraph` too: `dgl.ops.u_mul_e_sum`, `dgl.sum_nodes` and the like.
"""


def graph_layers() -> list[str]:
    """Return the names of all public layers of dgl.nn whose forward takes a graph."""
    names = []
    for name, value in sorted(vars(dgl.nn).items()):
        if name.startswith("_") or not (inspect.isclass(value) and issubclass(value, nn.Module)):
            continue
        if {"g", "graph"} & set(inspect.signature(value.forward).parameters):
            names.append(name)
    return [name for name in names if not name.startswith(tuple(EXCLUDED))]


def page(sections: Mapping[str, Sequence[Row]], counted: Sequence[str], functions: Iterable[Any]) -> str:
    """Return the page; layers of the sections ``counted`` are counted."""
    rows = [row for name in counted for row in sections[name]]
    introduction = _INTRODUCTION.format(
        dgl=dgl.__version__,
        torch=torch.__version__.partition("+")[0],
        equal=sum(row.equal for row in rows),
        number=len(rows),
        compiled=sum(row.compiled for row in rows),
    )
    tables = [f"## {name}\n\n{_table(found)}" for name, found in sections.items()]
    named = sorted({f"`{each.name if each.owner is None else each.owner + '.' + each.name}`" for each in functions})
    return "\n".join([introduction, *tables, _left_out(), _MECHANISM.format(functions=", ".join(named))])


def _table(rows: Sequence[Row]) -> str:
    lines = ["| layer | equal | compiled once | why not |", "|---|---|---|---|"]
    return "\n".join([*lines, *map(_table_line, rows)]) + "\n"


def _table_line(row: Row) -> str:
    equal, compiled = ("yes" if each else "no" for each in (row.equal, row.compiled))
    return f"| {row.case.shown} | {equal} | {compiled} | {row.reason.replace('|', '/')} |"


def _left_out() -> str:
    layers = set(graph_layers())
    others = [
        name
        for name, value in sorted(vars(dgl.nn).items())
        if inspect.isclass(value) and issubclass(value, nn.Module) and name not in layers
    ]
    plain = [name for name in others if not name.startswith(tuple(EXCLUDED))]
    lines = ["## Left out", ""]
    for begin, reason in EXCLUDED.items():
        lines.append(f"- {begin}...: {reason}.")
    lines.append(f"- Modules that accept only tensors, or receive their graph elsewhere: {', '.join(plain)}.")
    return "\n".join(lines) + "\n"
