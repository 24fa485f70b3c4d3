"""Syntax of hypervisor parameters, without regard to a node.

The master checks requests with it, and drivers check what they put into configuration
files of other programs. Specified in the hypervisor tables.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.parameters import forms
from ganeti.base.constants.parameters import hvparams as params_table
from ganeti.base.net import ip

_ALL: Final = "all"
_LXC: Final = "lxc"
_SHARE_TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,35}", re.ASCII)
_SHARE_PATH: Final = re.compile(r"/[A-Za-z0-9._+/-]{1,255}", re.ASCII)
#: Directories that a guest may share, for messages.
SHAREABLE: Final = "an absolute path of letters, digits and . _ + - without . and .."
#: Each takes a PCI slot of those that are left for the emulator.
_MOST_SHARES: Final = 4
#: Highest number of a processor that a mask may name; Linux has at most 8192.
_LAST_CPU: Final = 8191


def parse_mask(text: str) -> list[frozenset[int] | None]:
    """Return one set of processors per part; None means all processors.

    ``0-3,^2`` is 0, 1 and 3; parts are separated by colons.

    Raises:
        ParseError: names the text and the problem.
    """
    return [_parse_part(part.strip(), text) for part in text.split(":")]


def _parse_part(part: str, text: str) -> frozenset[int] | None:
    if part == _ALL:
        return None
    wanted: set[int] = set()
    unwanted: set[int] = set()
    for word in part.split(","):
        target = unwanted if word.startswith("^") else wanted
        target |= _parse_range(word.removeprefix("^"), text)
    if not wanted - unwanted:
        raise errors.ParseError(
            f"CPU mask {text!r:.200}: {part!r:.200} leaves no processor"
        )
    return frozenset(wanted - unwanted)


def _parse_range(word: str, text: str) -> set[int]:
    low, dash, high = word.partition("-")
    if not _is_number(low) or (dash and not _is_number(high)):
        raise errors.ParseError(
            f"CPU mask {text!r:.200}: wanted a number or a range, found {word!r:.200}"
        )
    first, last = int(low), int(high or low)
    if last < first:
        raise errors.ParseError(
            f"CPU mask {text!r:.200}: {word!r:.200} starts above its end"
        )
    if last > _LAST_CPU:
        raise errors.ParseError(
            f"CPU mask {text!r:.200}: wanted processors up to {_LAST_CPU},"
            f" found {word!r:.200}"
        )
    return set(range(first, last + 1))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def parse_single_mask(text: str) -> frozenset[int] | None:
    """Return the processors of a mask with one part, None for all.

    Raises:
        ParseError: the mask is wrong, or has several parts.
    """
    parts = parse_mask(text or _ALL)
    if len(parts) != 1:
        raise errors.ParseError(
            f"CPU mask {text!r:.200}: wanted one mask such as 0-3,5, found {len(parts)}"
        )
    return parts[0]


def masks(hypervisor: str, mask: str, vcpus: int) -> list[frozenset[int] | None]:
    """Return the processors of each virtual processor; of a container, of all together.

    Raises:
        ParseError: the mask is wrong, or does not fit the number of processors.
    """
    if hypervisor == _LXC:
        wanted = parse_single_mask(mask)
        if wanted is not None and len(wanted) != vcpus:
            raise errors.ParseError(
                f"parameter cpu_mask {mask:.200}: wanted as many processors as the"
                f" {vcpus} of backend parameter vcpus, found {len(wanted)}"
            )
        return [wanted]
    parts = parse_mask(mask)
    if len(parts) not in {1, vcpus}:
        raise errors.ParseError(
            f"parameter cpu_mask {mask:.200}: wanted one mask, or as many as the"
            f" {vcpus} of backend parameter vcpus, found {len(parts)}"
        )
    return parts if len(parts) == vcpus else parts * vcpus


def format_processors(processors: frozenset[int]) -> str:
    """Return processors as a list that kernel and hypervisors read: ``0,1,3``."""
    return ",".join(map(str, sorted(processors)))


def words(text: str | None) -> list[str]:
    """Return the parts of a list that is separated by commas, without empty ones."""
    return [word for part in (text or "").split(",") if (word := part.strip())]


def check(hypervisor: str, hvparams: Mapping[str, Any]) -> None:
    """Refuse parameters that the programs of a hypervisor would not understand.

    Raises:
        ParseError: names parameter, wanted and found.
    """
    for name, value in hvparams.items():
        if isinstance(value, str) and not value.isprintable():
            raise errors.ParseError(
                f"hypervisor {hypervisor}: parameter {name}: wanted a text in one line"
                f" without control characters, found {value!r:.200}"
            )
    for problem in _problems(hypervisor, hvparams):
        raise errors.ParseError(f"hypervisor {hypervisor}: {problem}")


def _problems(hypervisor: str, hvparams: Mapping[str, Any]) -> Iterator[str]:
    if hypervisor in _CHECKS:
        yield from _CHECKS[hypervisor](hvparams)
    for name, row in params_table.HYPERVISOR.get(hypervisor, {}).items():
        value = hvparams.get(name)
        if row.form is None or not isinstance(value, str):
            continue
        if value or row.required:
            bad = next(bad_parts(value, row.form), None)
            if bad is not None:
                yield f"parameter {name}: wanted {row.form.wanted}, found {bad!r:.200}"
    mask = hvparams.get("cpu_mask")
    if isinstance(mask, str):
        parse = parse_single_mask if hypervisor == _LXC else parse_mask
        try:
            parse(mask or _ALL)
        except errors.ParseError as err:
            yield f"parameter cpu_mask: {err}"


def bad_parts(text: str, form: forms.Form) -> Iterator[str]:
    """Yield the parts of a text that do not have a form."""
    for part in text.split(form.separator) if form.separator else [text]:
        if not re.fullmatch(form.pattern, part):
            yield part.strip() if form.separator else part


def parse_shares(text: str) -> dict[str, str]:
    """Return the directories of a list such as ``data=/srv/data:iso=/srv/iso``, by tag.

    Raises:
        ParseError: names the part, wanted and found.
    """
    shares: dict[str, str] = {}
    for part in filter(None, text.split(":")):
        tag, _, path = part.partition("=")
        if not (_SHARE_TAG.fullmatch(tag) and is_shareable(path)):
            raise errors.ParseError(
                "parameter shared_directories: wanted parts TAG=DIRECTORY between"
                " colons, with a tag of at most 36 letters, digits and . _ - and"
                f" {SHAREABLE}, found {part!r:.100}"
            )
        if tag in shares:
            raise errors.ParseError(
                "parameter shared_directories: wanted different tags, found"
                f" {tag} twice"
            )
        shares[tag] = path
    if len(shares) > _MOST_SHARES:
        raise errors.ParseError(
            f"parameter shared_directories: wanted at most {_MOST_SHARES} directories,"
            f" found {len(shares)}"
        )
    return shares


def is_shareable(path: str) -> bool:
    """Return whether a path is one that a guest may share; see `SHAREABLE`."""
    parts = path[1:].split("/")
    return bool(_SHARE_PATH.fullmatch(path)) and not {"", ".", ".."} & set(parts)


def _kvm_problems(hvparams: Mapping[str, Any]) -> Iterator[str]:
    try:
        shlex.split(hvparams.get("kvm_extra") or "")
    except ValueError as err:
        yield f"parameter kvm_extra: {err}"
    try:
        parse_shares(hvparams.get("shared_directories") or "")
    except errors.ParseError as err:
        yield str(err)
    kind = hvparams.get("disk_type") or "paravirtual"
    controller = hvparams.get("scsi_controller_type")
    has_virtio = kind == "paravirtual" or (
        kind.startswith("scsi") and controller == "virtio-scsi-pci"
    )
    if hvparams.get("io_threads") and not has_virtio:
        yield (
            "io_threads needs disk_type paravirtual, or scsi with scsi_controller_type"
            f" virtio-scsi-pci, found disk_type {kind} and {controller}"
        )


def _xen_problems(hvparams: Mapping[str, Any]) -> Iterator[str]:
    address = str(hvparams.get("vnc_bind_address") or "")
    if address and not _is_ipv4(address):
        yield (
            "parameter vnc_bind_address: wanted an IPv4 address of the nodes or"
            f" 0.0.0.0, found {address!r:.200}"
        )


def _is_ipv4(text: str) -> bool:
    try:
        ip.ipv4(text)
    except ValueError:
        return False
    return True


_CHECKS: Final[dict[str, Callable[[Mapping[str, Any]], Iterator[str]]]] = {
    "kvm": _kvm_problems,
    "xen-hvm": _xen_problems,
    "xen-pvm": _xen_problems,
}
