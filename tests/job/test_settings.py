import os
import re
from collections import namedtuple
from pathlib import Path

import pytest
from conftest import ROOT

from hvd_ft.errors import HvdFtError
from hvd_ft.job.arena_limit import arena_limit_bytes
from hvd_ft.job.settings import GROUPS, INTERNAL, MINIMUM_ARENA_BYTES, Settings, variables
from hvd_ft.native.abi import constant

MIB = 1 << 20
Disk = namedtuple("Disk", "f_bavail f_frsize")


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()
    assert Settings.from_env({"HOROVOD_FT_ARENA_BYTES": ""}) == Settings()


def test_every_setting_is_read() -> None:
    settings = Settings.from_env(
        {
            "HOROVOD_FT_ARENA_DIR": "/tmp/",
            "HOROVOD_FT_ARENA_BYTES": "2g",
            "HOROVOD_FT_START_TIMEOUT_SECONDS": "1.5",
            "HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS": "60",
            "HOROVOD_FT_MAX_FAILURES": "0",
            "HOROVOD_FT_FAILURE_WINDOW_SECONDS": "1e3",
            "HOROVOD_FT_HANG_TIMEOUT_SECONDS": "5",
            "HOROVOD_FT_YIELD_SECONDS": "0",
            "HOROVOD_FT_NAP_SECONDS": "3e-4",
            "HOROVOD_FT_TUNING_FILE": "off",
        }
    )
    assert settings == Settings(
        arena_dir="/tmp",
        arena_bytes=2048 * MIB,
        start_timeout_seconds=1.5,
        adoption_timeout_seconds=0.75,
        recovery_timeout_seconds=60.0,
        replay_timeout_seconds=30.0,
        max_failures=0,
        failure_window_seconds=1000.0,
        hang_timeout_seconds=5.0,
        snapshot_timeout_seconds=2.5,
        yield_seconds=0.0,
        nap_seconds=3e-4,
        tuning_file="off",
    )


def test_what_follows_from_another_setting() -> None:
    def of(name: str, value: str) -> Settings:
        return Settings.from_env({f"HOROVOD_FT_{name}_SECONDS": value})

    assert [of("LEASE", each).suspect_seconds for each in ("3", "8", "10")] == [2, 2, 2.5]
    assert of("LEASE", "10").link_timeout_seconds == 15
    assert of("START_TIMEOUT", "10").adoption_timeout_seconds == 5
    # A replay is a part of a recovery.
    replays = [of("RECOVERY_TIMEOUT", each).replay_timeout_seconds for each in ("40", "600", "900")]
    assert replays == [20, 60, 90]
    # A worker that waits to share a snapshot is not stuck.
    assert of("HANG_TIMEOUT", "10").snapshot_timeout_seconds == 5


@pytest.mark.parametrize("lease", ["1", "2", "300"])
def test_a_host_is_suspect_then_lost_then_given_up(lease: str) -> None:
    with pytest.raises(HvdFtError, match=f"HOROVOD_FT_LEASE_SECONDS is {lease} and HOROVOD_FT_"):
        Settings.from_env({"HOROVOD_FT_LEASE_SECONDS": lease})


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("PIN", "set HOROVOD_FT_BIND_TO instead"),
        ("MESSAGE_TIMEOUT_SECONDS", "set HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS instead"),
        ("SUSPECT_SECONDS", "it is a quarter of HOROVOD_FT_LEASE_SECONDS"),
        ("LINK_TIMEOUT_SECONDS", "it is 1.5 times HOROVOD_FT_LEASE_SECONDS"),
        ("ADOPTION_TIMEOUT_SECONDS", "it is half of HOROVOD_FT_START_TIMEOUT_SECONDS"),
        ("REPLAY_TIMEOUT_SECONDS", "a tenth of HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS"),
        ("SNAPSHOT_TIMEOUT_SECONDS", "at most half of HOROVOD_FT_HANG_TIMEOUT_SECONDS"),
    ],
)
def test_a_setting_that_is_gone_is_named_with_what_to_set(name: str, remedy: str) -> None:
    with pytest.raises(HvdFtError) as error:
        Settings.from_env({f"HOROVOD_FT_{name}": "4"})
    assert str(error.value).startswith(f"HOROVOD_FT_{name} is not a setting any more: ")
    assert remedy in str(error.value)
    assert "unset" in str(error.value)


