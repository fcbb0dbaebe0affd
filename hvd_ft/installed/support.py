"""Which combinations of TensorFlow, Keras and Python are tested, or expected to work.

`tested.json` lists the combinations in which the tests ran and passed; `make tested` writes it, and
nobody else. A combination that differs from one of them in its last numbers only is expected to
work.
"""

import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from hvd_ft.installed.frameworks import TENSORFLOW
from hvd_ft.system.distributions import version_of
from hvd_ft.system.json_text import read_json_as

RECORD = Path(__file__).with_name("tested.json")
LEGACY_KERAS = "TF_USE_LEGACY_KERAS"  # TensorFlow's: tf.keras is tf_keras


class Verdict(Enum):
    """What can be said of a combination."""

    TESTED = "tested"
    EXPECTED = "expected to work, not tested"
    UNTESTED = "not tested"


@dataclass(frozen=True, order=True)
class Combination:
    """Versions that are used together.

    Attributes:
        tensorflow: such as 2.21.0.
        keras: of the package that tf.keras is, such as 3.15.1, or 2.21.0 of tf_keras.
        python: such as 3.12.1.
    """

    tensorflow: str
    keras: str
    python: str

    def __str__(self) -> str:
        legacy = self.keras.startswith("2.") and _minor(self.keras) > (2, 15)
        keras = f"tf_keras {self.keras}" if legacy else f"Keras {self.keras}"
        return f"TensorFlow {self.tensorflow}, {keras}, Python {self.python}"

    @property
    def lines(self) -> tuple[tuple[int, int], int, tuple[int, int]]:
        """What has to be the same for the combination to be expected to work."""
        return _minor(self.tensorflow), _minor(self.keras)[0], _minor(self.python)


def present() -> Combination | None:
    """Returns the combination in this environment; None without TensorFlow or its Keras."""
    tensorflow = TENSORFLOW.version()
    if tensorflow is None:
        return None
    of_its_own = _minor(tensorflow) < (2, 16) or os.environ.get(LEGACY_KERAS) not in ("1", "true")
    keras = version_of("keras" if of_its_own else "tf_keras")
    return None if keras is None else Combination(tensorflow, keras, platform.python_version())


def tested() -> list[Combination]:
    """Returns the combinations in which the tests have passed."""
    return read_json_as(RECORD.read_bytes(), list[Combination])


def verdict(combination: Combination, known: Iterable[Combination]) -> Verdict:
    """Returns what can be said of a combination.

    Args:
        combination: that is looked at.
        known: those that are tested.
    """
    every = [*known]
    if combination in every:
        return Verdict.TESTED
    lines = [each.lines for each in every]
    return Verdict.EXPECTED if combination.lines in lines else Verdict.UNTESTED


def _minor(version: str) -> tuple[int, int]:
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)
