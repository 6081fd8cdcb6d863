"""Errors of torch's tracer as messages that name the user's line and the remedy."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import torch

from dgl_tuplepack.compiling.torch_private import lines_of

_PATHS = sysconfig.get_paths()
_OURS = str(Path(__file__).parents[1])
_LIBRARIES = (*(_PATHS[name] for name in ("stdlib", "purelib", "platlib")), str(Path(torch.__file__).parent), _OURS)

# What the tracer or the line says -> what to do about it; the first that fits.
_REMEDIES = (
    (
        r"one_hot",
        "give labels as vectors, torch.nn.functional.one_hot(labels, number_of_classes).float()",
    ),
    (
        r"Could not guard on data-dependent",
        "no branch and no shape may depend on values: give pools of PyG size=data.num_graphs, its aggregation modules "
        "dim_size=data.num_graphs, and layers with dense attention (GPSConv) fullgraph=False; elsewhere use "
        "torch.where, masks, and sizes that shapes tell (len(x), not int(mask.sum()))",
    ),
    (
        r"(in|out)_degrees\(\)? *== *0",
        "make the layer with allow_zero_in_degree=True (nodes without messages then get 0); a layer without that "
        "argument, such as EGATConv, can stay uncompiled: layer.forward = torch.compiler.disable(layer.forward), and "
        "tp.compile(..., fullgraph=False)",
    ),
    (
        r"dgl[/\\.]|HeteroGraphIndex|DGLGraph|_CAPI_DGL",
        "give batch.tensors instead of a DGLGraph or a PaddedBatch, and call layers on its .graph",
    ),
    (
        r"[Dd]ata-dependent|data dependent|guard on|unbacked|\bu\d+\b",
        "no branch and no shape may depend on values: use torch.where, masks, and sizes that shapes tell (len(x), not "
        "int(mask.sum()))",
    ),
    (
        r"\.item\(|tolist\(|_local_scalar_dense|scalar_outputs",
        "keep the number a 0-dimensional tensor, or take it outside of the compiled function",
    ),
    (
        r"bincount|nonzero|unique|masked_select|repeat_interleave|[Dd]ynamic shape|dynamic_output_shape",
        "the shape of its result depends on values: use masks, or index_add_ into as many rows as there are slots",
    ),
    (
        r"\.backward\(|autograd\.grad|requires_grad_",
        "compile the loss alone, and call backward() and the optimiser outside",
    ),
    (
        r"\brandom\.|Random\.random|Generator",
        "draw with torch's functions, which have the seeds of torch.manual_seed",
    ),
    (r"\bprint\b|\blogging\b", "print outside of the compiled function"),
    (r"numpy|\bnp\.", "use torch's functions instead of numpy's"),
)
_ANY = "take it out of the compiled function, or compile with fullgraph=False, which runs it uncompiled in between"


def explanation(name: str, error: BaseException) -> str:
    """Say which line of `name` the tracer could not follow, why, and what to do."""
    text = str(error)
    reason = text.partition("\n")[0].strip().rstrip(".") or type(error).__name__
    raised = re.search(r"raised exception (.*)", text)
    if reason == "Observed exception" and raised:
        return f"{name} raises {raised[1]}{_place(error)}; call the function itself, uncompiled, to see where."
    said = re.search(r"code: (.*)", text)
    # Hints name functions that the line need not have.
    told = [line for line in text.partition("from user code")[0].splitlines() if not line.strip().startswith("Hint:")]
    cause = "\n".join([*told, said[1] if said else "", *(line for *_, line in lines_of(error))])
    cause += "".join(file for file, *_ in lines_of(error))
    remedy = next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, cause)), _ANY)
    return f"{name} cannot be compiled in one graph{_place(error)}: {reason}; {remedy}."


def with_remedy(reason: str) -> str:
    """Add to the reason of a failure what is known to help."""
    if "to have been codegen-ed" not in reason:
        return reason
    return (
        f"{reason}; a number of rows depends on values: make layers of PyG that add self-loops with "
        "add_self_loops=False, and add self-loops to the graphs"
    )


def _place(error: BaseException) -> str:
    """The innermost line that is the user's own, or else the innermost one outside of this package."""
    lines = lines_of(error)
    if not lines:
        return ""
    own = [line for line in lines if not line[0].startswith(_LIBRARIES)]
    others = [line for line in lines if not line[0].startswith(_OURS)]
    file, number, line = (own or others or lines)[-1]
    return f", because of {Path(file).name}, line {number} ({line.strip()})"
