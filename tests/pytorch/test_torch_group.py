"""What the process group of the backend hvd_ft refuses, without a job."""

from typing import Any, cast

import pytest
import torch

from hvd_ft.errors import HvdFtError
from hvd_ft.torch.distributed import FtGroup


def test_recv_without_a_source_says_why_and_what_to_do() -> None:
    group = cast(Any, None)  # it is refused before the group is looked at
    with pytest.raises(HvdFtError, match=r"recv without a source .*: give it src="):
        FtGroup.recv_anysource(group, [torch.zeros(1)])
