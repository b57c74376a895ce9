"""Waiting for calls in coroutines.

Calls progress only while a thread waits for them, and an event loop cannot wait. So one thread
waits for all of them, as long as there are any, and notifies their event loops.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

from ._tutti import Work

# Longest time for which the thread polls the oldest call alone: waiting for it progresses the
# others too.
_SECONDS_APART = 0.001

_lock = threading.Lock()
_pending: list[tuple[Work, asyncio.Future[None]]] = []
_thread: threading.Thread | None = None


async def wait_in_loop(work: Work) -> Any:
    """Returns the call's result, or raises its exception, without blocking the event loop."""
    if not work.test():
        future = asyncio.get_running_loop().create_future()
        _add(work, future)
        await future
    return work.wait()


def _add(work: Work, future: asyncio.Future[None]) -> None:
    global _thread
    with _lock:
        _pending.append((work, future))
        if _thread is None:
            _thread = threading.Thread(target=_wait_for_all, name="tutti-await", daemon=True)
            _thread.start()


def _wait_for_all() -> None:
    """Waits for all calls. It ends when there are none left, at the latest when the communicators
    are closed."""
    global _thread
    while True:
        with _lock:
            if not _pending:
                _thread = None
                return
            pending = list(_pending)
        for entry in pending:
            if _ended(entry[0], _SECONDS_APART if entry is pending[0] else 0):
                with _lock:
                    _pending.remove(entry)
                _tell(entry[1])


def _ended(work: Work, seconds: float) -> bool:
    try:
        return work.wait_for(seconds)
    except Exception:  # the awaiting task receives it
        return True


def _tell(future: asyncio.Future[None]) -> None:
    def wake() -> None:
        if not future.done():  # the future was cancelled
            future.set_result(None)

    with contextlib.suppress(RuntimeError):  # the event loop is closed
        future.get_loop().call_soon_threadsafe(wake)


def stop() -> None:
    """Ends the thread at exit, when all communicators are closed."""
    thread = _thread
    if thread is not None:
        thread.join()
