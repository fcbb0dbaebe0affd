"""What documents say of the job's limits is true: statements that were wrong once, by kind.

A claim is looked for in every document; where it stands, its paragraph (or row of a table) must
have the other half of the truth too.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

from hvd_ft import cli

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CHANGELOG.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "reference"),
]
# A claim, what has to stand beside it, and what makes the claim alone untrue.
HALF_TRUTHS = [
    (
        r"(?i:without|no)( a)? spare host.{0,60}\b(it|the job) ends|-hosts\); else the job ends",
        r"--min-np|as without spare hosts",
        "with --min-np the job continues",
    ),
    (
        r"number of ranks (never|cannot|does not) changes?|number of ranks.{0,25}never does",
        r"(?!)",
        "--min-np, --host-discovery-script and --in-place change it",
    ),
    (
        r"[Ee]ach rank takes its own|[Rr]anks choose for themselves",
        r"[Ww]ithout (a boundary|collectives)",
        "a rank asks for a mark, and all ranks take a snapshot there",
    ),
    (
        r"(take|place|replace).{0,60}\brank 0's too|\brank 0's too.{0,60}\breplace",
        r"hvdft run` is (not there|the one)|one that runs `hvdft run`",
        "the loss of the launcher's host ends the job",
    ),
    (
        r"#SBATCH",
        r"(?!)",
        "examples/slurm/train.sbatch is the one batch script, which tests run",
    ),
]


def paragraphs(text: str) -> Iterator[str]:
    """Yields paragraphs, points of lists and rows of tables, each as one line."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|] |\d+\. ))", text):
        yield " ".join(block.split())


def half_truths(text: str) -> list[str]:
    """Returns what is wrong with a document."""
    return [
        f"{paragraph[:200]} … : {why}"
        for paragraph in paragraphs(text)
        for claim, truth, why in HALF_TRUTHS
        if re.search(claim, paragraph) and not re.search(truth, paragraph)
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_tells_half_of_the_truth(document: Path) -> None:
    assert not half_truths(document.read_text())


@pytest.mark.parametrize(
    "was",
    [
        "Without a spare host the job ends: keep writing checkpoints, or use Horovod Elastic.",
        " host lost       a spare host takes its place (--spare-hosts); else the job ends",
        "- **The number of ranks should change.** It never does. A rank that died is restarted.",
        "it does not replace a\ncheckpoint. Each rank takes its own, when it likes.",
        "has a\nsay. Ranks choose for themselves and need not agree.",
        "| hosts | a host that dies, rank 0's too, is replaced by one of `--spare-hosts n3:4` |",
        "another host takes the place of a lost one, rank 0's too: the other ranks wait",
        "#SBATCH --signal=B:USR1@120 --requeue\n",
    ],
)
def test_what_was_wrong_once_would_be_found(was: str) -> None:
    assert half_truths(was)


def test_who_speaks_of_slurm_and_the_code_of_a_preemption_says_who_requeues() -> None:
    for document in DOCUMENTS:
        text = document.read_text()
        if "Slurm" in text and re.search(r"\b143\b", text) and "how-to" in str(document):
            assert "scontrol requeue" in text, document


def test_the_flags_that_these_statements_name_are_there() -> None:
    run = {flag for parser in _parsers() for action in parser._actions for flag in _flags(action)}
    assert {"--min-np", "--host-discovery-script", "--in-place", "--spare-hosts"} <= run
    assert "scontrol requeue" in (ROOT / "examples/slurm/train.sbatch").read_text()


def test_every_command_says_what_it_does_and_each_of_its_flags() -> None:
    """The page of commands had a stub of `hvdft agent`."""
    for parser in _parsers():
        assert parser.description, parser.prog
        for action in parser._actions:
            assert action.help or action.nargs == argparse.PARSER, (parser.prog, action.dest)
        leaf = not any(isinstance(a, argparse._SubParsersAction) for a in parser._actions)
        assert not leaf or "Example: " in (parser.epilog or ""), parser.prog


def test_a_parser_that_a_command_makes_for_itself_is_in_the_help() -> None:
    """`hvdft agent` parses its flags itself: those have to be the ones that the help shows."""
    (agent,) = [parser for parser in _parsers() if parser.prog.endswith(" agent")]
    shown = {flag for action in agent._actions for flag in _flags(action)}
    assert {"--on-failure", "--on-restart", "--report", "--inject", "--spares"} <= shown
    for path in (ROOT / "hvd_ft" / "agent").glob("*.py"):
        if path.name != "flags.py":
            assert "add_argument(" not in path.read_text(), path


def _flags(action: argparse.Action) -> set[str]:
    return {flag for flag in action.option_strings if flag.startswith("--")}


def _parsers() -> Iterator[argparse.ArgumentParser]:
    waiting: list[argparse.ArgumentParser] = [cli.parser()]
    while waiting:
        parser = waiting.pop()
        yield parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting += action.choices.values()
