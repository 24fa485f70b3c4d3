"""Descriptors of machines."""

import dataclasses
import pathlib

import pytest

from ganeti.base import errors
from ganeti.migration.ovf import envelope

MACHINE = envelope.Machine(
    name="web1",
    vcpus=2,
    memory_mib=512,
    nics=(envelope.Nic("aa:00:00:00:00:01", "lan"), envelope.Nic(None, "default")),
    disks=(
        envelope.PackagedDisk("web1-disk0.vmdk", 1 << 30, file_bytes=77),
        envelope.PackagedDisk("web1-disk1.vmdk", 1 << 20, True, 5),
    ),
    description="[export]\nversion = 0\n",
)
#: In the order of the standard's schema, with its namespaces and words.
WRITTEN = pathlib.Path(__file__).parents[4] / "data/ovf/web1.ovf"
TEXT = envelope.text_of(MACHINE, "vmdk")


def test_a_descriptor_is_read_as_written():
    assert envelope.parse(TEXT) == MACHINE


def test_a_descriptor_has_what_other_programs_read():
    nics = (*MACHINE.nics, envelope.Nic("aa:00:00:00:00:03"), envelope.Nic(None, "a"))
    made = dataclasses.replace(MACHINE, nics=nics)
    assert envelope.text_of(made, "vmdk") == WRITTEN.read_text()


def test_units_are_those_of_the_standard_and_of_old_programs():
    for units, factor in (
        ("byte * 2^10", 1024),
        ("MegaBytes", 1 << 20),
        ("byte*10^3", 1000),
        ("byte", 1),
    ):
        changed = TEXT.replace(
            'capacity="1048576"', f'capacity="3" ovf:capacityAllocationUnits="{units}"'
        )
        assert envelope.parse(changed).disks[1].capacity_bytes == 3 * factor


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("<ovf:Envelope", "<!DOCTYPE x [<!ENTITY a 'b'>]><ovf:Envelope", "no document"),
        ("</ovf:Envelope>", "", "wanted XML"),
        ("web1-disk0.vmdk", "../../etc/shadow", "name of a file of the package"),
        ("web1-disk0.vmdk", "/etc/shadow", "name of a file of the package"),
        ('compression="gzip"', 'compression="xz"', "wanted compression gzip or none"),
        ("ovf:/disk/disk1", "ovf:/disk/disk9", "wanted one of DiskSection"),
        ('fileRef="file1"', 'fileRef="file9"', "'file9' is not in References"),
        ('capacity="1048576"', 'capacity="-1"', "wanted a number, found '-1'"),
        ('capacity="1048576"', f'capacity="{1 << 62}"', "wanted at most"),
        ("byte * 2^20", "byte * 3^20", "units: wanted such as"),
        ("envelope/1", "envelope/2", "wanted an Envelope of OVF 1"),
    ],
)
def test_descriptors_that_cannot_be_used_are_refused(old, new, text):
    assert old in TEXT
    with pytest.raises(errors.ParseError, match=text):
        envelope.parse(TEXT.replace(old, new))
