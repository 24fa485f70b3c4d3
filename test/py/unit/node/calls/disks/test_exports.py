"""Exports of a node: received files, description, list, removal; wrong paths."""

import os
import pathlib

import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.node.calls.disks import exports

TOP = "/srv/ganeti/export"


@pytest.fixture
def node(tmp_path):
    return nodes.make_node(tmp_path)


def receive(node, name="web1", data=b"content", index=0):
    path = exports.new_dump(node, name, f"{TOP}/{name}.new/disk{index}.dump")
    pathlib.Path(path).write_bytes(data)
    return pathlib.Path(path)


def record(name="web1"):
    return nodes.instance(disks=1, name=name, primary_node="node7.example.com")


def finalize(node, name="web1"):
    made = record(name)
    nodes.call(node, "finalize_export", made, made["disks_info"])


def listed(node):
    return nodes.call(node, "export_list")


def where(node, name="web1"):
    return pathlib.Path(exports.top(node)) / name


def test_an_export_is_listed_only_when_it_is_described(node):
    assert listed(node) == []
    dump = receive(node)
    assert os.stat(dump).st_mode & 0o777 == 0o600
    assert listed(node) == []
    finalize(node)
    assert listed(node) == ["web1"]
    assert where(node).joinpath("disk0.dump").read_bytes() == b"content"
    text = nodes.call(node, "export_info", f"{TOP}/web1")
    assert "source = node7.example.com" in text
    assert "disk0_dump_bytes = 7" in text


def test_a_newer_export_replaces_the_older_one_and_its_remains(node):
    receive(node, data=b"old")
    finalize(node)
    receive(node, data=b"newer")
    receive(node, data=b"left of a larger instance", index=1)
    finalize(node)
    finalize(node)
    assert listed(node) == ["web1"]
    assert sorted(os.listdir(where(node))) == ["config.ini", "disk0.dump"]
    assert where(node).joinpath("disk0.dump").read_bytes() == b"newer"
    assert os.listdir(exports.top(node)) == ["web1"]


def test_a_described_export_that_is_not_in_its_place_is_no_export(node):
    receive(node)
    finalize(node)
    os.rename(where(node), where(node, "web1.new"))
    assert listed(node) == []
    finalize(node)
    assert listed(node) == ["web1"]


def test_the_export_of_an_instance_named_new_is_never_overwritten(node):
    receive(node, "web1.new")
    finalize(node, "web1.new")
    assert listed(node) == ["web1.new"]
    with pytest.raises(errors.OpExecError, match=r"web1\.new in the export directory"):
        receive(node, "web1")
    assert where(node, "web1.new").joinpath("disk0.dump").read_bytes() == b"content"


def test_an_export_without_a_disk_is_not_completed(node):
    receive(node, index=1)
    with pytest.raises(errors.OpExecError, match="disk/0 was not received"):
        finalize(node)
    with pytest.raises(errors.OpExecError, match="wanted disk/0, found False"):
        nodes.call(node, "finalize_export", record(), [False])
    with pytest.raises(errors.OpExecError, match=r"disk/0: .*field `dev_type`"):
        nodes.call(node, "finalize_export", record(), [{}])
    assert listed(node) == []


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        f"{TOP}/web1.new/../../../../etc/shadow",
        f"{TOP}/web1/disk0.dump",
        f"{TOP}/web2.new/disk0.dump",
        f"{TOP}/web1.new/config.ini",
        "web1.new/disk0.dump",
    ],
)
def test_nothing_is_received_into_another_place(node, path):
    with pytest.raises(errors.GenericError, match="wanted a"):
        exports.new_dump(node, "web1", path)


def test_a_link_in_place_of_a_file_is_neither_written_nor_read(node, tmp_path):
    other = tmp_path / "other"
    other.write_text("precious")
    dump = receive(node)
    dump.unlink()
    dump.symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        receive(node)
    assert other.read_text() == "precious"
    finalize(node)
    with pytest.raises(errors.OpExecError, match="wanted a regular file"):
        exports.dump_file(node, f"{TOP}/web1/disk0.dump")


def test_a_truncated_file_is_named_with_both_lengths(node):
    receive(node)
    finalize(node)
    os.truncate(where(node) / "disk0.dump", 3)
    with pytest.raises(
        errors.OpExecError, match=r"disk0\.dump: wanted 7 bytes, found 3"
    ):
        nodes.call(node, "export_info", f"{TOP}/web1")
    os.unlink(where(node) / "disk0.dump")
    with pytest.raises(errors.OpExecError, match=r"file disk0\.dump: No such file"):
        nodes.call(node, "export_info", f"{TOP}/web1")


def test_only_exports_are_described(node):
    for path, text in ((f"{TOP}/none", "not found on this node"), ("/etc", "below")):
        with pytest.raises(errors.OpExecError, match=text):
            nodes.call(node, "export_info", path)
    receive(node)
    finalize(node)
    (where(node) / "config.ini").write_text("[export]\n")
    with pytest.raises(errors.OpExecError, match=r"config\.ini: section \[instance\]"):
        nodes.call(node, "export_info", f"{TOP}/web1")


