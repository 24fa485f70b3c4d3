"""Every method of the documented client, against a real HTTPS server."""

import concurrent.futures
import inspect
import json
import logging
import multiprocessing
import os
import pathlib
import re
import socket
import subprocess
import sys

import pycurl
import pytest

from fakes import pages, peers, rapi_calls, rapi_recorder
from ganeti.base.tls import x509
from ganeti.protocols.rapi import api as client
from ganeti.protocols.rapi import model, transport

DATA = pathlib.Path(__file__).parents[4] / "data"
ROWS = json.loads((DATA / "spec/rapi.json").read_text())["resources"]
EXPECTED = json.loads((DATA / "rapi/client_requests.json").read_text())
#: Resources that no documented method requests.
WITHOUT_METHOD = {("/", "GET"), ("/2", "GET"), ("/2/query/[resource]", "GET")}
#: Methods whose requests differ from those of Ganeti's client, and the reason.
DIFFERENT = {
    "RenameNetwork": "Ganeti's client has no such method",
    "ReplaceInstanceDisks": "a body, because only bodies may have early_release",
    "AddNodeTags": "no body, because the server ignores it",
    "AddFilter": "no reason entry of the client's own",
    "ReplaceFilter": "no reason entry of the client's own",
    "DeleteFilter": "no body; the answer has no value",
}
USER = {"username": "jack", "password": "a:b c"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with rapi_recorder.serving(tmp_path_factory.mktemp("rapi")) as recorder:
        yield recorder


@pytest.fixture(autouse=True)
def _fresh(server):
    answers = dict(server.answers)
    server.take()
    yield
    server.answers = answers


def made(server, **options):
    return client.GanetiRapiClient(
        "127.0.0.1", server.port, logger=logging.getLogger("test"), **options
    )


def outcomes(server, calls):
    """Return outcome and requests of each call, as JSON types."""
    results = []
    for call in calls:
        (outcome,) = rapi_calls.drive(client, server.port, [call], {})
        requests = [
            {key: each[key] for key in ("method", "path", "query", "body")}
            for each in server.take()
        ]
        results.append({"call": call, "outcome": outcome, "requests": requests})
    return json.loads(json.dumps(results))


def test_every_call_makes_the_expected_requests(server):
    assert outcomes(server, rapi_calls.CALLS) == EXPECTED["calls"]


def test_without_features_calls_degrade_or_fail(server):
    server.answers["/2/features"] = rapi_recorder.error(404, "Not Found")
    calls = rapi_calls.WITHOUT_FEATURES
    assert outcomes(server, calls) == EXPECTED["without_features"]


def test_every_documented_resource_has_a_method():
    requests = {
        (each["method"], each["path"])
        for call in [*EXPECTED["calls"], *EXPECTED["without_features"]]
        for each in call["requests"]
    }

    def is_requested(row):
        path = model.Resource(path=row["uri"], method="", about="", result=None)
        return any(
            method == row["method"] and re.fullmatch(path.pattern(), each)
            for method, each in requests
        )

    missing = {(row["uri"], row["method"]) for row in ROWS if not is_requested(row)}
    assert missing == WITHOUT_METHOD


def test_every_method_of_the_client_of_ganeti_is_called():
    wanted = set(EXPECTED["signatures"]) - {"__init__"}
    assert wanted <= {call[0] for call in rapi_calls.CALLS}


def test_a_running_job_is_killed_by_an_argument_of_its_cancellation(server):
    (made_call,) = outcomes(server, [("KillJob", [17])])
    (request,) = made_call["requests"]
    assert (request["method"], request["path"]) == ("DELETE", "/2/jobs/17")
    assert request["query"] == [["kill", "1"]]


def test_reservations_are_requested_as_documented(server):
    calls = [
        ("ReserveInstance", [], {"disks": [{"size": 1}], "request_key": "k"}),
        ("ReserveInstance", ["web1"], {"dry_run": True}),
        ("CommitInstance", ["web1"], {"os": "tiny", "reason": "r"}),
    ]
    requests = [each["requests"][-1] for each in outcomes(server, calls)]
    assert [each["method"] for each in requests] == ["POST"] * 3
    assert [each["path"] for each in requests] == [
        "/2/instances",
        "/2/instances",
        "/2/instances/web1/create",
    ]
    flags = {"__version__": 1, "forthcoming": True}
    assert [each["body"] for each in requests] == [
        {**flags, "disks": [{"size": 1}], "request_key": "k"},
        {**flags, "name": "web1"},
        {"os": "tiny"},
    ]


# Ganeti's own client, unmodified


@pytest.fixture
def peer(server):
    """Drives the client of Debian's Ganeti; returns outcomes of one call at a time."""
    peers.require()
    argv = [sys.executable, "-W", "ignore", rapi_calls.__file__]
    env = {**os.environ, "PYTHONPATH": peers.client_path()}
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe, text=True) as child:

        def call(one, **options):
            given = {"port": server.port, "calls": [one], "options": options}
            child.stdin.write(json.dumps(given) + "\n")
            child.stdin.flush()
            return json.loads(child.stdout.readline())[0]

        yield call
        child.stdin.close()


