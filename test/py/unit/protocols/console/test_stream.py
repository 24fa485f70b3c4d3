"""The form of streams of consoles, whatever the pieces in which they come."""

import msgspec
import pytest

from ganeti.protocols.console import stream

OPENING = stream.Opening(ticket="t", instance="u", kind="vnc", viewer="watch")


def test_a_request_says_what_is_wanted():
    head = stream.request_head(OPENING, "n1").decode()
    first, *rest = head.removesuffix("\r\n\r\n").split("\r\n")
    assert first == "GET /console HTTP/1.1"
    headers = dict(line.split(": ", 1) for line in rest)
    assert headers["Upgrade"] == "ganeti-console"
    assert stream.parse_opening(headers[stream.HEADER]) == OPENING


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"ticket": "t", "instance": "u", "kind": "spice"}',
        '{"ticket": "t", "instance": "u", "kind": "vnc", "viewer": "all"}',
        '{"ticket": "t", "instance": "u", "kind": "vnc", "more": 1}',
        '{"ticket": "%s", "instance": "u", "kind": "vnc"}' % ("x" * 129),
        '{"ticket": "t", "instance": "u", "kind": "vnc", "session": "%s"}' % ("x" * 65),
    ],
)
def test_other_requests_are_malformed(text):
    with pytest.raises(stream.Malformed, match="X-Ganeti-Console: "):
        stream.parse_opening(text)


@pytest.mark.parametrize("size", [1, 2, 7, 100_000])
def test_frames_come_in_any_pieces(size):
    content = bytes(range(256)) * 200
    sent = stream.frames_of(content) + stream.frame(stream.EOF)
    decoder, got = stream.Decoder(), []
    for at in range(0, len(sent), size):
        got += decoder.feed(sent[at : at + size])
    assert b"".join(data for kind, data in got if kind == stream.DATA) == content
    assert got[-1] == (stream.EOF, b"")
    assert all(len(data) <= stream.MAX_DATA for _kind, data in got)


def test_a_frame_that_is_too_long_is_malformed_before_it_is_read():
    with pytest.raises(stream.Malformed, match="at most 16384 bytes, found 16385"):
        list(stream.Decoder().feed(b"\x00\x40\x01"))


@pytest.mark.parametrize("size", [1, 1000])
def test_an_answer_ends_where_the_frames_begin(size):
    sent = stream.accepted_head() + b"frames"
    reader, rest = stream.AnswerReader(), None
    while rest is None:
        rest, sent = reader.feed(sent[:size]), sent[size:]
    assert rest + sent == b"frames"


@pytest.mark.parametrize("size", [1, 1000])
def test_a_refusal_says_why_in_harmless_letters(size):
    sent = stream.refusal(stream.HTTPStatus.CONFLICT, "in use by \x1b[31m")
    reader = stream.AnswerReader()
    with pytest.raises(stream.Refused) as caught:
        for at in range(0, len(sent), size):
            assert reader.feed(sent[at : at + size]) is None
    assert caught.value.status == 409
    assert "in use by" in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"SSH-2.0-x\r\n\r\n", "does not answer by HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 9000, "no end of its head"),
    ],
)
def test_another_answer_is_malformed(answer, text):
    with pytest.raises(stream.Malformed, match=text):
        stream.AnswerReader().feed(answer)


@pytest.mark.parametrize("body", [b"no JSON", b"[]", b"{}", b'{"message": 3}'])
def test_a_refusal_without_a_reason_has_its_status(body):
    answer = b"HTTP/1.1 503 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with pytest.raises(stream.Refused, match=r"503|3") as caught:
        stream.AnswerReader().feed(answer)
    assert caught.value.status == 503


def test_a_message_of_a_node_is_data():
    sent = msgspec.json.encode({"event": "ended", "text": "a\r\n\x1b]0;b" + "x" * 900})
    got = stream.parse_message(sent)
    assert got.text.isprintable()
    assert len(got.text) < 600
    with pytest.raises(stream.Malformed, match="message"):
        stream.parse_message(b'{"event": 1}')
