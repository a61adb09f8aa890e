"""HTTP within this process."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from . import native
from .errors import Timeout
from .generator import Generator
from .model import Model
from .objects import NativeObject, Options, text_of
from .waiting import interruptible


@dataclass(frozen=True)
class ServerStatistics:
    """Of a server's clients."""

    connections: int
    calls: int
    answered: int
    cancelled: int
    certificate_expires: int


class Server(NativeObject):
    """A server for OpenAI's clients (docs/serving.md). It listens from its creation on, and answers 503 until its models are loaded. The
    generators may be used here, too: all requests share steps. Closing it ends all calls."""

    def __init__(self, **options: Any) -> None:
        super().__init__(native.plait_server_create(Options(options)), native.plait_server_release, [])

    def add(self, name: str, model: Model, generator: Generator) -> None:
        """Serves the generator of a model, which may still be loading, under a name."""
        native.plait_server_add(self, name, model, generator)
        self._keeps += [model, generator]

    @property
    def address(self) -> str:
        """"http://127.0.0.1:8080", with the port that it listens on; or "unix:PATH"."""
        return text_of(native.plait_server_address(self))

    def drain(self, timeout: Optional[float] = None) -> bool:
        """Takes no more connections, and waits until all calls are answered. False after `timeout` seconds: the rest are ended."""
        milliseconds = -1 if timeout is None else round(1000 * timeout)
        try:
            interruptible(lambda: native.plait_server_drain(self, milliseconds))
        except Timeout:
            return False
        return True

    def statistics(self) -> ServerStatistics:
        """So far."""
        filled = native.ServerStats()
        native.plait_server_statistics(self, filled)
        return ServerStatistics(**{name: getattr(filled, name) for name in ServerStatistics.__dataclass_fields__})
