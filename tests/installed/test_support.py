"""What is said of a combination of TensorFlow, Keras and Python."""

import pytest
from conftest import ROOT

from hvd_ft.installed import support
from hvd_ft.installed.support import Combination, Verdict, verdict

DEFAULT = Combination("2.15.1", "2.15.0", "3.11.7")
TODAYS = Combination("2.21.0", "3.15.1", "3.12.1")


@pytest.mark.parametrize(
    ("combination", "found"),
    [
        (DEFAULT, Verdict.TESTED),
        (TODAYS, Verdict.TESTED),
        (Combination("2.15.1", "2.15.0", "3.11.12"), Verdict.EXPECTED),
        (Combination("2.21.1", "3.16.0", "3.12.9"), Verdict.EXPECTED),
        (Combination("2.21.0", "3.15.1", "3.13.0"), Verdict.UNTESTED),  # each of them, not together
        (Combination("2.21.0", "2.21.0", "3.12.1"), Verdict.UNTESTED),
        (Combination("2.18.0", "3.15.1", "3.12.1"), Verdict.UNTESTED),
    ],
)
def test_a_combination_is_tested_as_a_whole(combination: Combination, found: Verdict) -> None:
    assert verdict(combination, [DEFAULT, TODAYS]) is found


@pytest.mark.parametrize(
    ("tensorflow", "legacy", "keras"),
    [
        ("2.15.1", "", "2.15.0"),
        ("2.15.1", "1", "2.15.0"),  # it has no other
        ("2.21.0", "", "3.15.1"),
        ("2.21.0", "1", "2.21.0"),
        ("2.21.0", "0", "3.15.1"),
    ],
)
def test_which_keras_it_is(
    tensorflow: str, legacy: str, keras: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"keras": "2.15.0" if tensorflow == "2.15.1" else "3.15.1", "tf_keras": "2.21.0"}
    monkeypatch.setattr(type(support.TENSORFLOW), "version", lambda self: tensorflow)
    monkeypatch.setattr(support, "version_of", versions.get)
    monkeypatch.setenv(support.LEGACY_KERAS, legacy)
    present = support.present()
    assert present is not None
    assert present.keras == keras
    assert ("tf_keras 2.21.0" in str(present)) == (keras == "2.21.0")


def test_the_defaults_combination_is_a_tested_one() -> None:
    pins = dict(
        line.split("==")
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if "==" in line
    )
    assert any(each.tensorflow == pins["tensorflow-cpu"] for each in support.tested())
