"""Releases side by side: which one is in use, links, installation and removal."""

import contextlib
import os
import pathlib

import pytest

from ganeti.base import errors
from ganeti.base.filesystem import releases
from ganeti.base.filesystem.releases import Layout

PROGRAMS = {"sbin": ["gnt-cluster", "ganeti-noded"], "bin": ["hbal"], "tools": ["x"]}


class Machine:
    def __init__(self, root):
        self.root = root
        self.layout = Layout(
            "/usr/lib/ganeti/versions", "/usr/sbin", "/usr/bin", root=str(root)
        )

    def add(self, version, **more):
        top = self.root / "usr/lib/ganeti/versions" / version
        for place, names in PROGRAMS.items():
            (top / place).mkdir(parents=True)
            for name in [*names, *more.get(place, [])]:
                (top / place / name).write_text(f"{version} {name}")
        (top / "python/ganeti").mkdir(parents=True)

    def read(self, path):
        """Follow links as the machine does, whose root is a directory here."""
        path = self.root / path
        while path.is_symlink():
            target = os.readlink(path)
            base = self.root if target.startswith("/") else path.parent
            path = base / target.lstrip("/")
        for parent in path.parents:
            if parent.is_symlink():
                rest = path.relative_to(parent)
                return (parent.parent / os.readlink(parent) / rest).read_text()
        return path.read_text()

    def names(self, path):
        return sorted(os.listdir(self.root / path))


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    made.add("3.1.1", sbin=["gnt-old"])
    made.add("3.1.10", sbin=["gnt-new"])
    made.add("3.1.9")
    return made


def test_releases_are_sorted_by_number(machine):
    (machine.root / "usr/lib/ganeti/versions/.tmp").mkdir()
    assert releases.installed(machine.layout) == ["3.1.1", "3.1.9", "3.1.10"]
    assert releases.installed(Layout("", "/usr/sbin", "/usr/bin")) == []
    assert releases.in_use(machine.layout) == ""


def test_the_first_installation_is_in_use_and_the_next_one_is_not(machine):
    line = releases.install(machine.layout, "3.1.1")
    assert line == "Version 3.1.1 is installed and in use"
    assert releases.in_use(machine.layout) == "3.1.1"
    line = releases.install(machine.layout, "3.1.10")
    assert line.endswith("run on the master: gnt-cluster upgrade --to 3.1.10")
    assert releases.in_use(machine.layout) == "3.1.1"


def test_programs_tools_and_library_follow_one_link(machine):
    releases.use(machine.layout, "3.1.1")
    assert machine.read("usr/sbin/gnt-cluster") == "3.1.1 gnt-cluster"
    assert machine.read("usr/bin/hbal") == "3.1.1 hbal"
    assert machine.read("usr/lib/ganeti/tools/x") == "3.1.1 x"
    assert machine.names("usr/sbin") == ["ganeti-noded", "gnt-cluster", "gnt-old"]
    (machine.root / "usr/sbin/other").symlink_to("/bin/true")
    releases.use(machine.layout, "3.1.10")
    assert machine.read("usr/sbin/gnt-cluster") == "3.1.10 gnt-cluster"
    assert machine.read("usr/lib/ganeti/tools/x") == "3.1.10 x"
    assert machine.names("usr/sbin") == [
        *("ganeti-noded", "gnt-cluster", "gnt-new", "other")
    ]


def test_use_can_be_repeated_after_an_interruption_at_any_link(machine, monkeypatch):
    releases.use(machine.layout, "3.1.1")
    whole = os.replace
    for number in range(5):
        calls = []

        def cut(source, target, *, calls=calls, number=number):
            calls.append(target)
            if len(calls) > number:
                raise KeyboardInterrupt
            whole(source, target)

        monkeypatch.setattr(releases.os, "replace", cut)
        version = ("3.1.10", "3.1.1")[number % 2]
        with contextlib.suppress(KeyboardInterrupt):
            releases.use(machine.layout, version)
        monkeypatch.setattr(releases.os, "replace", whole)
        releases.use(machine.layout, version)
        assert machine.read("usr/sbin/gnt-cluster") == f"{version} gnt-cluster"


def test_a_release_that_is_not_installed_is_refused(machine):
    with pytest.raises(errors.OpPrereqError, match=r"installed: 3\.1\.1, 3\.1\.9"):
        releases.use(machine.layout, "3.2.0")


def test_an_installation_without_versions_is_not_overwritten(machine):
    tools = machine.root / "usr/lib/ganeti/tools"
    tools.mkdir()
    with pytest.raises(errors.OpPrereqError, match="make uninstall"):
        releases.install(machine.layout, "3.1.1")
    assert list(tools.iterdir()) == []


def test_links_of_a_release_that_was_removed_by_hand_are_replaced(machine):
    releases.use(machine.layout, "3.1.9")
    place = machine.root / "usr/lib/ganeti/versions/3.1.9"
    place.rename(machine.root / "gone")
    assert "in use" in releases.install(machine.layout, "3.1.10")
    assert machine.read("usr/sbin/gnt-cluster") == "3.1.10 gnt-cluster"


def test_removal_of_the_release_in_use_removes_the_links(machine):
    releases.use(machine.layout, "3.1.1")
    pathlib.Path(machine.root / "usr/sbin/mine").write_text("")
    assert not releases.uninstall(machine.layout, "3.1.9")
    assert machine.read("usr/sbin/gnt-cluster") == "3.1.1 gnt-cluster"
    assert releases.uninstall(machine.layout, "3.1.1")
    assert machine.names("usr/sbin") == ["mine"]
    assert machine.names("usr/lib/ganeti") == ["versions"]


@pytest.mark.parametrize("text", ["", "3.1", "3.1.1.1", "3.1.x", "../3.1.1", "3.1.-1"])
def test_malformed_versions_are_refused(text):
    with pytest.raises(errors.OpPrereqError, match="wanted X"):
        releases.key(text)
