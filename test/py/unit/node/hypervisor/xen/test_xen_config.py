"""Configuration files of guests of Xen: all parameters, and hostile values."""

import ast
import re

import pytest

from fakes.xen_guests import NIC, disk, instance
from ganeti.base import errors
from ganeti.node.hypervisor.xen import config

SCRIPT = "/usr/lib/ganeti/tools/vif-ganeti"


def parsed(text):
    """Return the settings; xl's texts and lists of them look as Python's do."""
    rows = [line.split(" = ", 1) for line in text.splitlines()[1:]]
    assert len({name for name, _ in rows}) == len(rows)
    return {name: ast.literal_eval(value) for name, value in rows}


def built(*args, disks=(), password=None, **params):
    made = instance(*args, **params)
    return parsed(config.build(made, disks, script=SCRIPT, vnc_password=password))


def test_a_paravirtual_guest_has_the_values_of_its_parameters():
    settings = built(
        nics=[NIC],
        disks=[disk("/run/d:0", dev_type="plain"), disk("/run/d:1", mode="ro")],
        kernel_path="/boot/k",
        initrd_path="/boot/i",
        kernel_args='ro a="b"',
        cpuid="host:tm=0",
        cpu_cap=50,
    )
    assert settings == {
        "name": "web1",
        "uuid": instance().uuid,
        "type": "pv",
        "memory": 256,
        "maxmem": 256,
        "vcpus": 2,
        "cpus": "all",
        "cpu_weight": 256,
        "cap": 50,
        "cpuid": "host:tm=0",
        "kernel": "/boot/k",
        "ramdisk": "/boot/i",
        "cmdline": 'root=/dev/xvda1 ro a="b"',
        "disk": ["phy:/run/d:0,sda,w", "file:/run/d:1,sdb,r"],
        "vif": [f"mac=aa:00:00:11:22:33,script={SCRIPT},bridge=br7"],
        "on_poweroff": "destroy",
        "on_reboot": "restart",
        "on_crash": "restart",
    }


def test_a_boot_loader_takes_the_place_of_the_kernel():
    settings = built(use_bootloader=True, bootloader_args="-q", kernel_args="quiet")
    assert settings["bootloader"] == "pygrub"
    assert settings["bootloader_args"] == "-q"
    assert settings["extra"] == "quiet"
    assert not {"kernel", "cmdline"} & set(settings)
    assert built(use_bootloader=True, bootloader_path="/b")["bootloader"] == "/b"


def test_a_guest_that_exits_instead_of_rebooting_is_not_restarted():
    settings = built(reboot_behavior="exit", root_path=None, kernel_args="")
    assert (settings["on_reboot"], settings["on_crash"]) == ("destroy", "destroy")
    assert settings["cmdline"] == ""


def test_full_virtualisation_has_display_cards_and_drives():
    settings = built(
        "xen-hvm",
        nics=[NIC],
        disks=[disk()],
        password="longer than eight",
        cdrom_image_path="/srv/a,b.iso",
        pci_pass="03:00.0, 0000:04:00.1",
        viridian=True,
        acpi=False,
        soundhw="ac97",
    )
    expected = {
        "type": "hvm",
        "boot": "cd",
        "vnc": 1,
        "vnclisten": "0.0.0.0",
        "vncdisplay": 5106,
        "vncunused": 0,
        "vncpasswd": "longer t",
        "serial": "pty",
        "usbdevice": "tablet",
        "acpi": 0,
        "pae": 1,
        "viridian": 1,
        "localtime": 0,
        "soundhw": "ac97",
        "pci": ["03:00.0", "0000:04:00.1"],
        "disk": [
            "file:/run/d:0,hda,w",
            "format=raw,vdev=hdc,access=ro,devtype=cdrom,target=/srv/a,b.iso",
        ],
    }
    assert {key: settings.get(key) for key in expected} == expected
    assert settings["vif"][0].endswith(",bridge=br7,type=ioemu,model=rtl8139")
    # Places of programs that xl knows better.
    assert not {"kernel", "firmware_override", "device_model_override"} & set(settings)


