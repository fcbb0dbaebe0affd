"""What `hvdft check` makes of how its two ranks have ended."""

import subprocess
from typing import Any

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.tools.check.two_ranks import RIGHT, run_two_ranks

RIGHT_SUMS = [RIGHT.format(rank=rank) for rank in (1, 0)]
FOUND = "hvdft: ring: Intel MPI, libfabric tcp"


def judge(
    monkeypatch: pytest.MonkeyPatch, code: int, out: list[str], err: list[str]
) -> str | HvdFtError:
    """Has the job end so; returns what is said of it."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, code, "\n".join(out), "\n".join(err))

    monkeypatch.setattr(subprocess, "run", run)
    try:
        return run_two_ranks()
    except HvdFtError as error:
        return error


def test_two_right_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    said = judge(monkeypatch, 0, RIGHT_SUMS, ["a warning", FOUND])
    assert said == "an allreduce over Intel MPI, libfabric tcp"


@pytest.mark.parametrize(
    ("code", "printed", "reason"),
    [
        (1, (RIGHT_SUMS, [FOUND, "hvdft: why", "more"]), "why; see their output above"),
        (
            0,
            (RIGHT_SUMS[:1], [FOUND, "x"]),
            "ring: Intel MPI, libfabric tcp; see their output above",
        ),
        (0, (RIGHT_SUMS, []), "exit code 0"),
        (2, ([], ["hvdft: why"]), "why"),
    ],
)
def test_everything_else(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    printed: tuple[list[str], list[str]],
    reason: str,
) -> None:
    out, err = printed
    said = str(judge(monkeypatch, code, out, err))
    assert said.startswith(f"two ranks could not do an allreduce: {reason}")
    shown = capsys.readouterr().err
    assert shown == ("\n".join([*out, *err, ""]) if len(err) > 1 else "")
