"""docs/reference/ is made from the code: every setting, every command, every message is there."""

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOW = """\
import json, sys, make_reference
pages = {name: make() for name, make in make_reference.PAGES.items()}
errors = {file: sorted(texts) for file, texts in make_reference.errors().items()}
json.dump([pages, errors], sys.stdout)
"""


@functools.cache
def made_anew() -> tuple[dict[str, str], dict[str, list[str]]]:
    """Makes the pages, by their names, and the errors of each file.

    In one process for all tests, as it takes seconds; not in this one, as argparse reads its
    environment once.
    """
    made = subprocess.run(
        [sys.executable, "-c", SHOW],
        cwd=ROOT / "scripts",
        check=True,
        capture_output=True,
        text=True,
    )
    pages, errors = json.loads(made.stdout)
    return pages, errors


@pytest.mark.parametrize(
    "name",
    [
        *("settings.md", "cli.md", "messages.md"),
        *("status.schema.json", "flight_record.schema.json", "page.schema.json"),
    ],
)
def test_the_reference_is_what_the_code_says(name: str) -> None:
    committed = (ROOT / "docs/reference" / name).read_text()
    assert committed == made_anew()[0][name], (
        f"run scripts/make_reference.py: {name} is out of date"
    )


def test_documents_name_only_settings_that_there_are() -> None:
    settings = ROOT / "docs/reference/settings.md"
    names = set(re.findall(r"HOROVOD_FT_\w+", settings.read_text()))
    # What hooks are given; and what messages say of settings that have ended.
    elsewhere = {ROOT / "docs/reference/messages.md", ROOT / "docs/how-to/reports.md"}
    pages = {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("experiments/**/*.md")}
    wrong = {
        (str(page.relative_to(ROOT)), name)
        for page in pages - elsewhere - {ROOT / "CHANGELOG.md"}
        for name in re.findall(r"HOROVOD_FT_[A-Z0-9_]*[A-Z0-9]", page.read_text())
        if name not in names
    }
    assert not wrong


# What says what to do: a verb after the reason; or that there is nothing, as for a bug of ours.
_VERBS = (
    "add|ask|begin|build|call|check|choose|compile|convert|copy|correct|create|delete|do|end|"
    "enlarge|enter|free|give|have|hvdft|install|keep|leave|let|look|lower|make|move|name|pass|pip|"
    "put|raise|read|release|remove|resume|restart|restore|return|run|see|seed|send|set|start|take|"
    "train|try|unset|update|use|wait|write"
)
_REMEDY = re.compile(
    rf"(?:[;:,(]|\b(?:and|or|then|if [^;:]*)) ?(?:{_VERBS})\b"
    r"|\b(?:give|has to|must|likely|is a bug|next (?:one|checkpoint) is tried)\b"
    r"|\b(?:there (?:are|is)|it has|takes) …$|docs/"
)
# Texts that need no more.
_COMPLETE = {
    # Parts of other lines, which say what to do.
    "it names a host twice",
    "it is damaged: its values are not as they were written",
    "it is damaged: it is not that of …",
    "it is damaged: … not as it was written",
    "… is damaged: the … of message … of rank … to rank … is not as written; …",
    # What was asked for is refused or done, and there is nothing to do.
    "cluster … is not up; nothing to take down",
    "job … was not begun, as you have stopped it",
    "job … was not resumed, as you have stopped it",
    "… has agents of generation …; this one is of generation … and ends",
    "agents of generation … have taken this job over from generation …",
    "the job is being stopped",
    "stopped by …",
    # The reason has the remedy, or the line goes on.
    "the shim of rank … was killed, and …",
    "cluster … does not start: …; nothing is left of it",
    "pip … failed for Horovod …: …; the log is …",
    "it ended with …",
    # What is named is not supported: docs/operations.md.
    "the ft backend has no ADASUM operation",
    "cannot … while ranks have joined (hvd.join)",
    # ssh's own words, of the stand-in for it on a cluster.
    "connect to host … port …: …",
    "Could not resolve hostname …: it is not a node of cluster …",
    # Horovod itself has printed above what to do.
    "tensors were stalled for longer than HOROVOD_STALL_SHUTDOWN_TIME_SECONDS: Horovod has named "
    "them and the missing ranks above",
    # The caller is hvd_ft's own code.
    "divergence … is not among the latest …",
    "there is no variant … of the ring",
    "variant … of the ring cannot have … rings",
    "there is no data type … or reduction …",
    "a probe has 1 thread or more, not …",
    "a probe sends messages of 1 byte or more, in 1 window or more",
    "fingerprints of … bytes are over …u",
    "an announcement of … bytes is over the mailbox's …",
    "training loop … has no snapshot",
    "a snapshot of rank … cannot be read from its arena: …it is too short",
    "the ft backend has no",
    "the ft backend has no lockstep cycle",
    "the ft backend has no response cache",
}


def errors() -> list[tuple[str, str]]:
    """Every error of the code, with its file."""
    return [(file, text) for file, texts in made_anew()[1].items() for text in texts]


def test_an_error_says_what_to_do() -> None:
    """As far as a test can judge: by a verb, or by what is filled in where the remedy stands."""
    found = errors()
    assert len(found) > 300
    silent = [
        f"{file}: {text}"
        for file, text in found
        if not _REMEDY.search(text) and not re.search(r"[;:,] …$|\) …$", text)
        if text not in _COMPLETE
    ]
    assert not silent, "say what to do, or why there is nothing to do:\n" + "\n".join(silent)


def test_what_needs_no_remedy_is_still_there() -> None:
    assert {text for _, text in errors()} >= _COMPLETE


def test_messages_of_all_kinds_are_found() -> None:
    lines = (ROOT / "docs/reference/messages.md").read_text()
    for line in (
        "… is not a setting… (docs/reference/settings.md has them)",  # Python, raised
        "this training takes no snapshots, so a restarted rank repeats it",  # Python, said
        "rank … failed again at step … with the same error",  # Python, in a verdict
        "HOROVOD_FT_DIR and HOROVOD_FT_JOB are not set: there is no agent",  # C++, the core
        "op … is one of process set …, which this rank has not added",  # C++, Horovod's backend
        "the ft backend has no lockstep cycle",
    ):
        assert line in lines
