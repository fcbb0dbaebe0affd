"""Every state of a launcher and two to four hosts: no rank acts twice, and the job goes on."""

import pytest
from membership_model import Bounds, explore


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds((1,), (1,), faults=1, wire=1, epochs=2, launchers=1),
        Bounds((1,), (1,), faults=0, wire=2, epochs=1),
        Bounds((2,), (2,), faults=1, wire=0, epochs=1),
        Bounds((1,), (1, 1), faults=2, wire=0, epochs=3),
        Bounds((1, 1), (1,), faults=1, wire=0, epochs=2),
        Bounds((1, 1), (1, 1), faults=0, wire=0, epochs=2),
    ],
    ids=["two launchers", "overtaking", "two ranks a host", "two spares", "two places", "four"],
)
def test_no_rank_acts_twice_and_the_job_goes_on(bounds: Bounds) -> None:
    found = explore(bounds)
    assert found["replaced"] > 0
