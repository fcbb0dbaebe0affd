"""Rules about a model's size: whether its arenas and its processes fit into a host. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hvd_ft.doctor.facts import Limits
from hvd_ft.doctor.finding import WARNING, Finding
from hvd_ft.doctor.limit_rules import RANK_BYTES
from hvd_ft.native.types import Memory
from hvd_ft.system.byte_size import in_words
from hvd_ft.worker.memory_need import Need, Training, memory_need

_FLOAT = 4  # bytes
_STATE = 3  # a weight and Adam's two averages
_OWN = 4  # the same, and a gradient
_MIB = 1 << 20
_CONTROL, _CONTROL_A_RANK, _INPUT_A_RANK = 7 * _MIB, _MIB, _MIB  # docs/how-to/tuning.md


@dataclass(frozen=True)
class Model:
    """What a job is to train, in float32 with Adam.

    Attributes:
        params: Number of parameters.
        nodes: Of the job.
        log_steps: HOROVOD_FT_LOG_STEPS.
        arena_bytes: HOROVOD_FT_ARENA_BYTES; None: as much as hvd_ft takes by itself.
    """

    params: int
    nodes: int = 1
    log_steps: int = 6
    arena_bytes: int | None = None


def arena_need(limits: Limits, model: Model) -> Need:
    """Returns what the arenas of a host will take for a model."""
    training = Training(
        state_bytes=_STATE * _FLOAT * model.params,
        step_bytes=_FLOAT * model.params,
        ranks=limits.ranks,
        nodes=model.nodes,
        snapshot_steps=model.log_steps,
    )
    control = _CONTROL + _CONTROL_A_RANK * limits.ranks
    zero = dict.fromkeys(Memory.__dataclass_fields__, 0)
    areas = {"input_areas": _INPUT_A_RANK * limits.ranks, "control": control}
    return memory_need(training, Memory(**(zero | areas)))


def model_arena(limits: Limits, model: Model) -> Finding | None:
    """The op log and the snapshots do not fit."""
    need = arena_need(limits, model).total
    room = limits.arena * 3 // 4 if model.arena_bytes is None else model.arena_bytes
    if need <= room:
        return None
    size = in_words(need * 4 // 3)
    return Finding(
        "model-arena",
        WARNING,
        f"{model.params:,} parameters on {limits.ranks} rank{'s' * (limits.ranks > 1)} take about "
        f"{in_words(need)} in {limits.arena_dir}, where a job may take {in_words(room)}",
        "op log and snapshots lie there; a job whose log is full ends with an error",
        f"enlarge it to {size} or more: docker run --shm-size, mount -o remount,size= "
        f"{limits.arena_dir}; raise HOROVOD_FT_ARENA_BYTES if it is set; or lower "
        "HOROVOD_FT_LOG_STEPS",
    )


def model_memory(limits: Limits, model: Model) -> Finding | None:
    """The processes and what they share do not fit into memory."""
    own = limits.ranks * (RANK_BYTES + _OWN * _FLOAT * model.params)
    need = own + (arena_need(limits, model).total if limits.arena_in_memory else 0)
    left = limits.memory
    if limits.group_memory is not None:
        left = min(left, limits.group_memory)
    if need <= left:
        return None
    return Finding(
        "model-memory",
        WARNING,
        f"{model.params:,} parameters on {limits.ranks} rank{'s' * (limits.ranks > 1)} take about "
        f"{in_words(need)} of memory, and {in_words(left)} are left",
        "the kernel kills what takes more; data and activations come on top",
        "start fewer ranks here (-np, -H), raise the limit of the container or the allocation, or "
        "set HOROVOD_FT_ARENA_DIR to a directory on a fast disk",
    )


MODEL_RULES = (model_arena, model_memory)
