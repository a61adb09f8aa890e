"""What calls raise."""
from __future__ import annotations

from enum import IntEnum
from typing import NoReturn


class Code(IntEnum):
    """Why a call failed; the numbers of plait_status in plait.h."""

    INVALID_ARGUMENT = 1
    NOT_FOUND = 2
    BAD_MODEL = 3
    UNSUPPORTED = 4
    OUT_OF_MEMORY = 5
    OVERLOADED = 6
    CANCELLED = 7
    TIMEOUT = 8
    IO = 9
    NUMERIC = 10
    CLOSED = 11
    INTERNAL = 12


class Error(Exception):
    """A failed call: its `code`, `message` (what and where) and `hint`, what to do ("" if there is none)."""

    def __init__(self, code: Code, message: str, hint: str = "") -> None:
        super().__init__(code, message, hint)
        self.code, self.message, self.hint = code, message, hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class Timeout(Error, TimeoutError):
    """Nothing came within the given time: the call may be repeated."""


def raise_error(status: int, message: str, hint: str) -> NoReturn:
    """For the wrapper, in the thread of the call that failed."""
    code = Code(status)
    raise (Timeout if code is Code.TIMEOUT else Error)(code, message, hint)
