"""The core of a checkpoint writer, seen from Python."""

from types import SimpleNamespace
from typing import Any

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.native import abi
from hvd_ft.native.checkpointer import Checkpointer


def counted(code: int) -> int | None:
    core: Any = SimpleNamespace(
        _library=SimpleNamespace(hvdft_checkpointer_messages=lambda *_: code), _handle=None
    )
    return Checkpointer.messages(core, 0, 1, sent=True, loop=0, slot=0)


def test_a_log_that_cannot_be_read_is_not_taken_for_none() -> None:
    """Or messages under way would be missing from a checkpoint that looks consistent."""
    assert counted(3) == 3
    assert counted(-1) is None
    with pytest.raises(HvdFtError):
        counted(abi.constant("HVDFT_ESYS"))
