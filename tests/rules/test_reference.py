"""docs/reference/ is made from the code: every setting, every command, every message is there."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOW = "import sys, make_reference; sys.stdout.write(make_reference.PAGES[sys.argv[1]]())"


def page(name: str) -> str:
    """Makes a page anew, in a process of its own: argparse reads its environment once."""
    made = subprocess.run(
        [sys.executable, "-c", SHOW, name],
        cwd=ROOT / "scripts",
        check=True,
        capture_output=True,
        text=True,
    )
    return made.stdout


@pytest.mark.parametrize("name", ["settings.md", "cli.md", "messages.md"])
def test_the_reference_is_what_the_code_says(name: str) -> None:
    committed = (ROOT / "docs/reference" / name).read_text()
    assert committed == page(name), f"run scripts/make_reference.py: {name} is out of date"


def test_messages_of_all_kinds_are_found() -> None:
    lines = (ROOT / "docs/reference/messages.md").read_text()
    for line in (
        "… is not a setting of hvd_ft: … (docs/reference/settings.md has them)",  # Python, raised
        "this training takes no snapshots, so a restarted rank repeats it",  # Python, said
        "rank … failed again at step … with the same error",  # Python, in a verdict
        "HOROVOD_FT_DIR and HOROVOD_FT_JOB are not set: there is no agent",  # C++, the core
        "op … is one of process set …, which this rank has not added",  # C++, Horovod's backend
        "the ft backend has no lockstep cycle",
    ):
        assert line in lines
