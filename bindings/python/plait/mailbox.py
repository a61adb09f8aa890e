"""One wait for many requests."""
from __future__ import annotations

from typing import Optional, cast

from . import native
from .objects import NativeObject
from .waiting import in_turns


class Mailbox(NativeObject):
    """Each request that is attached (`Request.attach`) posts its tag here when it has something to return. Take its tokens with
    `Request.next(0)` until Timeout or None, then wait for the next tag."""

    def __init__(self) -> None:
        super().__init__(native.plait_mailbox_create(), native.plait_mailbox_release)

    def next(self, timeout: Optional[float] = None) -> int:
        """The next tag, in the order they were posted; raises Timeout after `timeout` seconds. It may be that of a closed request."""
        return cast(int, in_turns(lambda left: native.plait_mailbox_next(self, left), timeout))

    def post(self, tag: int) -> None:
        """A tag of one's own: wakes the thread that waits."""
        native.plait_mailbox_post(self, tag)
