"""What the op log says of each op, by the settings; and what the core refuses."""

from pathlib import Path

import pytest

from hvd_ft import native
from hvd_ft.agent.node_leader import op_rules
from hvd_ft.errors import HvdFtError
from hvd_ft.job.settings import Settings
from hvd_ft.native.types import OpRules


def test_each_has_its_setting() -> None:
    settings = Settings(
        node_segment_bytes=1, gather_bytes=2, ring_segment_bytes=3, ablate="network"
    )
    assert op_rules(settings) == OpRules(1, 2, 3, True)
    assert not op_rules(Settings()).ablates_network


def test_the_core_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    native.create_node(str(tmp_path), "rules", 1, 64 << 20)
    native.create_rank(str(tmp_path), "rules", 0, 64 << 20)
    agent = native.Agent(str(tmp_path), "rules", 0)
    with pytest.raises(HvdFtError, match="ops cannot be summed 3 bytes at a time"):
        agent.start(OpRules(3, 0, 256 << 10, False))
    with pytest.raises(HvdFtError, match="the ring cannot have messages of 1 bytes"):
        agent.start(OpRules(128 << 10, 0, 1, False))
    agent.start(op_rules(Settings()))
    agent.close()
