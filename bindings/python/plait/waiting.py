"""Calls that take long, such that Ctrl-C reaches them: Python runs its handler only between calls, in the main thread."""
from __future__ import annotations

import _thread
import threading
import time
from typing import Callable, Optional, TypeVar

from .errors import Timeout

T = TypeVar("T")
PATIENCE_MS = 100


def in_turns(call: Callable[[int], T], timeout: Optional[float]) -> T:
    """`call` waits for as many milliseconds as it is given. `timeout` is in seconds, None: no limit. Raises Timeout."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = PATIENCE_MS if end is None else max(0, min(PATIENCE_MS, round(1000 * (end - time.monotonic()))))
        try:
            return call(left)
        except Timeout:
            if end is not None and time.monotonic() >= end:
                raise


def interruptible(call: Callable[[], T], cancel: Optional[Callable[[], None]] = None, undo: Optional[Callable[[T], None]] = None) -> T:
    """What `call` returns or raises. In the main thread it runs on another one, and an interrupt cancels it; without `cancel` it
    continues, and `undo` gets what it returns in the end."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    result: list[T] = []
    failure: list[BaseException] = []
    abandoned: list[bool] = []
    running = _thread.allocate_lock()
    running.acquire()

    def run() -> None:
        try:
            result.append(call())
            if abandoned and undo:
                undo(result.pop())
        except BaseException as error:  # raised again below
            failure.append(error)
        finally:
            running.release()

    _thread.start_new_thread(run, ())
    try:
        running.acquire()
    except BaseException:
        abandoned.append(True)
        if cancel:
            cancel()
            running.acquire()
        elif undo and running.acquire(blocking=False) and result:
            undo(result.pop())
        raise
    if failure:
        raise failure[0]
    return result[0]
