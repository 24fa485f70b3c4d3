"""The description of an export: its file ``config.ini``.

`text_of` makes it, at the node that stores the export; `parse` reads it, at the master.
An export may come from another cluster, another release or a hostile hand: `parse`
accepts bounded values of the expected kinds only. Specified in os-and-extstorage,
section 4. Lines of this format lose white space, for example; parameters that would
change are stored as JSON, too, in a section of their own, which Ganeti skips.
"""

import configparser
import dataclasses
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import versions
from ganeti.base.constants.disks import MAX_DISKS, MAX_NICS
from ganeti.base.constants.protocols import export as constants
from ganeti.base.text import control_chars
from ganeti.model.objects.filled import DiskX, InstanceX, NicX

_INISECT_EXP: Final = "export"
_INISECT_INS: Final = "instance"
_INISECT_HYP: Final = "hypervisor"
_INISECT_BEP: Final = "backend"
_INISECT_OSP: Final = "os"
_INISECT_OSP_PRIVATE: Final = "os_private"

#: Most characters of a description; that of 16 disks and 8 NICs has about 4,000.
MAX_LENGTH: Final = 256 * 1024
#: Largest disk, in MiB: 1 EiB.
_MAX_SIZE_MIB: Final = 1 << 40
_DUMP: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
#: Names of parameters that can begin a line.
_KEY: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
#: Section with parameters as JSON: section, name and text of each.
_EXACT: Final = "exact"
_PARAMETERS: Final = (
    _INISECT_HYP,
    _INISECT_BEP,
    _INISECT_OSP,
    _INISECT_OSP_PRIVATE,
)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NIC_KEYS: Final = ("mac", "ip", "mode", "link", "vlan", "network", "name")
#: Those that a parameter cannot have: it may have several lines.
_UNUSABLE: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NO_VALUE: Final = frozenset(("", "None"))


@dataclasses.dataclass(frozen=True)
class ExportedDisk:
    """One disk of an export: its file, size in MiB, and name if it has one.

    ``dump_bytes`` is the length of the file; not in Ganeti, whose exports lack it.
    """

    dump: str
    size: int
    name: str | None = None
    mode: str = "rw"
    dump_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class ExportInfo:
    """The description of an export.

    Attributes:
        source: name of the node that the instance was on.
        nics: per NIC those of mac, ip, mode, link, vlan, network and name that are set.
        backend: parameters, as texts; likewise ``hvparams`` and those of the OS.
    """

    name: str
    os: str
    timestamp: int
    source: str
    disk_template: str
    hypervisor: str
    tags: tuple[str, ...] = ()
    nics: tuple[Mapping[str, str], ...] = ()
    disks: tuple[ExportedDisk, ...] = ()
    hvparams: Mapping[str, str] = dataclasses.field(default_factory=dict)
    backend: Mapping[str, str] = dataclasses.field(default_factory=dict)
    osparams: Mapping[str, str] = dataclasses.field(default_factory=dict)
    osparams_private: Mapping[str, str] = dataclasses.field(
        default_factory=dict, repr=False
    )


def dump_name(index: int) -> str:
    """Return the name of the file with the content of a disk."""
    return f"disk{index}.dump"


# Writing
def text_of(
    instance: InstanceX,
    sizes: Sequence[tuple[int, int]],
    *,
    source: str,
    timestamp: int,
) -> str:
    """Return the text of ``config.ini``.

    Args:
        instance: the record with filled and private parameters.
        sizes: MiB of each disk, and bytes of the file with its content.
        source: name of the node that the instance is on.
        timestamp: seconds since 1970.
    """
    parser = _parser()
    parser[_INISECT_EXP] = {
        "version": str(versions.EXPORT_VERSION),
        "timestamp": str(timestamp),
        "source": source,
        "os": instance.os,
        "compression": constants.IEC_NONE,
    }
    parser[_INISECT_INS] = _instance_section(instance, sizes)
    given = (
        instance.hvparams,
        instance.beparams,
        instance.osparams,
        instance.osparams_private,
    )
    return _text(parser, given)


def format_info(info: ExportInfo) -> str:
    """Return the text of ``config.ini`` for a description, the inverse of `parse`."""
    parser = _parser()
    parser[_INISECT_EXP] = {
        "version": str(versions.EXPORT_VERSION),
        "timestamp": str(info.timestamp),
        "source": info.source,
        "os": info.os,
        "compression": constants.IEC_NONE,
    }
    section = {
        "name": info.name,
        "maxmem": info.backend.get("maxmem", ""),
        "minmem": info.backend.get("minmem", ""),
        "memory": info.backend.get("maxmem", ""),
        "vcpus": info.backend.get("vcpus", ""),
        "disk_template": info.disk_template,
        "hypervisor": info.hypervisor,
        "tags": " ".join(sorted(info.tags)),
        "nic_count": str(len(info.nics)),
        "disk_count": str(len(info.disks)),
    }
    for index, nic in enumerate(info.nics):
        section |= {f"nic{index}_{key}": text for key, text in nic.items()}
    for index, disk in enumerate(info.disks):
        values = {"ivname": f"disk/{index}"} | {
            key: str(value)
            for key, value in dataclasses.asdict(disk).items()
            if value is not None
        }
        section |= {f"disk{index}_{key}": text for key, text in values.items()}
    parser[_INISECT_INS] = section
    given = (info.hvparams, info.backend, info.osparams, info.osparams_private)
    return _text(parser, given)


