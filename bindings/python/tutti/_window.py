"""One-sided access to other ranks' memory."""

from __future__ import annotations

import atexit
import weakref
from typing import TYPE_CHECKING

import numpy as np

from . import _tutti
from ._arrays import DTYPES, Array, as_array
from ._communicator import Communicator, number_of_op
from ._errors import Error, ErrorCode

if TYPE_CHECKING:
    from typing_extensions import Self

_open: weakref.WeakSet[_tutti.Window] = weakref.WeakSet()
_SWAPPED = ("int32", "uint32", "int64", "uint64")


class Window:
    """Memory of each rank that the other ranks read and write without a call of its owner.

    window = tutti.Window(world, 1000 * 8)  # bytes on this rank; or an array, which is kept alive
    window.put(np.arange(3.0), rank=2, offset=64)
    window.accumulate(np.ones(4), rank=2, offset=128)
    window.flush(2)  # both are in rank 2's memory now
    window.signal(2, slot=0)  # rank 2 may wait_signal(0)

    Offsets are in bytes. All ranks create the window together, each with a part of any size.
    Requests of one rank to another are served in the order of its calls; put() and accumulate()
    return once the array may be changed. accumulate() and compare_and_swap() are atomic against
    each other, 32 KiB at a time. A rank sees remote writes to its own memory after fence(), or
    after wait_signal() of a signal that followed them. If ranks share no memory (other hosts,
    arrays of the caller) the owner serves requests whenever one of its threads is inside a call,
    and with TUTTI_PROGRESS_THREAD=1 also while it computes.

    A dead rank fails all calls on the window with RANK_DIED; with members_may_die only calls to
    that rank fail, and all others continue.
    """

    def __init__(
        self, communicator: Communicator, memory: Array | int, *, members_may_die: bool = False
    ) -> None:
        own = isinstance(memory, int)
        self._handle = _tutti.Window(
            communicator._handle,
            None if own else memory,
            memory if own else 0,
            members_may_die,
        )
        self._rank, self._size = communicator.rank, communicator.size
        _open.add(self._handle)

    @property
    def rank(self) -> int:
        """This process's number among the window's ranks."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def memory(self) -> np.ndarray:
        """This rank's part, as bytes: view() it as another type. Memory owned by the window must
        not be used after free() or close()."""
        return np.asarray(self._handle.memory)

    def bytes_of(self, rank: int) -> int:
        """Returns the size of a rank's part."""
        if not 0 <= rank < self._size:
            raise Error(
                ErrorCode.INVALID_ARGUMENT, f"rank {rank} is not in the range 0 to {self._size - 1}"
            )
        return self._handle.bytes(rank)

    def put(self, array: Array, rank: int, offset: int = 0) -> None:
        """Writes the array to byte `offset` of the part of `rank`."""
        self._handle.put(as_array(array), rank, offset)

    def get(self, out: Array, rank: int, offset: int = 0) -> Array:
        """Reads from byte `offset` of the part of `rank` into `out`, and returns `out`. Blocks
        until the data has arrived."""
        self._handle.get(out, rank, offset)
        return out

    def accumulate(self, array: Array, rank: int, offset: int = 0, op: str = "sum") -> None:
        """Combines the memory from byte `offset` of the part of `rank` on with the array, by any
        operator except "avg".
        """
        self._handle.accumulate(as_array(array), rank, offset, number_of_op(op))

    def compare_and_swap(
        self, expected: int, desired: int, rank: int, offset: int = 0, *, dtype: str = "int64"
    ) -> int:
        """Writes `desired` if the integer at byte `offset` of the part of `rank` equals `expected`;
        returns the previous value. The integer has 32 or 64 bits. Blocks."""
        if dtype not in _SWAPPED:
            raise Error(
                ErrorCode.INVALID_ARGUMENT,
                f"compare_and_swap does not support {dtype!r}: "
                f"expected one of {', '.join(_SWAPPED)}",
            )
        numpy_type = np.dtype(dtype)
        mask = (1 << 8 * numpy_type.itemsize) - 1
        found = self._handle.compare_and_swap(
            DTYPES.index(dtype), expected & mask, desired & mask, rank, offset
        )
        return int(np.array(found & mask, f"uint{8 * numpy_type.itemsize}").view(numpy_type))

    def signal(self, rank: int, slot: int = 0, count: int = 1) -> None:
        """Adds `count` to counter `slot` (0 to 63) of `rank`, after all earlier calls of this rank
        to it have taken effect."""
        self._handle.signal(rank, slot, count)

    def wait_signal(self, slot: int = 0, count: int = 1) -> None:
        """Blocks until counter `slot` of this rank is at least `count`, and subtracts `count`."""
        self._handle.wait_signal(slot, count)

    def flush(self, rank: int | None = None) -> None:
        """Blocks until all earlier calls of this rank to `rank`, or to all ranks, have taken effect
        there.
        """
        self._handle.flush(-1 if rank is None else rank)

    def fence(self) -> None:
        """Flushes to all ranks on every rank, then performs a barrier. Collective; blocks."""
        self._handle.fence()

    def free(self) -> None:
        """Performs a fence and ends the window. Collective; blocks."""
        self._handle.free()

    def close(self) -> None:
        """Ends the window on this rank alone: later calls of other ranks to it fail. May be
        repeated."""
        self._handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Frees the window; after an exception, closes it."""
        if error is None and not self._handle.closed:
            self.free()
        self.close()


@atexit.register
def _close_all() -> None:
    """Closes all windows. It runs before the communicators are closed, because atexit is last in,
    first out."""
    for handle in list(_open):
        handle.close()
