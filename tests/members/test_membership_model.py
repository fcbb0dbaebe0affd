"""Every state of a launcher and two to four hosts: no rank acts twice, and the job continues."""

import pytest
from membership_model import Bounds, explore

CASES = {
    "two launchers": Bounds((1,), (1,), faults=1, wire=1, epochs=2, launchers=1),
    "overtaking": Bounds((1,), (1,), faults=0, wire=2, epochs=1),
    "two ranks a host": Bounds((2,), (2,), faults=1, wire=0, epochs=1),
}
SLOWER = {
    "in place": Bounds((1, 1), (), faults=1, wire=0, epochs=2, least=1),
    "in place after a spare": Bounds((1, 1), (1,), faults=0, wire=0, epochs=2, least=1),
    "two spares": Bounds((1,), (1, 1), faults=2, wire=0, epochs=3),
    "in place and back": Bounds((1, 1), (), faults=0, wire=0, epochs=2, least=1, found=True),
    "four hosts": Bounds((1, 1), (1, 1), faults=0, wire=0, epochs=2),
}
LONG = {
    "overtaking and faults": Bounds((1,), (1,), faults=1, wire=2, epochs=2),
    "two places and faults": Bounds((1, 1), (1,), faults=1, wire=0, epochs=2),
    "in place and faults": Bounds((1, 1, 1), (), faults=1, wire=0, epochs=2, least=1),
    "in place, back and again": Bounds((1, 1), (), faults=0, wire=0, epochs=3, least=1, found=True),
    "in place, back and faults": Bounds(
        (1, 1), (), faults=1, wire=0, epochs=2, least=1, found=True
    ),
    "four hosts and faults": Bounds((1, 1), (1, 1), faults=1, wire=0, epochs=2),
}


@pytest.mark.parametrize(
    "bounds",
    [
        *(pytest.param(bounds, id=name) for name, bounds in CASES.items()),
        *(pytest.param(bounds, id=name, marks=pytest.mark.long) for name, bounds in LONG.items()),
    ],
)
@pytest.mark.timeout(1800)
def test_no_rank_acts_twice_and_the_job_goes_on(bounds: Bounds) -> None:
    found = explore(bounds)
    assert found["replaced"] > 0


@pytest.mark.job  # takes as long
@pytest.mark.shows(later=True)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SLOWER)
def test_no_rank_acts_twice_in_what_takes_longer(name: str) -> None:
    assert explore(SLOWER[name])["replaced"] > 0
