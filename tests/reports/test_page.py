"""The page of a report: complete in itself, and safe whatever the run's texts say."""

import json
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path

import pytest
from synthetic import event, one_failure

from hvd_ft import cli
from hvd_ft.native.types import Divergence, EventType
from hvd_ft.reports.page import page_of
from hvd_ft.reports.report import Report, read_report

HOSTILE = "<script>alert('1')</script><img src=x onerror=\"f()\">&lt;$title ${body} [red]</pre>"
EMPTY = ("meta", "img")


class Page(HTMLParser):
    """The elements and texts of a page, which has to be well-formed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data)

    def names(self) -> set[str]:
        return {name for name, _ in self.elements}


def hostile(tmp_path: Path) -> Report:
    """A report in which everything that may be a text is hostile."""
    whose = {"time_ns": 5, "rank": 1, "incarnation": 0}
    diverged = Divergence(HOSTILE, 30, (2,), 1, 20)
    lines: list[dict[str, object]] = [
        {"job": HOSTILE, "size": HOSTILE, "date": HOSTILE, "command": [HOSTILE],
         "hosts": [HOSTILE], "ablated": HOSTILE},
        *({**asdict(e), "type": e.type.name} for e in one_failure()),
        {**asdict(event(9, EventType.DIVERGED, 0)), "type": "DIVERGED",
         "divergence": asdict(diverged)},
        {"type": "CAUSE", **whose, "text": HOSTILE},
        {"type": "STACKS", **whose, "text": f"File train.py\n{HOSTILE}"},
        {"type": "REPLACED", **whose, "host": HOSTILE, "by": HOSTILE, "ranks": [1], "epoch": 1},
        {"exit_code": HOSTILE, "error": HOSTILE, "ranks": []},
    ]  # fmt: skip
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_report(path)


def test_texts_of_the_run_are_texts_of_the_page(tmp_path: Path) -> None:
    page = Page(page_of(hostile(tmp_path)))
    assert page.names() == {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "img", "pre"),
        *("table", "tr", "th", "td"),
    }
    assert sum(name == "img" for name, _ in page.elements) == 1  # the picture
    for words in (
        f"Job {HOSTILE}",
        f"the job was stopped: {HOSTILE}",
        f"rank 1 (incarnation 0): {HOSTILE}",
        f"File train.py\n{HOSTILE}",
        HOSTILE,  # the variable, in a table
    ):
        assert words in page.texts
    assert any(text.startswith(f"host {HOSTILE} was lost") for text in page.texts)


def test_the_page_needs_nothing_from_elsewhere_and_forbids_it(tmp_path: Path) -> None:
    page = Page(page_of(hostile(tmp_path)))
    for _, attributes in page.elements:
        assert not {"href", "onerror", "onload", "style"} & set(attributes)
        assert (attributes.get("src") or "data:image/png;base64,").startswith("data:image/png;")
    policies = [a["content"] for _, a in page.elements if "http-equiv" in a]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    style = page_of(hostile(tmp_path)).partition("<style>")[2].partition("</style>")[0]
    assert "prefers-color-scheme: dark" in style
    assert not {"url(", "@import"} & set(style.split())
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in [
        attributes for _, attributes in page.elements
    ]


def test_the_page_has_what_the_report_says() -> None:
    page = Page(page_of(Report({"job": "j7", "size": 3}, one_failure())))
    for words in ("Job j7", "Failures, in seconds", "signal 9", "2.920", "What the failures cost, "
                  "in seconds of the job", "useful steps", "45.9"):  # fmt: skip
        assert words in page.texts, words
    heads = [name for name, _ in page.elements if name == "h2"]
    assert len(heads) == 5


def run(*arguments: str) -> int:
    return cli.main(["report", *arguments])


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    path.write_text('{"job": "j1"}\n')
    return path


def test_the_page_is_beside_the_report_or_where_it_is_wanted(
    report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(report), "--html") == 0
    assert "Job j1" in report.with_suffix(".html").read_text()
    assert capsys.readouterr().out.endswith(f"the page is in {report.with_suffix('.html')}\n")
    other = report.parent / "other.html"
    assert run(str(report), "--html", str(other)) == 0
    assert other.read_text() == report.with_suffix(".html").read_text()


def test_the_report_is_never_overwritten(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = report.rename(report.with_suffix(".html"))
    link = report.parent / "link"
    link.symlink_to(page)
    for arguments in ([str(page), "--html"], [str(page), "--html", str(link)]):
        assert run(*arguments) == 2
        assert page.read_text() == '{"job": "j1"}\n'
        err = capsys.readouterr().err
        assert "is the report itself, which would be lost; give another file\n" in err
        assert err.count("\n") == 1
