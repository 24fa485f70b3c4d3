"""Helper machines under the fake hypervisor: which guests are ended as such."""

import os

import pytest

from fakes import nodes
from ganeti import errors
from ganeti.backend import instances


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
    nodes.call(node, "helper_start", record, [])
    assert names(node) == ["web1"]
    nodes.call(node, "helper_end", record)
    assert names(node) == []
    assert os.listdir(f"{node.paths.data_dir}/helper-disks") == []
    assert os.listdir(f"{node.paths.run_dir}/instance-disks") == []


def test_an_instance_is_not_ended_as_the_helper_machine_before_it(node, record):
    """Nobody could end that one: its master had died, or its node was out of reach."""
    nodes.call(node, "helper_start", record, [])
    powered_off(node)
    nodes.call(node, "instance_start", record, False, [])
    nodes.call(node, "helper_end", record)
    assert names(node) == ["web1"]


def test_an_instance_that_a_reboot_puts_in_its_place_is_not_ended(node, record):
    nodes.call(node, "helper_start", record, [])
    nodes.call(node, "instance_reboot", record, "hard", 0, [])
    nodes.call(node, "helper_end", record)
    assert names(node) == ["web1"]


def test_an_instance_that_moves_here_is_no_helper_machine(node, record):
    nodes.call(node, "helper_start", record, [])
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
        nodes.call(node, "helper_start", record, [])
    assert names(node) == []
