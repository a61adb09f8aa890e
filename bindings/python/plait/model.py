"""Models."""
from __future__ import annotations

import os
from enum import IntEnum
from typing import Any, Iterator, Mapping, Optional, Union

from . import native
from .generator import Generator
from .objects import NativeObject, Options, json_of, text_of
from .session import Session
from .tensor import Tensor
from .tokenizer import Tokenizer
from .trainer import Trainer
from .waiting import in_turns, interruptible
from .world import World


class LogLevel(IntEnum):
    """How serious a line is."""

    DEBUG = 0
    INFO = 1
    WARNING = 2


class Model(NativeObject):
    """A model's graph, with its tokenizer and configurations. Immutable; may be used by several threads at once."""

    def __init__(self, source: Union[str, os.PathLike[str], Mapping[str, Any]], *, background: bool = False, **options: Any) -> None:
        """`source`: a directory, an .onnx or .gguf file; or files by their names, each bytes or an array of them, which are not copied.
        `background`: returns at once; calls wait for what they need."""
        given, release, files = Options({**options, "background": background}), native.plait_model_release, None
        if isinstance(source, (str, os.PathLike)):
            opened = interruptible(lambda: native.plait_model_open(os.fspath(source), given), undo=release)
        else:
            files = [Tensor.of(memoryview(one) if isinstance(one, (bytes, bytearray)) else one) for one in source.values()]
            opened = interruptible(lambda: native.plait_model_open_memory(list(source), files, given), undo=release)
        super().__init__(opened, release, files)

    def wait(self, timeout: Optional[float] = None) -> None:
        """Until it is loaded. Raises Timeout after `timeout` seconds."""
        in_turns(lambda left: native.plait_model_wait(self, left), timeout)

    @property
    def progress(self) -> float:
        """How much of that is done, 0 to 1."""
        out: float = native.plait_model_progress(self)
        return out

    def cancel(self) -> None:
        """Ends the loading, and exports that are under way."""
        native.plait_model_cancel(self)

    def info(self) -> dict[str, Any]:
        """What the graph is, and what was recognised in it."""
        out: dict[str, Any] = json_of(native.plait_model_info(self))
        return out

    def dump(self, after: str) -> str:
        """The graph's text form after the pass of that name."""
        return text_of(native.plait_model_dump(self, after))

    def plan(self, **options: Any) -> dict[str, Any]:
        """What every rank of a generator's mesh would hold and do; nothing is loaded."""
        out: dict[str, Any] = json_of(native.plait_model_plan(self, Options(options)))
        return out

    def plan_training(self, **options: Any) -> dict[str, Any]:
        """The same of a trainer."""
        out: dict[str, Any] = json_of(native.plait_model_plan_training(self, Options(options)))
        return out

    def best_plan(self, **options: Any) -> dict[str, Any]:
        """The fastest plan of a training run or of generation on a machine, by simulation; nothing is loaded."""
        out: dict[str, Any] = json_of(native.plait_model_best_plan(self, Options(options)))
        return out

    def export(self, directory: str, **options: Any) -> None:
        """Writes it as ONNX. Options: bits and the like (rounds weights), mesh (annotates), checkpoint, adapter."""
        given = Options(options)
        interruptible(lambda: native.plait_model_export(self, directory, given), self.cancel)

    def log(self) -> Iterator[tuple[LogLevel, str]]:
        """The lines of the model, its generators and sessions, since it was last asked."""
        while True:
            level, text = native.plait_log_next(self)
            if not text:
                return
            yield LogLevel(level), text_of(text)

    def tokenizer(self) -> Tokenizer:
        """The model's; waits while it loads."""
        return Tokenizer(native.plait_tokenizer_of_model(self), self)

    def generator(self, *, world: Optional[World] = None, **options: Any) -> Generator:
        """Starts to load the weights, and returns. `world`: on its processes, of which this is rank 0."""
        given = Options(options)
        if world is None:
            return Generator(native.plait_generator_create(self, given), self)
        return Generator(native.plait_generator_create_on(world, self, given), (self, world))

    def session(self, **options: Any) -> Session:
        """For arrays in, arrays out."""
        given = Options(options)
        return Session(native.plait_session_create(self, given), self)

    def trainer(self, *, world: Optional[World] = None, **options: Any) -> Trainer:
        """Starts to load it, and returns. Options: data, out, lora, lr and others (docs/training.md)."""
        given = Options(options)
        if world is None:
            return Trainer(native.plait_trainer_create(self, given), self)
        return Trainer(native.plait_trainer_create_on(world, self, given), (self, world))
