"""Texts and token ids."""
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Optional, Sequence, Union

import numpy

from . import native
from .objects import NativeObject, Options, text_of
from .tensor import Tensor

Messages = Union[str, Sequence[dict[str, Any]]]


def ids_of(ids: Any) -> numpy.ndarray[Any, Any]:
    """Token ids as the library takes them."""
    array = numpy.asarray(ids)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError("token ids are integers")
    if array.size and (array.min() < -2**31 or array.max() >= 2**31):
        raise ValueError("a token id is beyond 32 bits")
    return numpy.ascontiguousarray(array, numpy.int32).reshape(-1)


def messages_of(messages: Messages) -> str:
    """A conversation as JSON."""
    return messages if isinstance(messages, str) else json.dumps(list(messages))


@dataclass(frozen=True)
class Facts:
    """Of a tokenizer; bos and eos may be None."""

    vocabulary: int
    bos: Optional[int]
    eos: Optional[int]
    has_chat_template: bool


class Tokenizer(NativeObject):
    """Immutable; may be used by several threads at once."""

    def __init__(self, handle: int, keeps: Any = None) -> None:
        super().__init__(handle, native.plait_tokenizer_release, keeps)

    @staticmethod
    def open(path: str, **options: Any) -> Tokenizer:
        """From a directory with a tokenizer.json, a file next to one, or a .gguf file."""
        return Tokenizer(native.plait_tokenizer_open(path, Options(options)))

    def encode(self, text: str, special: bool = True) -> numpy.ndarray[Any, Any]:
        """i32 [n]; `special`: with those of a plain prompt (BOS)."""
        return Tensor(native.plait_tokenizer_encode(self, text, int(special))).numpy()

    def decode(self, ids: Any, skip_special: bool = True) -> str:
        """Always whole characters."""
        return text_of(native.plait_tokenizer_decode(self, ids_of(ids), int(skip_special)))

    def chat(self, messages: Messages, **options: Any) -> str:
        """The prompt for a conversation by the model's template. Options: tools, chat_variables."""
        return text_of(native.plait_tokenizer_chat(self, messages_of(messages), Options(options)))

    def piece(self, token: int) -> str:
        """A token as the vocabulary has it."""
        return text_of(native.plait_tokenizer_piece(self, token))

    def id(self, piece: str) -> int:
        """The other way."""
        out: int = native.plait_tokenizer_id(self, piece)
        return out

    def bytes(self, token: int) -> bytes:
        """What a token adds within a text, which need not be whole characters; those of a special token are its name."""
        made: bytes = Tensor(native.plait_tokenizer_bytes(self, token)).numpy().tobytes()
        return made

    def facts(self) -> Facts:
        """Its sizes and special tokens."""
        filled = native.TokenizerFacts()
        native.plait_tokenizer_info(self, filled)
        special = [None if one < 0 else one for one in (filled.bos, filled.eos)]
        return Facts(filled.vocabulary, special[0], special[1], bool(filled.has_chat_template))

    def cancel(self) -> None:
        """Ends the calls of other threads that are under way."""
        native.plait_tokenizer_cancel(self)
