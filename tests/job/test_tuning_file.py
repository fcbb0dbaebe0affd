"""Files of tuned settings: what is written is read again, and nothing else is."""

import json
from pathlib import Path
from typing import Any

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher import tuning_file
from hvd_ft.launcher.tuning_file import Place, Tuning

PLACE = Place(
    ["n0:4", "n1:4"], 8, {"n0": 4, "n1": 8}, "tcp", {"hvd_ft": "0.2.0", "Intel MPI": "2021.18.1"}
)
SETTINGS = {"HOROVOD_FT_GATHER_BYTES": "64K", "FI_PROVIDER": "verbs;ofi_rxm"}
TUNING = Tuning(PLACE, SETTINGS, "2026-11-26", {"4096": (2e-4, 1e-4), "65536": (4e-4, 8e-4)})


def write(folder: Path, **changes: Any) -> str:
    """Writes a file, some of which is changed; returns its path."""
    contents = {**json.loads(tuning_file.to_text(TUNING)), **changes}
    path = folder / "tuning.json"
    path.write_text(json.dumps(contents))
    return str(path)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    assert tuning_file.read(write(tmp_path)) == TUNING
    assert TUNING.change == pytest.approx(0.0)  # half the time, and twice
    assert Tuning(PLACE, {}, "2026-11-26", {"8": (2.0, 1.0)}).change == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": 2}, "its format is not 1"),
        ({"settings": {"LD_PRELOAD": "x"}}, "a tuning may not set LD_PRELOAD"),
        ({"settings": {"HOROVOD_FT_JOB": "x"}}, "a tuning may not set HOROVOD_FT_JOB"),
        ({"settings": {"FI_PROVIDER": "tcp\nx"}}, "is not allowed"),
        ({"settings": {"FI_PROVIDER": 3}}, "is not allowed"),
        ({"settings": {"HOROVOD_FT_GATHER_BYTES": "512K"}}, "HOROVOD_FT_GATHER_BYTES='512K'"),
        ({"settings": {"HOROVOD_FT_ENDPOINTS": "many"}}, "HOROVOD_FT_ENDPOINTS='many'"),
        ({"settings": {"HOROVOD_FT_NAP_SECONDS": "2"}}, "at most 0.1"),
        ({"settings": []}, "is not an object"),
        ({"seconds": {"8": [1.0]}}, "is not a pair of times"),
        ({"seconds": {"8": [1.0, -1.0]}}, "is not a pair of times"),
        ({"seconds": {"8": [1.0, "x"]}}, "is not a pair of times"),
        ({"made": 3}, "is not a text"),
        ({"place": {}}, "'hosts' is missing"),
        ({"place": {**json.loads(tuning_file.to_text(TUNING))["place"], "ranks": True}}, "ranks"),
        ({"place": None}, ""),
    ],
)
def test_what_does_not_belong_there_is_named(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(HvdFtError) as error:
        tuning_file.read(path)
    text = str(error.value)
    assert text.startswith(f"the tuning file {path} cannot be used (") and "\n" not in text
    assert reason in text and text.endswith("make it anew with hvdft tune")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "[" * 100_000])
def test_what_is_no_such_file_is_an_error_in_a_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(HvdFtError, match="cannot be used"):
        tuning_file.read(str(path))
    with pytest.raises(HvdFtError, match="No such file"):
        tuning_file.read(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"cpus": {}}, ""),  # nothing is known of them
        ({"cpus": {"n1": 8}}, ""),
        ({"hosts": ["n0:4", "n2:4"]}, "it is for n0:4,n1:4, not n0:4,n2:4"),
        ({"ranks": 7}, "it is for 8 ranks, not 7"),
        ({"cpus": {"n1": 4}}, "n1 had 8 CPUs then, not 4"),
        ({"provider": "psm3"}, "it is for tcp, not psm3"),
        ({"versions": {"hvd_ft": "0.3.0"}}, "it is for hvd_ft 0.2.0, not 0.3.0"),
    ],
)
def test_what_it_was_measured_for_has_to_fit(change: dict[str, Any], why: str) -> None:
    here = Place(**{**json.loads(tuning_file.to_text(TUNING))["place"], **change})
    assert PLACE.why_not(here) == why


def test_each_set_of_hosts_has_its_file() -> None:
    env = {"XDG_CONFIG_HOME": "/c"}
    assert tuning_file.default_path(["n0:4", "n1:2"], env) == "/c/hvd_ft/tuning/n0-4_n1-2.json"
    many = [f"node{number}:8" for number in range(64)]
    first, second = (tuning_file.default_path(hosts, env) for hosts in (many, many[:-1]))
    assert first != second and len(Path(first).name) < 120