@pytest.mark.parametrize(
    ("params", "key", "value"),
    [
        ({"kernel_path": "/usr/lib/xen-4.17/boot/hvmloader"}, "firmware_override", ...),
        ({"kernel_path": "/boot/guest"}, "kernel", "/boot/guest"),
        ({"device_model": "/opt/qemu"}, "device_model_override", "/opt/qemu"),
        ({"vnc_bind_address": ""}, "vnc", 0),
    ],
)
def test_single_parameters_of_full_virtualisation(params, key, value):
    wanted = params["kernel_path"] if value is ... else value
    assert built("xen-hvm", **params)[key] == wanted


@pytest.mark.parametrize(
    ("params", "ending"),
    [
        ({"nic_type": "paravirtual"}, "type=vif"),
        ({"vif_type": "vif"}, "type=vif"),
        ({"nic_type": "e1000"}, "type=ioemu,model=e1000"),
    ],
)
def test_the_card_of_a_nic_depends_on_two_parameters(params, ending):
    assert built("xen-hvm", nics=[NIC], **params)["vif"][0].endswith(f",{ending}")


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("all", "all"),
        ("0-3,^2", "0,1,3"),
        ("1:all", ["1", "all"]),
        ("0-1:2", ["0,1", "2"]),
    ],
)
def test_processors_of_all_or_of_each_virtual_one(mask, expected):
    assert built(cpu_mask=mask)["cpus"] == expected


def test_a_routed_nic_has_its_address_and_no_bridge():
    nic = NIC.replace(ip="198.51.100.7", nicparams={"mode": "routed", "link": "100"})
    assert built(nics=[nic], vif_script="/etc/own")["vif"] == [
        "mac=aa:00:00:11:22:33,script=/etc/own,ip=198.51.100.7"
    ]


def test_disks_have_letters_also_after_z():
    disks = built(disks=[disk()] * 28, blockdev_prefix="xvd")["disk"]
    names = [text.split(",")[1] for text in disks]
    assert names[0] == "xvda"
    assert names[25:] == ["xvdz", "xvdaa", "xvdab"]


HOSTILE = ('a" b', "a' b", "a\\", 'a\\" ]', "x # y", "a]\u00e9")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_value_leaves_its_quotes(text):
    assert built(kernel_args=text)["cmdline"] == f"root=/dev/xvda1 {text}"


def test_no_value_adds_a_line():
    for text in ("ro\nbootloader = '/x'", "ro\rx", "ro\x00", "ro\u2028x"):
        with pytest.raises(errors.HypervisorError, match=r"cmdline .* one line"):
            built(kernel_args=text)


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"cpu_mask": "0:1:2"}, "as many as the 2 of backend parameter vcpus, found 3"),
        ({"cpu_mask": "x"}, "wanted a number or a range"),
        ({"disks": [disk("")]}, "disk 0: Xen needs a device or a file"),
        ({"disks": [disk("/a,script=/x")]}, "needs a device or a file.*script=/x"),
        ({"blockdev_prefix": "xvda,r,script=/x,"}, "blockdev_prefix: wanted letters"),
        ({"nics": [NIC.replace(mac="aa,script=/x")]}, "NIC 0: wanted a MAC address"),
        (
            {
                "nics": [
                    NIC.replace(nicparams={"mode": "bridged", "link": "b,script=/x"})
                ]
            },
            "NIC 0: wanted a link",
        ),
        ({"nics": [NIC], "vif_script": "/x,y"}, "wanted a script whose path"),
    ],
)
def test_wrong_values_are_refused_by_name(params, problem):
    with pytest.raises(errors.HypervisorError, match=f"instance web1: .*{problem}"):
        built(**params)


def test_a_display_needs_a_port():
    with pytest.raises(errors.HypervisorError, match="needs a network port"):
        built("xen-hvm", port=None)


def test_an_address_that_is_none_is_left_out():
    nic = NIC.replace(ip="x,script=/y")
    assert "script=/y" not in built(nics=[nic])["vif"][0]


def test_the_first_line_names_the_instance():
    text = config.build(instance(), [], script=SCRIPT)
    assert re.match("# Instance web1: .*do not edit\\.\n", text)
