"""Disks of external storage, with real scripts and with scripts that misbehave."""

import json
import os
import pathlib
import shutil

import msgspec
import pytest

from fakes import nodes
from ganeti.base import errors, process
from ganeti.node.storage import external, providers

EXAMPLE = pathlib.Path(__file__).parents[5] / "doc/examples/extstorage/files"
MIB = 1024 * 1024
#: Prints its environment into a file, then whatever the test wants.
RECORDER = """#!/bin/sh
[ "$VOL_NAME" = "" ] || env | grep -E '^(VOL|EXTP)_' | sort > {log}/{action}
{body}
"""


@pytest.fixture
def node(tmp_path):
    return nodes.make_node(tmp_path)


def place(node, name):
    return f"{node.paths.at('/srv/ganeti/extstorage')}/{name}"


@pytest.fixture
def shelf(node, tmp_path):
    """A provider whose scripts record their environment; returns how to change one."""
    directory, log = place(node, "shelf"), tmp_path / "calls"
    os.makedirs(directory)
    log.mkdir()
    pathlib.Path(directory, "parameters.list").write_text("tier speed\nmax-io limit\n")
    device = tmp_path / "device"
    device.write_bytes(bytes(4 * MIB))

    def script(action, body=""):
        path = pathlib.Path(directory, action)
        path.write_text(RECORDER.format(log=log, action=action, body=body))
        path.chmod(0o755)

    for action in ("create", "remove", "detach", "grow", "setinfo", "verify"):
        script(action)
    script("attach", f"echo {device}")
    script.log, script.device, script.directory = log, str(device), directory
    return script


def disk(**more):
    given = {"dev_type": "ext", "logical_id": ["shelf", "v1.ext.disk0"], **more}
    return nodes.disk(params={"access": "kernelspace", "tier": "gold"}, **given)


def create(node, record):
    nodes.call(node, "blockdev_create", record, 4, "web1", True, "owner", False)


def assemble(node, record, instance=None):
    owner = instance or nodes.instance()
    return nodes.call(node, "blockdev_assemble", record, owner, True, 0)


def environment(script, action):
    lines = (script.log / action).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_scripts_get_the_documented_variables(node, shelf):
    shelf("snapshot")
    shelf("open")
    shelf("close")
    record = disk(name="root")
    create(node, record)
    assemble(node, record)
    nodes.call(node, "blockdev_open", "web1", [record], False)
    nodes.call(node, "blockdev_grow", record, 6, False, True, False)
    copied = nodes.call(node, "blockdev_snapshot", record, "v1.snap", 3)
    assert copied == ["shelf", "v1.snap"]
    nodes.call(node, "blockdev_remove", record)
    common = {
        "VOL_NAME": "v1.ext.disk0",
        "VOL_UUID": record["uuid"],
        "VOL_CNAME": "root",
        "EXTP_TIER": "gold",
    }
    for action, more in {
        "verify": {},
        "create": {"VOL_SIZE": "4"},
        "setinfo": {"VOL_METADATA": "owner"},
        "attach": {},
        "open": {"VOL_OPEN_EXCLUSIVE": "False"},
        "grow": {"VOL_SIZE": "4", "VOL_NEW_SIZE": "10"},
        "snapshot": {"VOL_SNAPSHOT_NAME": "v1.snap", "VOL_SNAPSHOT_SIZE": "3"},
        "close": {},
        "detach": {},
        "remove": {},
    }.items():
        assert environment(shelf, action) == common | more, action


@pytest.mark.parametrize("code", [0, 1], ids=["half open", "not open"])
def test_a_volume_is_closed_although_its_opening_was_cut(node, shelf, code):
    """So it is after a kill of the node daemon, which leaves the same note."""
    shelf("open", "kill -9 $$")
    shelf("close", f"exit {code}")
    record = disk()
    create(node, record)
    assemble(node, record)
    with pytest.raises(errors.BlockDeviceError, match="script open"):
        nodes.call(node, "blockdev_open", "web1", [record], True)
    # Another activation does not make it certain.
    assemble(node, record)
    nodes.call(node, "blockdev_shutdown", record)
    assert (shelf.log / "close").exists()
    assert nodes.call(node, "blockdev_find", record).dev_path == ""


