"""How data travels between nodes is a setting: its segments, and how long leaders nap."""

import re
import sys

import pytest
from conftest import SCRIPTS, RunHvdft

SIZES = "20000,3000000,5000004"


# Segments as small, and as large, as they may be.
@pytest.mark.shows
@pytest.mark.parametrize(("segment", "ranks"), [("1M", 2), ("16K", 3)])
def test_sums_are_right_and_leaders_nap_as_long_as_told(
    run_hvdft: RunHvdft, segment: str, ranks: int
) -> None:
    env = {
        "HOROVOD_FT_RING_SEGMENT_BYTES": segment,
        "HOROVOD_FT_YIELD_SECONDS": "0",
        "HOROVOD_FT_NAP_SECONDS": "0.1",
        "HOROVOD_FT_ENDPOINTS": "1",
    }
    script = [sys.executable, str(SCRIPTS / "plain_sums_script.py"), SIZES]
    ended = run_hvdft(["run", "-np", str(ranks), "--topology", "flat", *script], env=env)
    assert ended.code == 0, ended.err
    naps = re.findall(r"NAPS (\d+) (\d+)", ended.out)
    assert sorted(int(rank) for rank, _ in naps) == list(range(ranks))
    # By default there are some 600 in a second: of a millisecond at most. These grow to a tenth of
    # a second, by an eighth each.
    assert all(int(count) < 300 for _, count in naps), naps
