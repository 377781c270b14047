"""Addresses in memory to arrays inside kernels, for calls so small that handing arrays over takes longer than the work.

A tensor's address is a number, which a kernel takes in a tenth of the time that an array made of the tensor takes. The
caller answers for it that the numbers lie there, one after another, until the kernel returns.
"""

from __future__ import annotations

from functools import partial

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
    """Ask for the cache line of an address, which is going to be read, and do not wait; nothing there does no harm."""
    return types.void(types.uintp), partial(_emit_prefetch, False)


@intrinsic
def prefetch_to_write(typing_context, address):
    """The same for an address that is going to be written."""
    return types.void(types.uintp), partial(_emit_prefetch, True)


def _emit_pointer(context, builder, signature, arguments):
    return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))


def _emit_prefetch(is_written, context, builder, signature, arguments):
    number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
    function = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
    keep, is_data = 3, 1
    options = [ir.Constant(number, option) for option in (int(is_written), keep, is_data)]
    builder.call(function, [builder.inttoptr(arguments[0], pointer), *options])
    return context.get_dummy_value()