def test_a_volume_that_is_open_is_not_detached_while_it_cannot_be_closed(node, shelf):
    shelf("open")
    shelf("close", "exit 1")
    record = disk()
    create(node, record)
    assemble(node, record)
    for _again in range(2):
        nodes.call(node, "blockdev_open", "web1", [record], True)
    with pytest.raises(errors.BlockDeviceError, match="script close"):
        nodes.call(node, "blockdev_shutdown", record)
    assert not (shelf.log / "detach").exists()


def test_state_is_known_without_a_script(node, shelf):
    record = disk()
    create(node, record)
    find = nodes.call(node, "blockdev_find", record)
    assert (find.dev_path, find.ldisk_status) == ("", external.LocalStatus.UNKNOWN)
    path, link, uri = assemble(node, record)
    assert (path, os.readlink(link), uri) == (shelf.device, shelf.device, None)
    (shelf.log / "attach").unlink()
    find = nodes.call(node, "blockdev_find", record)
    assert (find.dev_path, find.ldisk_status) == (path, external.LocalStatus.OK)
    assert not (shelf.log / "attach").exists()
    os.unlink(path)
    find = nodes.call(node, "blockdev_find", record)
    assert find.ldisk_status == external.LocalStatus.FAULTY


def test_detach_that_fails_counts_only_if_the_volume_is_attached(node, shelf):
    record = disk()
    shelf("detach", "echo busy; exit 1")
    nodes.call(node, "blockdev_shutdown", record)
    assemble(node, record)
    with pytest.raises(errors.BlockDeviceError, match="exited with code 1: busy"):
        nodes.call(node, "blockdev_shutdown", record)
    assert nodes.call(node, "blockdev_find", record).dev_path == shelf.device


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("", "wanted a device path or a URI, found ''"),
        ("dev/sda", "wanted an absolute device path, found 'dev/sda'"),
        ("/dev/../etc/passwd", "wanted an absolute device path"),
        ("/dev/null", "wanted the path of a block device or of a file"),
        ("/no/such/device", "wanted the path of a block device or of a file"),
        ("/", "wanted the path of a block device or of a file"),
        ("\\n-drive file=/etc/shadow", "wanted hypervisor:URI after the first line"),
        ("\\nkvm:nbd://h/a b", "wanted hypervisor:URI after the first line"),
        ("\\nkvm:" + "x" * 5000, "wanted hypervisor:URI after the first line"),
    ],
    ids=[
        *("nothing", "relative", "dots", "character device", "missing", "directory"),
        *("no URI", "blank", "long"),
    ],
)
def test_what_attach_prints_is_checked(node, shelf, output, text):
    shelf("attach", f"printf '%b' '{output}'")
    with pytest.raises(errors.BlockDeviceError, match=text) as caught:
        assemble(node, disk())
    assert len(str(caught.value)) < 600
    assert nodes.call(node, "blockdev_find", disk()).dev_path == ""


def test_uri_needs_access_userspace_and_the_right_hypervisor(node, shelf):
    shelf("attach", "echo; echo kvm:nbd://127.0.0.1/v1")
    record, owner = disk(), nodes.instance(hypervisor="kvm")
    with pytest.raises(errors.BlockDeviceError, match="access=kernelspace needs"):
        assemble(node, record, owner)
    record["params"]["access"] = "userspace"
    assert assemble(node, record, owner) == ["", "", "nbd://127.0.0.1/v1"]
    with pytest.raises(errors.BlockDeviceError, match="no URI for fake"):
        assemble(node, record)


