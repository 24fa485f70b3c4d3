"""Bodies of requests: what each resource can use, before it is decoded."""

import io

import msgspec
import pytest

from ganeti.daemons.rapi import request_bodies
from ganeti.daemons.rapi.problems import Refused
from ganeti.protocols.rapi import resource_table as resources

TABLE = {(each.path, each.method): each for each in resources.RESOURCES}
INFO = TABLE["/2/info", "GET"]
TAGS = TABLE["/2/tags", "PUT"]
MODIFY = TABLE["/2/modify", "PUT"]
QUERY = TABLE["/2/query/[resource]", "PUT"]
MULTI = TABLE["/2/instances-multi-alloc", "POST"]
WAIT = TABLE["/2/jobs/[job_id]/wait", "GET"]


class Input(io.BytesIO):
    """Counts the bytes that were read."""

    count = 0

    def read(self, size=-1):
        data = super().read(size)
        self.count += len(data)
        return data


def environ_of(data):
    return {
        "CONTENT_LENGTH": str(len(data)),
        "CONTENT_TYPE": "application/json",
        "wsgi.input": Input(data),
    }


def outcome(resource, data):
    """Return the value, or the status of the refusal."""
    try:
        return request_bodies.read(environ_of(data), resource)
    except Refused as err:
        return err.status


def text_of(size):
    return b'"' + b"x" * (size - 2) + b'"'


@pytest.mark.parametrize(
    ("resource", "most"),
    [
        *((INFO, 128 << 10), (TAGS, 128 << 10), (MODIFY, 4 << 20)),
        *((WAIT, 4 << 20), (QUERY, 20 << 20), (MULTI, 20 << 20)),
    ],
)
def test_a_body_is_as_large_as_its_resource_can_use(resource, most):
    assert outcome(resource, text_of(most)) != 413
    environ = environ_of(text_of(most + 1))
    with pytest.raises(Refused, match=str(most)):
        request_bodies.read(environ, resource)
    assert environ["wsgi.input"].count == 0
    chunked = environ | {"HTTP_TRANSFER_ENCODING": "chunked"}
    del chunked["CONTENT_LENGTH"]
    if resource.uses_body:
        with pytest.raises(Refused, match=str(most)):
            request_bodies.read(chunked, resource)


def test_a_body_that_nobody_uses_is_not_read():
    environ = environ_of(b"[" * 1000)
    assert request_bodies.read(environ, INFO) is None
    assert environ["wsgi.input"].count == 0
    assert outcome(TAGS, b"[") == 400


@pytest.mark.parametrize(
    ("resource", "most"), [(TAGS, 10_000), (MODIFY, 104_857), (QUERY, 524_288)]
)
def test_the_values_are_counted_before_they_are_decoded(resource, most, monkeypatch):
    few = b"[" + b",".join([b"0"] * most) + b"]"
    assert len(outcome(resource, few)) == most
    monkeypatch.setattr(msgspec.json, "decode", lambda _data: pytest.fail("decoded"))
    assert outcome(resource, few[:-1] + b",0]") == 413
    many = (b"[" + b"[]," * (resource.body_limit // 3))[: resource.body_limit - 1]
    assert outcome(resource, many + b"]") == 413


@pytest.mark.parametrize("kind", [(b"[", b"]"), (b'{"a":', b"}")])
def test_levels_are_bounded(kind):
    def nested(depth):
        return outcome(MODIFY, kind[0] * depth + b"0" + kind[1] * depth)

    assert nested(64) != 400
    assert nested(65) == 400


def test_the_bytes_of_a_user_and_of_all_are_bounded_at_a_time():
    held = request_bodies.Held()

    def status(user, size):
        try:
            with held.holding(user, size):
                return 200
        except Refused as err:
            return err.status

    large = 20 << 20
    with held.holding("ann", large):
        assert status("ann", 4 << 20) == 200
        assert status("ann", large) == 429
        with (
            held.holding("bob", large),
            held.holding("cid", large),
            held.holding("dan", large),
        ):
            assert status("eve", large) == 503
            assert status("eve", 1 << 20) == 200
    assert status("ann", large) == 200
