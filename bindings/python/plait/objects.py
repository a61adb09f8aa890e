"""What all objects of the library have in common, and options."""
from __future__ import annotations

import ctypes
import json
import weakref
from functools import lru_cache
from typing import Any, Callable, Iterable, TypeVar

from . import native

Self = TypeVar("Self", bound="NativeObject")


class NativeObject:
    """An object of the library. `close` it, or leave its `with`, when it is no longer needed: in any order, from any thread; what was
    made from it continues. One that is forgotten is closed when it is collected. Calls of one that is closed raise Error (CLOSED)."""

    def __init__(self, handle: int, release: Callable[[int], None], keeps: Any = None) -> None:
        self._handle = handle
        self._keeps = keeps  # memory that the library reads, or the object that keeps it
        self._release = weakref.finalize(self, release, handle)

    def close(self) -> None:
        """Gives the object back; closing it again does nothing."""
        self._release()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self._release.alive

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@lru_cache(maxsize=None)
def repeatable() -> frozenset[str]:
    """Options that may be given several times."""
    return frozenset(one["key"] for one in json.loads(text_of(native.plait_options_describe())) if one["repeats"])


@lru_cache(maxsize=None)
def tensors() -> frozenset[str]:
    """Options that are tensors."""
    return frozenset(one["key"] for one in json.loads(text_of(native.plait_options_describe())) if one["type"] == "a tensor")


def values_of(key: str, value: Any) -> Iterable[str]:
    """An option's values as texts: lists are several of one that repeats, and otherwise a list with commas; dicts are JSON, but of
    "adapters", whose names and directories they are."""
    if value is True or value is False:
        return [str(value).lower()]
    if key == "adapters" and isinstance(value, dict):
        return [f"{name}={directory}" for name, directory in value.items()]
    if isinstance(value, dict):
        return [json.dumps(value)]
    if isinstance(value, (list, tuple)):
        if any(isinstance(one, dict) for one in value):
            return [json.dumps(value)]
        texts = [str(one) for one in value]
        return texts if key in repeatable() else [",".join(texts)]
    return [str(value)]


class Options(NativeObject):
    """Keys and values for a call. Values of None are left out."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(native.plait_options_create(), native.plait_options_release)
        from .tensor import Tensor  # which is one of these objects
        for key, value in given.items():
            if value is not None and key in tensors():
                native.plait_options_set_tensor(self, key, Tensor.of(value))
                continue
            for text in [] if value is None else values_of(key, value):
                native.plait_options_set(self, key, text)


def text_of(tensor: int) -> str:
    """A text result, which is released."""
    try:
        view = native.View()
        native.plait_tensor_view(tensor, view)
        return ctypes.string_at(view.data, view.bytes).decode()
    finally:
        native.plait_tensor_release(tensor)


def json_of(tensor: int) -> Any:
    """The same read as JSON."""
    return json.loads(text_of(tensor))
