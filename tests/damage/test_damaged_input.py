"""Every reader of what a stranger or a damaged disk may have written, with the same damage.

`make fuzz` looks for more, led by what the code does with it.
"""

from collections.abc import Iterator

import pytest
from damage.mutations import mutations
from damage.targets import remove_folders, targets

COUNT = 1000
TARGETS = targets()


@pytest.fixture(scope="session", autouse=True)  # a module may be begun twice, by pieces
def clean() -> Iterator[None]:
    yield
    remove_folders()


@pytest.mark.parametrize("name", TARGETS)
def test_it_reads_what_is_sound(name: str) -> None:
    target = TARGETS[name]
    refused = []
    for seed in target.seeds:
        try:
            target.read(seed)
        except target.refusals as error:
            refused.append((seed, error))
    assert len(refused) < len(target.seeds), refused


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_damaged_is_refused_by_an_error_that_is_expected(name: str) -> None:
    for data in mutations(TARGETS[name].seeds, COUNT):
        try:
            TARGETS[name].try_one(data)
        except BaseException as error:
            error.add_note(f"{name}: {data[:300]!r}")
            raise
