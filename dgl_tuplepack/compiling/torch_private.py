"""All code that uses private parts of torch, under their names in torch 2.13; last, the pass of the compiler."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.utils.checkpoint import CheckpointPolicy

from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.compiling.torch_versions import bug_of, is_tried, release_of, remark_on
from dgl_tuplepack.errors import CompileError

# Options of torch's compiler: the function that changes the joint graph (the forward and backward pass in one graph),
# the number of threads of a generated kernel, and the largest number of operations in one fused kernel.
PASS_OPTION, THREADS_OPTION, FUSION_OPTION = "joint_custom_pre_pass", "cpp.threads", "max_fusion_size"
_SECOND_CACHE = "after-a-failure"
_log = logging.getLogger(__name__)


def our_options(device: str) -> dict[str, Any]:
    """Return the options that `tp.compile` adds for a device type, such as "cpu".

    Generated kernels get one thread: with several, sums over edges need atomic operations, which cost more than the
    threads save. With the bug `torch_versions.FUSION`, sums are right if nothing is fused (`FUSION_OPTION` 1).
    """
    known = known_options() or frozenset()
    options: dict[str, Any] = {THREADS_OPTION: 1, PASS_OPTION: _joint_pass()}
    if not is_tried(torch.__version__):
        _log_once(f"torch {torch.__version__} is {remark_on(torch.__version__)}")
    for name in [name for name, value in options.items() if name not in known or value is None]:
        del options[name]
        _log_once(f"torch {torch.__version__} has no compiler option {name!r}; compiled code is slower without it")
    if device == "cpu" and bug_of(torch.__version__):
        if FUSION_OPTION not in known:
            raise CompileError(
                f"torch {torch.__version__} may compile sums over edges wrongly, and has no option {FUSION_OPTION!r} "
                "to prevent that; install a newer torch, or do not compile."
            )
        options[FUSION_OPTION] = 1
    return options


@functools.cache
def _log_once(text: str) -> None:
    _log.warning(text)


@functools.cache
def problem_at_start() -> str | None:
    """Return a message if torch's compiler does not start, for example because no folder is writable; else None."""
    try:
        importlib.import_module("torch._inductor")
    except OSError as error:
        return f"torch's compiler does not start ({error}); set TORCHINDUCTOR_CACHE_DIR to a writable folder"
    return None


def use_another_cache() -> bool:
    """Make torch store compiled code in a subfolder of its cache; return False if torch already uses the subfolder.

    If a process is killed while it writes a file of the cache, torch does not notice that the file is incomplete. From
    then on, compiling fails until the file is deleted.
    """
    inductor: Any = importlib.import_module("torch._inductor.codecache")
    folder = Path(inductor.cache_dir())
    if folder.name == _SECOND_CACHE:
        return False
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / _SECOND_CACHE)
    # Torch 2.14 keeps the path of the incomplete file in memory.
    importlib.import_module("torch._inductor.utils").clear_inductor_caches()
    return True


def known_options() -> frozenset[str] | None:
    """Return the names that ``options=`` of ``torch.compile`` accepts; None if torch's compiler does not start."""
    if problem_at_start() is not None:
        return None
    return frozenset(importlib.import_module("torch._inductor").list_options())


def number_of_graphs() -> int:
    """Return how many graphs torch has compiled in this process; it grows whenever torch compiles a function again."""
    number: int = _counters()["stats"]["unique_graphs"]
    return number


@functools.cache
def _counters() -> Any:
    from torch._dynamo.utils import counters

    return counters


# Functions that compare numbers which the tracer may not know; older releases of torch lack them.
_COMPARES_UNKNOWN = release_of(torch.__version__) >= (2, 8)


def known_equal(one: int, other: int) -> bool:
    """Return whether two sizes are equal; False if the tracer does not know one of them."""
    if not is_traced() or not _COMPARES_UNKNOWN:
        return one == other
    # Imported here, since it takes long; torch has imported it when it traces.
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return guard_or_false(one == other)


def may_be_equal(one: int, other: int) -> bool:
    """Return whether two sizes are equal, or the tracer does not know one of them."""
    if not is_traced() or not _COMPARES_UNKNOWN:
        return one == other
    from torch.fx.experimental.symbolic_shapes import guard_or_true

    return guard_or_true(one == other)


def _joint_pass() -> Any:
    """Return `keep_no_bools` as an object that torch's disk cache can identify; None without `CustomGraphPass`."""
    try:
        from torch._inductor.custom_graph_pass import CustomGraphPass
    except ImportError:
        return None
    # With a plain function as the option, torch would cache nothing on disk.
    source = Path(__file__).read_bytes()

    class KeepNoBools(CustomGraphPass):
        def __call__(self, graph: Graph) -> None:
            keep_no_bools(graph)

        def uuid(self) -> bytes:
            return hashlib.sha256(source).digest()

    return KeepNoBools()


def is_inductor(arguments: Mapping[str, Any]) -> bool:
    """Return whether `arguments` of ``torch.compile`` choose Inductor."""
    return arguments.get("backend") in (None, "inductor")


