"""Communicators: groups of ranks, and the calls that they make together."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from . import _tutti, _waiting
from ._arrays import Array, Message, as_array, blocks, counts_of, empty, rows, shape_of_rows
from ._blocking import blocking
from ._errors import Error, ErrorCode
from ._tutti import Work

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

ANY_SOURCE = -1
ANY_TAG = -1

# As in the C interface.
_ALL_REDUCE, _ALL_GATHER, _REDUCE_SCATTER, _BROADCAST, _REDUCE, _BARRIER, _SEND = range(7)
_GATHER, _SCATTER, _ALL_TO_ALL, _SCAN, _EXSCAN, _RECV, _RECV_REDUCE = range(7, 14)
OPS = ("sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "minloc", "maxloc")
WIRE_FORMATS: tuple[str, ...] = tuple(_tutti.wire_formats())
_NUMBER_OF_OP = {name: number for number, name in enumerate(OPS)}

_serial = itertools.count()
# In the order of creation; works keep the handles alive too.
_open: weakref.WeakValueDictionary[int, _tutti.Communicator] = weakref.WeakValueDictionary()


class Options(TypedDict, total=False):
    """Options of every call, by keyword."""

    # Seconds after which the call aborts the communicator; 0: no deadline. The default is
    # TUTTI_TIMEOUT.
    timeout: float
    algorithm: str  # default: the library's choice; see `tutti bench COLLECTIVE --algorithm list`
    deterministic: bool  # the bits depend on the inputs and the number of ranks only
    queue: int  # the queue of the communicator that orders the call; see open_queues()
    # The format in which float32 elements travel, the same on all ranks: one of WIRE_FORMATS.
    # Elements are rounded when sent, and partial sums when forwarded; all ranks get the same bits.
    wire: str


def number_of_op(name: str) -> int:
    number = _NUMBER_OF_OP.get(name)
    if number is None:
        raise Error(
            ErrorCode.INVALID_ARGUMENT,
            f"unknown operator {name!r}: expected one of {', '.join(OPS)}",
        )
    return number


class Communicator:
    """A group of ranks. All of them must make the same collective calls in the same order.

    Arrays are NumPy arrays, or objects with DLPack or the buffer protocol (torch's tensors,
    array.array), contiguous and in host memory. They are never copied: an array that is not
    contiguous is rejected. Numbers and lists may be passed as inputs. The result is a new array (a
    torch tensor for torch tensors, otherwise NumPy's), or `out`, which may be the input (in place).

    Collectives that split or join arrays do so along the first axis. Each rank's block has n rows,
    which may have any shape. With `counts`, a number of rows per rank, blocks may differ in
    length.

    Each call NAME has a form NAME_async, which returns a Work at once: wait() for it, or `await`
    it, for the result. The arrays of a call are kept alive, and must not be touched, until it is
    complete. NAME itself blocks; an interrupt (KeyboardInterrupt) in it aborts the communicator.

    Operators are "sum", "prod", "min", "max" (NaN wins), "avg"; for integers "band", "bor", "bxor";
    for structs of a value and an index of the same width "minloc", "maxloc".

    Errors are raised as tutti.Error. After INVALID_ARGUMENT and UNSUPPORTED the communicator stays
    usable; after all others it is aborted on all its ranks: close() it, and continue with shrink().
    Any thread may call; concurrent collectives need an order that the caller establishes, or a
    queue per thread.
    """

    def __init__(self, handle: _tutti.Communicator) -> None:
        """Internal: use init(), split() and create()."""
        self._handle = handle
        _open[next(_serial)] = handle

    @property
    def rank(self) -> int:
        """This process's rank, counted from 0."""
        return self._handle.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._handle.size

    def __repr__(self) -> str:
        state = ", closed" if self._handle.closed else ""
        return f"<tutti.Communicator: rank {self.rank} of {self.size}{state}>"

    # ---- life cycle ----

    def close(self) -> None:
        """Leaves the communicator. Calls in flight are abandoned, waiting threads get an error, and
        arrays are no longer in use. May be repeated."""
        self._handle.close()

    def abort(self, reason: str) -> None:
        """Aborts the communicator on all ranks: present and later calls fail with ABORTED and this
        reason. Any thread may call; never blocks."""
        self._handle.abort(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Closes the communicator; an exception aborts it first, so that no rank waits for this
        one."""
        ends_well = error is None or (isinstance(error, SystemExit) and not error.code)
        if not ends_well:
            with contextlib.suppress(Error):  # the communicator is closed
                self.abort(f"rank {self.rank} raised {error!r}")
        self.close()

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Splits the communicator: ranks with the same color form a new one, ordered by key and
        then by rank. Returns None if `color` is None. Collective; blocks."""
        part = self._handle.split(-1 if color is None else color, key)
        return None if part is None else Communicator(part)

    def open_queues(self, count: int) -> None:
        """Opens queues, so that there are queues 0 to `count`. Collectives of one queue run in
        order; collectives of different queues run concurrently. Each queue has its own order of
        calls, the same on all ranks; messages of different queues never match. A failure aborts
        the whole communicator. Collective; blocks."""
        self._handle.open_queues(count)

    def create(self, ranks: Sequence[int], tag: int = 0) -> Communicator:
        """Returns a new communicator of `ranks`, in this order. Collective among these ranks only;
        blocks. `tag` distinguishes concurrent calls with the same ranks."""
        return Communicator(self._handle.create(list(ranks), tag))

    def shrink(self) -> Communicator:
        """Returns a communicator of the surviving ranks, in their order, after ranks have died.
        Collective among the survivors; blocks. Any of them may die meanwhile. At most one side of
        a partitioned job continues; on the other side shrink() raises CONNECTION_LOST. It raises
        TIMEOUT if a rank did not call shrink(), which may then be repeated."""
        return Communicator(self._handle.shrink())

    def grow(self, count: int) -> Communicator:
        """Returns a communicator of all surviving ranks of the job, which must be in this one,
        followed by spares (`tutti run --spares`), on which init() returns it. Its size is `size` +
        `count`, or less if too few spares are left; `size` counts members that have died.
        Collective among the survivors; blocks. Errors as shrink()."""
        return Communicator(self._handle.grow(count))

    def agree(self, flags: int = 2**64 - 1) -> tuple[int, list[int]]:
        """Agrees on flags among the survivors: returns the bitwise AND of all their flags, and the
        ranks that took part. Collective among the survivors; blocks. Errors as shrink()."""
        agreed, living = self._handle.agree(flags)
        return agreed, list(living)

    # ---- collectives: every rank gets a result ----

    def barrier_async(self, **options: Unpack[Options]) -> Work:
        """Completes when all ranks have called."""
        return self._handle.start(_BARRIER, None, None, None, **options)

    barrier = blocking(barrier_async)

    def all_reduce_async(
        self, array: Array, op: str = "sum", *, out: Array | None = None, **options: Unpack[Options]
    ) -> Work:
        """Combines all ranks' arrays element by element; the result has the same shape."""
        array = as_array(array)
        if out is None:
            out = empty(array, array.shape)
        return self._handle.start(_ALL_REDUCE, array, out, out, number_of_op(op), 0, **options)

    all_reduce = blocking(all_reduce_async)

    def all_gather_async(
        self,
        array: Array,
        *,
        counts: Sequence[int] | None = None,
        out: Array | None = None,
        **options: Unpack[Options],
    ) -> Work:
        """Concatenates all ranks' arrays: (n, ...) becomes (size * n, ...), or with counts
        (sum(counts), ...). The array may be this rank's part of `out`."""
        array = as_array(array)
        if out is None:
            total = rows(array) * self.size if counts is None else sum(counts)
            out = empty(array, shape_of_rows(array, total))
        counts = counts_of(counts, array)
        return self._handle.start(_ALL_GATHER, array, out, out, output_counts=counts, **options)

    all_gather = blocking(all_gather_async)

    def reduce_scatter_async(
        self,
        array: Array,
        op: str = "sum",
        *,
        counts: Sequence[int] | None = None,
        out: Array | None = None,
        **options: Unpack[Options],
    ) -> Work:
        """Combines all ranks' arrays and returns this rank's block of the result: (size * n, ...)
        becomes (n, ...), or with counts (counts[rank], ...). `out` may be this rank's part of the
        array."""
        array = as_array(array)
        if out is None:
            out = empty(array, shape_of_rows(array, blocks(array, self.size, counts)[self.rank]))
        counts = counts_of(counts, array)
        return self._handle.start(
            _REDUCE_SCATTER, array, out, out, number_of_op(op), input_counts=counts, **options
        )

    reduce_scatter = blocking(reduce_scatter_async)

    def all_to_all_async(
        self,
        array: Array,
        *,
        input_counts: Sequence[int] | None = None,
        output_counts: Sequence[int] | None = None,
        out: Array | None = None,
        **options: Unpack[Options],
    ) -> Work:
        """Exchanges blocks: block r of the array goes to rank r, block r of the result comes from
        rank r. (size * n, ...) stays so, or with both counts (sum(input_counts), ...) becomes
        (sum(output_counts), ...)."""
        array = as_array(array)
        if (input_counts is None) != (output_counts is None):
            raise Error(
                ErrorCode.INVALID_ARGUMENT,
                "all_to_all takes input_counts and output_counts, or neither",
            )
        if out is None:
            total = sum(blocks(array, self.size, output_counts))
            out = empty(array, shape_of_rows(array, total))
        given = counts_of(input_counts, array)
        taken = counts_of(output_counts, array)
        return self._handle.start(
            _ALL_TO_ALL, array, out, out, input_counts=given, output_counts=taken, **options
        )

    all_to_all = blocking(all_to_all_async)

    def scan_async(
        self, array: Array, op: str = "sum", *, out: Array | None = None, **options: Unpack[Options]
    ) -> Work:
        """Combines the arrays of ranks 0 to this rank; the result has the same shape."""
        array = as_array(array)
        if out is None:
            out = empty(array, array.shape)
        return self._handle.start(_SCAN, array, out, out, number_of_op(op), 0, **options)

    scan = blocking(scan_async)

    def exscan_async(
        self, array: Array, op: str = "sum", *, out: Array | None = None, **options: Unpack[Options]
    ) -> Work:
        """Combines the arrays of the ranks below this one. Rank 0 gets None, or its unchanged
        `out`."""
        array = as_array(array)
        result = out
        if out is None:
            out = empty(array, array.shape)
            result = out if self.rank > 0 else None
        return self._handle.start(_EXSCAN, array, out, result, number_of_op(op), 0, **options)

    exscan = blocking(exscan_async)

    # ---- collectives with a root ----

    def broadcast_async(
        self, array: Array, root: int = 0, *, out: Array | None = None, **options: Unpack[Options]
    ) -> Work:
        """Returns the root's array on every rank. Other ranks' arrays are not read: they only
        define shape and dtype. broadcast(x, root, out=x) is in place."""
        array = as_array(array)
        if out is None:
            out = empty(array, array.shape)
        return self._handle.start(_BROADCAST, array, out, out, 0, root, **options)

    broadcast = blocking(broadcast_async)

    def reduce_async(
        self,
        array: Array,
        op: str = "sum",
        root: int = 0,
        *,
        out: Array | None = None,
        **options: Unpack[Options],
    ) -> Work:
        """Combines all ranks' arrays at the root; other ranks get None."""
        array = as_array(array)
        if self.rank != root:
            out = None
        elif out is None:
            out = empty(array, array.shape)
        return self._handle.start(_REDUCE, array, out, out, number_of_op(op), root, **options)

    reduce = blocking(reduce_async)

    def gather_async(
        self,
        array: Array,
        root: int = 0,
        *,
        counts: Sequence[int] | None = None,
        out: Array | None = None,
        **options: Unpack[Options],
    ) -> Work:
        """Concatenates all ranks' arrays at the root, as all_gather does; other ranks get None.
        Counts are needed at the root; elsewhere any sequence declares blocks of unequal length."""
        array = as_array(array)
        if self.rank != root:
            out = None
        elif out is None:
            total = rows(array) * self.size if counts is None else sum(counts)
            out = empty(array, shape_of_rows(array, total))
        counts = counts_of(counts, array)
        return self._handle.start(
            _GATHER, array, out, out, 0, root, output_counts=counts, **options
        )

    gather = blocking(gather_async)

    def scatter_async(
        self,
        array: Array | None,
        root: int = 0,
        *,
        counts: Sequence[int] | None = None,
        out: Array | None = None,
        **options: Unpack[Options],
    ) -> Work:
        """Returns this rank's block of the root's array: (size * n, ...) becomes (n, ...), or with
        counts (counts[rank], ...). On other ranks the array is not read: it only defines shape and
        dtype, and may be None if `out` is given."""
        if array is None and (out is None or self.rank == root):
            raise Error(
                ErrorCode.INVALID_ARGUMENT,
                "scatter needs an array at the root, and elsewhere an array or `out`",
            )
        like = out if array is None else as_array(array)
        if out is None:
            out = empty(like, shape_of_rows(like, blocks(like, self.size, counts)[self.rank]))
        given = like if self.rank == root else None
        counts = counts_of(counts, like)
        return self._handle.start(
            _SCATTER, given, out, out, 0, root, input_counts=counts, **options
        )

    scatter = blocking(scatter_async)

    # ---- messages ----

    def send_async(self, array: Array, dest: int, tag: int = 0, **options: Unpack[Options]) -> Work:
        """Sends the array to one rank. Completes when the array may be changed."""
        return self._handle.start(_SEND, as_array(array), None, None, 0, dest, tag=tag, **options)

    send = blocking(send_async)

    def recv(
        self,
        out: Array,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        may_be_shorter: bool = False,
        **options: Unpack[Options],
    ) -> Message:
        """Receives the oldest matching message into `out`, and returns its tutti.Message. dtype and
        number of elements must be equal; with may_be_shorter the message may have fewer elements.
        """
        work = self.recv_async(out, source, tag, may_be_shorter=may_be_shorter, **options)
        work._finish()
        return work.message

    def recv_async(
        self,
        out: Array,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        may_be_shorter: bool = False,
        **options: Unpack[Options],
    ) -> Work:
        """Starts recv(). The result is `out`; Work.message describes the message."""
        return self._handle.start(
            _RECV, None, out, out, 0, source, tag=tag, may_be_shorter=may_be_shorter, **options
        )

    def recv_reduce(
        self,
        out: Array,
        source: int = ANY_SOURCE,
        op: str = "sum",
        tag: int = ANY_TAG,
        **options: Unpack[Options],
    ) -> Message:
        """Combines `out` with the message that recv() would take, by any operator except "avg", and
        returns its tutti.Message."""
        work = self.recv_reduce_async(out, source, op, tag, **options)
        work._finish()
        return work.message

    def recv_reduce_async(
        self,
        out: Array,
        source: int = ANY_SOURCE,
        op: str = "sum",
        tag: int = ANY_TAG,
        **options: Unpack[Options],
    ) -> Work:
        """Starts recv_reduce(). The result is `out`; Work.message describes the message."""
        return self._handle.start(
            _RECV_REDUCE, None, out, out, number_of_op(op), source, tag=tag, **options
        )

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Message:
        """Blocks until there is a message that a receive would take; returns its tutti.Message
        without receiving it."""
        message = self._handle.probe(source, tag, True)
        assert message is not None
        return message

    def probe_now(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Message | None:
        """Returns the message that a receive would take now, or None. Never blocks."""
        return self._handle.probe(source, tag, False)


def init(
    rank: int | None = None,
    size: int | None = None,
    *,
    master_address: str | None = None,
    master_port: int | None = None,
    rendezvous_file: str | os.PathLike[str] | None = None,
) -> Communicator:
    """Joins the job and returns the communicator of all its ranks. Blocks until all ranks have
    joined, for at most TUTTI_INIT_TIMEOUT seconds.

    Without arguments, the environment determines rank and job: `tutti run`, torchrun, Slurm, Open
    MPI, MPICH, PMIx, Kubernetes; without any of them the job has one rank. With rank and size, the
    ranks meet at rank 0's master_address and master_port, or through rendezvous_file, the path of a
    new file that all of them can reach.

    Raises BOOTSTRAP with the missing ranks or the reason of a refusal, RANK_DIED if a rank exits
    meanwhile.
    """
    if (rank is None) != (size is None):
        raise Error(ErrorCode.INVALID_ARGUMENT, "init() takes rank and size, or neither")
    file = None if rendezvous_file is None else os.fspath(rendezvous_file)
    if size is not None and size < 1:
        raise Error(ErrorCode.INVALID_ARGUMENT, f"a job cannot have {size} ranks")
    return Communicator(_tutti.init(rank or 0, size or 0, master_address, master_port or 0, file))


@atexit.register
def _close_all() -> None:
    """Closes all communicators before Python ends, because no thread of the library may outlive
    it."""
    for _, handle in sorted(_open.items(), reverse=True):
        handle.close()
    _waiting.stop()
