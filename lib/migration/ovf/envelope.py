"""The descriptor of an OVF package: an XML document about one virtual machine; pure.

A package can come from anybody: `parse` accepts bounded values only. The XML names are
those of DMTF DSP0243; resource types are those of CIM_ResourceAllocationSettingData.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import Final
from xml.etree import ElementTree as ET

from ganeti.base import errors
from ganeti.base.constants.disks import MAX_DISKS, MAX_NICS

#: Most characters of a descriptor; those of real machines have some thousands.
MAX_LENGTH: Final = 4 * 1024 * 1024
_OVF: Final = "http://schemas.dmtf.org/ovf/envelope/1"
_CIM: Final = "http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2"
_RASD: Final = f"{_CIM}/CIM_ResourceAllocationSettingData"
_VSSD: Final = f"{_CIM}/CIM_VirtualSystemSettingData"
#: Of the section with the whole description of an export.
_OWN: Final = "urn:ganeti:export"
_CPU, _MEMORY, _NIC, _DISK = "3", "4", "10", "17"
_FORMATS: Final = {
    "raw": "http://en.wikipedia.org/wiki/Byte",
    "cow": "http://www.gnome.org/~markmc/qcow-image-format.html",
    "vmdk": "http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized",
}
_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 _.+-]{0,199}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_POWER: Final = re.compile(r"byte(?:\s*\*\s*(2|10)\s*\^\s*([0-9]{1,2}))?")
_WORDS: Final = {"kilobytes": 1 << 10, "megabytes": 1 << 20, "gigabytes": 1 << 30}
_MIB: Final = 1 << 20
#: Largest disk: 1 EiB.
_MAX_BYTES: Final = 1 << 60


@dataclasses.dataclass(frozen=True)
class Nic:
    """One network interface: its MAC, if any, and the name of its network."""

    mac: str | None = None
    network: str | None = None


@dataclasses.dataclass(frozen=True)
class PackagedDisk:
    """One disk: the name of its file, none for an empty one, and its size."""

    file: str | None
    capacity_bytes: int
    is_compressed: bool = False
    file_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class Machine:
    """A virtual machine; ``description`` is the text of an export's ``config.ini``."""

    name: str
    vcpus: int = 1
    memory_mib: int = 128
    nics: tuple[Nic, ...] = ()
    disks: tuple[PackagedDisk, ...] = ()
    description: str | None = None


# Reading
def parse(text: str) -> Machine:
    """Return the machine of a descriptor.

    Raises:
        ParseError: contains element, wanted and found.
    """
    if len(text) > MAX_LENGTH:
        raise errors.ParseError(
            f"wanted at most {MAX_LENGTH} characters, found {len(text)}"
        )
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        # Entities grow without bounds, and read files; descriptors need none.
        raise errors.ParseError("wanted no document type, found one")
    try:
        root = ET.fromstring(text)  # noqa: S314 has no entities
    except ET.ParseError as err:
        raise errors.ParseError(f"wanted XML, found {err}") from err
    if root.tag != f"{{{_OVF}}}Envelope":
        raise errors.ParseError(f"wanted an Envelope of OVF 1, found {root.tag[:200]}")
    systems = root.findall(f".//{{{_OVF}}}VirtualSystem")
    if len(systems) != 1:
        raise errors.ParseError(f"wanted one VirtualSystem, found {len(systems)}")
    return _Descriptor(root, systems[0]).machine()


class _Descriptor:
    def __init__(self, root: ET.Element, system: ET.Element) -> None:
        self._root = root
        self._system = system

    def machine(self) -> Machine:
        items = list(self._system.iter(f"{{{_OVF}}}Item"))
        by_type = {
            kind: [item for item in items if _child(item, "ResourceType") == kind]
            for kind in (_CPU, _MEMORY, _NIC, _DISK)
        }
        for kind, most in ((_NIC, MAX_NICS), (_DISK, MAX_DISKS)):
            if len(by_type[kind]) > most:
                raise errors.ParseError(
                    f"wanted at most {most} items of ResourceType {kind}, found"
                    f" {len(by_type[kind])}"
                )
        vcpus = sum(_quantity(item) for item in by_type[_CPU])
        memory = sum(
            _quantity(item) * _factor(_child(item, "AllocationUnits"), _MIB)
            for item in by_type[_MEMORY]
        )
        own = self._root.find(f".//{{{_OWN}}}ExportSection/{{{_OWN}}}Description")
        name = self._system.findtext(f"{{{_OVF}}}Name") or _get(self._system, "id")
        return Machine(
            name=name.strip(),
            vcpus=vcpus or 1,
            memory_mib=memory // _MIB or 128,
            nics=tuple(
                Nic(_child(item, "Address") or None, _child(item, "Connection") or None)
                for item in by_type[_NIC]
            ),
            disks=tuple(self._disks(by_type[_DISK])),
            description=None if own is None else own.text,
        )

    def _disks(self, items: list[ET.Element]) -> Iterator[PackagedDisk]:
        known = {_get(d, "diskId"): d for d in self._root.iter(f"{{{_OVF}}}Disk")}
        files = {_get(f, "id"): f for f in self._root.iter(f"{{{_OVF}}}File")}
        for item in items:
            place = _child(item, "HostResource")
            disk = known.get(place.rpartition("/")[2])
            if disk is None:
                raise errors.ParseError(
                    f"disk {place[:200]!r}: wanted one of DiskSection"
                )
            reference = _get(disk, "fileRef")
            file = files.get(reference)
            if reference and file is None:
                raise errors.ParseError(
                    f"disk {place[:200]}: file {reference[:200]!r} is not in References"
                )
            capacity = _number(_get(disk, "capacity"), "capacity of a disk")
            capacity *= _factor(_get(disk, "capacityAllocationUnits"), 1)
            if capacity > _MAX_BYTES:
                raise errors.ParseError(
                    f"disk {place[:200]}: wanted at most {_MAX_BYTES} bytes, found"
                    f" {str(capacity)[:40]}"
                )
            yield self._disk(file, capacity)

    def _disk(self, file: ET.Element | None, capacity: int) -> PackagedDisk:
        if file is None:
            return PackagedDisk(None, capacity)
        name, packing = _get(file, "href"), _get(file, "compression")
        if not _FILE.fullmatch(name):
            raise errors.ParseError(
                f"file: wanted the name of a file of the package, found {name[:200]!r}"
            )
        if packing not in ("", "identity", "gzip"):
            raise errors.ParseError(
                f"file {name}: wanted compression gzip or none, found {packing[:200]!r}"
            )
        size = _number(_get(file, "size") or "0", f"size of file {name}")
        return PackagedDisk(name, capacity, packing == "gzip", size)


