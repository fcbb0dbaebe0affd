"""How many rings and endpoints a member gets."""

import pytest

from hvd_ft.ring.choice import choose


@pytest.mark.parametrize(
    ("asked", "few", "got"),
    [
        ((3, 2, 1, None), "", (1, 2)),
        ((3, 3, 1, None), "", (1, 2)),
        ((2, 2, 1, 2), "", (1, 2)),
        ((3, 3, 1, None), "few", (1, 1)),
        ((3, 3, 1, 2), "", (1, 2)),
        ((9, 3, 3, 2), "", (3, 2)),
        ((6, 2, 3, 2), "", (3, 2)),
        ((6, 1, 6, 2), "", (6, 2)),
        ((4, 3, 4, 1), "", (4, 1)),
        ((4, 2, 4, None), "few", (4, 1)),
    ],
)
def test_as_asked_for(
    asked: tuple[int, int, int, int | None], few: str, got: tuple[int, int]
) -> None:
    choice = choose(*asked, few)
    assert (choice.rings, choice.endpoints) == got
    assert choice.why == (few if asked[3] is None else "")


@pytest.mark.parametrize(
    ("asked", "got", "remedy"),
    [
        ((2, 3, 1, 2), (1, 1), "prepare(endpoints=2, rings=1)"),
        ((8, 3, 3, 2), (3, 1), "prepare(endpoints=2, rings=3)"),
        ((5, 2, 3, None), (3, 1), "prepare(endpoints=2, rings=3)"),
        ((3, 2, 4, 1), (3, 1), "prepare(endpoints=1, rings=4)"),
        ((3, 2, 8, 2), (3, 1), "prepare(endpoints=2, rings=8)"),
    ],
)
def test_fewer_than_asked_for(
    asked: tuple[int, int, int, int | None], got: tuple[int, int], remedy: str
) -> None:
    choice = choose(*asked, "")
    assert (choice.rings, choice.endpoints) == got
    assert f"started with {asked[0] + 1} endpoints" in choice.why and remedy in choice.why
