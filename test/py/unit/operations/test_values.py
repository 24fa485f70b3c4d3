"""Contents of parameters: alone, together, and over all of them."""

import random
import re

import pytest

from fakes import clusters, hostile_values
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.base import errors
from ganeti.base.constants.parameters import hvparams
from ganeti.operations.instance.devices import combinations
from ganeti.operations.parameters import typed_params

NAME = "inst1.example.com"


def test_every_text_has_a_form_or_a_list_of_values():
    for kind, name in hostile_values.ROWS:
        row = hvparams.HYPERVISOR[kind][name]
        assert row.form is not None or isinstance(row.allowed, tuple), (kind, name)


def test_hostile_values_are_refused_or_stay_one_argument():
    target, chance = hostile_values.Values(), random.Random(34)
    for _ in range(1500):
        target.step(chance)
    # Some texts are free, but have no parts.
    assert ("kvm", "kernel_args") in target.accepted


@pytest.mark.parametrize(
    ("kind", "given", "text"),
    [
        ("kvm", {"soundhw": "usb-host"}, "soundhw: wanted sound cards of ac97"),
        ("xen-hvm", {"soundhw": "x"}, "soundhw: wanted sound cards of ac97"),
        ("kvm", {"keymap": "/dev/x"}, "keymap: wanted a layout such as de"),
        ("kvm", {"migration_caps": "a,b"}, "migration_caps: wanted migration capab"),
        ("kvm", {"spice_bind": "a,b"}, "spice_bind: wanted an IP address, the name"),
        (
            "kvm",
            {"spice_bind": "fe80::1%lo,unix=on,addr=NAME"},
            "spice_bind: wanted an IP address, the name",
        ),
        ("kvm", {"vnc_bind_address": "::1%a b"}, "vnc_bind_address: wanted an IP"),
        ("kvm", {"vga": "std,x=y"}, "vga: wanted a name"),
        ("kvm", {"cpu_type": "host;id"}, "cpu_type: wanted a model"),
        ("kvm", {"security_domain": "-x"}, "security_domain: wanted the name of a u"),
        ("kvm", {"kvm_extra": "'"}, "kvm_extra: No closing quotation"),
        ("kvm", {"usb_devices": "host:1;2"}, "usb_devices: wanted USB devices"),
    ],
)
def test_values_outside_of_their_form_are_named(kind, given, text):
    filled = {name: row.default for name, row in hvparams.HYPERVISOR[kind].items()}
    filled |= {"kernel_path": "/boot/k"}
    with pytest.raises(errors.OpPrereqError, match=text):
        typed = typed_params.hypervisor(kind, given)
        typed_params.check_hypervisor_syntax(kind, filled | typed)


def engine(hypervisor="kvm", cpus=4, **more):
    host = clusters.instance(
        1, hypervisor=hypervisor, disk_template="diskless", admin_state="down", **more
    )
    info = {"memory_free": 4096, "cpu_total": cpus, "hv_version": "7.2"}
    script = SUCCESSFUL_ACTS | {"node_info": ["boot", [], [info]], "hooks_runner": []}
    return Engine(clusters.snapshot(instances=0, extra=[host]), script)


def modify(eng, **options):
    return eng.run(
        {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": NAME}
        | {"ignore_ipolicy": True, **options}
    )


PINNED = {"beparams": {"vcpus": 2}, "hvparams": {"cpu_mask": "0:1"}}


@pytest.mark.parametrize(
    ("before", "change", "text"),
    [
        ({"beparams": {"vcpus": 1}}, {"hvparams": {"cpu_mask": "0:1"}}, "as the 1 of"),
        (PINNED, {"beparams": {"vcpus": 3}}, "as many as the 3 .*, found 2"),
        (PINNED, {"beparams": {"vcpus": "default"}}, "as many as the 1 .*, found 2"),
        ({}, {"hvparams": {"cpu_mask": "0-4"}}, "processor 4, and node .* has 4"),
        ({}, {"hvparams": {"cpu_cores": 2}}, "cpu_cores 2: do not make up the 1"),
        (
            {"beparams": {"vcpus": 4}, "hvparams": {"cpu_cores": 2}},
            {"beparams": {"vcpus": 3}},
            "cpu_cores 2: do not make up the 3",
        ),
    ],
)
def test_parameters_that_do_not_fit_together_are_refused_when_they_are_set(
    before, change, text
):
    eng = engine(**before)
    with pytest.raises(errors.OpPrereqError, match=text):
        modify(eng, **change)
    assert not [call for call in eng.rpc.calls if call[0] == "instance_start"]


@pytest.mark.parametrize(
    ("hvp", "disks", "text"),
    [
        ({"kvm_pci_reservations": 30}, 1, ""),
        ({"kvm_pci_reservations": 30}, 2, "30: leaves 2 PCI slots, .* need 3"),
        ({"kvm_pci_reservations": 31, "disk_type": "scsi-hd"}, 14, ""),
        ({"disk_type": "scsi-hd"}, 15, "has places for 14 disks, found 15"),
        ({"disk_type": "ide"}, 4, ""),
        ({"disk_type": "ide"}, 5, "has places for 4 disks, found 5"),
        ({"cpu_cores": 2, "cpu_threads": 1, "cpu_sockets": 1}, 0, ""),
        ({"cpu_cores": 1, "cpu_threads": 1, "cpu_sockets": 1}, 0, "do not make up"),
    ],
)
def test_devices_and_processors_have_places(hvp, disks, text):
    (actual,) = [*combinations._problems("kvm", hvp, 2, disks, 1)] or [""]
    assert re.search(text, actual) if text else not actual


def test_what_fits_is_accepted_and_old_faults_hold_up_nothing():
    modify(engine(), hvparams={"cpu_mask": "0:1"}, beparams={"vcpus": 2})
    wrong = engine(hvparams={"cpu_mask": "0:1:2"})
    modify(wrong, hvparams={"acpi": False})
    modify(wrong, hvparams={"cpu_mask": "all"})


def test_defaults_of_the_cluster_do_not_stop_the_next_start_of_an_instance():
    eng = engine(hvparams={"cpu_mask": "0:1"}, beparams={"vcpus": 2})
    (record,) = eng.snapshot.instances.values()
    assert combinations.problems(eng.snapshot, record) == []
    own = engine(hvparams={"cpu_mask": "0"})
    request = {"OP_ID": "OP_CLUSTER_SET_PARAMS", "beparams": {"vcpus": 2}}
    own.run(request)
    inherits = engine(beparams={"vcpus": 3})
    request = {
        "OP_ID": "OP_CLUSTER_SET_PARAMS",
        "hvparams": {"kvm": {"cpu_mask": "0:1"}},
    }
    with pytest.raises(errors.OpPrereqError, match=f"{NAME}: .* as the 3 .*, found 2"):
        inherits.run(request)