def _get(element: ET.Element, name: str) -> str:
    return element.get(f"{{{_OVF}}}{name}") or ""


def _child(item: ET.Element, name: str) -> str:
    return (item.findtext(f"{{{_RASD}}}{name}") or "").strip()


def _quantity(item: ET.Element) -> int:
    return _number(_child(item, "VirtualQuantity"), "VirtualQuantity")


def _number(text: str, what: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise errors.ParseError(f"{what}: wanted a number, found {text[:200]!r}")
    return int(text)


def _factor(units: str, default: int) -> int:
    """Return the bytes of a unit such as ``byte * 2^20``."""
    if not units:
        return default
    if word := _WORDS.get(units.lower()):
        return word
    if match := _POWER.fullmatch(units):
        factor: int = int(match[1] or 1) ** int(match[2] or 1)
        return factor
    raise errors.ParseError(
        f"units: wanted such as 'byte * 2^20', found {units[:200]!r}"
    )


# Writing
def text_of(machine: Machine, form: str) -> str:
    """Return the descriptor of a machine.

    Args:
        machine: every disk has a file.
        form: format of the files: raw, cow or vmdk.
    """
    ET.register_namespace("ovf", _OVF)
    ET.register_namespace("rasd", _RASD)
    ET.register_namespace("vssd", _VSSD)
    ET.register_namespace("gnt", _OWN)
    root = ET.Element(f"{{{_OVF}}}Envelope")
    _references(root, machine)
    _disk_section(root, machine, form)
    _network_section(root, machine)
    if machine.description is not None:
        own = ET.SubElement(
            root, f"{{{_OWN}}}ExportSection", {f"{{{_OVF}}}required": "false"}
        )
        _add(own, "Info", "What Ganeti needs to create the same instance")
        ET.SubElement(own, f"{{{_OWN}}}Description").text = machine.description
    system = _add(root, "VirtualSystem", id=machine.name)
    _add(system, "Info", "A virtual machine")
    _add(system, "Name", machine.name)
    _hardware(_add(system, "VirtualHardwareSection"), machine)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add(
    parent: ET.Element, tag: str, text: str = "", **attributes: str | int
) -> ET.Element:
    names = {f"{{{_OVF}}}{name}": str(value) for name, value in attributes.items()}
    element = ET.SubElement(parent, f"{{{_OVF}}}{tag}", names)
    element.text = text or None
    return element


def _references(root: ET.Element, machine: Machine) -> None:
    section = _add(root, "References")
    for index, disk in enumerate(machine.disks):
        file = _add(section, "File", id=f"file{index}", href=disk.file or "")
        file.set(f"{{{_OVF}}}size", str(disk.file_bytes))
        if disk.is_compressed:
            file.set(f"{{{_OVF}}}compression", "gzip")


def _disk_section(root: ET.Element, machine: Machine, form: str) -> None:
    section = _add(root, "DiskSection")
    _add(section, "Info", "The disks")
    for index, disk in enumerate(machine.disks):
        _add(
            section,
            "Disk",
            diskId=f"disk{index}",
            fileRef=f"file{index}",
            capacity=disk.capacity_bytes,
            format=_FORMATS[form],
        )


def _network_section(root: ET.Element, machine: Machine) -> None:
    section = _add(root, "NetworkSection")
    _add(section, "Info", "The networks")
    for name in sorted({nic.network or "default" for nic in machine.nics}):
        _add(_add(section, "Network", name=name), "Description", f"Network {name}")


def _hardware(section: ET.Element, machine: Machine) -> None:
    _add(section, "Info", "The hardware")
    system = _add(section, "System")
    for name, text in (
        ("ElementName", "Virtual hardware"),
        ("InstanceID", "0"),
        ("VirtualSystemIdentifier", machine.name),
        ("VirtualSystemType", "ganeti-ovf"),
    ):
        ET.SubElement(system, f"{{{_VSSD}}}{name}").text = text
    items = [
        {"ResourceType": _CPU, "VirtualQuantity": str(machine.vcpus)},
        {
            "AllocationUnits": "byte * 2^20",
            "ResourceType": _MEMORY,
            "VirtualQuantity": str(machine.memory_mib),
        },
    ]
    items += [
        {
            **({"Address": nic.mac} if nic.mac else {}),
            "Connection": nic.network or "default",
            "ResourceType": _NIC,
        }
        for nic in machine.nics
    ]
    items += [
        {"HostResource": f"ovf:/disk/disk{index}", "ResourceType": _DISK}
        for index in range(len(machine.disks))
    ]
    for number, values in enumerate(items, start=1):
        item = _add(section, "Item")
        named = {"ElementName": f"Item {number}", "InstanceID": str(number)} | values
        # The schema wants the elements in this order.
        for name in sorted(named):
            ET.SubElement(item, f"{{{_RASD}}}{name}").text = named[name]