def test_a_linked_export_is_used_and_removing_it_removes_the_link_alone(node, tmp_path):
    receive(node)
    finalize(node)
    elsewhere = tmp_path / "elsewhere"
    os.rename(where(node), elsewhere)
    where(node).symlink_to(elsewhere)
    assert listed(node) == ["web1"]
    nodes.call(node, "export_remove", "web1")
    assert listed(node) == []
    assert sorted(os.listdir(elsewhere)) == ["config.ini", "disk0.dump"]


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".web1.old"])
def test_only_names_of_exports_are_removed(node, name):
    receive(node)
    with pytest.raises(errors.OpExecError, match="is not a name of an export"):
        nodes.call(node, "export_remove", name)
    nodes.call(node, "export_remove", "web1.new")
    nodes.call(node, "export_remove", "web1.new")
    assert os.listdir(exports.top(node)) == []


def interrupt(monkeypatch, *, before):
    """Have the daemon end before a number of renames of directories were made."""
    real, made = os.rename, []

    def rename(source, target):
        if os.path.isdir(source):
            made.append(source)
            if len(made) == before:
                raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(exports.os, "rename", rename)


@pytest.fixture
def replacing(node, monkeypatch):
    """Return a node that ended while it replaced an export."""
    receive(node, data=b"older")
    finalize(node)
    receive(node, data=b"newer")
    with monkeypatch.context() as patched:
        interrupt(patched, before=2)
        with pytest.raises(KeyboardInterrupt):
            finalize(node)
    return node


def test_the_older_export_is_back_when_its_replacement_is_given_up(replacing):
    nodes.call(replacing, "export_remove", "web1.new")
    assert listed(replacing) == ["web1"]
    assert where(replacing).joinpath("disk0.dump").read_bytes() == b"older"
    assert os.listdir(exports.top(replacing)) == ["web1"]


def test_a_replacement_that_was_interrupted_is_made_by_the_repeated_call(replacing):
    finalize(replacing)
    assert where(replacing).joinpath("disk0.dump").read_bytes() == b"newer"
    assert os.listdir(exports.top(replacing)) == ["web1"]


def test_the_next_export_begins_with_the_older_one_in_its_place(replacing):
    receive(replacing)
    assert listed(replacing) == ["web1"]


def test_no_part_of_a_removed_export_comes_back(replacing):
    nodes.call(replacing, "export_remove", "web1")
    nodes.call(replacing, "export_remove", "web1.new")
    assert os.listdir(exports.top(replacing)) == []


def test_a_repeated_completion_removes_what_was_replaced(node, monkeypatch):
    receive(node, data=b"older")
    finalize(node)
    receive(node, data=b"newer")
    with monkeypatch.context() as patched:
        # After both renames, the older one is removed.
        patched.setattr(exports.shutil, "rmtree", lambda _path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            finalize(node)
    finalize(node)
    assert where(node).joinpath("disk0.dump").read_bytes() == b"newer"
    assert os.listdir(exports.top(node)) == ["web1"]


@pytest.mark.parametrize("value", ["x" * 300_000, "\x1b[2J", "\u00e4" * 200_000])
def test_an_export_that_could_not_be_imported_does_not_replace_the_older_one(
    node, value
):
    receive(node, data=b"older")
    finalize(node)
    receive(node, data=b"newer")
    made = record() | {"osparams": {"data": value}}
    with pytest.raises(errors.OpExecError, match="could not be read again") as err:
        nodes.call(node, "finalize_export", made, made["disks_info"])
    assert value not in str(err.value)
    assert where(node).joinpath("disk0.dump").read_bytes() == b"older"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_description_that_is_no_regular_file_is_not_opened(node, tmp_path, kind):
    """An unpacked archive can contain such files; a pipe would block the node."""
    receive(node)
    finalize(node)
    path = where(node) / "config.ini"
    if kind == "link":
        path.rename(tmp_path / "config.ini")
        path.symlink_to(tmp_path / "config.ini")
    else:
        path.unlink()
        os.mkfifo(path)
    assert listed(node) == []
    with pytest.raises(errors.OpExecError, match=r"config\.ini: wanted a regular file"):
        nodes.call(node, "export_info", f"{TOP}/web1")


# Remains and room, as verify sees them
def test_remains_are_what_is_left_over_and_what_is_no_export(node):
    assert exports.remains(node) == {}
    receive(node)
    finalize(node)
    written = receive(node, name="busy")
    left = receive(node, name="left")
    for name in ("notes", "lost+found"):
        where(node, name).mkdir()
    now = node.clock.time()
    long_ago = now - 3601
    for path in (left, left.parent, written.parent):
        os.utime(path, (long_ago, long_ago))
    os.utime(written, (now, now))
    assert exports.remains(node) == {"left.new": "unfinished", "notes": "foreign"}


def test_an_export_that_ends_during_the_search_for_remains_is_none(node, monkeypatch):
    receive(node, name="left")
    listdir = os.listdir

    def listed_before_the_end(path):
        names = listdir(path)
        monkeypatch.setattr(os, "listdir", listdir)
        finalize(node, name="left")
        return names

    monkeypatch.setattr(os, "listdir", listed_before_the_end)
    assert exports.remains(node) == {}


def test_space_for_exports_is_reported_before_the_first_one(node):
    (report,) = nodes.call(node, "node_info", [["file", TOP, []]], [])[1]
    assert report["storage_free"] > 0
    (other,) = nodes.call(node, "node_info", [["file", "/etc", []]], [])[1]
    assert other is None


def test_an_export_without_disks_replaces_an_older_one(node):
    receive(node)
    finalize(node)
    made = nodes.instance(disks=0, name="web1", primary_node="node7.example.com")
    for _ in range(2):
        nodes.call(node, "finalize_export", made, [])
        assert os.listdir(where(node)) == ["config.ini"]
    assert listed(node) == ["web1"]
