"""The exception that failed calls raise."""

from __future__ import annotations

import enum


class ErrorCode(enum.IntEnum):
    """The reason of a failure; as in the C interface."""

    INVALID_ARGUMENT = 1  # an argument of this call is invalid
    MISMATCH = 2  # two ranks made calls that do not match
    RANK_DIED = 3  # a process of the job exited without leaving the communicator
    CONNECTION_LOST = 4  # the path to a living rank broke
    TIMEOUT = 5  # an operation's deadline passed
    ABORTED = 6  # another rank, or this one's user, aborted the communicator
    BOOTSTRAP = 7  # the ranks could not find or authenticate each other
    SYSTEM = 8  # an operating system call failed
    UNSUPPORTED = 9  # not available in this build, on this machine, or for these arguments
    INTERNAL = 10  # a bug in Tutti
    CORRUPTED = 11  # bytes changed in transit between two ranks


class Error(RuntimeError):
    """A failed call. Its text says what happened, where, the likely cause and the remedy.

    After INVALID_ARGUMENT and UNSUPPORTED the communicator stays usable; after all others it is
    aborted on all its ranks.

    Attributes:
        code: an ErrorCode.
        rank: the job's rank that the error concerns: the one that died, aborted, is waited for
            first, or made the other call; None if no single rank is concerned.
    """

    __module__ = "tutti"  # as users import it

    def __init__(self, code: int, text: str, rank: int | None = None) -> None:
        super().__init__(text)
        self.code = ErrorCode(code)
        self.rank = rank

    def __reduce__(self) -> tuple[type[Error], tuple[int, str, int | None]]:
        return Error, (int(self.code), self.args[0], self.rank)
