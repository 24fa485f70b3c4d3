"""Helper machines under the fake hypervisor: which guests are ended as such."""

import os
import stat

import msgspec
import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.node.calls import helper_machines, instances
from ganeti.protocols.rpc.answers import HelperResult


@pytest.fixture
def node(tmp_path):
    return nodes.make_node(tmp_path, time=nodes.CountedClock())


@pytest.fixture
def record(node):
    """Return a stopped instance whose helper machine has its boot disk."""
    record = nodes.instance(disks=1)
    nodes.make_disks(node, record)
    os.makedirs(f"{node.paths.data_dir}/helper-disks")
    with open(f"{node.paths.data_dir}/helper-disks/web1.raw", "wb") as disk:
        disk.truncate(1 << 20)
    return record


def names(node):
    return nodes.call(node, "instance_list", ["fake"], {})


def powered_off(node):
    """Let a guest end as one does that powers itself off."""
    node.hypervisor("fake").stop("web1", hvparams={}, force=True)


def test_a_helper_machine_is_ended_with_its_boot_disk(node, record):
    nodes.call(node, "helper_start", record, False, [])
    assert names(node) == ["web1"]
    nodes.call(node, "helper_end", record)
    assert names(node) == []
    assert os.listdir(f"{node.paths.data_dir}/helper-disks") == []
    assert os.listdir(f"{node.paths.run_dir}/instance-disks") == []


def test_an_instance_is_not_ended_as_the_helper_machine_before_it(node, record):
    """Nobody could end that one: its master had died, or its node was out of reach."""
    nodes.call(node, "helper_start", record, False, [])
    powered_off(node)
    nodes.call(node, "instance_start", record, False, [])
    nodes.call(node, "helper_end", record)
    assert names(node) == ["web1"]


def test_an_instance_that_a_reboot_puts_in_its_place_is_not_ended(node, record):
    nodes.call(node, "helper_start", record, False, [])
    nodes.call(node, "instance_reboot", record, "hard", 0, [])
    nodes.call(node, "helper_end", record)
    assert names(node) == ["web1"]


def test_an_instance_that_moves_here_is_no_helper_machine(node, record):
    nodes.call(node, "helper_start", record, False, [])
    powered_off(node)
    nodes.call(node, "accept_instance", record, "", "192.0.2.1")
    assert os.listdir(f"{node.paths.run_dir}/helper-machines") == []


def test_a_helper_machine_that_was_ended_does_not_start_later(
    node, record, monkeypatch
):
    """The master has stopped waiting for disks that hang, and starts the instance."""
    attach = instances.attach_disks

    def late(*args):
        attached = attach(*args)
        nodes.call(node, "helper_end", record)
        return attached

    monkeypatch.setattr(instances, "attach_disks", late)
    with pytest.raises(errors.HypervisorError, match="ended before its start"):
        nodes.call(node, "helper_start", record, False, [])
    assert names(node) == []


def test_a_machine_that_is_ended_while_its_start_hangs_does_not_run(
    node, record, monkeypatch
):
    driver = node.hypervisor("fake")
    start = driver.start

    def late(*args, **options):
        nodes.call(node, "helper_end", record)
        start(*args, **options)

    monkeypatch.setattr(driver, "start", late)
    with pytest.raises(errors.HypervisorError, match="ended before its start"):
        nodes.call(node, "helper_start", record, False, [])
    assert names(node) == []
    assert os.listdir(f"{node.paths.run_dir}/instance-disks") == []


# Installations
def archive_of(node):
    """Make the archive of an OS; return its path."""
    path = f"{node.paths.run_dir}/os-export/web1.tar"
    os.makedirs(os.path.dirname(path))
    with open(path, "wb") as out:
        out.write(bytes(10240))
    return path


def result_of(node):
    return f"{node.paths.data_dir}/helper-disks/web1.result"


