"""horovodrun's --config-file and --hostfile."""

import argparse
from pathlib import Path

import pytest

from hvd_ft import cli
from hvd_ft.errors import HvdFtError
from hvd_ft.launcher.config_file import config_words
from hvd_ft.launcher.horovodrun_flags import horovodrun_environment
from hvd_ft.launcher.host_file import read_host_file

# As in Horovod's own tests, with all that it documents.
CONFIG = """
controller: mpi
params:
    fusion_threshold_mb: 32
    cycle_time_ms: 10.5
    cache_capacity: 2048
    hierarchical_allreduce: true
autotune:
    enabled: true
    log_file: /tmp/tune.csv
    warmup_samples: 5
timeline:
    filename: /tmp/timeline.json
    mark_cycles: true
stall_check:
    enabled: false
    warning_time_seconds: 120
library_options:
    mpi_threads_disable: true
logging:
    level: INFO
    hide_timestamp: true
"""


def parsed(path: Path, *flags: str) -> argparse.Namespace:
    return cli.parser().parse_args(["run", "-np", "2", *flags, "--config-file", str(path), "true"])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def test_a_config_file_says_what_its_flags_would(config: Path) -> None:
    options = parsed(config)
    assert horovodrun_environment(options) == {
        "HOROVOD_FUSION_THRESHOLD": str(32 << 20),
        "HOROVOD_TIMELINE": "/tmp/timeline.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "120",
        "HOROVOD_LOG_LEVEL": "INFO",
        "HOROVOD_LOG_HIDE_TIME": "1",
    }
    assert (options.autotune, options.autotune_log_file) == (True, "/tmp/tune.csv")
    assert options.autotune_warmup_samples == 5
    notes = [line.partition(" has no effect")[0] for line in options.without_effect]
    assert notes == [
        *("--cycle-time-ms", "--cache-capacity", "--hierarchical-allreduce"),
        "--mpi-threads-disable",
    ]
    assert options.command == ["true"]


@pytest.mark.parametrize("before", [True, False])
def test_flags_of_the_command_line_win(config: Path, before: bool) -> None:
    flags = ["--fusion-threshold-mb", "1", "--stall-check", "--no-autotune"]
    where = ["--config-file", str(config)]
    words = [*flags, *where] if before else [*where, *flags]
    options = cli.parser().parse_args(["run", "-np", "2", *words, "true"])
    environment = horovodrun_environment(options)
    assert environment["HOROVOD_FUSION_THRESHOLD"] == str(1 << 20)
    assert environment["HOROVOD_STALL_CHECK_DISABLE"] == "0"
    assert options.autotune is False


def test_autotuning_that_is_not_enabled_has_no_other_entries(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_text("autotune: {enabled: false, warmup_samples: 5}")
    assert list(config_words(str(path))) == ["--no-autotune"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("controller: gloo", "gives --gloo: hvd_ft always uses MPI"),
        ("controller: tcp", "'tcp' is not a controller"),
        ("parms: {}", "no part parms in horovodrun: is params meant?"),
        ("params: {fusion_treshold_mb: 3}", "is fusion_threshold_mb meant?"),
        ("params: 3", "params has no entries"),
        ("library_options: {thread_affinity: 0}", "gives --thread-affinity: use --bind-to"),
        ("- a", "has no parts"),
        ("a: [", "is not YAML"),
        ("a: 2001-13-45", "is not YAML"),
        ("[" * 5000, "is not YAML"),
    ],
)
def test_a_wrong_config_file_is_one_clear_line(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(HvdFtError, match="--config-file") as error:
        parsed(path)
    assert part in str(error.value)


def test_hosts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# ours\nn0 slots=4\n\nn1:2  # smaller\nn2\nn3.site slots = 8\n")
    assert read_host_file(str(path)) == "n0:4,n1:2,n2:1,n3.site:8"


@pytest.mark.parametrize(
    ("text", "part"),
    [("", "names no host"), ("n0 slots=4 max=3\n", "line 1: 'n0 slots=4 max=3' is not a host")],
)
def test_a_wrong_host_file_is_one_clear_line(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(HvdFtError) as error:
        read_host_file(str(path))
    assert part in str(error.value)
    with pytest.raises(HvdFtError, match="cannot read"):
        read_host_file(str(tmp_path / "none"))
