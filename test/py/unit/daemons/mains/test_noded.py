"""The node daemon's application and its start, without network."""

import io
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.base.tls import x509
from ganeti.daemons import common
from ganeti.daemons.mains import noded
from ganeti.decisions.quorum import Term
from ganeti.node import calls as backend
from ganeti.node.calls import registry, running_calls
from ganeti.node.calls.membership import master_term
from ganeti.protocols import ssconf
from ganeti.protocols.http import admission, tls


class Everybody:
    """Stands for the guard: one digest is allowed."""

    def allows(self, digest):
        return digest == "GOOD"

    def holder(self, digest):
        return {"GOOD": "good-node"}.get(digest, "")


@pytest.fixture
def quits():
    return []


@pytest.fixture
def app(tmp_path, quits):
    node = nodes.make_node(tmp_path)
    guard = master_term.TermGuard(str(tmp_path / "term"), "")
    return noded.App(
        node,
        guard=Everybody(),
        term_guard=guard,
        plan=noded.lane_plan(4),
        calls=running_calls.RunningCalls(lambda _thread, _end: None),
        quit_daemon=lambda: quits.append(1),
    )


def ask(app, path="/version", body=b"[]", method="POST", **environ):
    answers = []
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        tls.PEER_KEY: "GOOD",
        admission.LANE_KEY: noded.lane_plan(4).lane_of(
            f"POST {path} HTTP/1.1".encode()
        ),
        **environ,
    }
    data = b"".join(app(environ, lambda status, headers: answers.append(status)))
    return int(answers[0].split()[0]), json.loads(data)


@pytest.fixture
def offer(monkeypatch):
    """Offer procedures for one test."""

    def add(name, function, *kinds):
        entry = registry.Procedure(function, kinds)
        monkeypatch.setitem(backend.PROCEDURES, name, entry)

    return add


def test_a_call_is_answered(app):
    status, answer = ask(app)
    assert (status, answer[0]) == (200, True)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"method": "GET"}, 400),
        ({"method": "PUT"}, 400),
        ({"path": "/"}, 404),
        ({"path": "/../version"}, 404),
        ({"body": b"5"}, 400),
        ({"CONTENT_LENGTH": ""}, 411),
        ({"CONTENT_LENGTH": "-1"}, 411),
        ({"HTTP_X_GANETI_TERM": "-3"}, 400),
        ({"HTTP_X_GANETI_TERM": "x"}, 400),
        ({tls.PEER_KEY: "BAD"}, 403),
        ({tls.PEER_KEY: None}, 403),
    ],
)
def test_what_is_no_call_is_explained(app, request_, status):
    actual, answer = ask(app, **request_)
    assert actual == status
    assert answer["code"] == status
    assert set(answer) == {"code", "message", "explain"}


def test_terms_rise(app):
    assert ask(app, HTTP_X_GANETI_TERM="7")[0] == 200
    status, answer = ask(app, HTTP_X_GANETI_TERM="6")
    assert status == 409
    assert "term 6 is over" in answer["message"]


def test_strangers_do_not_raise_the_term(app):
    ask(app, HTTP_X_GANETI_TERM="99", **{tls.PEER_KEY: "BAD"})
    assert ask(app, HTTP_X_GANETI_TERM="1")[0] == 200


def test_failures_are_answers(app, offer):
    def fail(_node):
        raise errors.OpPrereqError("no disk", "environment_error")

    def break_(_node):
        raise RuntimeError("a bug")

    offer("version", fail)
    assert ask(app) == (200, [False, "no disk, environment_error"])
    offer("version", break_)
    text = "Error while executing backend function: a bug"
    assert ask(app) == (200, [False, text])


def test_a_value_that_is_no_json_is_a_failure(app, offer):
    offer("version", lambda _node: object())
    status, answer = ask(app)
    assert (status, answer[0]) == (200, False)


def test_quitting_answers_first(app, offer, quits):
    def leave(_node):
        return backend.LastAnswer("bye")

    offer("version", leave)
    assert ask(app) == (200, [True, "bye"])
    assert quits == [1]


def options(*argv):
    return common.parse(noded.build_parser(), argv)


@pytest.fixture
def paths(tmp_path):
    node = nodes.make_node(tmp_path)
    x509.write_cluster_certificate(node.paths.root + "/server.pem")
    return node.paths


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("--max-clients", "0"), "at least 1"),
        ((), r"server\.pem: no certificate"),
        (("-C", "/nowhere.pem"), r"/nowhere\.pem"),
    ],
)
def test_starts_that_cannot_work(paths, argv, text):
    with pytest.raises(common.StartError, match=text) as caught:
        noded.check(options(*argv), paths)
    assert caught.value.code == 1