@pytest.mark.parametrize("features", [True, False])
def test_requests_are_those_of_the_client_of_ganeti(server, peer, features):
    calls = rapi_calls.CALLS if features else rapi_calls.WITHOUT_FEATURES
    if not features:
        server.answers["/2/features"] = rapi_recorder.error(404, "Not Found")
    for call in calls:
        (outcome,) = rapi_calls.drive(client, server.port, [call], USER)
        requests = server.take()
        other = peer(call, **USER)
        others = server.take()
        if call[0] in DIFFERENT:
            continue
        assert (call, requests) == (call, others)
        # Errors of the client itself have texts of our own.
        assert json.loads(json.dumps(outcome[:2])) == other[:2]


@pytest.mark.parametrize(
    "answer",
    [
        rapi_recorder.error(400, "wrong & bad", "explained"),
        rapi_recorder.error(401, "Unauthorized"),
        rapi_recorder.error(502, "no master"),
        (404, b""),
        (200, b""),
        (302, b"", {"Location": "https://192.0.2.1/"}),
    ],
)
def test_errors_have_class_and_code_of_the_client_of_ganeti(server, peer, answer):
    server.answers["/2/info"] = answer
    (mine,) = rapi_calls.drive(client, server.port, [("GetInfo",)], {})
    assert mine[:2] == peer(("GetInfo",))[:2]
    if answer[0] == 400:
        assert mine == ["GanetiApiError", 400, "400 wrong & bad: explained"]


def test_wrong_certificates_and_refused_connections_are_those_errors(
    server, peer, tmp_path
):
    other = tmp_path / "other.pem"
    other.write_bytes(x509.create_self_signed("other").certificate_pem)
    config = {"cafile": str(other)}
    (mine,) = rapi_calls.drive(client, server.port, [("GetInfo",)], {"config": config})
    assert mine[:2] == peer(("GetInfo",), config=config)[:2]
    assert mine[:2] == ["CertificateError", pycurl.E_PEER_FAILED_VERIFICATION]


# Transport


def test_credentials_are_sent_and_one_connection_is_reused(server):
    ask = made(server, username="jack", password="a:b \N{EURO SIGN}")
    before = server.connections
    for _ in range(3):
        assert ask.GetVersion() == 2
    assert server.connections == before + 1
    sent = {each["authorization"] for each in server.take()}
    assert sent == {"Basic amFjazphOmIg4oKs"}


def test_threads_and_forked_children_have_connections_of_their_own(server):
    ask = made(server)
    ask.GetVersion()
    before = server.connections
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(ask.GetVersion).result() == 2
    assert server.connections == before + 1
    context = multiprocessing.get_context("fork")
    pipe, child_end = context.Pipe()
    child = context.Process(target=lambda: child_end.send(ask.GetVersion()))
    child.start()
    child.join(20)
    assert pipe.poll(0)
    assert pipe.recv() == 2
    assert server.connections == before + 2
    # The parent's connection still works.
    assert ask.GetVersion() == 2
    assert server.connections == before + 2


@pytest.mark.parametrize(
    ("config", "trusted"),
    [
        ({}, True),
        ({"cafile": "OWN"}, True),
        ({"cafile": "OWN", "verify_hostname": True}, False),
        ({"use_curl_cabundle": True}, False),
        ({"capath": "EMPTY"}, False),
        ({"cafile": "OWN", "proxy": "", "connect_timeout": 5, "timeout": 20}, True),
    ],
)
def test_certificates_are_verified_as_configured(server, tmp_path, config, trusted):
    places = {"OWN": server.pem, "EMPTY": str(tmp_path)}
    config = {key: places.get(value, value) for key, value in config.items()}
    ask = made(server, curl_config_fn=client.GenericCurlConfig(**config))
    if trusted:
        assert ask.GetVersion() == 2
        return
    with pytest.raises(client.CertificateError) as caught:
        ask.GetVersion()
    assert caught.value.code == pycurl.E_PEER_FAILED_VERIFICATION
    assert server.take() == []


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"use_curl_cabundle": True, "cafile": "a"}, "either the default"),
        ({"capath": "a", "_pycurl_version_fn": lambda: (0,) * 5 + ("GnuTLS/3.7",)}, "GnuTLS"),
    ],
)  # fmt: skip
def test_impossible_configurations_are_refused(config, text):
    with pytest.raises(client.Error, match=text):
        client.GenericCurlConfig(**config)


def test_a_refused_connection_has_the_number_of_the_library(server):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        ask = client.GanetiRapiClient("127.0.0.1", unused.getsockname()[1])
        with pytest.raises(client.GanetiApiError) as caught:
            ask.GetVersion()
    assert caught.value.code == pycurl.E_COULDNT_CONNECT