def _text(
    parser: configparser.RawConfigParser, given: Sequence[Mapping[str, Any]]
) -> str:
    """Return the text of the file with the parameters, in the order of sections."""
    exact: list[str] = []
    for section, values in zip(_PARAMETERS, given, strict=True):
        texts = {n: _line(value) for n, value in values.items() if value is not None}
        parser[section] = {n: t for n, t in texts.items() if _can_be_line(n, t)}
        exact += [json.dumps([section, *p]) for p in texts.items() if _changes(*p)]
    if exact:
        parser[_EXACT] = {str(number): text for number, text in enumerate(exact)}
    out = io.StringIO()
    parser.write(out)
    return out.getvalue()


def _parser() -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(
        delimiters=("=",), comment_prefixes=(), default_section=""
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    return parser


def _line(value: Any) -> str:
    return str(value)


def _can_be_line(name: str, text: str) -> bool:
    return bool(_KEY.fullmatch(name)) and not _UNPRINTABLE.search(text)


def _changes(name: str, text: str) -> bool:
    """Return whether a parameter is not read as it is written."""
    is_plain = text.isprintable() and text == text.strip() and text != "None"
    return not (is_plain and _can_be_line(name, text))


def _instance_section(
    instance: InstanceX, sizes: Sequence[tuple[int, int]]
) -> dict[str, str]:
    backend = instance.beparams
    kinds = {disk.dev_type for disk in instance.disks_info}
    section = {
        "name": instance.name,
        "maxmem": _line(backend.get("maxmem", "")),
        "minmem": _line(backend.get("minmem", "")),
        "memory": _line(backend.get("maxmem", "")),
        "vcpus": _line(backend.get("vcpus", "")),
        "disk_template": min(kinds) if kinds else "diskless",
        "hypervisor": instance.hypervisor,
        "tags": " ".join(sorted(instance.tags)),
    }
    for index, nic in enumerate(instance.nics):
        section |= {f"nic{index}_{key}": text for key, text in _nic(nic).items()}
    section["nic_count"] = str(len(instance.nics))
    pairs = zip(instance.disks_info, sizes, strict=True)
    for index, (disk, size) in enumerate(pairs):
        values = _disk(index, disk, *size)
        section |= {f"disk{index}_{key}": text for key, text in values.items()}
    section["disk_count"] = str(len(sizes))
    return section


def _nic(nic: NicX) -> dict[str, str]:
    values = {
        "mac": nic.mac,
        "ip": nic.ip,
        "mode": nic.nicparams.get("mode"),
        "link": nic.nicparams.get("link"),
        "vlan": nic.nicparams.get("vlan"),
        "network": nic.netinfo.name if nic.netinfo is not None else nic.network,
        "name": nic.name,
    }
    return {key: _line(value) for key, value in values.items() if value}


def _disk(index: int, disk: DiskX, size_mib: int, dump_bytes: int) -> dict[str, str]:
    values = {
        "ivname": f"disk/{index}",
        "dump": dump_name(index),
        "size": str(size_mib),
        "dump_bytes": str(dump_bytes),
    }
    if disk.name:
        values["name"] = disk.name
    if disk.mode != "rw":
        values["mode"] = disk.mode
    return values


# Reading
def parse(text: str) -> ExportInfo:
    """Return the description in a text.

    Raises:
        ParseError: names section, key, wanted and found.
    """
    if len(text) > MAX_LENGTH:
        raise errors.ParseError(
            f"wanted at most {MAX_LENGTH} characters, found {len(text)}"
        )
    parser = _parser()
    # Comments begin lines; in an indented line, the mark belongs to a value.
    lines = [line for line in text.split("\n") if not line.startswith(("#", ";"))]
    try:
        parser.read_string("\n".join(lines))
    except configparser.Error as err:
        raise errors.ParseError(
            f"wanted sections with lines 'key = value', found {_first_line(err)!r}"
        ) from err
    sections = {name: _values(name, parser[name]) for name in parser.sections()}
    for key, value in sections.get(_EXACT, {}).items():
        section, name, content = _exact(key, value)
        sections.setdefault(section, {})[name] = content
    for name in (_INISECT_EXP, _INISECT_INS):
        if name not in sections:
            raise errors.ParseError(f"section [{name}]: missing")
    export = _Section(_INISECT_EXP, sections[_INISECT_EXP])
    own = _Section(_INISECT_INS, sections[_INISECT_INS])
    if export.text("version") != str(versions.EXPORT_VERSION):
        raise export.error("version", str(versions.EXPORT_VERSION))
    if export.get("compression", constants.IEC_NONE) != constants.IEC_NONE:
        raise export.error("compression", "none; unpack the files of the disks, set it")
    return ExportInfo(
        name=_instance_name(own),
        os=export.get("os"),
        timestamp=export.number("timestamp", 1 << 40),
        source=export.get("source"),
        disk_template=own.get("disk_template"),
        hypervisor=own.get("hypervisor"),
        tags=tuple(own.get("tags").split()),
        nics=_nics(own),
        disks=_disks(own),
        hvparams=sections.get(_INISECT_HYP, {}),
        backend=sections.get(_INISECT_BEP) or _old_backend(own),
        osparams=sections.get(_INISECT_OSP, {}),
        osparams_private=sections.get(_INISECT_OSP_PRIVATE, {}),
    )


def _exact(key: str, value: str) -> tuple[str, str, str]:
    """Return section, name and text of a parameter; errors do not show the text."""
    try:
        section, name, text = msgspec.json.decode(value, type=tuple[str, str, str])
    except (msgspec.DecodeError, RecursionError):
        section = name = text = ""
    if section not in _PARAMETERS or not name or _UNUSABLE.search(name + text):
        raise errors.ParseError(
            f"section [{_EXACT}], {key}: wanted a JSON list of a section, a name and a"
            " text, found something else"
        )
    return section, name, text


def _instance_name(own: "_Section") -> str:
    name = own.text("name")
    if not _NAME.fullmatch(name):
        raise own.error("name", "a host name")
    return name


def _first_line(err: Exception) -> str:
    return str(err).splitlines()[0][:200]


def _values(section: str, raw: Mapping[str, str]) -> dict[str, str]:
    for text in (section, *raw, *raw.values()):
        if _UNPRINTABLE.search(text):
            raise errors.ParseError(
                f"section [{control_chars.escape(section[:80])}]: wanted printable"
                " text, found control characters"
            )
    return {key: value for key, value in raw.items() if value != "None"}


class _Section:
    def __init__(self, name: str, values: Mapping[str, str]) -> None:
        self._name = name
        self._values = values

    def get(self, key: str, default: str = "") -> str:
        value = self._values.get(key, default)
        return default if value in _NO_VALUE else value

    def text(self, key: str) -> str:
        value = self.get(key)
        if not value:
            raise errors.ParseError(f"section [{self._name}], {key}: missing")
        return value

    def number(self, key: str, highest: int, *, lowest: int = 0) -> int:
        value = self.text(key)
        if _NUMBER.fullmatch(value) and lowest <= int(value) <= highest:
            return int(value)
        raise self.error(key, f"a number from {lowest} to {highest}")

    def error(self, key: str, wanted: str) -> errors.ParseError:
        value = self.get(key)[:200]
        return errors.ParseError(
            f"section [{self._name}], {key}: wanted {wanted}, found {value!r}"
        )


def _nics(own: _Section) -> tuple[dict[str, str], ...]:
    nics = []
    for index in range(own.number("nic_count", MAX_NICS)):
        values = {key: own.get(f"nic{index}_{key}") for key in _NIC_KEYS}
        nics.append({key: value for key, value in values.items() if value})
    return tuple(nics)


def _disks(own: _Section) -> tuple[ExportedDisk, ...]:
    disks = []
    for index in range(own.number("disk_count", MAX_DISKS)):
        prefix = f"disk{index}_"
        dump = own.text(f"{prefix}dump")
        if not _DUMP.fullmatch(dump) or dump == constants.EXPORT_CONF_FILE:
            raise own.error(f"{prefix}dump", "the name of a file in the export")
        mode = own.get(f"{prefix}mode", "rw")
        if mode not in ("ro", "rw"):
            raise own.error(f"{prefix}mode", "ro or rw")
        size = own.number(f"{prefix}size", _MAX_SIZE_MIB, lowest=1)
        key = f"{prefix}dump_bytes"
        length = own.number(key, 1 << 62) if own.get(key) else None
        name = own.get(f"{prefix}name") or None
        disks.append(ExportedDisk(dump, size, name, mode, length))
    dumps = [disk.dump for disk in disks]
    if len(set(dumps)) != len(dumps):
        raise errors.ParseError(
            "section [instance]: wanted a file of its own for each disk, found"
            f" {', '.join(dumps)}"
        )
    return tuple(disks)


def _old_backend(own: _Section) -> dict[str, str]:
    """Return the parameters of exports without a section for them."""
    memory = own.get("memory")
    values = {
        "maxmem": own.get("maxmem") or memory,
        "minmem": own.get("minmem") or memory,
        "vcpus": own.get("vcpus"),
    }
    return {key: value for key, value in values.items() if value}
