"""Arrays by the address of their first byte: how one compiled loop reads from any number of files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

# Graphs this far ahead are fetched: enough to hide the way to main memory behind the copies in between.
AHEAD = 8
# No more than this of each graph; from there on, processors see the pattern by themselves.
MOST_BYTES = 4096
LINE_BYTES = 64


def _prefetch(typing_context: Any, address: Any) -> Any:
    """Begin to load what lies at `address` into the cache; has no other effect, and never faults."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        declare: Any = cgutils.get_or_insert_function
        arguments_of = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = declare(builder.module, arguments_of, "llvm.prefetch.p0i8")
        # For reading; to be kept in all caches; data.
        hints = [number(0), number(3), number(1)]
        builder.call(function, [builder.inttoptr(arguments[0], byte), *hints])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _pointer_at(typing_context: Any, address: Any, like: Any) -> Any:
    """Pointer to values of the dtype of the array `like`; numba.carray makes an array of it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    pointer: Any = types.CPointer(like.dtype)  # type: ignore[no-untyped-call]
    return pointer(types.int64, like), generate


# The first argument of each is numba's own.
prefetch: Callable[[int], None] = cast(Any, intrinsic(_prefetch))
pointer_at: Callable[[int, NDArray[Any]], Any] = cast(Any, intrinsic(_pointer_at))
