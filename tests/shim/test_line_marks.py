"""The marks before the lines of a rank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_ft.shim.line_marks import LineMarks


def marked(*pieces: bytes) -> bytes:
    marks = LineMarks(lambda: b"#")
    return b"".join(map(marks.feed, pieces)) + marks.rest()


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"one\ntwo\n"], b"#one\n#two\n"),
        ([b"on", b"e\nt", b"wo\n"], b"#one\n#two\n"),
        ([b"\n\n"], b"#\n#\n"),
        ([b" 10%\r 20%\rdone\n"], b"# 10%\r# 20%\r#done\n"),
        ([b"dos\r\nlines\r\n"], b"#dos\r\n#lines\r\n"),
        ([b"dos\r", b"\nlines\r", b"\n"], b"#dos\r\n#lines\r\n"),
        ([b"unfinished"], b"#unfinished\n"),
        ([b""], b""),
    ],
)
def test_every_line_has_one_mark(pieces: list[bytes], expected: bytes) -> None:
    assert marked(*pieces) == expected


def test_an_unfinished_line_waits_for_its_end() -> None:
    marks = LineMarks(lambda: b"#")
    assert marks.feed(b"beg") == b""
    assert marks.feed(b"in\nrest") == b"#begin\n"
    assert marks.rest() == b"#rest\n"
    assert marks.rest() == b""


def test_a_very_long_line_is_passed_on_in_parts_with_one_mark() -> None:
    part = b"x" * (64 << 10)
    marks = LineMarks(lambda: b"#")
    assert marks.feed(part) == b"#" + part
    assert marks.feed(part) == part
    assert marks.feed(b"y\nz\n") == b"y\n#z\n"


@given(st.lists(st.text("a\r\n", max_size=5), max_size=8))
def test_how_the_output_is_cut_into_pieces_does_not_matter(texts: list[str]) -> None:
    pieces = [text.encode() for text in texts]
    assert marked(*pieces) == marked(b"".join(pieces))
