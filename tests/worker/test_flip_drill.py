"""A drill flips one bit, of the variable that is meant."""

import ml_dtypes
import numpy as np
import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.job import drills
from hvd_ft.worker.flip_drill import FlipDrills, chosen, flipped

TYPES = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.int32, np.int64, np.uint8, bool]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("value", [0, 1, 0.3])
def test_one_bit_of_the_first_element_flips(dtype: type, value: float) -> None:
    before = np.full((2, 3), value).astype(dtype)
    after = flipped(before)
    changed = before.view(np.uint8) ^ after.view(np.uint8)
    assert np.unpackbits(changed).sum() == 1
    assert np.flatnonzero(changed.any(-1) if changed.ndim > 2 else changed)[0] < before.itemsize
    assert after.shape == before.shape
    small, large = sorted(abs(each.flat[0].astype(np.float64)) for each in (before, after))
    assert np.isfinite(large)
    assert large - small >= 0.005 * large, "an update does not lose it"


def test_the_variable_that_is_meant() -> None:
    names = ["0:a/kernel/Adam:0", "1:a/kernel:0", "2:12:0"]
    assert chosen(names, "a/kernel") == "1:a/kernel:0"
    assert chosen(names, "a/kernel:0") == "1:a/kernel:0"
    assert chosen(names, "kernel") == "0:a/kernel/Adam:0"
    assert chosen(names, "2:12") is None, "the number is not a part of the name"
    assert chosen(names, "bias") is None


class Variables:
    def __init__(self) -> None:
        self.arrays = {"0:empty:0": np.zeros(0), "1:w:0": np.ones(3), "2:b:0": np.ones(3)}

    def assign(self, name: str, array: np.ndarray) -> None:
        self.arrays[name] = array


def of(text: str) -> FlipDrills:
    environment = drills.drill_environment(
        [drills.parse(text), drills.parse("rank=1,step=4")], 1, 0
    )
    return FlipDrills(environment[drills.VARIABLE])


def test_it_strikes_once_at_its_step(capsys: pytest.CaptureFixture[str]) -> None:
    own, drill = Variables(), of("rank=1,step=7,flip=b")
    for step in (4, 6):
        drill.strike(step, lambda: own.arrays, own.assign)
    assert own.arrays["2:b:0"].tolist() == [1, 1, 1]
    drill.strike(7, lambda: own.arrays, own.assign)
    assert capsys.readouterr().err == "hvdft: drill: rank=1,step=7,flip=b\n"
    assert own.arrays["2:b:0"].tolist() != [1, 1, 1]
    own = Variables()
    drill.strike(7, lambda: own.arrays, own.assign)
    assert own.arrays["2:b:0"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["bias", "empty"])
def test_a_variable_that_is_not_there(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    own, drill = Variables(), of(f"flip={name},rank=1,step=7")
    with pytest.raises(HvdFtError, match=f"no variable is called {name} or has it in its name"):
        drill.strike(7, lambda: own.arrays, own.assign)
    assert capsys.readouterr().err == ""


def test_a_process_without_a_drill() -> None:
    FlipDrills("").strike(0, lambda: {}, lambda *_: None)
