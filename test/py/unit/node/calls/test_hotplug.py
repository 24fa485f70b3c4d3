"""Changes of running guests reach the driver with the record of the right type."""

import dataclasses

import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.model.objects.filled import DiskX, NicX


class Driver:
    """Records the calls of the driver's methods for devices, and offers no other."""

    def __init__(self):
        self.calls = []

    def hotplug_check(self, instance):
        self.calls.append(("check", instance.name))
        raise errors.HotplugError("no")

    def hot_add(self, instance, record, extra, seq):
        self.calls.append(("add", instance.name, record, extra, seq))

    def hot_remove(self, instance, record):
        self.calls.append(("remove", instance.name, record))

    def hot_modify(self, instance, record, seq):
        self.calls.append(("modify", instance.name, record, seq))


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def node(tmp_path, driver):
    return dataclasses.replace(nodes.make_node(tmp_path), hypervisors={"kvm": driver})


NIC = {"uuid": nodes.UUID.format(50), "mac": "aa:00:00:00:00:01", "nicparams": {}}
WEB1 = nodes.instance(hypervisor="kvm")


def change(node, action, kind, device, *, extra=None, seq=2):
    nodes.call(node, "hotplug_device", WEB1, action, kind, device, extra, seq)


def test_disks_and_nics_are_added_and_removed_by_their_own_record(node, driver):
    change(node, "hotadd", "disk", nodes.disk(1), extra=["/link", None])
    change(node, "hotremove", "disk", nodes.disk(1))
    change(node, "hotadd", "nic", NIC)
    change(node, "hotremove", "nic", NIC)
    added, removed, nic_added, nic_removed = driver.calls
    assert (added[:2], added[3:]) == (("add", "web1"), (["/link", None], 2))
    assert removed[0] == "remove"
    assert isinstance(added[2], DiskX)
    assert removed[2] == added[2]
    assert (nic_added[0], nic_added[4], nic_removed[0]) == ("add", 2, "remove")
    assert isinstance(nic_removed[2], NicX)
    assert nic_added[2].mac == NIC["mac"]


def test_a_nic_of_a_running_guest_is_modified_and_a_disk_is_not(node, driver):
    change(node, "hotmod", "nic", NIC, seq=1)
    [(name, _instance, record, seq)] = driver.calls
    assert (name, record.uuid, seq) == ("modify", NIC["uuid"], 1)
    with pytest.raises(errors.HotplugError, match=r"web1: disk .* cannot be modified"):
        change(node, "hotmod", "disk", nodes.disk(1))
    assert len(driver.calls) == 1


def test_a_record_of_the_wrong_type_is_refused(node, driver):
    for kind in ("disk", "nic"):
        with pytest.raises(errors.HotplugError, match=f"record of the {kind}"):
            change(node, "hotadd", kind, {"uuid": 5})
    assert driver.calls == []


def test_a_guest_that_cannot_be_changed_is_refused(node, driver):
    with pytest.raises(errors.HotplugError):
        nodes.call(node, "hotplug_supported", WEB1)
    assert driver.calls == [("check", "web1")]
