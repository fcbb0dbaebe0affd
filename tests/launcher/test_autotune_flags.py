"""The flags of autotuning, and what they become in the job's environment."""

import argparse

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher.autotune_flags import add_autotune, autotune_environment
from hvd_ft.launcher.job import Job, resolve
from hvd_ft.system.command_line import Parser


def given(*words: str, **environ: str) -> dict[str, str]:
    parser = Parser(exit_on_error=False)
    add_autotune(parser)
    return autotune_environment(parser.parse_args(words), environ)


def test_they_become_horovods_variables() -> None:
    assert given() == {}
    assert given("--autotune") == {"HOROVOD_AUTOTUNE": "1"}
    assert given("--no-autotune", HOROVOD_AUTOTUNE="1") == {"HOROVOD_AUTOTUNE": "0"}
    assert given(
        *("--autotune", "--autotune-log-file", "a.csv", "--autotune-warmup-samples", "0"),
        *("--autotune-steps-per-sample", "1", "--autotune-bayes-opt-max-samples", "4"),
        *("--autotune-gaussian-process-noise", "0.5"),
    ) == {
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": "a.csv",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "0",
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "1",
        "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "4",
        "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.5",
    }


def test_the_job_gets_them_before_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hvd_ft.launcher.job.mpi_environment", lambda *_: {"PATH": ""})
    monkeypatch.setenv("HOROVOD_AUTOTUNE", "1")
    job = Job(2, ["true"], given=given("--no-autotune"))
    assert resolve(job).plain["HOROVOD_AUTOTUNE"] == "0"


def test_flags_without_autotuning_are_refused() -> None:
    words = ("--autotune-warmup-samples", "2")
    assert given(*words, HOROVOD_AUTOTUNE="1") == {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "2"}
    for environ in ({}, {"HOROVOD_AUTOTUNE": "0"}):
        with pytest.raises(HvdFtError, match="warmup-samples does nothing without autotuning; giv"):
            given(*words, **environ)
    with pytest.raises(HvdFtError, match="--autotune as well"):
        given("--no-autotune", *words, HOROVOD_AUTOTUNE="1")


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("warmup-samples", "-1"),
        ("steps-per-sample", "0"),
        ("bayes-opt-max-samples", "many"),
        ("gaussian-process-noise", "1.5"),
        ("gaussian-process-noise", "nan"),
        ("gaussian-process-noise", "much"),
    ],
)
def test_values_are_checked(flag: str, text: str) -> None:
    with pytest.raises(argparse.ArgumentError, match="is not a number"):
        given("--autotune", f"--autotune-{flag}", text)
