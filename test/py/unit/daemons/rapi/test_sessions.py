"""Sessions of the remote API: tokens, their users, and answers that take long."""

import base64
import io

import pytest

from fakes.clocks import FakeClock
from fakes.rapi_master import Browser, RapiMaster
from ganeti.base import errors
from ganeti.daemons.rapi import sessions, users
from ganeti.daemons.rapi.application import Application
from ganeti.daemons.rapi.authentication import Authenticator
from ganeti.daemons.rapi.waits import Waits
from ganeti.protocols.http import parking

LONG = "t" * 64
TEXT = f"""\
jack pw write
ann pw read
chief pw root
some pw root:/2/session
ci {users.format_token(LONG, 1_700_000_500)} read
"""


class Remote:
    """The application with its parts."""

    def __init__(self, text=TEXT):
        self.clock = FakeClock()
        self.master = RapiMaster()
        self.master.call("SubmitJob", [[{"OP_ID": "OP_CLUSTER_REDIST_CONF"}]])
        self.master.endless = set()
        self.sessions = sessions.Sessions(self.master.call, self.clock)
        # The tests look themselves.
        self.sessions._thread = object()
        self.users = Authenticator(self.clock, users.parse(text), self.sessions)
        app = Application(
            self.master,
            self.users,
            self.clock,
            waiting=Waits(self.master),
        )
        self.browser = Browser(app)

    def send(self, method, uri, body=None, **who):
        return self.browser.send(method, uri, body, **who)

    def sign_in(self, name="jack"):
        status, _headers, value = self.send("POST", "/2/session", **basic(name))
        assert status == 200, value
        return value


def basic(name, password="pw"):
    text = base64.b64encode(f"{name}:{password}".encode()).decode()
    return {"HTTP_AUTHORIZATION": f"Basic {text}"}


def bearer(token):
    return {"HTTP_AUTHORIZATION": f"Bearer {token}"}


@pytest.fixture
def remote():
    return Remote()


def status_of(remote, token, method="GET", uri="/2/journal"):
    return remote.send(method, uri, **bearer(token))[0]


def test_a_password_gives_a_token_with_the_rights_of_its_user(remote):
    value = remote.sign_in()
    assert sessions.is_token(value["token"])
    assert len({remote.sign_in()["token"] for _ in range(20)}) == 20
    assert status_of(remote, value["token"]) == 200
    assert status_of(remote, value["token"], "PUT", "/2/tags?tag=x") == 200
    reads = remote.sign_in("ann")["token"]
    assert status_of(remote, reads) == 200
    assert status_of(remote, reads, "PUT", "/2/tags?tag=x") == 403


def test_the_master_daemon_gets_no_token(remote):
    token = remote.sign_in()["token"]
    status_of(remote, token)
    assert "OpenSession" in {method for method, _args in remote.master.calls}
    assert token not in repr(remote.master.calls)
    assert token[2:] not in repr(remote.master.calls)


def test_a_token_of_a_user_begins_sessions_that_end_with_it(remote):
    value = remote.send("POST", "/2/session", **bearer(LONG))[2]
    (new,) = remote.master.sessions.values()
    assert (new["user"], new["user_end"]) == ("ci", 1_700_000_500)
    assert (new["idle_s"], new["age_s"]) == (1800, 43200)
    assert status_of(remote, value["token"]) == 200


def test_who_may_not_begin_one(remote):
    assert remote.send("POST", "/2/session")[0] == 401
    assert remote.send("POST", "/2/session", **basic("jack", "no"))[0] == 401
    token = remote.sign_in()["token"]
    status, _headers, value = remote.send("POST", "/2/session", **bearer(token))
    assert status == 403
    assert "wanted the password or the token of user jack" in value["message"]


@pytest.mark.parametrize(
    "change", ["jack other write", "jack pw read", "jack pw write,x", "ann pw read"]
)
def test_a_change_of_the_user_ends_it(remote, change):
    value = remote.sign_in()
    remote.users.replace(users.parse(change))
    assert status_of(remote, value["token"]) == 401
    reason = "the user's password, token or rights have changed"
    assert remote.master.revocations == [([value["id"]], "jack", reason)]
    # The line comes back, the session does not.
    remote.users.replace(users.parse(TEXT))
    assert status_of(remote, value["token"]) == 401


def test_a_change_of_another_user_or_a_comment_ends_none(remote):
    token = remote.sign_in()["token"]
    remote.users.replace(users.parse(f"# note\n{TEXT}new pw read\n"))
    assert status_of(remote, token) == 200


def test_a_change_of_a_role_ends_it():
    remote = Remote("@r {ROLE} read\njack pw @r\n")
    token = remote.sign_in()["token"]
    remote.users.replace(users.parse("@r {ROLE} read,write\njack pw @r\n"))
    assert status_of(remote, token) == 401


@pytest.mark.parametrize(
    "forge",
    [
        lambda token: token[:-1],
        lambda token: token + "0",
        lambda token: token[2:],
        lambda token: token.upper(),
        lambda token: token[:-1] + ("0" if token[-1] != "0" else "1"),
        lambda token: "s-" + "é" * 64,
        lambda token: "s-" + "0" * 64,
        lambda token: f"{token} {token}",
    ],
)
def test_forged_tokens_are_refused(remote, forge):
    token = remote.sign_in()["token"]
    assert status_of(remote, forge(token)) == 401
    assert status_of(remote, token) == 200