def test_starts_that_can(paths):
    pem = paths.root + "/server.pem"
    noded.check(options("-C", pem, "-K", pem), paths)
    noded.check(options("--no-ssl"), paths)


def test_where_it_binds(paths, tmp_path):
    assert common.bind_address(options(), paths) == "0.0.0.0"
    assert common.bind_address(options("-b", "127.0.0.9"), paths) == "127.0.0.9"
    assert common.bind_address(options("-i", "lo"), paths) == "127.0.0.1"
    with pytest.raises(errors.GenericError, match="nodev"):
        common.bind_address(options("-i", "nodev"), paths)
    os.makedirs(paths.data_dir)
    ssconf.write(paths, {"primary_ip_family": "10"})
    assert common.bind_address(options(), paths) == "::"


@pytest.mark.parametrize("argv", [("word",), ("-b", "127.0.0.1", "-i", "lo")])
def test_wrong_command_lines_exit_with_one(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        options(*argv)
    assert caught.value.code == 1
    assert "ganeti-noded" in capsys.readouterr().err


def test_a_term_is_its_owners_alone(app):
    assert ask(app, HTTP_X_GANETI_TERM="3:good-node")[0] == 200
    status, answer = ask(app, HTTP_X_GANETI_TERM="4:another-node")
    assert status == 403
    assert "is not the caller's" in answer["message"]
    assert ask(app, HTTP_X_GANETI_TERM="3:good-node")[0] == 200


@pytest.mark.parametrize("name", ["store_promise", "store_apply", "store_install"])
def test_a_promise_is_asked_for_by_its_owner_alone(app, offer, name):
    promised = []
    offer(name, lambda _node, *args: promised.append(args), *[object] * 3)
    status, answer = ask(
        app, f"/{name}", json.dumps([[4, "another-node"], 0, ""]).encode()
    )
    assert status == 403
    assert "term 4:another-node is not the caller's, good-node" in answer["message"]
    assert ask(app, f"/{name}", b'[["4", 5], 0, ""]')[0] == 400
    assert not promised
    assert ask(app, f"/{name}", b'[[4, "good-node"], 0, ""]')[0] == 200
    # Earlier releases do not say whose it is.
    assert ask(app, f"/{name}", b'[5, 0, ""]')[0] == 200
    assert len(promised) == 2


class LateBody:
    """A body during whose arrival something happens."""

    def __init__(self, happens):
        self._happens = happens

    def read(self, _size):
        self._happens()
        return b"[]"


def test_a_slow_call_of_a_deposed_master_does_not_act(app, offer):
    acted = []
    offer("instance_start", lambda _node: acted.append(1))
    body = LateBody(lambda: app._terms.check(Term(4, "new-master")))
    status, _answer = ask(
        app,
        "/instance_start",
        HTTP_X_GANETI_TERM="3:good-node",
        **{"wsgi.input": body},
    )
    assert (status, acted) == (409, [])


def test_the_busy_lane_does_not_act(app, offer):
    acted = []
    offer("instance_start", lambda _node: acted.append(1))
    status, answer = ask(app, "/instance_start", **{admission.LANE_KEY: admission.BUSY})
    assert (status, acted) == (503, [])
    assert "ordinary" in answer["message"]


def test_a_call_is_served_in_its_own_lane_alone(app):
    assert ask(app, **{admission.LANE_KEY: "power"})[0] == 400


def test_one_kind_of_disk_cannot_take_all_threads(app, offer):
    busy, gate = threading.Semaphore(0), threading.Event()

    def wipe(_node, disk):
        if disk["dev_type"] == "sharedfile":
            busy.release()
            gate.wait(60)

    offer("blockdev_wipe", wipe, dict)
    bad, good = (
        json.dumps([{"dev_type": kind}]).encode() for kind in ("sharedfile", "file")
    )
    with ThreadPoolExecutor(3) as pool:
        hung = [pool.submit(ask, app, "/blockdev_wipe", bad) for _ in range(3)]
        for _ in hung:
            assert busy.acquire(timeout=60)
        status, answer = ask(app, "/blockdev_wipe", bad)
        assert status == 503
        assert "sharedfile" in answer["message"]
        assert ask(app, "/blockdev_wipe", good)[0] == 200
        gate.set()
        assert [call.result(60)[0] for call in hung] == [200] * 3
    assert ask(app, "/blockdev_wipe", bad)[0] == 200
