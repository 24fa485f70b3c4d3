"""Users of their own of daemons, and the groups that read their files."""

import json
import os
import pwd
import stat
import subprocess
import sys
import tempfile

import pytest

from ganeti import _buildconf
from ganeti.base import daemon_users
from ganeti.base.pathutils import Paths
from ganeti.tools import ensure_dirs

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing users needs root")
CONFD = daemon_users.Identity("gnt-confd", 64221, 64231)
RAPI = daemon_users.Identity("gnt-rapi", 64222, 64232)


class Standard(Paths):
    """The places of a machine, below a directory of the test."""

    @property
    def is_virtual(self):
        return False


@pytest.fixture
def paths(tmp_path):
    return Standard(str(tmp_path), "n1")


@pytest.fixture
def users(monkeypatch):
    """The users of this machine, by name; empty at first."""
    known = {}

    def getpwnam(name):
        user = known[name]
        return pwd.struct_passwd((name, "x", user.uid, user.gid, "", "/", "/bin/sh"))

    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    return known


def obstacle(paths):
    return daemon_users.obstacle("ganeti-confd", paths)


def test_names_have_the_configured_prefix(monkeypatch):
    assert daemon_users.name_of("ganeti-confd") == "gnt-confd"
    monkeypatch.setattr(_buildconf, "USER_PREFIX", "site-")
    assert daemon_users.name_of("ganeti-rapi") == "site-rapi"
    assert daemon_users.name_of("ganeti-masterd") is None
    assert daemon_users.name_of("ganeti-noded") is None


@needs_root
def test_only_machines_that_have_the_user_have_the_identity(paths, users):
    assert daemon_users.identity("ganeti-confd", paths) is None
    users["gnt-confd"] = CONFD
    assert daemon_users.identity("ganeti-confd", paths) == CONFD
    assert daemon_users.identity("ganeti-rapi", paths) is None
    assert daemon_users.identity("ganeti-masterd", paths) is None
    assert daemon_users.identity("ganeti-confd", Paths("/x/n1", "n1")) is None
    users["gnt-confd"] = CONFD._replace(uid=0)
    assert daemon_users.identity("ganeti-confd", paths) is None


def owner(path):
    info = os.stat(path)
    return info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)


@needs_root
def test_daemons_read_their_files_and_own_their_logs(paths, users):
    users |= {"gnt-confd": CONFD, "gnt-rapi": RAPI}
    ensure_dirs.run(paths)
    logs = [f"{paths.log_dir}/{name}-daemon.log" for name in ("conf", "rapi", "node")]
    secrets = [paths.hmac_key, paths.data("rapi.pem"), paths.data("rapi/users")]
    for path in (*logs, *secrets, paths.store_db, paths.client_pem):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    ensure_dirs.run(paths)
    assert owner(paths.data_dir) == (0, CONFD.gid, 0o755)
    assert owner(paths.hmac_key) == (0, CONFD.gid, 0o440)
    assert owner(paths.store_db) == (0, CONFD.gid, 0o640)
    assert owner(paths.data("rapi")) == (0, RAPI.gid, 0o750)
    assert owner(paths.data("rapi/users")) == (0, RAPI.gid, 0o640)
    assert owner(paths.data("rapi.pem")) == (0, RAPI.gid, 0o440)
    assert owner(paths.rapi_socket_dir) == (0, RAPI.gid, 0o750)
    assert owner(paths.client_pem) == (0, 0, 0o440)
    assert owner(paths.socket_dir) == (0, 0, 0o770)
    assert owner(logs[0]) == (CONFD.uid, CONFD.gid, 0o600)
    assert owner(logs[1]) == (RAPI.uid, RAPI.gid, 0o600)
    assert owner(logs[2]) == (0, 0, 0o600)


@needs_root
def test_without_users_all_files_are_those_of_root(paths, users):
    users |= {"gnt-confd": CONFD, "gnt-rapi": RAPI}
    ensure_dirs.run(paths)
    users.clear()
    for path in (paths.data("rapi.pem"), f"{paths.log_dir}/conf-daemon.log"):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        os.chown(path, RAPI.uid, RAPI.gid)
    ensure_dirs.run(paths)
    assert owner(paths.data("rapi.pem")) == (0, 0, 0o440)
    assert owner(paths.rapi_socket_dir) == (0, 0, 0o750)
    assert owner(f"{paths.log_dir}/conf-daemon.log") == (0, 0, 0o600)


@needs_root
def test_the_group_that_an_administrator_chose_stays(paths, users, monkeypatch):
    users["gnt-confd"] = CONFD
    os.makedirs(paths.data_dir)
    os.chown(paths.data_dir, 0, 64999)
    ensure_dirs.run(paths)
    # The user of the daemon that reads the store is in no such group.
    assert owner(paths.data_dir)[1] == CONFD.gid
    os.chown(paths.data_dir, 0, 64999)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 64999])
    ensure_dirs.run(paths)
    assert owner(paths.data_dir)[1] == 64999
    groups = daemon_users.further_groups
    assert groups("ganeti-confd", CONFD, paths) == [64999]
    assert groups("ganeti-rapi", RAPI, paths) == []


@needs_root
def test_what_keeps_a_daemon_from_its_user_is_named(users, monkeypatch):
    monkeypatch.setattr(daemon_users, "unreadable_program", lambda: "")
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        paths = Standard(root, "n1")
        for place in (paths.data_dir, paths.run_dir, paths.log_dir):
            os.makedirs(place)
        assert "no user gnt-confd; the command useradd" in obstacle(paths)
        users["gnt-confd"] = CONFD
        # Only this user may enter a new temporary directory.
        wanted = f"user gnt-confd may not read {root}, which ganeti-confd needs"
        assert obstacle(paths) == wanted
        os.chmod(root, 0o755)
        assert obstacle(paths) == ""
        assert daemon_users.obstacle("ganeti-noded", paths) == ""
    assert obstacle(Paths("/x/n1", "n1")) == ""


_ASSUME = """
import json, os, sys
from ganeti.base import daemon_users
os.setgroups([0, 4])
daemon_users.assume(daemon_users.Identity("x", 64221, 64231))
def fails(function, *args):
    try:
        function(*args)
    except PermissionError:
        return True
rows = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(),
    int(rows["CapPrm"], 16), fails(os.setuid, 0), fails(os.setgroups, [0])]))
"""


@needs_root
def test_a_daemon_changes_its_user_for_good():
    done = subprocess.run(
        [sys.executable, "-c", _ASSUME],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
        timeout=60,
    )
    uids, gids, groups, capabilities, *refused = json.loads(done.stdout)
    assert (uids, gids) == ([64221] * 3, [64231] * 3)
    assert (groups, capabilities) == ([], 0)
    assert refused == [True, True]


def test_a_program_below_a_private_directory_is_unreadable(tmp_path, monkeypatch):
    os.chmod(tmp_path, 0o700)
    program = tmp_path / "python"
    program.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert daemon_users.unreadable_program() == str(tmp_path)
    program.chmod(0o700)
    assert daemon_users.unreadable_program() == str(program)