def test_limits_of_the_core_are_those_of_the_settings() -> None:
    """They are the core's own, so that no job starts with what the core refuses."""
    for name, least, most in (
        ("NODE_SEGMENT_BYTES", "LEAST_NODE_SEGMENT", "MOST_NODE_SEGMENT"),
        ("NODE_WINDOW_BYTES", "LEAST_NODE_WINDOW", "MOST_NODE_WINDOW"),
        ("RING_SEGMENT_BYTES", "LEAST_RING_SEGMENT", "MOST_RING_SEGMENT"),
        ("CONNECTIONS", None, "MOST_CONNECTIONS"),
        ("TRANSFERS", None, "MOST_TRANSFERS"),
        ("NODES_BELOW", None, "MOST_RANKS"),
    ):
        low = constant(f"HVDFT_{least}") if least else 1
        high = constant(f"HVDFT_{most}")
        for value in (low, high):
            Settings.alone({f"HOROVOD_FT_{name}": str(value)}, name.lower())
        for value in (low - 1, high + 1):
            with pytest.raises(HvdFtError):
                Settings.alone({f"HOROVOD_FT_{name}": str(value)}, name.lower())


@pytest.mark.parametrize(
    ("text", "count"), [("67108864", 64 * MIB), ("65536K", 64 * MIB), ("64M", 64 * MIB)]
)
def test_bytes_may_have_a_suffix(text: str, count: int) -> None:
    assert Settings.from_env({"HOROVOD_FT_ARENA_BYTES": text}).arena_bytes == count


