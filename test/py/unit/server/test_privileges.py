"""Giving up root's rights, in a child process."""

import argparse
import os
import pwd

import pytest

from ganeti.server import common, privileges

NOBODY = pwd.getpwnam("nobody")


def in_child(function):
    """Return what a function returns in a child process, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(function()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as stream:
        return stream.read().decode()


def test_root_becomes_the_user_and_cannot_come_back():
    if os.geteuid() != 0:
        pytest.skip("only root can change its user")

    def drop():
        privileges.drop("nobody")
        try:
            os.setuid(0)
        except PermissionError:
            return os.getresuid(), os.getresgid(), os.getgroups()
        return "still root"

    uid, gid = NOBODY.pw_uid, NOBODY.pw_gid
    assert in_child(drop) == str(((uid,) * 3, (gid,) * 3, [gid]))


def test_for_root_nothing_changes():
    before = os.getresuid()
    privileges.drop("root")
    assert os.getresuid() == before


def test_only_root_and_the_user_may_start(monkeypatch):
    checked = argparse.Namespace(no_user_checks=False)
    for uid in (0, NOBODY.pw_uid):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        privileges.check(checked, "nobody")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(common.StartError, match="runs as user 12345, wanted root or"):
        privileges.check(checked, "nobody")
    privileges.check(argparse.Namespace(no_user_checks=True), "nobody")


def test_a_user_that_is_missing_is_an_error():
    checked = argparse.Namespace(no_user_checks=False)
    with pytest.raises(common.StartError, match="there is no user gnt-nosuch"):
        privileges.check(checked, "gnt-nosuch")
