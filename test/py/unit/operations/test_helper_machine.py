"""Parameters of helper machines on clusters whose guests have displays."""

import types

import pytest

from fakes import clusters
from ganeti.base.constants.parameters import hvparams
from ganeti.node.hypervisor.kvm import checks
from ganeti.operations.instance.create import helper_machine

VNC = {
    "vnc_bind_address": "0.0.0.0",
    "vnc_password_file": "/etc/ganeti/vnc-cluster-password",
    "vnc_tls": True,
    "vnc_x509_path": "/etc/ganeti/vnc",
    "vnc_x509_verify": True,
}
SPICE = {
    "spice_bind": "0.0.0.0",
    "spice_image_compression": "off",
    "spice_ip_version": 4,
    "spice_jpeg_wan_compression": "never",
    "spice_password_file": "/etc/ganeti/spice-cluster-password",
    "spice_streaming_video": "off",
    "spice_use_tls": True,
    "spice_zlib_glz_wan_compression": "never",
}


def filled(hypervisor, own):
    """Return the parameters of a helper machine on a cluster with its own ones."""
    rows = hvparams.HYPERVISOR[hypervisor]
    full = {name: row.default for name, row in rows.items()} | own
    every = clusters.EXAMPLE["cluster"]["hvparams"] | {hypervisor: full}
    snapshot = clusters.snapshot(instances=1, hvparams=every)
    (instance,) = snapshot.instances.values()
    ctx = types.SimpleNamespace(snapshot=snapshot)
    return helper_machine.wire(ctx, instance.replace(hypervisor=hypervisor))["hvparams"]


@pytest.mark.parametrize("display", [VNC, SPICE])
def test_the_emulator_accepts_them_without_the_display_of_other_guests(display):
    hvp = filled("kvm", display)
    checks.check_combinations(hvp)
    # Passwords of displays are set in each emulator, which refuses one without display.
    names = ("vnc_bind_address", "spice_bind", "vnc_password_file")
    assert [hvp[name] for name in names] == ["", "", ""]


def test_a_display_is_no_part_of_it_under_xen():
    assert filled("xen-hvm", {})["vnc_bind_address"] == ""


@pytest.mark.parametrize("hypervisor", ["kvm", "xen-hvm"])
def test_it_can_power_itself_off(hypervisor):
    assert filled(hypervisor, {"acpi": False})["acpi"] is True
