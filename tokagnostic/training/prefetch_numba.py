"""An address to the instruction that asks for its cache line and does not wait."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def prefetch(typing_context, address):
    """Ask for the line of an address, which is going to be written; an address of nothing does no harm."""
    return types.void(types.uintp), _emit_prefetch


def _emit_prefetch(context, builder, signature, arguments):
    number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
    function = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
    is_written, keep, is_data = 1, 3, 1
    options = [ir.Constant(number, option) for option in (is_written, keep, is_data)]
    builder.call(function, [builder.inttoptr(arguments[0], pointer), *options])
    return context.get_dummy_value()
