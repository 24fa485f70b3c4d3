"""The part of `test_xen` that runs on a machine below Xen. Ends with ``all good``."""

import json
import pathlib
import subprocess

import msgspec

from ganeti.base.constants.parameters import hvparams
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node.hypervisor.base import AttachedDisk
from ganeti.node.hypervisor.xen import config

UUID = "0c1d2e3f-4a5b-4c6d-8e7f-{:012d}"
NAME = "web1.lab.test"


def guest(kind, **params):
    """Return the record of a guest with one bridged NIC."""
    table = hvparams.HYPERVISOR[kind]
    given = {key: row.default for key, row in table.items()}
    nic = {
        "mac": "aa:00:00:11:22:33",
        "uuid": UUID.format(9),
        "nicparams": {"mode": "bridged", "link": "br0", "vlan": ""},
    }
    wire = {
        "name": NAME,
        "primary_node": UUID.format(1),
        "os": "",
        "hypervisor": kind,
        "hvparams": given | params,
        "beparams": {"maxmem": 128, "minmem": 96, "vcpus": 1},
        "admin_state": "up",
        "admin_state_source": "admin",
        "disks_active": True,
        "uuid": UUID.format(8),
        "serial_no": 1,
        "nics": [nic],
        "network_port": 11006,
    }
    return msgspec.convert(wire, InstanceX)


def disk(path="/dev/vdb"):
    """Return a disk of the machine for the guest."""
    record = {
        "dev_type": "blockdev",
        "logical_id": ["manual", path],
        "size": 64,
        "uuid": UUID.format(7),
        "serial_no": 1,
        "mode": "rw",
        "iv_name": "disk/0",
    }
    return AttachedDisk(msgspec.convert(record, DiskX), path)


def full():
    """Let the parser of xl read the configuration of a guest of the other kind."""
    record = guest(
        "xen-hvm",
        cpuid="host:tm=0",
        viridian=True,
        pci_pass="03:00.0",
        cdrom_image_path="/srv/a,b.iso",
    )
    text = config.build(record, [disk()], script="/x/vif", vnc_password='se"c\\r')
    path = pathlib.Path("/root/full.cfg")
    path.write_text(text)
    done = subprocess.run(
        ["xl", "create", "-n", str(path)], capture_output=True, text=True, check=True
    )
    parsed = json.loads(done.stdout[done.stdout.index("{") :])
    build = parsed["b_info"]
    assert (parsed["c_info"]["type"], parsed["c_info"]["name"]) == ("hvm", NAME)
    assert build["type.hvm"]["vnc"]["passwd"] == 'se"c\\r'
    assert build["type.hvm"]["vnc"]["display"] == 11006 - 5900
    assert build["type.hvm"]["boot"] == "cd"
    assert build["max_memkb"] == 128 * 1024
    assert [row["pdev_path"] for row in parsed["disks"]] == ["/dev/vdb", "/srv/a,b.iso"]
    (nic,) = parsed["nics"]
    assert (nic["bridge"], nic["script"], nic["model"]) == ("br0", "/x/vif", "rtl8139")
    assert len(parsed["pcidevs"]) == 1


full()
print("all good")