def supported_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `arguments` that this version of ``torch.compile`` accepts."""
    return {name: each for name, each in arguments.items() if name in inspect.signature(torch.compile).parameters}


# Names of errors of torch's compiler, if torch could not trace a function as one graph, has compiled it too often, or
# failed after tracing, for example without a C++ compiler.
GRAPH_BREAK = "Unsupported", "UserError", "UncapturedHigherOrderOpError"
TOO_OFTEN = "FailOnRecompileLimitHit", "RecompileError"
FAILURE = (
    "BackendCompilerFailed", "InternalTorchDynamoError", "InductorError", "CppCompileError", "InvalidCxxCompiler",
    "TritonMissing",
)  # fmt: skip


def is_one_of(error: BaseException, names: Sequence[str]) -> bool:
    """Return whether an error is of one of these classes of torch's compiler."""
    modules = "torch._dynamo.exc", "torch._inductor.exc"
    return any(each.__module__ in modules and each.__name__ in names for each in type(error).__mro__)


def permission_for(error: BaseException) -> str:
    """Return the setting that lets torch trace what the error is about; empty if there is none.

    Torch asks for ``allow_rnn`` in order to trace an LSTM, GRU or RNN, and, since 2.13, for ``trace_autograd_ops`` in
    order to trace `torch.autograd.grad`.
    """
    from torch._dynamo import config

    text = str(error) if is_one_of(error, GRAPH_BREAK) else ""
    permissions = {"allow_rnn": "allow_rnn", "torch.autograd.grad": "trace_autograd_ops"}
    return next((each for part, each in permissions.items() if part in text and hasattr(config, each)), "")


def is_about_gradients(error: BaseException) -> bool:
    """Return whether the tracer refuses to compute gradients, as models of forces do."""
    return is_one_of(error, GRAPH_BREAK) and any(
        each in str(error) for each in ("requires_grad", "autograd.grad", "trace_autograd_ops")
    )


def is_error_of_function(error: BaseException) -> bool:
    """Return whether the error comes from the function itself."""
    starts = "Observed exception", "failed to find name", "failed to bind arguments"
    return any(each in str(error)[:60] for each in starts) or is_one_of(error, ("TorchRuntimeError",))


@contextmanager
def torch_settings(*, permissions: Iterable[str], recompile_limit: int | None) -> Iterator[None]:
    """Inside this context, give torch's tracer permissions (`permission_for`), and change its limit of recompilations.

    Recurrent layers are traced without oneDNN: torch 2.13 generates code that fails for its single operations.
    """
    changes: dict[str, Any] = dict.fromkeys(permissions, True)
    changes |= {"recompile_limit": recompile_limit} if recompile_limit is not None else {}
    if not changes:
        yield
        return
    from torch._dynamo import config

    one_dnn: Any = torch.backends.mkldnn
    before = one_dnn.enabled
    one_dnn.enabled = before and "allow_rnn" not in changes
    try:
        with config.patch(changes):
            yield
    finally:
        one_dnn.enabled = before


def reason_of(error: BaseException) -> str:
    """Return, on one line, the class and message of the innermost error that `error` wraps."""
    while isinstance(inner := getattr(error, "inner_exception", None), BaseException):
        error = inner
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def lines_of(error: BaseException) -> list[tuple[str, int, str]]:
    """Return the Python lines that led to a tracing error, outermost first, as (file, line number, line)."""
    stack = getattr(error, "real_stack", None) or ()
    return [(frame.filename, frame.lineno or 0, frame.line or "") for frame in stack]


def version_of(tensor: Tensor) -> int:
    """Return how many times a tensor was changed in place."""
    return tensor._version


def hooks_of(tensor: Tensor) -> list[Callable[[Tensor], Any]]:
    """Return the hooks of a tensor that may change its gradient."""
    return [*(tensor._backward_hooks or {}).values()]


def may_be_exported(kind: type[Any], name: str) -> None:
    """Let `torch.export.save` and `load` use a class of named tuples, under a name; torch before 2.5 cannot."""
    from torch.utils import _pytree

    if hasattr(_pytree, "_register_namedtuple"):
        _pytree._register_namedtuple(kind, serialized_type_name=name)
    # A saved program has an example of its arguments, which torch unpickles.
    if hasattr(torch.serialization, "add_safe_globals"):
        torch.serialization.add_safe_globals([kind])


# The pass over the joint graph. On the CPU, generated code handles matrices of bools 10 to 35 times slower than floats,
# and torch keeps the mask of every activation as bools. The pass makes the backward pass recompute masks that only
# compare floats or combine masks, to the last bit. Generated code also draws random numbers one by one; torch's own
# function, which the pass makes it call, takes an eighth of the time.

_COMPARISONS = "eq ne lt le gt ge isnan isinf"
_LOGIC = "logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor"
_VIEWS = "alias clone expand permute squeeze t unsqueeze view"
_HALVES = (torch.float16, torch.bfloat16)
_CHEAP = frozenset(getattr(torch.ops.aten, name) for name in f"{_COMPARISONS} {_LOGIC} {_VIEWS}".split())


