"""Operations that a driver refuses because it does not support them."""

from types import SimpleNamespace

import pytest

from ganeti.base import errors
from ganeti.model.objects.filled import NicX
from ganeti.node.hypervisor.base import Hypervisor, InstanceInfo

WEB1 = SimpleNamespace(name="web1", hvparams={"a": 1})
NIC = NicX(mac="aa:00:00:00:00:01", uuid="u", nicparams={})


class Simple(Hypervisor):
    """A driver with the operations that each one has."""

    name = "simple"

    def __init__(self, *guests):
        super().__init__(None)
        self.guests = dict.fromkeys(guests, 0)

    def start(self, instance, disks, *, paused):
        raise NotImplementedError

    def stop(self, name, *, hvparams, force, retry=False):
        raise NotImplementedError

    def cleanup(self, name):
        raise NotImplementedError

    def reboot(self, instance):
        raise NotImplementedError

    def list_names(self):
        return sorted([*self.guests, "gone"])

    def info(self, name):
        known = InstanceInfo(name, "1", 2, 3, 0, 4.0)
        return known if name in self.guests else None


@pytest.mark.parametrize(
    ("act", "operation"),
    [
        (lambda d: d.migration_info(WEB1), "migration"),
        (lambda d: d.accept(WEB1, "", "192.0.2.2", []), "migration"),
        (
            lambda d: d.migrate(WEB1, "192.0.2.2", live=True),
            "migration",
        ),
        (lambda d: d.migration_status(WEB1), "migration"),
        (lambda d: d.finalize_source(WEB1, success=True), "migration"),
        (lambda d: d.finalize_destination(WEB1, "", success=True), "migration"),
        (lambda d: d.balloon(WEB1, 128), "memory ballooning"),
        (lambda d: d.resize_disk(WEB1, None, 1), "online disk resize"),
        (lambda d: d.freeze("web1", 60), "guest agents"),
        (lambda d: d.thaw("web1"), "guest agents"),
        (lambda d: d.guest_addresses("web1"), "guest agents"),
    ],
)
def test_an_operation_that_is_not_supported_is_named(act, operation):
    with pytest.raises(errors.HypervisorError) as caught:
        act(Simple("web1"))
    expected = f"instance web1: hypervisor simple does not support {operation}"
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    "act",
    [
        lambda d: d.hotplug_check(WEB1),
        lambda d: d.hot_add(WEB1, NIC, None, 0),
        lambda d: d.hot_remove(WEB1, NIC),
        lambda d: d.hot_modify(WEB1, NIC, 0),
    ],
)
def test_devices_of_running_guests_cannot_be_changed(act):
    with pytest.raises(errors.HotplugError) as caught:
        act(Simple("web1"))
    expected = "instance web1: hypervisor simple does not support hotplug"
    assert str(caught.value) == expected


def test_guests_that_end_during_a_query_are_left_out():
    driver = Simple("b", "a")
    assert [info.name for info in driver.all_infos()] == ["a", "b"]


def test_only_a_guest_that_runs_migrates():
    driver = Simple("web1")
    driver.migratable(WEB1)
    with pytest.raises(errors.HypervisorError, match=r"^instance web1: not running$"):
        Simple().migratable(WEB1)


def test_a_driver_works_and_has_no_files_unless_it_says_so():
    driver = Simple()
    assert driver.verify({"x": 1}) is None
    assert driver.ancillary_files() == ([], [])


def test_the_node_has_memory_and_processors():
    actual = Simple().node_info({"x": 1})
    assert 0 < actual["memory_free"] <= actual["memory_total"]
    assert actual["cpu_total"] >= 1
