"""The page of `list_layers.py`: tables of layers, in Markdown."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dgl
import torch
from torch import nn

from layers.comparison import Row

# Prefix of the names of layers that the comparison leaves out -> the reason.
EXCLUDED = {"CuGraph": "cugraph-ops kernels, which need their own graph format"}

_INTRODUCTION = """\
# Layers of dgl.nn on a TensorGraph

Which DGL layers run on a [`tp.TensorGraph`](../explain/compile.md#the-tensorgraph), and which of them compile? Every
layer of `dgl.nn` whose forward pass accepts a graph was run on a batch of DGLGraphs and on a `TensorGraph` of the same
batch, with equal parameters in float64. The batch contains empty graphs and nodes without edges.

- *Equal*: outputs, and gradients of all inputs and parameters, differ by at most 1e-10 (relative for values above 1).
- *Compiled once*: under `tp.compile` the layer becomes one compiled graph, a second batch with other content causes no
  recompilation, and outputs and gradients are equal again.

**{equal} of {number} layers are equal, and {compiled} of them compile once as one graph.** Only the first three
tables are counted, not containers and further settings.

`python scripts/list_layers.py` writes this page, and `python scripts/list_layers.py --check` checks it. This version
was written with DGL {dgl} and torch {torch}.

Some layers refuse nodes without incoming edges. They check this on the host, which cannot be compiled; with
`allow_zero_in_degree=True` they compile. If a layer fails on a `TensorGraph`, the error gives the reason.
"""
_MECHANISM = """\
## How DGL's functions work on a TensorGraph

Layers and models call free functions of DGL, such as `dgl.mean_nodes(graph, "h")` and `edge_softmax(graph, logits)`.
These functions access the C++ object of a DGLGraph, which a `TensorGraph` does not have. So the first `TensorGraph`
that is created after DGL was imported patches the functions below, in place and once:

- Each function object stays the same, but its code (`function.__code__`) is replaced by one line that checks the type
  of the graph. So every reference to the function is affected: `from dgl import mean_nodes` in any file, earlier or
  later; functions in dicts, partial functions and default arguments; and DGL's own modules.
- A call with a `TensorGraph` runs our implementation. Every other call runs the original code with the same arguments.
  So results on DGLGraphs stay the same bit for bit; a call takes hardly longer.
- `segment_reduce`, `segment_softmax`, `segment_mm` and `gather_mm` have no graph argument. They run our implementation
  in code that torch.compile traces, and for tensors on a device that the installed build of DGL does not support.
- The signature, the docstring and the source that `inspect` shows do not change.
- `tp.tensor_graph.restore()` restores the code of all functions. `tp.tensor_graph.install()` patches them at once; call
  it if you import DGL only after you have created your last `TensorGraph`.

The functions are {functions}.
Functions that call one of these accept a `TensorGraph` too, such as `dgl.ops.u_mul_e_sum` and `dgl.sum_nodes`.
"""


def graph_layers() -> list[str]:
    """Return the names of all public layers of dgl.nn whose forward accepts a graph."""
    names = []
    for name, value in sorted(vars(dgl.nn).items()):
        if name.startswith("_") or not (inspect.isclass(value) and issubclass(value, nn.Module)):
            continue
        if {"g", "graph"} & set(inspect.signature(value.forward).parameters):
            names.append(name)
    return [name for name in names if not name.startswith(tuple(EXCLUDED))]


def page(sections: Mapping[str, Sequence[Row]], counted: Sequence[str], functions: Iterable[Any]) -> str:
    """Return the page; its totals count the layers of the sections ``counted``."""
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
    return "\n".join([*lines, *map(table_line, rows)]) + "\n"


def table_line(row: Row) -> str:
    """Return the line of a layer in its table."""
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
    for prefix, reason in EXCLUDED.items():
        lines.append(f"- {prefix}...: {reason}.")
    lines.append(f"- Modules whose forward has no graph argument: {', '.join(plain)}.")
    return "\n".join(lines) + "\n"
