"""The soak of a cluster: when a job counts as one that hangs."""

import importlib.util
import sys
from types import ModuleType

import pytest
from conftest import ROOT

SPEAKS = "import time\nfor at in range(8):\n    print(at, flush=True)\n    time.sleep(0.5)"
WAITS = "import signal\nprint('begun', flush=True)\nsignal.pause()"


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    scripts = str(ROOT / "scripts")
    spec = importlib.util.spec_from_file_location("soak_cluster", f"{scripts}/soak_cluster.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["soak_cluster"] = module  # dataclasses look there
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(scripts)
        spec.loader.exec_module(module)
    return module


def test_a_slow_job_does_not_hang(soak: ModuleType) -> None:
    """On a busy machine one took 300 s, doing its steps all the time, and counted as a hang."""
    job = soak.RunningJob([sys.executable, "-c", SPEAKS])
    assert job.end(3.0)
    assert [line.strip() for line in job.output] == [str(at) for at in range(8)]


def test_a_job_that_says_nothing_hangs(soak: ModuleType) -> None:
    job = soak.RunningJob([sys.executable, "-c", WAITS])
    assert not job.end(1.0)
    job.process.kill()
    assert job.end(10.0)