def test_a_machine_that_installs_has_archive_and_result_before_the_disks(
    node, record, monkeypatch
):
    archive = archive_of(node)
    with open(result_of(node), "w") as out:
        out.write("ganeti-install-1 exit 0\nof an earlier machine\n")
    seen = []
    driver = node.hypervisor("fake")
    start = driver.start

    def watched(instance, disks, *, paused):
        seen.extend(disks)
        start(instance, disks, paused=paused)

    monkeypatch.setattr(driver, "start", watched)
    nodes.call(node, "helper_start", record, True, [])
    boot = f"{node.paths.data_dir}/helper-disks/web1.raw"
    assert [path for _disk, path, _uri in seen[:3]] == [boot, archive, result_of(node)]
    assert [disk.uuid for disk, _path, _uri in seen[3:]] == record["disks"]
    assert len({disk.uuid for disk, _path, _uri in seen}) == 4
    state = os.stat(result_of(node))
    assert (stat.S_IMODE(state.st_mode), state.st_size) == (0o600, 1 << 20)
    assert nodes.call(node, "helper_result", "web1") == ["none", None, []]
    with open(result_of(node), "r+b") as out:
        out.write(b"ganeti-install-1 exit 3\nno room\n")
    assert nodes.call(node, "helper_result", "web1") == ["ended", 3, ["no room"]]
    nodes.call(node, "helper_end", record)
    assert names(node) == []
    assert os.listdir(f"{node.paths.data_dir}/helper-disks") == []
    assert os.listdir(f"{node.paths.run_dir}/os-export") == []


@pytest.mark.parametrize(
    ("hypervisor", "mode"), [("kvm", "ro"), ("xen-hvm", "rw"), ("fake", "rw")]
)
def test_the_archive_is_read_only_where_that_is_possible(
    node, record, hypervisor, mode
):
    from ganeti.model.objects.filled import InstanceX
    from ganeti.node.calls import helper_machines

    archive_of(node)
    instance = msgspec.convert(record | {"hypervisor": hypervisor}, InstanceX)
    own = helper_machines._own_disks(node, instance, installs=True)
    assert [disk.mode for disk, _path, _uri in own] == ["rw", mode, "rw"]


def test_a_machine_does_not_start_without_its_archive(node, record):
    text = "wanted a disk of its helper machine at .*web1.tar, found No such file"
    with pytest.raises(errors.OpExecError, match=text):
        nodes.call(node, "helper_start", record, True, [])
    assert names(node) == []


def test_an_instance_keeps_the_result_disk_of_others(node):
    with pytest.raises(errors.GenericError):
        nodes.call(node, "helper_result", "../web1")


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", ["none", None, []]),
        (bytes(4096), ["none", None, []]),
        (b"\0ganeti-install-1 exit 0\n", ["none", None, []]),
        (b"ganeti-install-1 started", ["started", None, []]),
        (b"ganeti-install-1 started\n\0junk", ["started", None, []]),
        (b"ganeti-install-1 exit 0", ["ended", 0, []]),
        (b"ganeti-install-1 exit 255\na\n\nb\n\0c", ["ended", 255, ["a", "b"]]),
        (b"ganeti-install-1 exit 0\n\x1b[31m\xff", ["ended", 0, ["?[31m\ufffd"]]),
        (b"ganeti-install-1 started\nexit 0", "wrong"),
        (b"ganeti-install-1 exit 256", "wrong"),
        (b"ganeti-install-1 exit 00", "wrong"),
        (b"ganeti-install-1 exit -1", "wrong"),
        (b"ganeti-install-1 exit 0 ", "wrong"),
        (b"ganeti-install-1 exit \xd9\xa1", "wrong"),
        (b"ganeti-install-2 exit 0", "wrong"),
        (b"\n\n\n", "wrong"),
        (b"x" * (1 << 20), "wrong"),
        (b"ganeti-install-1 exit 0\n" + b"y" * (1 << 20), "ended"),
        (b"ganeti-install-1 exit 1\n" + b"z\n" * (1 << 19), "ended"),
    ],
)
def test_a_result_is_bounded_data(data, wanted):
    actual = helper_machines.parsed_results(data)
    assert actual == wanted or actual[0] == wanted
    # The master reads each of them.
    assert list(msgspec.convert(actual, HelperResult)) == actual
    assert len(str(actual)) < 20000
    assert "\x1b" not in "".join(actual[2])
