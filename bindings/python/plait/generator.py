"""A model that answers."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Union

from . import native
from .objects import NativeObject, Options, json_of
from .request import Request, Sampler
from .tokenizer import Messages, ids_of, messages_of
from .waiting import in_turns


@dataclass(frozen=True)
class Statistics:
    """Requests since the start, pages of the cache, bytes; see plait_generator_stats in plait.h."""

    running: int
    waiting: int
    finished: int
    preempted: int
    steps: int
    pages: int
    pages_free: int
    pages_shared: int
    weight_bytes: int
    cache_bytes: int
    arena_bytes: int
    native_bytes: int
    prefix_tokens: int
    vocabulary: int
    context: int
    states: int
    states_free: int
    masks: int
    mask_seconds: float
    mask_wait_seconds: float
    waiting_tokens: int
    expected_wait_seconds: float
    step_seconds: float
    sampling_seconds: float
    failed_rank: int


class Generator(NativeObject):
    """Weights, a cache of fixed size, and a queue of requests, which run together. It loads in the background: what is asked of it
    waits for that. May be used by several threads at once; closing it ends nothing that was submitted."""

    def __init__(self, handle: int, keeps: Any) -> None:
        super().__init__(handle, native.plait_generator_release, keeps)

    def wait(self, timeout: Optional[float] = None) -> None:
        """Until it is loaded. Raises Timeout after `timeout` seconds."""
        in_turns(lambda left: native.plait_generator_wait(self, left), timeout)

    @property
    def progress(self) -> float:
        """How much of the loading is done, 0 to 1."""
        out: float = native.plait_generator_progress(self)
        return out

    def cancel(self) -> None:
        """Ends the loading."""
        native.plait_generator_cancel(self)

    def submit(self, prompt: Union[str, Any], *, parent: Optional[Request] = None, sampler: Optional[Sampler] = None,
               **options: Any) -> Request:
        """A prompt: a text, or token ids, which are taken as they are. `parent`: a request that ended with the option keep, which
        this one continues. `inputs_embeds`: an array that stands for tokens, such as an image's embeddings; `image_grid_thw`: its grid,
        where positions have three dimensions. `input_features`: of an encoder-decoder's sound; the prompt, which may be empty, is what
        its decoder begins with. `sampler`: chooses tokens from logits f32 [v], in the thread that pulls."""
        self.wait()
        if sampler is not None:
            options["host_sampling"] = True
        given = Options(options)
        if isinstance(prompt, str):
            made = native.plait_generator_submit_text(self, prompt, given, parent)
        else:
            made = native.plait_generator_submit_ids(self, ids_of(prompt), given, parent)
        return Request(made, self, sampler)

    def chat(self, messages: Messages, **options: Any) -> Request:
        """A whole conversation, [{"role": "user", "content": "..."}, ...]; what the cache has of it is found by itself."""
        self.wait()
        given = Options(options)
        return Request(native.plait_generator_submit_chat(self, messages_of(messages), given), self)

    def generate(self, prompt: Union[str, Any], **options: Any) -> str:
        """The text that follows a prompt."""
        with self.submit(prompt, **options) as request:
            return request.text()

    def restore(self, saved: bytes) -> Request:
        """A request to continue from, out of Request.save."""
        return Request(native.plait_generator_restore(self, saved), self)

    def add_adapter(self, name: str, directory: str) -> None:
        """From a directory in PEFT's layout; requests may then name it (option adapter)."""
        native.plait_generator_add_adapter(self, name, directory)

    def remove_adapter(self, name: str) -> None:
        """Requests can name it no more; those that did go on."""
        native.plait_generator_remove_adapter(self, name)

    def adapters(self) -> list[str]:
        """The names that requests may use."""
        out: list[str] = json_of(native.plait_generator_adapters(self))
        return out

    def statistics(self) -> Statistics:
        """What runs, waits, and takes memory."""
        filled = native.GeneratorStats()
        native.plait_generator_statistics(self, filled)
        return Statistics(**{name: getattr(filled, name) for name in Statistics.__dataclass_fields__})

    def profile(self) -> dict[str, Any]:
        """Seconds and calls an op, with the option profile."""
        out: dict[str, Any] = json_of(native.plait_generator_profile(self))
        return out

    def histograms(self) -> dict[str, Any]:
        """How often steps and requests had which sizes and times, by name: help, bounds, counts and sum."""
        out: dict[str, Any] = json_of(native.plait_generator_histograms(self))
        return out

    def ranks(self) -> list[dict[str, Any]]:
        """What each rank holds."""
        out: list[dict[str, Any]] = json_of(native.plait_generator_ranks(self))
        return out

    def trace(self) -> dict[str, Any]:
        """With the option trace: what each rank did when, for Chrome's trace viewer."""
        out: dict[str, Any] = json_of(native.plait_generator_trace(self))
        return out