def test_a_script_that_fails_shows_the_end_of_its_output_and_a_log(node, shelf):
    shelf("create", "seq 1 2000; echo no space left >&2; exit 3")
    with pytest.raises(errors.BlockDeviceError, match="exited with code 3: ") as caught:
        create(node, disk())
    text, _, log = str(caught.value).partition("; see ")
    assert text.endswith("2000 / no space left")
    assert len(text) < 2500
    assert log.startswith(f"{node.paths.log_dir}/extstorage/create-shelf-v1.ext.disk0-")
    assert pathlib.Path(log).read_text().startswith("1\n2\n")
    assert not (shelf.log / "setinfo").exists()


def test_a_volume_that_cannot_be_described_is_removed(node, shelf):
    shelf("setinfo", "exit 1")
    with pytest.raises(errors.BlockDeviceError, match="script setinfo"):
        create(node, disk())
    assert (shelf.log / "remove").exists()


class Hanging:
    """A runner whose children are killed at their limits."""

    def __init__(self, **how):
        self.how, self.limits = how, []

    def run_bounded(self, argv, *, timeout_s, max_output, env):
        self.limits.append((timeout_s, max_output))
        return process.RunResult(tuple(argv), None, 9, "half", "", **self.how)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"timed_out": True}, "did not end in time and was killed: half"),
        ({"too_long": True}, r"printed too much \(.*\) and was killed: half"),
    ],
    ids=["hangs", "floods"],
)
def test_a_script_that_does_not_end_is_killed(node, shelf, how, text):
    assert os.path.exists(shelf.device)
    record = msgspec.convert(disk(), external.DiskX)
    runner = Hanging(**how)
    device = external.ExternalDisk(node.paths, record, runner)
    for act in (device.assemble, lambda: device.create(4), device.remove):
        with pytest.raises(errors.BlockDeviceError, match=text):
            act()
    # All scripts of one call end before the master gives up, after 900 s.
    assert all(0 < seconds <= 500 for seconds, _size in runner.limits)
    assert {size for _seconds, size in runner.limits} == {1 << 20}


def test_unknown_parameters_are_refused_before_any_script(node, shelf):
    record = disk()
    record["params"] = {"tier": "gold", "colour": "red"}
    with pytest.raises(errors.BlockDeviceError, match="no parameter colour, only tier"):
        create(node, record)
    assert list(shelf.log.iterdir()) == []


@pytest.mark.parametrize(
    "logical_id",
    [["shelf"], ["../shelf", "v"], ["shelf", "a/b"], ["shelf", "-v"], ["shelf", 5]],
    ids=["short", "provider", "slash", "dash", "number"],
)
def test_malformed_places_are_refused(node, logical_id):
    with pytest.raises(errors.BlockDeviceError, match="wanted a provider and a volume"):
        nodes.call(node, "blockdev_find", disk(logical_id=logical_id))


def test_what_a_script_has_done_counts_although_its_output_cannot_be_kept(node, shelf):
    """As on a full disk."""
    pathlib.Path(node.paths.log_dir, "extstorage").touch()
    record = disk()
    create(node, record)
    assemble(node, record)
    nodes.call(node, "blockdev_shutdown", record)
    assert nodes.call(node, "blockdev_find", record).dev_path == ""
    shelf("remove", "echo busy; exit 1")
    with pytest.raises(errors.BlockDeviceError, match=r"exited with code 1: busy$"):
        nodes.call(node, "blockdev_remove", record)


# Providers
def test_diagnosis_lists_providers_with_their_parameters(node, shelf):
    parameters = [["tier", "speed"], ["max-io", "limit"]]
    row = ["shelf", shelf.directory, True, "", parameters]
    os.makedirs(place(node, ".hidden"))
    os.makedirs(place(node, "bad name"))
    assert nodes.call(node, "extstorage_diagnose") == [row]


