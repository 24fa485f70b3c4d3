"""Which hypervisor parameters nodes check when those of the cluster change."""

import pytest

from fakes import clusters
from ganeti.model import opcodes
from ganeti.operations.cluster import param_settings

OLD = clusters.snapshot(nodes=1).cluster.replace(os_hvp={})


def checked(new=OLD, **changes):
    op = opcodes.decode({"OP_ID": "OP_CLUSTER_SET_PARAMS", **changes})
    return [name for name, _filled in param_settings.node_checks(op, OLD, new)]


def test_changed_parameters_are_checked_and_others_are_not():
    assert checked(hvparams={"kvm": {"acpi": False}}) == ["kvm"]
    assert checked(hvparams={"kvm": {}, "fake": {}}) == ["kvm", "fake"]
    assert checked(maintain_node_health=True) == []


def test_a_hypervisor_that_is_enabled_now_is_checked():
    new = OLD.replace(enabled_hypervisors=("kvm", "fake", "lxc"))
    assert checked(new, enabled_hypervisors=["kvm", "fake", "lxc"]) == ["lxc"]
    assert checked(enabled_hypervisors=["kvm", "fake"]) == []


@pytest.mark.parametrize(
    "changes", [{"os_hvp": {"tiny": {}}}, {"hvparams": {"kvm": {}}}]
)
def test_parameters_of_an_os_are_checked_with_it_and_with_the_hypervisor(changes):
    new = OLD.replace(os_hvp={"tiny": {"kvm": {"acpi": False}, "lxc": {}}, "big": {}})
    names = checked(new, **changes)
    assert names.count("kvm") == (2 if "hvparams" in changes else 1)
    assert "lxc" not in names
