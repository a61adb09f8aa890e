"""Ranks that are processes."""
from __future__ import annotations

from typing import Any

from . import native
from .objects import NativeObject, Options
from .waiting import interruptible


class World(NativeObject):
    """The processes that mpirun started, once per process: rank 0 makes generators and trainers on it, the others serve it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(native.plait_world_open(Options(options)), native.plait_world_release)
        self.rank, self.size = native.plait_world_rank(self)

    def serve(self) -> None:
        """Ranks other than 0: until rank 0 ends the world."""
        interruptible(lambda: native.plait_world_serve(self))

    def end(self) -> None:
        """Rank 0: the others' `serve` returns."""
        native.plait_world_close(self)
