"""A hint to the processor that an array element will be read soon."""

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


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Begin to load ``array[index]`` into the cache; has no other effect, and never faults."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type = signature.args[0]
        made = context.make_array(array_type)(context, builder, arguments[0])
        at: Any = cgutils.get_item_pointer
        pointer = at(context, builder, array_type, made, [arguments[1]], wraparound=False)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        declare: Any = cgutils.get_or_insert_function
        arguments_of = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = declare(builder.module, arguments_of, "llvm.prefetch.p0i8")
        # For reading; to be kept in all caches; data.
        hints = [number(0), number(3), number(1)]
        builder.call(function, [builder.bitcast(pointer, byte), *hints])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


# The first argument is numba's own.
prefetch: Callable[[NDArray[Any], int], None] = cast(Any, intrinsic(_prefetch))