@pytest.mark.parametrize(("text", "count"), [("0", 0), ("24K", 24 << 10), ("262144", 256 << 10)])
def test_no_op_has_to_be_gathered(text: str, count: int) -> None:
    assert Settings.from_env({"HOROVOD_FT_GATHER_BYTES": text}).gather_bytes == count


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("ARENA_DIR", "relative/path", "absolute path"),
        ("ARENA_BYTES", "63M", "at least 64M"),
        ("GATHER_BYTES", "257K", "to 256K"),
        ("GATHER_BYTES", "-1", "0: none is gathered"),
        ("ARENA_BYTES", "-1", "at least 64M"),
        ("ARENA_BYTES", "1.5G", "suffix K, M or G"),
        ("ARENA_BYTES", "9" * 18 + "G", "at least 64M"),
        ("START_TIMEOUT_SECONDS", "0", "above 0"),
        ("START_TIMEOUT_SECONDS", "soon", "seconds"),
        ("RECOVERY_TIMEOUT_SECONDS", "-5", "above 0"),
        ("RECOVERY_TIMEOUT_SECONDS", "nan", "above 0"),
        ("FAILURE_WINDOW_SECONDS", "inf", "above 0"),
        ("HANG_TIMEOUT_SECONDS", "0", "above 0"),
        ("RING_SEGMENT_BYTES", "8K", "from 16K to 1M"),
        ("RING_SEGMENT_BYTES", "2M", "from 16K to 1M"),
        ("NODE_SEGMENT_BYTES", "8K", "give 16K, 32K"),
        ("NODE_SEGMENT_BYTES", "48K", "give 16K, 32K"),
        ("NODE_SEGMENT_BYTES", "1M", "or 512K"),
        ("NODE_WINDOW_BYTES", "128K", "give 256K, 512K"),
        ("NODE_WINDOW_BYTES", "768K", "give 256K, 512K"),
        ("NODE_WINDOW_BYTES", "32M", "or 16M"),
        ("TRANSFERS", "0", "whole number"),
        ("TRANSFERS", "17", "whole number"),
        ("YIELD_SECONDS", "2", "at most 1)"),
        ("YIELD_SECONDS", "-1", "0 for no yielding"),
        ("NAP_SECONDS", "0", "above 0"),
        ("NAP_SECONDS", "0.2", "at most 0.1)"),
        ("MAX_FAILURES", "-1", "whole number"),
        ("MAX_FAILURES", "2.5", "whole number"),
        ("MAX_FAILURES", "²", "whole number"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(HvdFtError) as error:
        Settings.from_env({f"HOROVOD_FT_{name}": value})
    assert f"HOROVOD_FT_{name}={value!r}" in str(error.value)
    assert allowed in str(error.value)
    assert "\n" not in str(error.value)


def free(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: Disk(count // 4096, 4096))


def test_the_limit_is_three_quarters_of_what_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free(monkeypatch, 1000 * MIB)
    assert arena_limit_bytes(Settings(arena_dir=str(tmp_path))) == 750 * MIB


def test_the_limit_may_be_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    free(monkeypatch, 1000 * MIB)
    given = Settings(arena_dir=str(tmp_path), arena_bytes=999 * MIB)
    assert arena_limit_bytes(given) == 999 * MIB


@pytest.mark.parametrize("available", [0, MINIMUM_ARENA_BYTES])
def test_a_full_or_small_filesystem_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, available: int
) -> None:
    free(monkeypatch, available)
    with pytest.raises(HvdFtError, match=f"has only {available // MIB} MiB free"):
        arena_limit_bytes(Settings(arena_dir=str(tmp_path)))


def test_asking_for_more_than_is_free_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free(monkeypatch, 100 * MIB)
    with pytest.raises(HvdFtError, match=r"HOROVOD_FT_ARENA_BYTES asks for 101 MiB.*100 MiB"):
        arena_limit_bytes(Settings(arena_dir=str(tmp_path), arena_bytes=101 * MIB))


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HvdFtError, match=r"nowhere was not found: set HOROVOD_FT_ARENA_DIR"):
        arena_limit_bytes(Settings(arena_dir=str(tmp_path / "nowhere")))


def test_a_directory_that_is_not_writable_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(HvdFtError, match="not writable"):
        arena_limit_bytes(Settings(arena_dir=str(tmp_path)))


def test_a_worker_that_always_hangs_is_not_restarted_for_ever() -> None:
    env = {"HOROVOD_FT_HANG_TIMEOUT_SECONDS": "100"}
    with pytest.raises(HvdFtError, match="HOROVOD_FT_FAILURE_WINDOW_SECONDS, 300"):
        Settings.from_env(env)
    wider = {**env, "HOROVOD_FT_FAILURE_WINDOW_SECONDS": "1000"}
    assert Settings.from_env(wider).hang_timeout_seconds == 100.0


@pytest.mark.parametrize(
    ("segment", "window", "good"),
    [
        *[("256K", "512K", True), ("512K", "512K", False), ("256K", "256K", False)],
        *[("", "256K", True), ("", "16M", True), ("512K", "", True), ("16K", "", True)],
        *[("128K", "16M", True), ("64K", "16M", False), ("16K", "2M", True), ("16K", "4M", False)],
    ],
)
def test_a_window_holds_some_segments(segment: str, window: str, good: bool) -> None:
    env = {"HOROVOD_FT_NODE_SEGMENT_BYTES": segment, "HOROVOD_FT_NODE_WINDOW_BYTES": window}
    if good:
        Settings.from_env(env)
        return
    with pytest.raises(HvdFtError) as error:
        Settings.from_env(env)
    for named in (segment, "HOROVOD_FT_NODE_WINDOW_BYTES", "HOROVOD_FT_NODE_SEGMENT_BYTES"):
        assert named in str(error.value)
    kib = int(segment[:-1])
    least, most = max(2 * kib, 256), min(128 * kib, 16384)
    sizes = [f"{each >> 10}M" if each >> 10 else f"{each}K" for each in (least, most)]
    assert str(error.value).endswith(f"so give the first one {sizes[0]} to {sizes[1]}")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("HOROVOD_FT_ARENA_BYTE", "is HOROVOD_FT_ARENA_BYTES meant?"),
        ("HOROVOD_FT_MAXFAILURES", "is HOROVOD_FT_MAX_FAILURES meant?"),
        ("HOROVOD_FT_HANG_TIMEOUT", "is HOROVOD_FT_HANG_TIMEOUT_SECONDS meant?"),
        ("HOROVOD_FT_GENERATED_BY", "unset it"),  # users must not set GENERATION
        ("HOROVOD_FT_FROBNICATE", "unset it"),
        ("HOROVOD_FT_", "unset it"),
    ],
)
def test_a_variable_that_is_no_setting_is_refused(name: str, remedy: str) -> None:
    with pytest.raises(HvdFtError) as error:
        Settings.from_env({name: ""})
    assert str(error.value).startswith(f"{name} is not a setting of hvd_ft: {remedy}")


def documented() -> set[str]:
    """Returns the variables of the manual's table."""
    manual = (ROOT / "docs/reference/settings.md").read_text()
    return set(re.findall(r"^\| .*?`(HOROVOD_FT_\w+)` \|", manual, re.MULTILINE))


def test_settings_are_what_the_manual_says() -> None:
    assert set(variables()) == documented()
    groups = [each.metadata["group"] for each in variables().values()]
    assert list(dict.fromkeys(groups)) == list(GROUPS)


def test_variables_of_our_own_are_no_reason_to_refuse_a_job() -> None:
    # hvdft run in a worker or in a hook command, and the settings that workers read.
    files = [path for path in (ROOT / "hvd_ft").rglob("*") if path.suffix in (".py", ".cc", ".h")]
    found = {
        name
        for path in files
        for name in re.findall(r"\bHOROVOD_FT_[A-Z_]*[A-Z]\b", path.read_text())
        if not name.endswith("_H")  # include guards
    }
    of_workers = "HOROVOD_FT_REPLAY_TIMEOUT_SECONDS"  # from the agent
    assert found - documented() - INTERNAL == {of_workers}
    Settings.from_env({**dict.fromkeys(INTERNAL, "x"), of_workers: "60"})
