"""Training."""
from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Callable, Iterator, Mapping, Optional

import numpy

from . import native
from .objects import NativeObject
from .tensor import Tensor
from .waiting import in_turns, interruptible


class Ending(IntEnum):
    """How a run ended."""

    NONE = 0
    STEPS = 1
    PATIENCE = 2
    CANCELLED = 3


@dataclass(frozen=True)
class Step:
    """A report of a step; see plait_step in plait.h. Numbers that are not known are NaN, or 0. With an ending it is the run's last,
    without a step."""

    ending: Ending
    saved: bool
    step: int
    steps: int
    epochs: float
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int
    tokens_per_second: float
    seconds_left: float
    evaluation_loss: float
    best_loss: float
    native_bytes: int
    bubble: float


@dataclass(frozen=True)
class Evaluation:
    """Nats a label, its exponential, and how many labels there were."""

    loss: float
    perplexity: float
    targets: int


def ids_tensor(ids: Any) -> Tensor:
    """Documents as a tensor [documents, s]; integers of another size become i64."""
    if isinstance(ids, Tensor):
        return ids
    array = numpy.asarray(ids)
    return Tensor.of(array if array.dtype in (numpy.int32, numpy.int64) else array.astype(numpy.int64, casting="safe"))


class Trainer(NativeObject):
    """Trains a model, or adapters of it. With the option data it goes through that file by itself, and iterating pulls a report of each
    step; without, the host gives every step. Closing it cancels it; what is done is saved (option out)."""

    def __init__(self, handle: int, keeps: Any) -> None:
        super().__init__(handle, native.plait_trainer_release, keeps)

    def wait(self, timeout: Optional[float] = None) -> None:
        """Until it is loaded. Raises Timeout after `timeout` seconds."""
        in_turns(lambda left: native.plait_trainer_wait(self, left), timeout)

    @property
    def progress(self) -> float:
        """How much of the loading is done, 0 to 1."""
        out: float = native.plait_trainer_progress(self)
        return out

    def cancel(self) -> None:
        """Ends the loading, or the run."""
        native.plait_trainer_cancel(self)

    def next(self, timeout: Optional[float] = None) -> Step:
        """The next report of the run, the last of which has an ending. Raises Timeout."""
        filled = native.TrainingStep()
        in_turns(lambda left: native.plait_trainer_next(self, left, filled), timeout)
        return step_of(filled)

    def __iter__(self) -> Iterator[Step]:
        """All reports; leaving the loop leaves the run going: cancel or close it."""
        while True:
            step = self.next()
            yield step
            if step.ending != Ending.NONE:
                return

    def run(self, progress: Optional[Callable[[Step], None]] = None) -> Step:
        """Waits for the end of the run, which it returns; `progress` gets each report. What it raises, or Ctrl-C, cancels the run."""
        try:
            for step in self:
                if progress:
                    progress(step)
        except BaseException:
            self.cancel()
            raise
        return step

    def step(self, ids: Any, labels: Any = None) -> Step:
        """A step of the host's: forward, backward, update. `ids`: integers [documents, s]; `labels` alike, -1 if not counted, None: the
        next ids."""
        tensors = [ids_tensor(ids), None if labels is None else ids_tensor(labels)]
        return self._filled(lambda filled: native.plait_trainer_step(self, *tensors, filled))

    def step_inputs(self, inputs: Mapping[str, Any]) -> Step:
        """A step of a model with a loss of its own (option loss): its inputs, each once."""
        tensors = [Tensor.of(one) for one in inputs.values()]
        return self._filled(
            lambda filled: native.plait_trainer_step_inputs(self, list(inputs), tensors, filled))

    def forward(self, ids: Any) -> numpy.ndarray[Any, Any]:
        """For a loss of the host's: logits, f32 [documents, s, v]."""
        tensor = ids_tensor(ids)
        return Tensor(interruptible(lambda: native.plait_trainer_forward(self, tensor), self.cancel)).numpy()

    def backward(self, ids: Any, gradient: Any) -> None:
        """The gradient of that loss by the logits, f32."""
        tensors = [ids_tensor(ids), Tensor.of(gradient)]
        interruptible(lambda: native.plait_trainer_backward(self, *tensors), self.cancel)

    def update(self) -> Step:
        """By what was gathered since the last one."""
        return self._filled(lambda filled: native.plait_trainer_update(self, filled))

    def evaluate(self, data: Any, labels: Any = None) -> Evaluation:
        """The loss over a file like the option data (a path), over documents like those of `step`, or over a model's inputs by name."""
        if isinstance(data, str):
            return self._evaluated(lambda filled: native.plait_trainer_evaluate(self, data, filled))
        if isinstance(data, Mapping):
            named = [Tensor.of(one) for one in data.values()]
            return self._evaluated(
                lambda filled: native.plait_trainer_evaluate_inputs(self, list(data), named, filled))
        tensors = [ids_tensor(data), None if labels is None else ids_tensor(labels)]
        return self._evaluated(lambda filled: native.plait_trainer_evaluate_ids(self, *tensors, filled))

    def save(self) -> None:
        """A checkpoint in the option out."""
        interruptible(lambda: native.plait_trainer_save(self))

    def export(self, directory: str) -> None:
        """The model with what was trained, as ONNX."""
        interruptible(lambda: native.plait_trainer_export(self, directory))

    def save_adapter(self, directory: str) -> None:
        """The adapters in PEFT's layout."""
        interruptible(lambda: native.plait_trainer_save_adapter(self, directory))

    def _filled(self, call: Callable[[Any], Any]) -> Step:
        filled = native.TrainingStep()
        interruptible(lambda: call(filled), self.cancel)
        return step_of(filled)

    def _evaluated(self, call: Callable[[Any], Any]) -> Evaluation:
        filled = native.Evaluation()
        interruptible(lambda: call(filled), self.cancel)
        return Evaluation(filled.loss, filled.perplexity, filled.targets)


def step_of(filled: Any) -> Step:
    """A copy."""
    values = {name: getattr(filled, name) for name in Step.__dataclass_fields__}
    return Step(**{**values, "ending": Ending(values["ending"]), "saved": bool(values["saved"])})
