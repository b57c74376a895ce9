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
    """What every call takes, by keyword."""

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
            ErrorCode.INVALID_ARGUMENT, f"{name!r} is no operator: there are {', '.join(OPS)}"
        )
    return number


class Communicator:
    """A group of ranks. All of them make the same collective calls in the same order.

    Arrays are NumPy's, or whatever exports DLPack or the buffer protocol (torch's tensors,
    array.array), in host memory, contiguous. They are never copied: an array that is not contiguous
    is refused. Numbers and lists may be given as inputs. A result is a new array (torch's for
    torch's tensors, else NumPy's), or `out`, which may be the input (in place).

    Collectives that cut or join arrays do so along the first axis: its length n is that of each
    rank's block, in rows of any shape. With `counts`, a number of rows for each rank, blocks are of
    unequal length.

    Each call NAME has a form NAME_async, which returns a Work at once: wait() for it, or `await`
    it, for the result.

    Ops are "sum", "prod", "min", "max" (a NaN wins), "avg"; of integers "band", "bor", "bxor"; of
    structs of a value and an index of the same width "minloc", "maxloc". Errors are raised as
    tutti.Error.
    """

    def __init__(self, handle: _tutti.Communicator) -> None:
        """For the library's own use: init(), split() and create() make communicators."""
        self._handle = handle
        _open[next(_serial)] = handle

    @property
    def rank(self) -> int:
        """This process's number, from 0 on."""
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
        """Leaves the communicator. Calls under way are given up, threads that wait in it get an
        error. May be repeated."""
        self._handle.close()

    def abort(self, reason: str) -> None:
        """Makes all calls of all ranks on this communicator fail with this reason, now and
        later."""
        self._handle.abort(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Closes it; an exception aborts it before, so that no rank waits for this one."""
        ends_well = error is None or (isinstance(error, SystemExit) and not error.code)
        if not ends_well:
            with contextlib.suppress(Error):  # the communicator is closed
                self.abort(f"rank {self.rank} raised {error!r}")
        self.close()

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Ranks with the same color form a new communicator, ordered by key and then by rank. With
        None a rank joins none, and gets None. All ranks call."""
        part = self._handle.split(-1 if color is None else color, key)
        return None if part is None else Communicator(part)

    def open_queues(self, count: int) -> None:
        """Opens queues 1 to `count`; all ranks call. The collectives of one queue run one after the
        other, those of different queues side by side. Each has an order of calls and messages of its
        own; every failure is that of the whole communicator."""
        self._handle.open_queues(count)

    def create(self, ranks: Sequence[int], tag: int = 0) -> Communicator:
        """A new communicator of these ranks, in this order; only they call. A tag tells apart what
        threads make of the same ranks at the same time."""
        return Communicator(self._handle.create(list(ranks), tag))

    def shrink(self) -> Communicator:
        """For when ranks have died: a new communicator of those that are left, in their order. All
        of them call, and any of them may die meanwhile. A job that is cut in two goes on at one
        side only: an Error on the other."""
        return Communicator(self._handle.shrink())

    def grow(self, count: int) -> Communicator:
        """A communicator of all ranks that are left, which must be in this one, and of as many
        spares (`tutti run --spares`), as far as there are any. Theirs is what init() returns."""
        return Communicator(self._handle.grow(count))

    def agree(self, flags: int = 2**64 - 1) -> tuple[int, list[int]]:
        """Those that are left agree: the bits that all of them have given, and who took part."""
        agreed, living = self._handle.agree(flags)
        return agreed, list(living)

    # ---- collectives: every rank gets a result ----

    def barrier_async(self, **options: Unpack[Options]) -> Work:
        """Returns when all ranks have called."""
        return self._handle.start(_BARRIER, None, None, None, **options)

    barrier = blocking(barrier_async)

    def all_reduce_async(
        self, array: Array, op: str = "sum", *, out: Array | None = None, **options: Unpack[Options]
    ) -> Work:
        """The combination of all ranks' arrays, element by element; of the same shape."""
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
        """All ranks' arrays, one behind the other: (n, ...) becomes (size * n, ...), or with counts
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
        """This rank's block of the combination of all ranks' arrays: (size * n, ...) becomes (n,
        ...), or with counts (counts[rank], ...). `out` may be this rank's part of the array."""
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
        """Block r of the array goes to rank r, block r of the result comes from rank r: (size * n,
        ...) stays so, or with both counts (sum(input_counts), ...) becomes (sum(output_counts),
        ...)."""
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
        """The combination of the arrays of ranks 0 to this one; of the same shape."""
        array = as_array(array)
        if out is None:
            out = empty(array, array.shape)
        return self._handle.start(_SCAN, array, out, out, number_of_op(op), 0, **options)

    scan = blocking(scan_async)

    def exscan_async(
        self, array: Array, op: str = "sum", *, out: Array | None = None, **options: Unpack[Options]
    ) -> Work:
        """The combination of the arrays of the ranks below this one; rank 0 has none, and its `out`
        stays as it is."""
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
        """The root's array, on every rank. The arrays of other ranks are not read: they only say
        shape and type. broadcast(x, root, out=x) is in place."""
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
        """At the root, the combination of all ranks' arrays; elsewhere None."""
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
        """At the root, all ranks' arrays one behind the other, as all_gather has them; elsewhere
        None. Counts are needed at the root; elsewhere any sequence says that blocks are of unequal
        length."""
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
        """This rank's block of the root's array: (size * n, ...) becomes (n, ...), or with counts
        (counts[rank], ...). On other ranks the array is not read: it only says shape and type, and
        may be None where there is `out`."""
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
        """Sends the array to one rank. Returns when the array may be changed."""
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
        """Receives into `out` the oldest message that fits, of the same type and number of
        elements, or with may_be_shorter of at most as many. Says what it was."""
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
        """recv(), begun. The result is `out`; Work.message says what it was."""
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
        """Combines what `out` has with the message that recv() would take, by any operator but
        "avg". Says what it was."""
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
        """recv_reduce(), begun. The result is `out`; Work.message says what it was."""
        return self._handle.start(
            _RECV_REDUCE, None, out, out, number_of_op(op), source, tag=tag, **options
        )

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Message:
        """Waits for a message that a receive would take, and leaves it there."""
        message = self._handle.probe(source, tag, True)
        assert message is not None
        return message

    def probe_now(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Message | None:
        """The message that a receive would take now, if there is one."""
        return self._handle.probe(source, tag, False)


def init(
    rank: int | None = None,
    size: int | None = None,
    *,
    master_address: str | None = None,
    master_port: int | None = None,
    rendezvous_file: str | os.PathLike[str] | None = None,
) -> Communicator:
    """Joins the job; returns the communicator of all its ranks. Blocks until all are there.

    Without arguments the environment tells who this is: `tutti run`, torchrun, Slurm, Open MPI,
    MPICH, PMIx, Kubernetes; without any of them it is a job of one rank. With rank and size, the
    ranks find each other at rank 0's master_address and master_port, or through a file, not yet
    there, that all of them can reach.
    """
    if (rank is None) != (size is None):
        raise Error(ErrorCode.INVALID_ARGUMENT, "init() takes rank and size, or neither")
    file = None if rendezvous_file is None else os.fspath(rendezvous_file)
    if size is not None and size < 1:
        raise Error(ErrorCode.INVALID_ARGUMENT, f"a job cannot have {size} ranks")
    return Communicator(_tutti.init(rank or 0, size or 0, master_address, master_port or 0, file))


@atexit.register
def _close_all() -> None:
    """While Python still runs: no thread of the library may outlive it."""
    for _, handle in sorted(_open.items(), reverse=True):
        handle.close()
    _waiting.stop()
