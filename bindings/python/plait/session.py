"""Any graph: arrays in, arrays out."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from . import native
from .objects import NativeObject, json_of
from .tensor import DType, Tensor
from .waiting import interruptible


@dataclass(frozen=True)
class Operand:
    """An input or output. dtype NONE and shape None: known only when it runs; a size of -1: any."""

    name: str
    dtype: DType
    shape: Optional[tuple[int, ...]]
    is_list: int = 0
    """1: a sequence or an optional: a list of arrays. 2: an optional of a sequence: a list of at most one list."""


class Session(NativeObject):
    """Runs a model as it is written. Runs of one session are queued."""

    def __init__(self, handle: int, keeps: Any) -> None:
        super().__init__(handle, native.plait_session_release, keeps)

    def inputs(self) -> list[Operand]:
        """In the graph's order."""
        count, _ = native.plait_session_count(self)
        return [operand_of(lambda out, i=i: native.plait_session_input(self, i, out)) for i in range(count)]

    def outputs(self) -> list[Operand]:
        """The same of results."""
        _, count = native.plait_session_count(self)
        return [operand_of(lambda out, i=i: native.plait_session_output(self, i, out)) for i in range(count)]

    def run(self, inputs: Mapping[str, Any], outputs: Optional[Sequence[str]] = None) -> dict[str, Any]:
        """Runs it with each input once; `outputs`: names, None: all. Arrays are not copied, and must not change meanwhile. An input or
        output that is a sequence or an optional is a list of arrays."""
        lists = {one.name: one for one in self.inputs() if one.is_list}
        depths = {one.name: one.is_list for one in self.outputs()}
        wanted = [one.name for one in self.outputs()] if outputs is None else list(outputs)
        given = [list_tensor(value, lists[name].dtype, lists[name].is_list) if name in lists else Tensor.of(value)
                 for name, value in inputs.items()]
        made = interruptible(lambda: native.plait_session_run(self, list(inputs), given, wanted,
                                                              len(wanted)), self.cancel)
        return {name: arrays_of(Tensor(handle), depths[name]) for name, handle in zip(wanted, made)}

    def cancel(self) -> None:
        """The run under way ends with CANCELLED."""
        native.plait_session_cancel(self)

    def trace(self) -> dict[str, Any]:
        """With the option trace: what was done when, for Chrome's trace viewer."""
        out: dict[str, Any] = json_of(native.plait_session_trace(self))
        return out


def list_tensor(value: Any, dtype: DType, depth: int) -> Tensor:
    """Lists of arrays, `depth` deep."""
    if isinstance(value, Tensor):
        return value
    return Tensor.of_parts([list_tensor(part, dtype, depth - 1) for part in value] if depth > 1 else value, dtype)


def arrays_of(tensor: Tensor, depth: int) -> Any:
    """The inverse; `depth` 0: an array."""
    return [arrays_of(part, depth - 1) for part in tensor.parts()] if depth else tensor.numpy()


def operand_of(fill: Any) -> Operand:
    """What `fill` fills."""
    filled = native.Operand()
    fill(filled)
    return Operand(filled.name, DType(filled.dtype), filled.dims, filled.is_list)
