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
_polling = threading.Lock()  # the thread holds it while it waits for a call
_pending: list[tuple[Work, asyncio.Future[None]]] = []
_thread: threading.Thread | None = None


async def wait_in_loop(work: Work) -> Any:
    """Returns the call's result, or raises its exception, without blocking the event loop."""
    if _is_pending(work) or not work.test():
        future = asyncio.get_running_loop().create_future()
        _add(work, future)
        try:
            await future
        except asyncio.CancelledError:
            _remove(work, future)
            raise
    return work.wait()


def _is_pending(work: Work) -> bool:
    """Returns True if the thread waits for the call, as another task awaits it."""
    with _lock:
        return any(entry[0] is work for entry in _pending)


def _add(work: Work, future: asyncio.Future[None]) -> None:
    global _thread
    with _lock:
        _pending.append((work, future))
        if _thread is None:
            _thread = threading.Thread(target=_wait_for_all, name="tutti-await", daemon=True)
            _thread.start()


def _remove(work: Work, future: asyncio.Future[None]) -> None:
    """Makes the thread stop waiting for the call, so that others may wait for it."""
    _discard((work, future))
    with _polling:  # the thread no longer waits for the call
        pass


def _discard(entry: tuple[Work, asyncio.Future[None]]) -> None:
    with _lock:
        if entry in _pending:
            _pending.remove(entry)


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
            if _ended(entry, _SECONDS_APART if entry is pending[0] else 0):
                _tell(entry[1])


def _ended(entry: tuple[Work, asyncio.Future[None]], seconds: float) -> bool:
    """Waits for a call, and removes it if it has ended. Returns False if the task was cancelled."""
    with _polling:
        with _lock:
            if entry not in _pending:
                return False
        try:
            ended = entry[0].wait_for(seconds)
        except Exception:  # the awaiting task receives it
            ended = True
        if ended:
            _discard(entry)
        return ended


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
