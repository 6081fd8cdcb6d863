"""Memory access by address, so that one compiled loop can read any number of files, and write tensors of any dtype.

The private functions are intrinsics of numba: each returns the signature of a call and a function that generates its
LLVM code, which their docstrings describe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

# While graph i is copied, graph i + AHEAD is prefetched.
AHEAD = 8
# At most this many bytes of a graph are prefetched; the processor itself prefetches the bytes after them.
_MOST_BYTES = 4096
_LINE_BYTES = 64  # bytes of a cache line


def _prefetch(typing_context: Any, address: Any, number: Any) -> Any:
    """Prefetch the `number` bytes at `address`, at most _MOST_BYTES; even an invalid address is allowed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, word, flag = ir.IntType(8).as_pointer(), ir.IntType(64), ir.IntType(32)
        declare: Any = cgutils.get_or_insert_function
        arguments_of = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = declare(builder.module, arguments_of, "llvm.prefetch.p0i8")
        # 0: the access is a read. 0: the bytes are used only once. 1: they are data, not code.
        hints = [flag(0), flag(0), flag(1)]
        first, number = arguments
        # fetched = min(number, _MOST_BYTES)
        fetched = builder.select(builder.icmp_signed("<", number, word(_MOST_BYTES)), number, word(_MOST_BYTES))
        with cgutils.for_range_slice(builder, word(0), fetched, word(_LINE_BYTES), word) as (offset, _):
            builder.call(function, [builder.inttoptr(builder.add(first, offset), byte), *hints])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _copy_bytes(typing_context: Any, to: Any, address: Any, number: Any) -> Any:
    """Copy `number` bytes at `address` to the address `to`; the two ranges must not overlap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        pointers = [builder.inttoptr(address, byte) for address in arguments[:2]]
        copy: Any = cgutils.raw_memcpy
        copy(builder, *pointers, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _pointer_at(typing_context: Any, address: Any, dtype: Any) -> Any:
    """Return a pointer to values of the numpy type `dtype` at `address`, for ``numba.carray``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    pointer: Any = types.CPointer(dtype.instance_type)  # type: ignore[no-untyped-call]
    return pointer(types.int64, dtype), generate


# numba itself passes the first argument.
prefetch: Callable[[int, int], None] = cast(Any, intrinsic(_prefetch))
copy_bytes: Callable[[int, int, int], None] = cast(Any, intrinsic(_copy_bytes))
pointer_at: Callable[[int, Any], Any] = cast(Any, intrinsic(_pointer_at))
