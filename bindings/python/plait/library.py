"""What concerns no model."""
from __future__ import annotations

from typing import Any

from . import native
from .objects import Options, json_of


def version() -> str:
    """"0.1.0"."""
    out: str = native.plait_version()
    return out


def options() -> list[dict[str, Any]]:
    """All options: key, for which objects, type, default, whether it repeats, and what it does."""
    out: list[dict[str, Any]] = json_of(native.plait_options_describe())
    return out


def values(kind: str, **given: Any) -> dict[str, Any]:
    """What an object of that kind ("generator", "server", ...) would be created with, defaults included."""
    out: dict[str, Any] = json_of(native.plait_options_values(Options(given), kind))
    return out


def ops(**given: Any) -> list[dict[str, Any]]:
    """The ops that there are, and their kernels. Options: isa."""
    out: list[dict[str, Any]] = json_of(native.plait_ops(Options(given)))
    return out


def system(**given: Any) -> dict[str, Any]:
    """What this machine has: processor, memory, MPI, CUDA. Options: isa, mpi_plugin, cuda_plugin."""
    out: dict[str, Any] = json_of(native.plait_system(Options(given)))
    return out


def machine(**given: Any) -> dict[str, Any]:
    """A machine as plans see it. Options: machine, one that comes along (a100, h100, h200, v100) or a file."""
    out: dict[str, Any] = json_of(native.plait_machine(Options(given)))
    return out


def plan(**given: Any) -> dict[str, Any]:
    """The fastest plan of a training run that fits, by simulation. Options: decoder, machine, ranks, batch and others."""
    out: dict[str, Any] = json_of(native.plait_plan(Options(given)))
    return out
