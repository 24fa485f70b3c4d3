"""The page on the remote API against the served document and the code."""

import pathlib
import re
from http import HTTPStatus

import pytest

from ganeti.daemons.rapi import access, application, authentication, openapi
from ganeti.protocols.http import limits, server
from ganeti.protocols.rapi import resource_table as resources

TOP = pathlib.Path(__file__).resolve().parents[5]
PAGE = (TOP / "doc/rapi.rst").read_text()
DOCUMENT = openapi.document()
#: Requests of the page: a method, or the option of curl for one, before a path.
REQUESTS = sorted(
    set(re.findall(r"\b(GET|PUT|POST|DELETE) (/2[^\s`'?\\]*)", PAGE))
    | set(re.findall(r"-X (GET|PUT|POST|DELETE) '\S+?:5080(/2[^\s'?]*)", PAGE))
)
#: Whatever looks like a path, patterns of rights left out.
PATHS = sorted(
    set(re.findall(r"[` 0](/(?:2|openapi|version)[A-Za-z0-9_./\[\]-]*)", PAGE))
)


def section(title):
    """Return the text below a title, up to the next one."""
    start = PAGE.index(f"\n{title}\n---")
    end = re.compile(r"\n\n[^\n]+\n-{3,}\n").search(PAGE, start + 5)
    return PAGE[start : end.start() if end else len(PAGE)]


def described(path):
    """Return the operations of the served document that a path of the page names."""
    example = re.sub(r"\[[a-z_]+\]", "1", path)
    row = resources.find(example)
    if row is None:
        return None
    [resource] = {each.path for each in row.methods.values()}
    return DOCUMENT["paths"][resource.replace("[", "{").replace("]", "}")]


def test_the_page_has_requests():
    assert ("POST", "/2/instances") in REQUESTS
    assert ("PUT", "/2/instances/web1/startup") in REQUESTS
    assert "/2/jobs/[job_id]/wait" in PATHS


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_requests_of_the_page_are_in_the_served_document(method, path):
    assert method.lower() in described(path)


@pytest.mark.parametrize("path", PATHS)
def test_paths_of_the_page_are_served(path):
    assert path == application._DOCUMENT or described(path)


def test_arguments_of_the_page_are_in_the_served_document():
    actual = re.findall(r"(/2/[a-z/]+)\?([a-z]+)=", PAGE)
    assert actual
    for path, name in actual:
        named = [
            each["name"]
            for operation in described(path).values()
            for each in operation["parameters"]
        ]
        assert name in named, (path, name)


def test_the_members_of_a_reservation_are_in_the_served_document():
    [body] = re.findall(r"cat > web1.json\n(.*?)\n   \$", PAGE, re.DOTALL)
    names = set(re.findall(r'"([a-z_]+)":', body)) - {"size"}
    names |= set(re.findall(r"``((?:reservation_|request_)[a-z]+)``", PAGE))
    schema = DOCUMENT["paths"]["/2/instances"]["post"]["requestBody"]["content"]
    assert names <= set(schema["application/json"]["schema"]["properties"])


def test_the_table_of_errors_has_statuses_with_their_code():
    codes = [
        int(code) for code in re.findall(r"^(\d{3})  ", section("Errors"), re.MULTILINE)
    ]
    assert codes == sorted(codes)
    assert set(codes) == {
        *(HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN),
        *(HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT),
        *(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.REQUEST_URI_TOO_LONG),
        *(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, HTTPStatus.TOO_MANY_REQUESTS),
        *(HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.NOT_IMPLEMENTED),
        *(HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE),
        *(HTTPStatus.GATEWAY_TIMEOUT, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED),
    }


def test_parameters_that_mean_root_on_the_page_need_that_right():
    text = " ".join(section("Parameters that mean root").split())
    table, _, _rest = text.partition("An import from another cluster")
    actual = {
        (name, which)
        for which, names in re.findall(r"\* \*([^*]+)\*: ((?:``[^`]+``[,; ]*)+)", table)
        for name in re.findall(r"``([^`]+)``", names)
    }
    assert actual == {
        (name, root.which)
        for name, roots in access.ROOT_VALUES.items()
        for root in roots
    }


def test_limits_of_the_page_are_those_of_the_code():
    text = " ".join(section("Limits").split())
    by_address, by_user = (
        authentication._ADDRESS_FAILURES,
        authentication._USER_FAILURES,
    )
    size, per_s = authentication._CHANGES
    for wanted in (
        f"{by_address[0]} per address and {by_user[0]} per user and address",
        f"one per {1 / by_address[1]:g} and one per {1 / by_user[1]:g} seconds",
        f"{per_s:g} per second and user, {size} at once",
        f"Headers: {server.MAX_HEADERS >> 10} KiB",
        f"Bodies: {application.MAX_BODY >> 20} MiB",
        f"within {limits.REQUEST_TIMEOUT_S} seconds plus one second",
        f"per {limits.MIN_RATE >> 10} KiB",
        f"for {limits.STEP_TIMEOUT_S} seconds at a time",
        f"for {limits.ANSWER_TIMEOUT_S} seconds plus one second",
        f"per {limits.MIN_ANSWER_RATE >> 10} KiB",
    ):
        assert wanted in text
