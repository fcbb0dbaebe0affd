"""The hosts that a script prints."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_ft.launcher import discovery
from hvd_ft.launcher.discovery import Discovery
from hvd_ft.members.hosts import Host


class Made:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script = folder / "hosts.sh"
        self.said: list[str] = []
        monkeypatch.setattr(discovery, "say", self.said.append)
        self.discovery = Discovery(f"sh {self.script}", 3)
        self.now = 0.0

    def run(self, text: str) -> object:
        """Runs the script with this text to its end, a second later."""
        self.script.write_text(text)
        self.now += 1
        assert self.discovery.poll(self.now) is None
        process = self.discovery._process
        assert process is not None
        process.wait(60)
        return self.discovery.poll(self.now)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    made = Made(tmp_path, monkeypatch)
    yield made
    made.discovery.close()


def test_hosts_with_and_without_slots(made: Made) -> None:
    assert made.run("echo n0:2; echo; echo ' n1 '") == (Host("n0", 2), Host("n1", 3))
    assert made.run("true") == ()
    assert made.said == []


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("exit 3", "it ended with exit code 3"),
        ("echo 'n0:x'", "'x' is not a number of slots"),
        ("echo '-oProxyCommand=x'", "is not a host name"),
        ("echo n0:1; echo n0:2", "names a host twice"),
    ],
)
def test_what_is_wrong_is_said_once_and_the_hosts_stay(made: Made, text: str, part: str) -> None:
    assert made.run(text) is None
    assert made.run(text) is None
    assert len(made.said) == 1 and part in made.said[0]
    assert made.run("echo n0") == (Host("n0", 3),)
    assert made.run(text) is None
    assert len(made.said) == 2


def test_it_runs_once_a_second(made: Made) -> None:
    made.run("echo n0")
    assert made.discovery.poll(made.now + 0.9) is None
    assert made.discovery._process is None


def test_a_script_that_does_not_end_is_killed(made: Made) -> None:
    made.script.write_text("sleep 1000")
    made.discovery.poll(0)
    process = made.discovery._process
    assert process is not None
    made.discovery.poll(61)
    assert process.wait(60) == -9
    assert made.discovery.poll(61) is None
    assert "SIGKILL" in made.said[0]


def test_it_is_ended_with_the_job(tmp_path: Path) -> None:
    running = Discovery("sleep 1000", 1)
    running.poll(time.monotonic())
    process = running._process
    assert process is not None
    running.close()
    assert process.returncode == -9
