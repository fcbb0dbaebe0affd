"""The core's C functions and structures, as `include/hvd_ft.h` declares them, and how it is loaded.

Their meaning is told there; `core.py` makes Python of them.
"""

import ctypes
import os
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from hvd_ft.errors import HvdFtError, NoRoomError
from hvd_ft.native import types as facts

_PACKAGE = Path(__file__).resolve().parents[1]


class Event(ctypes.Structure):
    _fields_ = (
        ("time_ns", c_uint64),
        ("type", c_uint32),
        ("rank", c_uint32),
        ("incarnation", c_uint32),
        ("reserved", c_uint32),
        ("detail", c_uint64),
    )


class Status(ctypes.Structure):
    _fields_ = (
        ("state", c_uint32),
        ("incarnation", c_uint32),
        ("pid", c_uint64),
        ("step", c_uint64),
        ("executed", c_uint64),
        ("since_ns", c_uint64),
    )


class Snapshots(ctypes.Structure):
    _fields_ = tuple((f.name, c_uint64) for f in fields(facts.Snapshots))


class Log(ctypes.Structure):
    _fields_ = tuple((f.name, c_uint64) for f in fields(facts.Log))


class Watch(ctypes.Structure):
    _fields_ = (
        ("state", c_uint32),
        ("incarnation", c_uint32),
        ("pending", c_int64),
        ("asleep", c_uint32),
        ("reserved", c_uint32),
        ("contributed", c_uint64),
        ("executed", c_uint64),
        ("announced", c_uint64),
        ("step", c_uint64),
    )


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "hvdft_error": (c_char_p, []),
    "hvdft_version": (c_char_p, []),
    "hvdft_die_with_parent": (c_int, []),
    "hvdft_become_subreaper": (c_int, []),
    "hvdft_create_node": (c_int, [c_char_p, c_char_p, *5 * [c_int], c_uint64]),
    "hvdft_create_rank": (c_int, [c_char_p, c_char_p, c_int, c_uint64]),
    "hvdft_observer_open": (c_void_p, [c_char_p]),
    "hvdft_observer_close": (None, [c_void_p]),
    "hvdft_observer_size": (c_int, [c_void_p]),
    "hvdft_observer_status": (c_int, [c_void_p, c_int, POINTER(Status)]),
    "hvdft_observer_snapshots": (c_int, [c_void_p, c_int, POINTER(Snapshots)]),
    "hvdft_observer_watch": (c_int, [c_void_p, c_int, POINTER(Watch)]),
    "hvdft_observer_events": (c_int, [c_void_p, c_uint64, POINTER(Event), c_int]),
    "hvdft_observer_used_bytes": (c_uint64, [c_void_p]),
    "hvdft_observer_limit_bytes": (c_uint64, [c_void_p]),
    "hvdft_observer_generation": (c_uint64, [c_void_p]),
    "hvdft_observer_log_length": (c_uint64, [c_void_p]),
    "hvdft_observer_log_records": (c_uint64, [c_void_p]),
    "hvdft_agent_open": (c_void_p, [c_char_p, c_char_p, c_int, c_uint64]),
    "hvdft_agent_start": (c_int, [c_void_p]),
    "hvdft_agent_close": (None, [c_void_p]),
    "hvdft_agent_started": (None, [c_void_p, c_int, c_uint64]),
    "hvdft_agent_failed": (None, [c_void_p, c_int]),
    "hvdft_agent_done": (None, [c_void_p, c_int]),
    "hvdft_agent_fatal": (None, [c_void_p, c_int, c_char_p]),
    "hvdft_agent_wait": (c_int, [c_void_p, c_uint64, c_int]),
    "hvdft_agent_wake": (None, [c_void_p]),
    "hvdft_agent_orderly_exit": (c_int, [c_void_p]),
    "hvdft_agent_last_words": (None, [c_void_p, c_char_p, c_int]),
    "hvdft_agent_event_count": (c_uint64, [c_void_p]),
    "hvdft_agent_fatal_text": (
        c_int,
        [c_void_p, c_char_p, c_int, POINTER(c_int), POINTER(c_int)],
    ),
    "hvdft_worker_open": (c_int, []),
    "hvdft_worker_rank": (c_int, []),
    "hvdft_worker_size": (c_int, []),
    "hvdft_worker_incarnation": (c_int, []),
    "hvdft_worker_cursor": (c_uint64, []),
    "hvdft_worker_pending": (c_uint64, []),
    "hvdft_worker_loop_begin": (c_int, [c_int, POINTER(c_uint64)]),
    "hvdft_worker_loop_end": (c_int, [c_int]),
    "hvdft_worker_loop_ended": (c_int, [c_int]),
    "hvdft_worker_snapshot_room": (c_int, [c_int, c_uint64, POINTER(c_void_p)]),
    "hvdft_worker_snapshot_publish": (c_int, [c_int, c_uint64, c_uint64]),
    "hvdft_worker_snapshot_get": (
        c_int,
        [c_int, POINTER(c_void_p), POINTER(c_uint64), POINTER(c_uint64)],
    ),
    "hvdft_worker_jump": (c_int, [c_int]),
    "hvdft_worker_count_snapshots": (None, [POINTER(Snapshots)]),
    "hvdft_worker_log": (None, [POINTER(Log)]),
    "hvdft_worker_message_room": (None, [POINTER(c_uint64), POINTER(c_uint64)]),
    "hvdft_failpoint": (c_int, [c_int, c_uint64]),
    "hvdft_worker_set_step": (None, [c_uint64]),
    "hvdft_worker_orderly_exit": (None, []),
    "hvdft_worker_last_words": (None, [c_char_p]),
    "hvdft_worker_stop_code": (c_int, []),
    "hvdft_worker_fatal": (None, [c_char_p]),
    "hvdft_worker_event_count": (c_uint64, []),
    "hvdft_worker_events": (c_int, [c_uint64, POINTER(Event), c_int]),
    "hvdft_worker_wait_event": (c_int, [c_uint64, c_int]),
}


def library_path() -> str:
    """Where libhvd_ft.so lies; HOROVOD_FT_LIBRARY, if an agent set it."""
    return os.environ.get("HOROVOD_FT_LIBRARY") or str(_PACKAGE / "libhvd_ft.so")


def mpi_library_path() -> str:
    """Where libhvdft_mpi.so lies, which only processes that speak MPI load (`mpi.py`)."""
    return str(_PACKAGE / "libhvdft_mpi.so")


def load(path: str, signatures: Mapping[str, tuple[Any, list[Any]]], remedy: str) -> ctypes.CDLL:
    """Loads a library and declares its functions.

    Args:
        path: of the library.
        signatures: each function's result and arguments, by its name.
        remedy: what to do if it cannot be loaded.

    Raises:
        HvdFtError: It is not there, or lacks a function.
    """
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in signatures.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise HvdFtError(f"the library {path} cannot be loaded ({error}); {remedy}") from None
    return library


@cache
def library() -> ctypes.CDLL:
    return load(library_path(), _SIGNATURES, "build it with 'pip install .' or 'make core'")


_NO_SPACE = -3  # HVDFT_ENOSPACE


def checked(code: int) -> int:
    if code < 0:
        kind = NoRoomError if code == _NO_SPACE else HvdFtError
        raise kind(library().hvdft_error().decode(errors="replace"))
    return code
