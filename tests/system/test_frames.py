"""Messages as bytes: what is none is refused, whoever has sent it."""

import os
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from hvd_ft.system.wire import HEADER, Frames, OneFrame, convert, length_of, pack, unpack, unpack_as


class Kind(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    any: Any = None


BODIES = st.lists(st.dictionaries(st.text(), st.integers()), max_size=4)


def test_an_environment_of_any_bytes_arrives_as_it_was() -> None:
    odd = os.fsdecode(b"\xff\xfe and \xe4")
    assert unpack(pack({"env": {"ODD": odd}})[HEADER.size :]) == {"env": {"ODD": odd}}


@pytest.mark.parametrize("depth", [2_000, 100_000, 5_000_000])
@pytest.mark.parametrize("begin", [b"[", b'{"a":', b'{"name":', b'{"name":"x","any":'])
def test_deep_nesting_is_a_value_error(depth: int, begin: bytes) -> None:
    body = begin + b"[" * depth
    for read in (unpack, lambda body: unpack_as(body, Kind)):
        with pytest.raises(ValueError, match=r"none of ours|too deeply|not a JSON|Expecting"):
            read(body)


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"[]", b"7", b'{"name":7}', b'{"name":"\\ud800"}', b'{"name":"n","b":1}']
)
def test_what_is_no_message_of_a_kind_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="none of ours"):
        unpack_as(body, Kind)


def test_what_was_unpacked_may_be_of_another_kind() -> None:
    assert convert({"name": "n"}, Kind) == Kind("n")
    with pytest.raises(ValueError, match=r"\$\.name"):
        convert({"name": 7}, Kind)


def test_a_length_has_a_limit() -> None:
    assert length_of(HEADER.pack(7), 7) == 7
    with pytest.raises(ValueError, match="8 bytes is too long"):
        length_of(HEADER.pack(8), 7)


@hypothesis.given(BODIES, st.integers(1, 9))
def test_a_stream_is_cut_into_its_messages_however_it_comes(
    messages: list[dict[str, int]], size: int
) -> None:
    data = b"".join(map(pack, messages))
    frames, found = Frames(), []
    for at in range(0, len(data), size):
        frames.add(data[at : at + size])
        while (body := frames.next()) is not None:
            found.append(unpack(body))
    assert found == messages


@hypothesis.given(st.binary(max_size=30), st.binary(max_size=9), st.integers(1, 9))
def test_one_message_is_read_and_not_a_byte_of_the_next(
    body: bytes, rest: bytes, size: int
) -> None:
    data = HEADER.pack(len(body)) + body + rest
    frame, found = OneFrame(30), None
    while found is None:
        take = min(size, frame.wants)
        assert take > 0
        found = frame.add(data[:take])
        data = data[take:]
    assert (found, data) == (body, rest)


def test_one_message_has_a_limit() -> None:
    assert OneFrame(30).add(HEADER.pack(30)) is None
    with pytest.raises(ValueError, match="too long"):
        OneFrame(30).add(HEADER.pack(31))