def test_guesses_ask_the_master_daemon_only_so_often(remote):
    token = remote.sign_in()["token"]
    assert status_of(remote, token) == 200
    remote.master.calls.clear()
    actual = [status_of(remote, f"s-{number:064x}") for number in range(400)]
    assert (actual.count(401), actual.count(429)) == (300, 100)
    assert len(remote.master.calls) == 300
    # They keep nobody with the same address from signing in.
    assert remote.send("POST", "/2/session", **basic("ann"))[0] == 200
    # A known client with the same address goes on.
    assert status_of(remote, token) == 200


def test_a_user_begins_a_limited_number_at_once(remote):
    actual = [remote.send("POST", "/2/session", **basic("jack"))[0] for _ in range(61)]
    assert actual == [200] * 60 + [429]
    assert remote.send("POST", "/2/session", **basic("ann"))[0] == 200


def listed(remote, **who):
    return [each["user"] for each in remote.send("GET", "/2/session", **who)[2]]


def test_users_see_and_end_their_own_sessions_and_root_all(remote):
    mine, other = remote.sign_in(), remote.sign_in("ann")
    assert remote.send("GET", "/2/session")[0] == 401
    assert listed(remote, **basic("jack")) == ["jack"]
    for name in ("chief", "some"):
        assert listed(remote, **basic(name)) == ["jack", "ann"]
    (shown,) = remote.send("GET", "/2/session", **bearer(mine["token"]))[2]
    assert shown == {"id": mine["id"], "user": "jack", "current": True}
    path = f"/2/session/{other['id']}"
    for who in (basic("jack"), bearer(mine["token"])):
        status, _headers, value = remote.send("DELETE", path, **who)
        assert status == 404
        assert "no such session" in value["detail"]
    assert remote.send("DELETE", path)[0] == 401
    assert status_of(remote, other["token"]) == 200
    assert remote.send("DELETE", path, **basic("chief"))[0] == 200
    assert status_of(remote, other["token"]) == 401
    another = remote.sign_in("ann")
    path = f"/2/session/{another['id']}"
    assert remote.send("DELETE", path, **basic("some"))[0] == 200
    path = f"/2/session/{mine['id']}"
    assert remote.send("DELETE", path, **bearer(mine["token"]))[0] == 200
    assert status_of(remote, mine["token"]) == 401


def test_a_master_that_does_not_answer_is_no_wrong_token(remote):
    token = remote.sign_in()["token"]
    remote.master.down = errors.NoMasterError("down")
    assert status_of(remote, token) == 502
    remote.master.down = None
    assert status_of(remote, token) == 200


@pytest.fixture
def waiting(remote):
    """A request that waits for a job in a session."""
    value, held, answers = remote.sign_in(), [], []
    remote.master.submit = lambda _method, _args, done, timeout_s: held.append(done)

    class Ticket:
        def resume(self, answer):
            answer(lambda line, _headers: answers.append(line.split()[0]))

    body = b'{"fields": ["status"]}'
    environ = bearer(value["token"]) | {
        "REQUEST_METHOD": "GET",
        "REQUEST_URI": "/2/jobs/1/wait",
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": "application/json",
        "wsgi.input": io.BytesIO(body),
        parking.KEY: Ticket,
    }
    assert remote.browser.application(environ, None) == []
    assert len(held) == 1
    return value, held, answers


def test_a_wait_ends_with_its_session(remote, waiting):
    value, held, answers = waiting
    remote.sessions.look()
    assert answers == []
    remote.send("DELETE", f"/2/session/{value['id']}", **basic("jack"))
    remote.sessions.look()
    assert answers == ["401"]
    # The change of the job comes too late.
    held[0]([["running"], []], None)
    remote.sessions.look()
    assert answers == ["401"]


def test_a_wait_ends_when_the_user_changes(remote, waiting):
    _value, _held, answers = waiting
    remote.users.replace(users.parse("jack pw read"))
    remote.sessions.look()
    assert answers == ["401"]


def test_a_wait_that_has_ended_is_watched_no_longer(remote, waiting):
    _value, held, answers = waiting
    held[0]([["running"], []], None)
    assert answers == ["200"]
    remote.master.calls.clear()
    remote.sessions.look()
    assert remote.master.calls == []


def test_the_watch_survives_a_master_that_is_away(remote, waiting):
    value, _held, answers = waiting
    remote.sessions._thread = None
    user = users.User("jack", users.Secret("clear", "pw"), None, value["id"])
    real, asked = remote.master.call, []

    def call(method, args, **_more):
        asked.append(method)
        if len(asked) == 1:
            raise errors.NoMasterError("down")
        if len(asked) == 2:
            remote.master.sessions.clear()
        return real(method, args)

    remote.sessions._ask = call
    remote.sessions.watch(user, remote.sessions._stopped.set)
    remote.sessions._thread.join()
    assert answers == ["401"]
    assert asked == ["QueryLivingSessions"] * 2
