"""Descriptions of exports: written and read again, and refused from hostile hands."""

import msgspec
import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.model.objects import export_info
from ganeti.model.objects.filled import InstanceX

SIZES = [(4, 4 << 20), (8, 100)]


def described(**changes):
    record = nodes.instance(disks=2, **changes)
    return export_info.text_of(
        msgspec.convert(record, InstanceX),
        SIZES,
        source="node1.example.com",
        timestamp=1_790_000_000,
    )


def test_a_description_is_read_as_it_was_written():
    text = described(
        name="web1.example.com",
        os="tiny+small",
        tags=["b", "a"],
        osparams={"motd": "first\n#second = x\n[third]"},
        osparams_private={"password": "p = 1"},
        beparams={"maxmem": 256, "minmem": 128, "vcpus": 2},
        hvparams={"acpi": True, "kernel_path": "", "unset": None},
        nics=[
            {
                "uuid": "n0",
                "mac": "aa:00:00:00:00:01",
                "ip": "192.0.2.1",
                "nicparams": {"mode": "openvswitch", "link": "sw", "vlan": ".100"},
            }
        ],
    )
    info = export_info.parse(text)
    assert (info.name, info.os) == ("web1.example.com", "tiny+small")
    assert (info.source, info.timestamp) == ("node1.example.com", 1_790_000_000)
    assert info.tags == ("a", "b")
    assert info.osparams == {"motd": "first\n#second = x\n[third]"}
    assert info.osparams_private == {"password": "p = 1"}
    assert info.backend == {"maxmem": "256", "minmem": "128", "vcpus": "2"}
    assert info.hvparams == {"acpi": "True", "kernel_path": ""}
    (nic,) = info.nics
    assert nic == {
        "mac": "aa:00:00:00:00:01",
        "ip": "192.0.2.1",
        "mode": "openvswitch",
        "link": "sw",
        "vlan": ".100",
    }
    assert [(d.dump, d.size, d.dump_bytes) for d in info.disks] == [
        ("disk0.dump", 4, 4 << 20),
        ("disk1.dump", 8, 100),
    ]
    assert "p = 1" not in repr(info)


def test_an_export_of_ganeti_is_read_and_comments_are_skipped():
    info = export_info.parse(
        "# by hand\n[export]\nversion = 0\ntimestamp = 1\nsource = n1\nos = deb\n"
        "compression = none\n; more\n[instance]\nname = web\nmemory = 128\nvcpus = 1\n"
        "disk_template = plain\nnic0_mac = aa:00:00:00:00:01\nnic0_ip = None\n"
        "nic_count = 1\ndisk0_dump = 4f.disk0_data.snap\ndisk0_size = 10\n"
        "disk_count = 1\n"
    )
    assert info.backend == {"maxmem": "128", "minmem": "128", "vcpus": "1"}
    assert info.nics == ({"mac": "aa:00:00:00:00:01"},)
    assert info.disks == (export_info.ExportedDisk("4f.disk0_data.snap", 10),)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("version = 0", "version = 1", "version: wanted 0, found '1'"),
        ("compression = none", "compression = gzip", "compression: wanted none; unp"),
        ("disk0.dump", "../../../etc/shadow", "disk0_dump: wanted the name of a file"),
        ("disk0.dump", "config.ini", "disk0_dump: wanted the name of a file"),
        ("disk0.dump", ".", "disk0_dump: wanted the name of a file"),
        ("disk0.dump", "disk1.dump", "wanted a file of its own for each disk"),
        ("disk0_size = 4", "disk0_size = -4", "disk0_size: wanted a number from 1"),
        ("disk0_size = 4", "disk0_size = 4m", "disk0_size: wanted a number from 1"),
        (
            "disk_count = 2",
            "disk_count = 99",
            "disk_count: wanted a number from 0 to 16",
        ),
        ("disk_count = 2", "disk_count = 3", "disk2_dump: missing"),
        ("nic_count = ", "nic_count = 9", "nic_count: wanted a number from 0 to 8"),
        ("[instance]", "[other]", r"section \[instance\]: missing"),
        ("name = web1", "name = web1\x1b[2J", "control characters"),
        ("[instance]", "[instance", "wanted sections with lines"),
        ("nic_count", "name", "wanted sections with lines"),
    ],
)
def test_wrong_descriptions_are_refused_with_place_wanted_and_found(old, new, text):
    whole = described()
    assert old in whole
    with pytest.raises(errors.ParseError, match=text):
        export_info.parse(whole.replace(old, new, 1))


def test_a_description_without_end_is_refused():
    with pytest.raises(errors.ParseError, match="wanted at most 262144 characters"):
        export_info.parse("#" * (export_info.MAX_LENGTH + 1))


@pytest.mark.parametrize(
    "value",
    [
        "write_files:\n  - path: /etc/motd\n    content: x\n",
        "a\r\nb",
        "\tindented",
        " a ",
        "None",
        "first\n\n\n[instance]\nname = other",
        "a\u2028b\x85c",
        "",
    ],
)
def test_every_value_of_a_parameter_is_read_as_it_was(value):
    given = {"osparams": {"data": value}, "osparams_private": {"key": value}}
    text = described(name="web1", hvparams={"kernel_args": value}, **given)
    info = export_info.parse(text)
    assert info.osparams == {"data": value}
    assert info.osparams_private == {"key": value}
    assert info.hvparams == {"kernel_args": value}
    assert info.name == "web1"


@pytest.mark.parametrize("name", ["[instance]", "#x", ";x", "a=b", " a", "a\nb"])
def test_every_name_of_a_parameter_is_read_as_it_was(name):
    info = export_info.parse(described(name="web1", osparams={name: "1", "plain": "2"}))
    assert info.osparams == {name: "1", "plain": "2"}


@pytest.mark.parametrize(
    "value",
    [
        "[" * 100_000,
        '["os", "name"]',
        '["instance", "name", "other"]',
        '["os", "name", 1]',
        r'["os", "name", "\u0000"]',
        r'["os", "name", "\u001b[2J"]',
        "secret",
    ],
)
def test_wrong_exact_values_are_refused_and_not_shown(value):
    text = f"{described()}\n[exact]\n0 = {value}\n"
    with pytest.raises(errors.ParseError, match=r"section \[exact\], 0: wanted") as err:
        export_info.parse(text)
    assert value not in str(err.value)


def test_the_name_of_an_exported_instance_is_a_host_name():
    """The rename script of the OS gets it, and runs as root."""
    for name in ("$(reboot)", "../x", "-x", "a b"):
        text = described().replace("name = web1", f"name = {name}", 1)
        with pytest.raises(errors.ParseError, match="name: wanted a host name"):
            export_info.parse(text)
