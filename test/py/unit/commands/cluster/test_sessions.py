"""``gnt-cluster sessions``: the table, the JSON form, revocations."""

import json

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster

TIMES = {"created": 1e9, "used": 1e9 + 60, "idle_end": 1e9 + 1860, "end": 1e9 + 9000}
ONE = {"id": "00aa", "user": "jack", "address": "192.0.2.9", **TIMES}
TWO = {"id": "00bb", "user": "an\x1b[2Jn", "address": "192.0.2.8", **TIMES}


class SessionMaster(FakeMaster):
    """A master daemon with two sessions."""

    def _QuerySessions(self, user=None):
        return [each for each in (ONE, TWO) if user in {None, each["user"]}]

    def _RevokeSessions(self, ids, user):
        known = self._QuerySessions(user)
        return [each for each in known if ids is None or each["id"] in ids]


@pytest.fixture
def master():
    return SessionMaster()


def run(line, master):
    return commands.run(f"gnt-cluster sessions {line}", master)


def test_the_table_has_no_control_characters(master):
    done = run("list", master)
    assert (done.code, done.err) == (0, "")
    head, one, two = done.out.splitlines()
    assert head.split()[:3] == ["Session", "User", "Address"]
    assert one.split()[:3] == ["00aa", "jack", "192.0.2.9"]
    assert "\x1b" not in two


def test_programs_get_all_members(master):
    assert json.loads(run("--json list", master).out) == [ONE, TWO]
    assert json.loads(run("--json --user jack list", master).out) == [ONE]
    assert json.loads(run("--json list 00bb", master).out) == [TWO]


def test_sessions_are_revoked_by_id_or_user(master):
    assert run("revoke 00aa", master).out == "Revoked: 00aa of jack.\n"
    assert run("--user jack revoke", master).out == "Revoked: 00aa of jack.\n"
    assert run("--user nobody revoke", master).out == "Revoked: no session.\n"
    calls = [args for method, args in master.calls if method == "RevokeSessions"]
    assert calls == [[["00aa"], None], [None, "jack"], [None, "nobody"]]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("revoke", "wanted ids of sessions, or --user NAME"),
        ("revoke 00aa 00cc", "session '00cc': no such session"),
        ("--user jack revoke 00bb", "session '00bb': no such session"),
        ("list 00cc", "session '00cc': no such session"),
        ("--json revoke 00aa", "--json is an option of sessions list"),
        ("end 00aa", "wanted list or revoke, found 'end'"),
    ],
)
def test_wrong_requests_revoke_nothing(master, line, text):
    done = run(line, master)
    assert done.code == 1
    assert text in done.err
    assert "RevokeSessions" not in {method for method, _args in master.calls}
