"""Arrays as operands and results of calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._errors import Error, ErrorCode

Array = Any  # NumPy arrays, and all objects with DLPack or the buffer protocol

# The element types, by their numbers in the C interface; in pairs, the value comes first.
DTYPES = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
    "float32", "float64", "float8_e4m3fn", "float8_e5m2",
    "float32_int32", "float64_int64", "int32_int32", "int64_int64",
)  # fmt: skip

# Types that NumPy knows only by name, or as structs: (plain type of the same width, number of the
# dtype).
_FOREIGN: dict[str, tuple[type, int]] = {
    "bfloat16": (np.uint16, DTYPES.index("bfloat16")),
    "float8_e4m3fn": (np.uint8, DTYPES.index("float8_e4m3fn")),
    "float8_e5m2": (np.uint8, DTYPES.index("float8_e5m2")),
}
_PAIRS: dict[tuple[str, ...], tuple[type, int]] = {
    ("f4", "i4"): (np.uint64, DTYPES.index("float32_int32")),
    ("f8", "i8"): (np.complex128, DTYPES.index("float64_int64")),
    ("i4", "i4"): (np.uint64, DTYPES.index("int32_int32")),
    ("i8", "i8"): (np.complex128, DTYPES.index("int64_int64")),
}


def _is_plain_pair(dtype: np.dtype) -> bool:
    """Returns True for two fields in native byte order, one directly after the other."""
    fields = [] if dtype.fields is None else list(dtype.fields.values())
    places = [field[1] for field in fields]
    return places == [0, dtype.itemsize // 2] and all(field[0].isnative for field in fields)


def look_through(array: Any) -> tuple[np.ndarray, int] | None:
    """Returns an array of plain numbers in the same memory, and the number of the array's real
    type; None for an unknown type."""
    if not isinstance(array, np.ndarray):
        return None
    dtype = array.dtype
    if dtype.names is None:
        known = _FOREIGN.get(dtype.name)
    elif _is_plain_pair(dtype):
        known = _PAIRS.get(tuple(dtype[name].str[1:] for name in dtype.names))
    else:
        known = None
    if known is None or np.dtype(known[0]).itemsize != dtype.itemsize:
        return None
    return array.view(known[0]), known[1]


def as_array(array: Any) -> Array:
    """Converts to an array that the library accepts; numbers, lists and bytes-like objects become
    NumPy arrays."""
    if isinstance(array, np.ndarray) or hasattr(array, "__dlpack__"):
        return array
    try:
        return np.asarray(memoryview(array))
    except TypeError:
        return np.asarray(array)


def empty(like: Array, shape: tuple[int, ...]) -> Array:
    """Returns a new array of the same kind and element type."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, like.dtype)
    if hasattr(like, "new_empty"):  # torch.Tensor
        return like.new_empty(shape)
    dtype = getattr(like, "dtype", None)  # NumPy's, in JAX
    return np.empty(shape, dtype if isinstance(dtype, np.dtype) else np.from_dlpack(like).dtype)


def rows(array: Array) -> int:
    """Returns the length of the first axis; a scalar is one row."""
    return array.shape[0] if array.shape else 1


def shape_of_rows(array: Array, count: int) -> tuple[int, ...]:
    """Returns the shape of `count` rows of such an array."""
    return (count, *array.shape[1:])


def blocks(array: Array, size: int, counts: Sequence[int] | None) -> Sequence[int]:
    """Returns the rows of each rank's block, for an array with one block per rank."""
    if counts is not None:
        if len(counts) != size:
            raise Error(
                ErrorCode.INVALID_ARGUMENT,
                f"{len(counts)} counts for {size} ranks: give one for each rank",
            )
        return counts
    if rows(array) % size != 0:
        raise Error(
            ErrorCode.INVALID_ARGUMENT,
            f"{rows(array)} rows (the array's shape is {tuple(array.shape)}) do not make equal "
            f"blocks for {size} ranks: give `counts`",
        )
    return [rows(array) // size] * size


def counts_of(counts: Sequence[int] | None, array: Array) -> list[int] | None:
    """Converts rows to elements."""
    if counts is None:
        return None
    width = math.prod(array.shape[1:])
    if any(count < 0 for count in counts):
        raise Error(ErrorCode.INVALID_ARGUMENT, f"counts cannot be negative: {list(counts)}")
    return [int(count) * width for count in counts]


class Message(NamedTuple):
    """Describes a message. The type has its name in NumPy or ml_dtypes; the length is in
    elements."""

    source: int
    tag: int
    dtype: str
    count: int  # type: ignore[assignment]  # tuple has a method of that name


def message(source: int, tag: int, dtype: int, count: int) -> Message:
    """Converts the numbers of the C interface."""
    return Message(source, tag, DTYPES[dtype], count)