def over_a_link(top, mode, owner=0):
    """Have a script reached by a link in a directory of this mode."""
    shared = top.parent.parent / "shared"
    shared.mkdir()
    shared.chmod(mode)
    (top / "grow").rename(top / "real")
    (shared / "link").symlink_to(top / "real")
    os.lchown(shared / "link", owner, -1)
    (top / "grow").symlink_to(shared / "link")


def test_links_in_directories_of_root_are_followed(node, shelf):
    over_a_link(pathlib.Path(shelf.directory), 0o755)
    assert providers.diagnose(node.paths)[0][2:4] == [True, ""]


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda top: (top / "grow").unlink(), "script grow: No such file"),
        (lambda top: (top / "grow").chmod(0o644), "script grow: not executable"),
        (lambda top: (top / "parameters.list").unlink(), "parameters.list: No such"),
        (lambda top: (top / "grow").chmod(0o775), "may write to it .mode 775."),
        (lambda top: top.chmod(0o777), "may write to it .mode 777."),
        (lambda top: os.chown(top / "grow", 12345, -1), "wanted owner root, found"),
        (lambda top: os.chown(top, 12345, -1), "wanted owner root, found user id"),
        (lambda top: over_a_link(top, 0o777), "shared: others than its owner may"),
        (lambda top: over_a_link(top, 0o1777, 12345), "link: wanted owner root"),
    ],
    ids=[
        *("missing", "mode", "list", "writable", "directory", "owner", "its owner"),
        *("link", "link of a user"),
    ],
)
def test_a_provider_that_others_could_change_is_not_used(node, shelf, spoil, text):
    spoil(pathlib.Path(shelf.directory))
    ((_name, _path, is_valid, message, parameters),) = providers.diagnose(node.paths)
    assert (is_valid, parameters) == (False, [])
    with pytest.raises(errors.BlockDeviceError, match=text) as caught:
        create(node, disk())
    assert message in str(caught.value)


def test_a_missing_provider_names_the_places_that_were_searched(node):
    with pytest.raises(errors.BlockDeviceError, match="shelf: not found in /"):
        create(node, disk())


# The example
def test_the_example_keeps_data_and_never_replaces_a_volume(node, tmp_path):
    shutil.copytree(EXAMPLE, place(node, "files"), symlinks=True)
    volumes = tmp_path / "volumes"
    record = disk(logical_id=["files", "v1.ext.disk0"])
    record["params"] = {"directory": str(volumes), "device": "file"}
    with pytest.raises(errors.BlockDeviceError, match="volumes does not exist on"):
        create(node, record)
    volumes.mkdir()
    create(node, record)
    path, _link, _uri = assemble(node, record)
    pathlib.Path(path).write_bytes(b"data")
    with pytest.raises(errors.BlockDeviceError, match="exists already"):
        create(node, record)
    assert pathlib.Path(path).read_bytes() == b"data"
    nodes.call(node, "blockdev_grow", record, 4, False, True, False)
    assert os.stat(path).st_size == 8 * MIB
    assert nodes.call(node, "blockdev_snapshot", record, None, None)[0] == "files"
    assert (volumes / "v1.ext.disk0.snap").read_bytes()[:4] == b"data"
    assert (volumes / "v1.ext.disk0.info").read_text() == "owner\n"
    nodes.call(node, "blockdev_remove", record)
    nodes.call(node, "blockdev_remove", record)
    assert [entry.name for entry in volumes.iterdir()] == ["v1.ext.disk0.snap"]


def test_damaged_state_counts_as_not_attached(node, shelf):
    record = disk()
    assemble(node, record)
    state = f"{node.paths.run_dir}/extstorage/shelf:v1.ext.disk0"
    with open(state, encoding="utf-8") as src:
        assert json.load(src)["path"] == shelf.device
    with open(state, "w", encoding="utf-8") as out:
        out.write('{"path": 5}')
    assert nodes.call(node, "blockdev_find", record).dev_path == ""
