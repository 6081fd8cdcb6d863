"""The message about code that torch's tracer cannot follow: its line, the reason, and a remedy."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import torch

from dgl_tuplepack.compiling.torch_private import lines_of

# User code is outside of `_LIBRARIES`.
_PATHS = sysconfig.get_paths()
_OURS = str(Path(__file__).parents[1])
_LIBRARIES = (*(_PATHS[name] for name in ("stdlib", "purelib", "platlib")), str(Path(torch.__file__).parent), _OURS)

_NO_VALUES = (
    "branches and shapes must not depend on values: use torch.where, masks, and sizes known from shapes (len(x), not "
    "int(mask.sum()))"
)
# Pattern in the tracer's message and the lines of code that led to the error, and remedy; the first pattern counts.
_REMEDIES = (
    (r"one_hot", "encode labels before the call: torch.nn.functional.one_hot(labels, number_of_classes).float()"),
    (
        r"Could not guard on data-dependent",
        f"{_NO_VALUES}; pass size=data.num_graphs to PyG's pools and dim_size=data.num_graphs to its aggregation "
        "modules, and compile dense-attention layers (GPSConv) with fullgraph=False",
    ),
    (
        r"(in|out)_degrees\(\)? *== *0",
        "create the layer with allow_zero_in_degree=True, or call its set_allow_zero_in_degree(True) (nodes without "
        "messages then get 0; the loader's cover_padding=True helps uncompiled code only); leave a layer without that "
        "argument, such as EGATConv, uncompiled: layer.forward = torch.compiler.disable(layer.forward), and "
        "tp.compile(..., fullgraph=False)",
    ),
    (
        r"dgl[/\\.]|HeteroGraphIndex|DGLGraph|_CAPI_DGL",
        "pass batch.tensors instead of a DGLGraph or a PaddedBatch, and call layers on its .graph",
    ),
    (r"[Dd]ata-dependent|data dependent|guard on|unbacked|\bu\d+\b", _NO_VALUES),
    (
        r"\.item\(|tolist\(|_local_scalar_dense|scalar_outputs",
        "keep the number as a 0-dimensional tensor, or read it outside the compiled function",
    ),
    (
        r"bincount|nonzero|unique|masked_select|repeat_interleave|[Dd]ynamic shape|dynamic_output_shape",
        "the shape of the result depends on values: use masks, or index_add_ into one row per slot",
    ),
    (
        r"Tensor\.requires_grad not supported|Unsupported Tensor\.requires_grad_",
        "write x.requires_grad_() for a feature x of the graph, which compile(model, loader) allows, but not "
        "under torch.inference_mode(); a function needs it before the call",
    ),
    (
        r"requires_grad=True|returning intermediate with requires_grad_",
        "write x.requires_grad_() for the feature or argument x itself, without clone or detach before it; a tensor "
        "that is made in compiled code, such as a strain, must depend on an argument instead: "
        "torch.zeros(batch_size, 3, 3) + 0 * positions.sum()",
    ),
    (
        r"consumed returned tensor",
        "return results without their graph, energy.detach(), or give create_graph=True to torch.autograd.grad",
    ),
    (
        r"autograd\.grad",
        f"torch {torch.__version__} cannot compile this torch.autograd.grad; from 2.13 on, torch compiles those of "
        "what the model itself computed from its arguments",
    ),
    (r"\.backward\(", "compile only the loss, and call backward() and the optimiser outside"),
    (r"\brandom\.|Random\.random|Generator", "use torch's random functions, which follow torch.manual_seed"),
    (r"\bprint\b|\blogging\b", "print outside the compiled function"),
    (r"numpy|\bnp\.", "use torch's functions instead of numpy's"),
)
_OTHERWISE = (
    "move this code out of the compiled function, or compile with fullgraph=False, which leaves this code uncompiled"
)


def explanation(name: str, error: BaseException) -> str:
    """Return a message about the function `name`: the line that the tracer cannot follow, the reason, and a remedy."""
    text = str(error)
    reason = text.partition("\n")[0].strip().rstrip(".") or type(error).__name__
    raised = re.search(r"raised exception (.*)", text)
    if reason == "Observed exception" and raised:
        return f"{name} raises {raised[1]}{_because_of(error)}; call the function itself, uncompiled, to see where."
    code = re.search(r"code: (.*)", text)
    # Leave out the tracer's hints, since they can name functions that the user's code does not call.
    message = text.partition("from user code")[0].splitlines()
    without_hints = [line for line in message if not line.strip().startswith("Hint:")]
    searched = "\n".join([*without_hints, code[1] if code else "", *(line for *_, line in lines_of(error))])
    # If code of DGL led to the error, add "dgl/", which the pattern of DGL's remedy matches. Only files in folders of
    # libraries count, since a user's own folder may be called dgl.
    libraries = [Path(file).parts for file, *_ in lines_of(error) if file.startswith(_LIBRARIES)]
    searched += "dgl/" if any("dgl" in parts for parts in libraries) else ""
    remedy = next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, searched)), _OTHERWISE)
    return f"{name} cannot be compiled in one graph{_because_of(error)}: {reason}; {remedy}."


def _because_of(error: BaseException) -> str:
    """Return a clause that names the innermost line of the user's code, or of others' code, that led to an error."""
    frames = lines_of(error)
    if not frames:
        return ""
    users = [frame for frame in frames if not frame[0].startswith(_LIBRARIES)]
    others = [frame for frame in frames if not frame[0].startswith(_OURS)]
    file, number, line = (users or others or frames)[-1]
    return f", because of {Path(file).name}, line {number} ({line.strip()})"