def test_a_slow_answer_ends_at_the_timeout(server):
    release = []
    server.answers["/2/info"] = lambda _request: rapi_recorder.wait_until(
        lambda: release
    )
    config = client.GenericCurlConfig(timeout=0.2)
    try:
        with pytest.raises(client.GanetiApiError) as caught:
            made(server, curl_config_fn=config).GetInfo()
    finally:
        release.append(True)
    assert caught.value.code == pycurl.E_OPERATION_TIMEDOUT


def test_an_answer_that_is_too_large_or_no_json_is_an_error(server, monkeypatch):
    server.answers["/2/info"] = (200, b"<html>")
    with pytest.raises(client.GanetiApiError, match="no JSON"):
        made(server).GetInfo()
    monkeypatch.setattr(transport, "MAX_ANSWER", 1000)
    server.answers["/2/info"] = ["a" * 2000]
    with pytest.raises(client.GanetiApiError) as caught:
        made(server).GetInfo()
    assert caught.value.code == pycurl.E_WRITE_ERROR
    server.answers["/2/instances"] = [{"name": "web1"}]
    with pytest.raises(client.GanetiApiError, match="'id'"):
        made(server).GetInstances()


def test_errors_of_other_servers_have_their_status_and_text(server):
    server.answers["/2/info"] = (503, b"<html>busy</html>")
    with pytest.raises(client.GanetiApiError, match="busy") as caught:
        made(server).GetInfo()
    assert caught.value.code == 503
    server.answers["/2/info"] = (500, {"code": 500})
    with pytest.raises(client.GanetiApiError, match="500"):
        made(server).GetInfo()


def test_a_failed_request_leaves_the_client_usable(server):
    ask = made(server)
    server.answers["/2/info"] = rapi_recorder.error(500, "broken")
    with pytest.raises(client.GanetiApiError, match="500 broken"):
        ask.GetInfo()
    assert ask.GetVersion() == 2


def test_another_error_than_404_of_the_features_is_raised(server):
    server.answers["/2/features"] = rapi_recorder.error(401, "Unauthorized")
    with pytest.raises(client.GanetiApiError, match="401"):
        made(server).GetFeatures()


@pytest.mark.parametrize("given", [{"username": "a"}, {"password": "b"}])
def test_name_and_password_belong_together(given):
    with pytest.raises(client.Error, match="assword"):
        client.GanetiRapiClient("host", **given)


def test_names_are_parts_of_paths_and_never_more(server):
    ask = made(server)
    ask.GetInstance("../../2/info?x=1#a b")
    (request,) = server.take()
    assert request["path"] == "/2/instances/..%2F..%2F2%2Finfo%3Fx%3D1%23a%20b"
    assert request["query"] == []


def test_query_arguments_are_numbers_and_texts(server):
    ask = made(server)
    query = [("yes", True), ("no", False), ("none", None), ("number", 5)]
    ask._SendRequest("GET", "/2/info", query, None)
    (request,) = server.take()
    assert request["query"] == [
        ("yes", "1"),
        ("no", "0"),
        ("none", ""),
        ("number", "5"),
    ]
    with pytest.raises(client.Error, match="tag: wanted"):
        ask._SendRequest("GET", "/2/info", [("tag", ["a"])], None)


def test_ipv6_addresses_factories_and_helpers(server):
    ask = client.GanetiRapiClient("2001:db8::1")
    assert ask._base_url == "https://[2001:db8::1]:5080"
    handles = []

    def factory():
        handles.append(pycurl.Curl())
        return handles[-1]

    assert made(server, curl_factory=factory).GetVersion() == 2
    assert len(handles) == 1
    assert client.EpochNano() > 10**18


def test_the_decorator_keeps_name_and_result():
    @client.UsesRapiClient
    def main(value, *, more):
        """Do it."""
        return value + more

    assert main(1, more=2) == 3
    assert main.__name__ == "main"


def test_signatures_and_constants_are_those_of_the_client_of_ganeti():
    listed = {
        name: _signature(getattr(client.GanetiRapiClient, name))
        for name in EXPECTED["signatures"]
    }
    assert listed == EXPECTED["signatures"]
    constants = {name: getattr(client, name) for name in EXPECTED["constants"]}
    assert {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in constants.items()
    } == EXPECTED["constants"]


def _signature(method):
    """Return names and defaults of the parameters."""
    return [
        [each.name, each.kind.name, None if each.default is each.empty else [repr(each.default)]]
        for each in list(inspect.signature(method).parameters.values())[1:]
        if each.name != "logger"
    ]  # fmt: skip


def test_the_documented_example_works(server):
    text = (DATA.parents[1] / "doc/rapi-client.rst").read_text()
    code = pages.code_block(text, "documented-client")
    names = {
        "CA_FILE": server.pem,
        "HOST": "127.0.0.1",
        "PORT": server.port,
        "PASSWORD": "secret",
    }
    server.answers["/2/instances/web1.example.com/reboot"] = 17
    exec(compile(code, "rapi-client.rst", "exec"), names)
    assert names["main"]() is True
    reboot, status = server.take()
    assert reboot["query"] == [("reason", "new kernel")]
    assert status["path"] == "/2/jobs/17"
