"""Typed parameters: what is accepted, what is refused and with which message."""

import pytest

from ganeti.base import errors
from ganeti.base.constants.parameters import hvparams
from ganeti.operations.parameters import typed_params


def kvm(**changes):
    return {k: p.default for k, p in hvparams.HYPERVISOR["kvm"].items()} | changes


def test_texts_become_values_of_the_declared_type():
    given = {"acpi": "False", "migration_downtime": "45", "kernel_args": "ro quiet"}
    assert typed_params.hypervisor("kvm", given, allow_cluster_only=True) == {
        "acpi": False,
        "migration_downtime": 45,
        "kernel_args": "ro quiet",
    }


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"acpi": "perhaps"}, "wanted true or false, found 'perhaps'"),
        ({"nonsense": 1}, "nonsense: unknown"),
        ({"migration_port": 1}, "only be set for the whole cluster"),
    ],
)
def test_wrong_hypervisor_parameters_are_named(given, text):
    refusals = (errors.OpPrereqError, errors.TypeEnforcementError)
    with pytest.raises(refusals, match=text):
        typed_params.hypervisor("kvm", given)


def test_memory_sets_both_ends_whatever_they_are():
    assert typed_params.backend({"memory": "1g"}) == {"minmem": 1024, "maxmem": 1024}
    both = typed_params.backend({"memory": 128, "minmem": 64})
    assert both == {"minmem": 128, "maxmem": 128}
    with pytest.raises(errors.OpPrereqError, match="vcpus: wanted 1 or more, found 0"):
        typed_params.backend({"vcpus": 0})
    with pytest.raises(errors.OpPrereqError, match="minimum memory 2 MiB is above"):
        typed_params.check_memory_order({"minmem": 2, "maxmem": 1}, "instance a")


def test_a_default_removes_an_override():
    assert typed_params.merge({"a": 1, "b": 2}, {"a": "default", "c": 3}) == {
        "b": 2,
        "c": 3,
    }


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"disk_type": "floppy"}, "disk_type: wanted one of"),
        ({"migration_mode": ""}, "migration_mode: wanted a value"),
        ({"vnc_x509_verify": True}, "needs vnc_x509_path"),
        ({"security_model": "user"}, "needs security_domain"),
        ({"boot_order": "cdrom"}, "needs cdrom_image_path"),
        ({"disk_aio": "native"}, "needs disk_cache none"),
        ({"io_threads": 2, "disk_type": "ide"}, "io_threads needs disk_type para"),
        ({"io_threads": 2, "disk_type": "scsi-hd"}, "found disk_type scsi-hd and lsi"),
        ({"io_threads": 17}, "wanted 0 to 16, found 17"),
        ({"shared_directories": "/srv/a"}, "wanted parts TAG=DIRECTORY .* '/srv/a'"),
        ({"shared_directories": "a=srv"}, "wanted parts TAG=DIRECTORY"),
        ({"shared_directories": "a=/srv/a,b"}, "wanted parts TAG=DIRECTORY"),
        ({"shared_directories": "a=/srv/./a"}, "wanted parts TAG=DIRECTORY"),
        ({"shared_directories": f"{'a' * 37}=/a"}, "wanted parts TAG=DIRECTORY"),
        ({"shared_directories": "a=/a:a=/b"}, "wanted different tags, found a twice"),
        ({"shared_directories": "a=/a:b=/a:c=/a:d=/a:e=/a"}, "at most 4 .* found 5"),
        ({"kernel_path": "vmlinuz"}, "wanted an absolute path"),
        ({"virtio_net_queues": 9}, "wanted 1 to 8, found 9"),
        ({"vnc_bind_address": "1.2.3"}, "vnc_bind_address: wanted an IP address"),
        ({"vnc_bind_address": "::g"}, "vnc_bind_address: wanted an IP address"),
        ({"vnc_bind_address": "run/vnc"}, "an absolute directory, found 'run/vnc'"),
        ({"spice_bind": "300.1.1.1"}, "spice_bind: wanted an IP address"),
        ({"spice_bind": "/run/spice"}, "spice_bind: wanted an IP address"),
        ({"spice_bind": "an-interface-name"}, "spice_bind: wanted an IP address"),
    ],
)
def test_values_the_master_can_judge_are_refused(changes, text):
    with pytest.raises(errors.OpPrereqError, match=text):
        typed_params.check_hypervisor_syntax("kvm", kvm(**changes))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vnc_bind_address", "0.0.0.0"),
        ("vnc_bind_address", "2001:db8::1"),
        ("vnc_bind_address", "br0.100"),
        ("vnc_bind_address", "/run/vnc"),
        ("spice_bind", "eth0"),
        ("spice_bind", "::1"),
    ],
)
def test_displays_bind_to_addresses_interfaces_and_directories(name, value):
    typed_params.check_hypervisor_syntax("kvm", kvm(**{name: value}))


def test_the_built_in_defaults_pass():
    for name in ("kvm", "fake"):
        defaults = {k: p.default for k, p in hvparams.HYPERVISOR[name].items()}
        typed_params.check_hypervisor_syntax(name, defaults)
