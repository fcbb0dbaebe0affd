"""Which provider of libfabric is chosen, and what is said about it."""

import os
from pathlib import Path

import pytest

from hvd_ft.mpi import environment, fabric, prepare
from hvd_ft.mpi.fabric import choose_provider, fast_devices


@pytest.mark.parametrize(
    ("environ", "devices", "name", "why"),
    [
        ({}, [], "tcp", "this host has no InfiniBand"),
        ({"FI_PROVIDER": ""}, [], "tcp", "this host has no InfiniBand"),
        ({}, ["mlx5_0", "mlx5_1"], None, "this host has mlx5_0, mlx5_1"),
        ({"FI_PROVIDER": "psm3"}, ["mlx5_0"], "psm3", "FI_PROVIDER says so"),
        ({"FI_PROVIDER": "tcp"}, ["mlx5_0"], "tcp", "FI_PROVIDER says so"),
        ({"I_MPI_OFI_PROVIDER": "mlx"}, [], "mlx", "I_MPI_OFI_PROVIDER says so"),
    ],
)
def test_the_choice(
    environ: dict[str, str], devices: list[str], name: str | None, why: str
) -> None:
    chosen = choose_provider(environ, devices)
    assert (chosen.name, chosen.why) == (name, why)
    assert str(chosen) == f"provider {name or 'as Intel MPI chooses'} ({why})"


@pytest.mark.parametrize(
    ("environ", "split", "has"),
    [
        ({}, "1", True),
        ({"FI_PROVIDER": "tcp"}, "1", True),
        ({"FI_PROVIDER": "mlx5"}, "1", True),
        ({"FI_PROVIDER": "^mlx"}, "1", True),
        ({"FI_PROVIDER": "mlx"}, "0", False),
        ({"I_MPI_OFI_PROVIDER": "tcp,mlx"}, "0", False),
    ],
)
def test_a_provider_without_endpoints_is_known(
    environ: dict[str, str], split: str, has: bool
) -> None:
    """MPI would not start with both."""
    why = fabric.why_no_endpoints(environ)
    assert (why == "") is has and all(name in why for name in environ if not has)
    assert environment.split_threads(environ)["I_MPI_THREAD_SPLIT"] == split


def test_endpoints_do_not_wait_for_other_settings() -> None:
    """A job may give later what this one needs: --checkpoint-dir."""
    environ = {"HOROVOD_FT_GRACE_SECONDS": "30"}
    assert environment.split_threads(environ) == environment.split_threads({})


def test_devices(tmp_path: Path) -> None:
    assert fast_devices(tmp_path / "none") == []
    for name in ("mlx5_1", "mlx5_0"):
        (tmp_path / name).mkdir()
    assert fast_devices(tmp_path) == ["mlx5_0", "mlx5_1"]


@pytest.mark.parametrize("devices", [[], ["mlx5_0"]])
def test_jobs_and_rings_choose_alike(monkeypatch: pytest.MonkeyPatch, devices: list[str]) -> None:
    for name in ("FI_PROVIDER", "I_MPI_OFI_PROVIDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fabric, "fast_devices", lambda: devices)
    monkeypatch.setattr(environment, "fast_devices", lambda: devices)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    prepare.prepare()
    expected = None if devices else "tcp"
    assert os.environ.get("I_MPI_OFI_PROVIDER") == expected
    del os.environ["I_MPI_ROOT"]
    os.environ.pop("I_MPI_OFI_PROVIDER", None)
    assert environment.mpi_environment(one_host=False).get("FI_PROVIDER") == expected
    assert "FI_PROVIDER" not in environment.mpi_environment(one_host=True)
