"""The client's side of events, against a real HTTPS server."""

import json
import pathlib

import pytest

from fakes import pages, rapi_recorder
from ganeti.protocols.rapi import api as client
from ganeti.protocols.rapi import event_stream, modern

DOC = pathlib.Path(__file__).parents[5] / "doc/rapi-client.rst"


def event(number, **values):
    value = {"position": f"1.{number}.1", "revision": number, "time": 2.5}
    value |= {"kind": "object", "object": "instance", "name": "web1", "uuid": "u"}
    return value | {"change": "created", "details": {"serial_no": 1}} | values


def block(value, name="object"):
    lines = [f"id: {value['position']}", f"event: {name}", f"data: {json.dumps(value)}"]
    return "\n".join([*lines, "", ""]).encode()


def position(text, *, lost=False):
    return block({"position": text, "lost": lost}, "position")


@pytest.fixture
def server(tmp_path):
    with rapi_recorder.serving(tmp_path) as recorder:
        yield recorder


@pytest.fixture(autouse=True)
def slept(monkeypatch):
    waits = []
    monkeypatch.setattr(modern.time, "sleep", waits.append)
    return waits


def made(server, **options):
    return modern.Cluster("127.0.0.1", port=server.port, cafile=server.pem, **options)


def answers(server, *parts):
    """Let each connection get one of some answers; return the requests."""
    left, seen = list(parts), []

    def answer(request):
        seen.append(request)
        part = left.pop(0)
        return part if isinstance(part, tuple) else (200, part)

    server.answers["/2/events"] = answer
    return seen


def take(cluster, count, **wanted):
    stream = cluster.events(**wanted)
    return [next(stream) for _ in range(count)]


def test_events_are_typed_values(server):
    answers(server, position("1.0.0") + b":\nid: 1.0.0\n\n" + block(event(1)))
    begin, one = take(made(server), 2)
    assert begin == modern.Position(position="1.0.0", lost=False)
    assert one == modern.Event(**event(1))


def test_a_broken_stream_goes_on_after_its_last_event(server, slept):
    seen = answers(
        server,
        position("1.0.0") + block(event(1)) + b":\nid: 1.7.0\n\n",
        (503, {"code": 503, "message": "later", "explain": "busy"}),
        block(event(8)),
    )
    values = take(made(server), 3, kinds=["object", "job"], since="1.0.0")
    assert [each.position for each in values] == ["1.0.0", "1.1.1", "1.8.1"]
    assert [request["last_event"] for request in seen] == ["1.0.0", "1.7.0", "1.7.0"]
    assert all(request["query"] == [("kinds", "object,job")] for request in seen)
    assert slept == [0.5, 1.0]


def test_a_refusal_ends_the_stream(server):
    refused = {"code": 403, "message": "no", "explain": "Forbidden"}
    answers(server, (403, refused))
    with pytest.raises(client.GanetiApiError, match="403 no: Forbidden") as caught:
        take(made(server), 1)
    assert caught.value.code == 403


def test_repeated_failures_end_the_stream(server, slept):
    busy = {"code": 503, "message": "later", "explain": "busy"}
    answers(server, *[(503, busy)] * 9)
    with pytest.raises(client.GanetiApiError):
        take(made(server, retries=2), 1)
    assert slept == [1.0, 2.0]


def test_odd_data_are_an_error_that_says_so(server):
    answers(server, b"id: 1\nevent: object\ndata: {}\n\n")
    with pytest.raises(client.Error, match="no Event"):
        take(made(server), 1)


def test_parts_of_blocks_are_put_together():
    text = position("1.0.0") + b": hello\n\n" + block(event(1))
    blocks = event_stream.Blocks()
    got = [each for n in range(len(text)) for each in blocks.feed(text[n : n + 1])]
    assert [each.name for each in got] == ["position", "", "object"]
    assert event_stream.value_of(got[1]) is None


def test_an_endless_event_is_refused():
    blocks = event_stream.Blocks()
    with pytest.raises(client.Error, match="more than"):
        list(blocks.feed(b"x" * (5 << 20)))


def test_the_page_shows_how_to_follow(server, capsys):
    answers(server, position("1.0.0") + block(event(1)), (403, {}))
    names = {"HOST": "127.0.0.1", "PORT": server.port, "CA_FILE": server.pem}
    code = pages.code_block(DOC.read_text(), "typed-events")
    with pytest.raises(client.GanetiApiError):
        exec(code, {**names, "TOKEN": "t"})
    assert capsys.readouterr().out == "web1 created {'serial_no': 1}\n"
