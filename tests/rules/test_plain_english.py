"""What a user reads has none of the phrases that came back most often (CONTRIBUTING.md).

The laboratory notebook, the changelog and the pages about the code are not read by users.
"""

import re
from pathlib import Path

import pytest
from conftest import ROOT

PHRASES = {
    r"\b(the job|training) goes on\b": "continues",
    r"\b(go|goes|going) on (from|with|without)\b": "continue",
    r"\bso many (steps|samples|bytes|nodes|times|ranks)\b": "N, or this many",
    r"\band (its|their) like\b": "and related ...",
    r"\b(is|are) told that\b": "who informs whom?",
    r"what dead jobs have left": "files left by dead jobs",
    r"\bgo(es)? by idle\b": "is idle time",
}
PAGES = [
    ROOT / "README.md",
    *sorted(
        path
        for path in (ROOT / "docs").rglob("*.md")
        if path.parent.name != "internals" and path.name not in ("notebook.md", "protocol.md")
    ),
]


def found_in(text: str) -> list[str]:
    """Returns the phrases of a text, each with what is better."""
    plain = " ".join(text.split())
    return [
        f"{match[0]!r}: {better}"
        for phrase, better in PHRASES.items()
        for match in re.finditer(phrase, plain)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_is_in_plain_english(page: Path) -> None:
    assert not found_in(page.read_text())


def test_such_phrases_would_be_found() -> None:
    assert found_in("and the job\ngoes on without it")
    assert found_in("discard so many samples first")
