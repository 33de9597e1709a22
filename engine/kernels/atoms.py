"""What numba does not offer by itself: memory by its address, an atomic counter, and a barrier between threads.

A step's threads meet a hundred times and more. Waking a sleeping thread takes tens of microseconds, so they stay in one
compiled function from a step's first op to its last and wait for each other at a counter, spinning.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

CACHE_LINE = 64

I64 = ir.IntType(64)
sched_yield = types.ExternalFunction("sched_yield", types.int32())
clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))


@intrinsic
def pointer(typingctx: Any, address: Any) -> Any:
    """An address as a pointer to anything, for `numba.carray`."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


def emit_prefetch(builder: Any, address: Any) -> None:
    """Instructions that bring the cache line at an address nearer; an address that is nobody's does no harm."""
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    to_read, in_all_caches, data = 0, 3, 1
    flags = [ir.Constant(word, flag) for flag in (to_read, in_all_caches, data)]
    builder.call(function, [builder.inttoptr(address, byte), *flags])


@intrinsic
def fetch_add(typingctx: Any, address: Any, value: Any) -> Any:
    """Add to the 64-bit number at an address, atomically; what it was before."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], I64.as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def load_int(typingctx: Any, address: Any) -> Any:
    """The 64-bit number at an address, as the last thread that wrote it left it."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(arguments[0], I64.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def two_to_the(typingctx: Any, exponent: Any) -> Any:
    """2^n as fp32 for a whole n from -126 to 127: its bits are the exponent alone."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        biased = builder.add(arguments[0], ir.Constant(ir.IntType(32), 127))
        return builder.bitcast(builder.shl(biased, ir.Constant(ir.IntType(32), 23)), ir.FloatType())

    return types.float32(types.int32), codegen


@intrinsic
def load_float(typingctx: Any, address: Any) -> Any:
    """The fp32 number at an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.FloatType().as_pointer()))

    return types.float32(types.int64), codegen


@intrinsic
def store_float(typingctx: Any, address: Any, value: Any) -> Any:
    """Put an fp32 number at an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], ir.FloatType().as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), codegen


@intrinsic
def load_bf16(typingctx: Any, address: Any) -> Any:
    """The bf16 number at an address, as fp32: bf16 is fp32's upper half."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stored = builder.load(builder.inttoptr(arguments[0], ir.IntType(16).as_pointer()))
        wide = builder.zext(stored, ir.IntType(32))
        return builder.bitcast(builder.shl(wide, ir.Constant(ir.IntType(32), 16)), ir.FloatType())

    return types.float32(types.int64), codegen


@intrinsic
def load_byte(typingctx: Any, address: Any) -> Any:
    """The unsigned byte at an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stored = builder.load(builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))
        return builder.zext(stored, I64)

    return types.int64(types.int64), codegen


@njit(inline="always")
def floats(address: int, count: int) -> Any:
    """`count` fp32 numbers at an address, as an array."""
    return carray(pointer(address), (count,), np.float32)


@njit(error_model="numpy")
def meet(place: int, threads: int) -> None:
    """Wait until all `threads` have come here. `place` is the address of what `engine.kernels.team.meeting_place` made:
    the number of arrivals, which only grows, and third how often a thread looks at it before it lets others run.
    """
    if threads == 1:
        return
    target = (fetch_add(place, 1) // threads + 1) * threads
    patience = load_int(place + 16)
    looks = 0
    while load_int(place) < target:
        looks += 1
        if looks > patience:
            sched_yield()


@njit(error_model="numpy")
def mark(place: int, clock: int) -> None:
    """Write the time to 16 bytes at an address: seconds and nanoseconds (POSIX's timespec), on the clock of `time`."""
    clock_gettime(clock, place)
