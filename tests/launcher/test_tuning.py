"""`hvdft run` finds tuned settings, takes those that fit, and says so in a line."""

import os
import socket
from pathlib import Path

import pytest

from hvd_ft import cli
from hvd_ft.errors import HvdFtError
from hvd_ft.launcher import job, tuning, tuning_file
from hvd_ft.launcher import run as launcher
from hvd_ft.launcher.tuning_file import Place, Tuning
from hvd_ft.members.hosts import Host

SETTINGS = {"HOROVOD_FT_TOPOLOGY": "flat", "HOROVOD_FT_BIND_TO": "none"}


def write(path: Path, place: Place, settings: dict[str, str] = SETTINGS) -> str:
    """Writes a tuning; returns the file's path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = Tuning(place, settings, "2026-11-26", {"4096": (2e-4, 1.5e-4)})
    path.write_text(tuning_file.to_text(found))
    return str(path)


def test_a_file_that_fits_is_taken_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "t", tuning.place_here((), 4, {}))
    for given, env in ((path, {}), (None, {tuning.VARIABLE: path})):
        found = tuning.find(given, (), 4, env)
        assert found.settings == SETTINGS
        assert found.line == (
            f"tuning: {path} sets HOROVOD_FT_TOPOLOGY=flat, HOROVOD_FT_BIND_TO=none "
            "(25% less time than with the defaults, 2026-11-26)"
        )
    assert tuning.find("off", (), 4, {tuning.VARIABLE: path}) == tuning.Found()
    assert tuning.find(None, (), 4, {tuning.VARIABLE: "off"}) == tuning.Found()


def test_the_file_of_these_hosts_is_found(tmp_path: Path) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert tuning.find(None, (), 4, env) == tuning.Found()
    here = tuning.place_here((), 4, env)
    path = Path(tuning_file.default_path(here.hosts, env))
    write(path, here)
    assert tuning.find(None, (), 4, env).settings == SETTINGS
    assert tuning.find(None, (), 3, env) == tuning.Found()
    path.write_text("{")  # nobody has asked for it by name
    found = tuning.find(None, (), 4, env)
    assert not found.settings and "cannot be used" in found.line
    with pytest.raises(HvdFtError, match="cannot be used"):
        tuning.find(str(path), (), 4, env)


def test_one_that_does_not_fit_is_left_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "t", tuning.place_here((), 4, {}))
    found = tuning.find(path, (), 2, {})
    assert found.settings == {}
    here = socket.gethostname()
    assert found.line == (
        f"the tuning file {path} does not fit (it is for {here}:4, not {here}:2); "
        "continuing without it"
    )


def test_what_the_user_has_set_wins(tmp_path: Path) -> None:
    path = write(tmp_path / "t", tuning.place_here((), 4, {}))
    found = tuning.find(path, (), 4, {"I_MPI_PIN": "1"})  # the same as HOROVOD_FT_BIND_TO
    assert found.settings == {"HOROVOD_FT_TOPOLOGY": "flat"}
    assert found.line.endswith("2026-11-26); HOROVOD_FT_BIND_TO: as you have set it")
    found = tuning.find(path, (), 4, {"HOROVOD_FT_BIND_TO": "core", "HOROVOD_FT_TOPOLOGY": "flat"})
    assert found.settings == {} and "sets nothing" in found.line


def test_of_other_hosts_nothing_is_known_but_their_names() -> None:
    place = tuning.place_here((Host("localhost", 2), Host("no-such-host", 2)), 4, {})
    assert (place.hosts, place.cpus) == (
        ["localhost:2", "no-such-host:2"], {"localhost": os.cpu_count()},
    )  # fmt: skip
    assert place.provider != "shared memory"
    assert tuning.place_here((), 4, {}).provider == "shared memory"
    assert tuning.place_here((Host("localhost", 4),), 4, {}) == tuning.place_here((), 4, {})
    hosts = (Host("localhost", 2), Host("no-such-host", 2))
    assert tuning.place_here(hosts, 4, {"FI_PROVIDER": "psm3"}).provider == "psm3"


def test_hvdft_run_sets_it_for_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs: list[tuple[str, ...]] = []

    def launch(started: job.ResolvedJob, display: object, **shown: object) -> int:
        jobs.append(tuple(started.environment[name] for name in SETTINGS))
        return 7

    monkeypatch.setattr(launcher, "launch", launch)
    for name in SETTINGS:
        monkeypatch.setenv(name, "")  # restored at the end
    path = write(tmp_path / "t", tuning.place_here((), 2, {}))
    command = ["run", "-np", "2", "--tuning", path]
    assert cli.main([*command, "true"]) == 7
    assert jobs.pop() == ("flat", "none")
    assert capsys.readouterr().err.startswith(f"hvdft: tuning: {path} sets ")
    for name in SETTINGS:
        os.environ[name] = ""
    assert cli.main([*command, "--topology", "hierarchical", "true"]) == 7
    assert jobs.pop() == ("hierarchical", "none")
    assert "HOROVOD_FT_TOPOLOGY: as you have set it" in capsys.readouterr().err
