"""Addresses in memory to arrays inside kernels, for calls so small that handing arrays over takes longer than the work.

A tensor's address is a number, which a kernel takes in a tenth of the time that an array made of the tensor takes. The
caller answers for it that the numbers lie there, one after another, until the kernel returns.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def floats_at(typing_context, address):
    """Pointer to float32 numbers; `numba.carray` makes an array of it."""
    return types.CPointer(types.float32)(types.intp), _emit_pointer


@intrinsic
def integers_at(typing_context, address):
    """Pointer to int64 numbers; `numba.carray` makes an array of it."""
    return types.CPointer(types.int64)(types.intp), _emit_pointer


@intrinsic
def bytes_at(typing_context, address):
    """Pointer to bytes; `numba.carray` makes an array of it."""
    return types.CPointer(types.uint8)(types.intp), _emit_pointer


@intrinsic
def prefetch(typing_context, address):
    """Begin to bring what stands at an address into the first cache, and do not wait for it."""
    return types.void(types.intp), _emit_prefetch


def _emit_pointer(context, builder, signature, arguments):
    return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))


def _emit_prefetch(context, builder, signature, arguments):
    pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    signature = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
    function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], signature)
    to_read, often, data = (ir.Constant(number, value) for value in (0, 3, 1))
    builder.call(function, [builder.inttoptr(arguments[0], pointer), to_read, often, data])
    return context.get_dummy_value()