def keep_no_bools(graph: Graph) -> int:
    """Mark masks and replace random numbers on the CPU in a joint graph, in place; return the number of changes."""
    random = [node for node in graph.nodes if _draws_uniform_numbers(node)]
    drawn: Node | None = None
    for node in random:
        drawn = _draw_by_torch(graph, node, drawn)
    masks = list(_cheap_masks(graph))
    for node in masks:
        # Nodes with equal `ac_graph_id` belong to one region that is recomputed.
        node.meta.update(recompute=CheckpointPolicy.MUST_RECOMPUTE, ac_graph_id=0)
    return len(random) + len(masks) + _keep_what_buffers_gave(graph)


def _keep_what_buffers_gave(graph: Graph) -> int:
    """Mark what is made of tensors that the graph writes to; return its number.

    The backward pass could make it again, but of the new values, so that gradients would be wrong, as of a weight that
    a counter in the forward pass sets.
    """
    writes = [node for node in graph.nodes if node.target is torch.ops.aten.copy_.default]
    written = {node.args[0] for node in writes}
    made = [node for node in graph.nodes if node not in writes and written.intersection(node.all_input_nodes)]
    for node in made:
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return len(made)


def _cheap_masks(graph: Graph) -> Iterator[Node]:
    """Yield each mask of the forward pass that is cheap to recompute, if all masks that it reads are cheap too."""
    of_backward: set[Node] = set()
    cheap: set[Node] = set()
    for node in graph.nodes:
        # The backward pass begins with the gradients of outputs.
        is_tangent = node.op == "placeholder" and "tangents" in str(node.target)
        if is_tangent or any(each in of_backward for each in node.all_input_nodes):
            of_backward.add(node)
        # A mask inside ``torch.utils.checkpoint`` already has a policy.
        elif _is_bool_on_cpu(node) and _is_cheap(node) and "recompute" not in node.meta:
            # Inputs of the graph (placeholders) exist anyway.
            input_masks = [each for each in node.all_input_nodes if _is_bool_on_cpu(each) and each.op != "placeholder"]
            if cheap.issuperset(input_masks):
                cheap.add(node)
                yield node


def _is_bool_on_cpu(node: Node) -> bool:
    # "val" is a tensor without data, with the dtype, shape and device of the node's result.
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool and value.device.type == "cpu"


def _is_cheap(node: Node) -> bool:
    """Return whether a mask is cheap to recompute, and stays the same when it is recomputed from kept values.

    Values in half precision are rounded only when they are kept, so comparisons of them may change, except with 0.
    """
    if node.op != "call_function" or getattr(node.target, "overloadpacket", None) not in _CHEAP:
        return False
    if not any(map(_is_half, node.all_input_nodes)):
        return True
    # The numbers that the mask compares with must all be 0; isnan and isinf have no such arguments.
    return all(isinstance(each, int | float) and each == 0 for each in node.args[1:])


def _is_half(node: Node) -> bool:
    """Return whether the result of a node is in half precision, or was converted from half precision."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.dtype in _HALVES:
        return True
    return node.target is torch.ops.prims.convert_element_type.default and _is_half(node.all_input_nodes[0])


def _draws_uniform_numbers(node: Node) -> bool:
    if node.target is not torch.ops.aten.rand.default:
        return False
    value = node.meta["val"]
    is_float = value.dtype in (torch.float32, torch.float64)
    return is_float and value.device.type == "cpu" and bool(value.is_contiguous())


def _draw_by_torch(graph: Graph, node: Node, before: Node | None) -> Node:
    """Replace a node that draws random numbers by a node for which generated code calls torch's own function.

    `before` is the draw before it. Return the new draw.
    """
    with graph.inserting_before(node):
        # Each draw gets its own `memory`, so that torch does not merge two draws of the same shape into one. It is made
        # of a number that was drawn before, since generated code may change the order of draws that do not need it.
        if before is not None and before.meta["val"].dtype == node.meta["val"].dtype and before.meta["val"].numel():
            strides = [0] * node.meta["val"].ndim
            one = graph.call_function(torch.ops.aten.as_strided.default, (before, node.args[0], strides, 0))
            # Torch would remove a copy, but not a product.
            memory = graph.call_function(torch.ops.aten.mul.Tensor, (one, 2.0))
            one.meta.update(node.meta)
        else:
            settings: dict[str, Any] = {name: node.kwargs[name] for name in ("dtype", "device") if name in node.kwargs}
            memory = graph.call_function(torch.ops.aten.empty.memory_format, (node.args[0],), settings)
        numbers = graph.call_function(torch.ops.aten.uniform.default, (memory, 0.0, 1.0))
    for each in (memory, numbers):
        each.meta.update(node.meta)
    node.replace_all_uses_with(numbers)
    graph.erase_node(node)
    return numbers
