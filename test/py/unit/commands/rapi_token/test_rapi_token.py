"""``gnt-rapi-token`` on the users file of a directory."""

import json
import re
import stat

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.daemons.rapi import users

NOW = 1_700_000_000


class Node:
    """The master's directories, and its users file."""

    def __init__(self, root):
        self.environ = {"GANETI_ROOTDIR": str(root), "GANETI_HOSTNAME": "n1.tst"}
        self.data = root / "var/lib/ganeti"
        (self.data / "rapi").mkdir(parents=True)
        (self.data / "ssconf_master_node").write_text("n1.tst\n")
        self.file = self.data / "rapi/users"
        self.master = FakeMaster()

    def run(self, line, **options):
        words = ["gnt-rapi-token", *(line.split() if isinstance(line, str) else line)]
        return commands.run(
            words, self.master, environ=self.environ, now=lambda: float(NOW), **options
        )

    def jobs(self):
        submitted = [
            args for method, args in self.master.calls if method == "SubmitJob"
        ]
        return [op["OP_ID"] for [ops] in submitted for op in ops]

    def users(self):
        return users.parse(self.file.read_text())


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path / "n1.tst")


def test_a_token_is_printed_once_and_only_its_digest_is_kept(node):
    done = node.run("add --rights write:/2/instances/* --expires 90d deploy")
    token = done.out.strip()
    assert (done.code, len(token)) == (0, 64)
    assert token not in node.file.read_text()
    [user] = node.users().by_digest.values()
    assert user.name == "deploy"
    assert user.secret.value == users.token_digest(token)
    assert user.secret.expires == NOW + 90 * 86400
    assert stat.S_IMODE(node.file.stat().st_mode) == 0o640
    assert node.jobs() == ["OP_CLUSTER_REDIST_CONF"]
    assert node.run("add other").out.strip() != token


def test_tokens_last_a_year_unless_asked_otherwise(node):
    node.run("add a")
    node.run("add --expires never b")
    ends = {u.name: u.secret.expires for u in node.users().by_digest.values()}
    assert ends == {"a": NOW + 365 * 86400, "b": None}


@pytest.mark.parametrize("time", ["soon", "0", "0d", "-1d", "1y", ""])
def test_odd_times_are_refused(node, time):
    done = node.run(["add", f"--expires={time}", "a"])
    assert (done.code, done.out) == (1, "")
    assert "wanted" in done.err
    assert not node.file.exists()


def test_a_name_in_use_is_replaced_only_on_request(node):
    node.file.write_text("# ours\njack secret write\n")
    done = node.run("add jack")
    assert (done.code, done.out) == (1, "")
    assert "user 'jack': exists already (clear, valid); give --replace" in done.err
    assert node.file.read_text() == "# ours\njack secret write\n"
    assert node.jobs() == []
    assert node.run("add --replace jack").code == 0
    assert node.file.read_text().startswith("# ours\njack {TOKEN}")
    assert node.file.read_text().endswith(" write\n")


@pytest.mark.parametrize(
    ("rights", "problem"),
    [
        ("@web", "role '@web' is not defined"),
        ("read,wirte", "--rights: wanted read, write, root, .*, found 'wirte'"),
    ],
)
def test_unknown_rights_change_nothing(node, rights, problem):
    done = node.run(f"add --rights {rights} x")
    assert (done.code, done.out) == (1, "")
    assert re.search(problem, done.err)
    assert not node.file.exists()


def test_a_password_is_stored_as_a_hash_and_keeps_the_rights(node):
    node.file.write_text("jack old @r\n@r {ROLE} read\n")
    done = node.run("password jack", stdin="new secret\nmore\n")
    assert (done.code, done.out) == (0, "")
    user = node.users().by_name["jack"]
    assert users.is_password(user, "jack", "new secret", costs=frozenset())
    assert "secret" not in node.file.read_text()
    assert node.file.read_text().splitlines()[0].endswith(" @r")
    assert node.jobs() == ["OP_CLUSTER_REDIST_CONF"]


def test_no_password_is_refused(node):
    done = node.run("password jack", stdin="")
    assert done.code == 1
    assert "wanted a password at the terminal, or as the first line" in done.err
    assert not node.file.exists()


def test_removal_checks_all_names_first(node):
    text = "a x\nb x read\n"
    node.file.write_text(text)
    done = node.run("remove b nobody")
    assert (done.code, node.file.read_text()) == (1, text)
    assert "user 'nobody': not in " in done.err
    assert node.run("remove b").err == "Removed: b.\n"
    assert node.file.read_text() == "a x\n"


def test_expired_tokens_are_removed_together(node):
    lines = [
        f"late {users.format_token('a', NOW)} read",
        f"good {users.format_token('b', NOW + 1)} read",
        f"ever {users.format_token('c')} read",
        "jack secret read",
    ]
    node.file.write_text("\n".join(lines) + "\n")
    assert node.run("remove --expired").err == "Removed: late.\n"
    assert node.file.read_text() == "\n".join(lines[1:]) + "\n"
    assert node.run("remove --expired").err == "Removed: nobody.\n"
    assert node.run("remove").code == 1


def test_the_list_shows_everybody_and_no_secret(node):
    node.file.write_text(
        f"late {users.format_token('a', NOW)} read\njack secret\n@r {{ROLE}} read\n"
    )
    done = node.run("list --no-headers --separator=|")
    rows = [line.split("|") for line in done.out.splitlines()]
    assert [row[:3] for row in rows] == [
        ["late", "token", "expired"],
        ["jack", "clear", "valid"],
        ["@r", "role", "valid"],
    ]
    assert rows[1][3:] == ["-", "-"]
    document = json.loads(node.run("list --json").out)
    assert document[0] == {
        "name": "late",
        "kind": "token",
        "state": "expired",
        "expires": NOW,
        "rights": "read",
    }
    assert "secret" not in done.out
    node.file.unlink()
    assert json.loads(node.run("list --json").out) == []


def test_other_nodes_are_refused_by_name(node):
    (node.data / "ssconf_master_node").write_text("n2.tst\n")
    for line in ("add x", "list", "remove x"):
        done = node.run(line)
        assert done.code == 1
        assert "please connect to 'n2.tst'" in done.err
    assert not node.file.exists()


def test_the_master_daemon_records_changes_without_their_secrets(node):
    token = node.run("add --no-redist a").out.strip()
    node.run("password --no-redist b", stdin="word\n")
    node.run("remove --no-redist a b")
    noted = [args for method, args in node.master.calls if method == "NoteUserChange"]
    assert noted == [
        ["add a token", ["a"]],
        ["set a password", ["b"]],
        ["remove", ["a", "b"]],
    ]
    assert token not in str(node.master.calls)
    node.master.down = errors.NoMasterError("nobody listens")
    done = node.run("add --no-redist c")
    assert "not in the audit log (nobody listens)" in done.err


def test_a_file_that_could_not_be_copied_is_a_warning(node):
    node.master.down = errors.NoMasterError("nobody listens")
    done = node.run("add x")
    assert (done.code, len(done.out.strip())) == (0, 64)
    assert "Warning: " in done.err
    assert "not copied to the other master candidates (nobody listens)" in done.err
    assert node.run("add --no-redist y").code == 0
