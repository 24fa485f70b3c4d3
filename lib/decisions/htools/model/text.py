"""Text format of a cluster: reads and writes the files of option ``-t``.

This module converts lines into values and back; callers open the files. Errors name
the file, the line and the field.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from ganeti.base.text import control_chars
from ganeti.decisions.htools.model import formatting
from ganeti.decisions.htools.model.cluster import (
    MOVABLE_TEMPLATES,
    NONE,
    STATES,
    Cluster,
    DataError,
    Group,
    Instance,
    Node,
)
from ganeti.decisions.htools.model.policy import (
    DEFAULT_POLICY,
    TEMPLATES,
    AllocPolicy,
    Policy,
    Spec,
)

_SECTIONS: Final = 4
_KINDS: Final = ("groups", "nodes", "instances", "cluster tags", "policies")
_WHOLE: Final = re.compile(r"-?\d+\Z", re.ASCII)
_REAL: Final = re.compile(r"-?\d+(\.\d+)?([eE]-?\d{1,3})?\Z", re.ASCII)
#: Most digits of a number; a longer one cannot be a size.
_MOST_DIGITS: Final = 18
_LARGEST: Final = 1e18
_YES_NO: Final = {"Y": True, "N": False}


class _Line(msgspec.Struct, frozen=True):
    """One line, and its source and number for errors."""

    source: str
    number: int
    kind: str
    cells: list[str]

    def fail(self, field: str, reason: str) -> DataError:
        """Return the error about one field."""
        return DataError(
            f"{self.source}, line {self.number}: {self.kind}, field '{field}': {reason}"
        )

    def need(self, count: int) -> None:
        """Refuse a line with fewer than ``count`` fields."""
        if len(self.cells) < count:
            raise DataError(
                f"{self.source}, line {self.number}: {self.kind} needs {count} fields"
                f" or more, found {len(self.cells)}"
            )

    def name(self, index: int, field: str) -> str:
        """Return a field that identifies an object."""
        if not self.cells[index]:
            raise self.fail(field, "is empty")
        return self.cells[index]

    def text(self, index: int, default: str = "") -> str:
        """Return a field, or the default if the line is shorter."""
        return self.cells[index] if index < len(self.cells) else default

    def whole(self, index: int, field: str, default: str = "") -> int:
        """Return a field that is an integer; free space may be negative."""
        text = self.text(index, default)
        if not _WHOLE.fullmatch(text) or len(text) > _MOST_DIGITS:
            raise self.fail(field, f"not a whole number: {text!r:.40}")
        return int(text)

    def size(self, index: int, field: str, default: str = "") -> int:
        """Return a field that is an integer of at least 0."""
        number = self.whole(index, field, default)
        if number < 0:
            raise self.fail(field, f"below zero: {number}")
        return number

    def real(self, index: int, field: str, default: str = "") -> float:
        """Return a field that is a number of at least 0."""
        text = self.text(index, default)
        if not _REAL.fullmatch(text) or len(text) > _MOST_DIGITS:
            raise self.fail(field, f"not a number: {text!r:.40}")
        if float(text) < 0:
            raise self.fail(field, f"below zero: {text}")
        if float(text) > _LARGEST:
            raise self.fail(field, f"too large: {text}")
        return float(text)

    def flag(self, index: int, field: str, default: str = "N") -> bool:
        """Return a field that is Y or N."""
        text = self.text(index, default)
        if text not in _YES_NO:
            raise self.fail(field, f"wanted Y or N, found {text!r:.40}")
        return _YES_NO[text]

    def choice(self, index: int, field: str, known: Iterable[str]) -> str:
        """Return a field that must be one of the known values."""
        value = self.text(index)
        if value not in known:
            raise self.fail(field, f"unknown value {value!r:.40}")
        return value

    def words(self, index: int) -> tuple[str, ...]:
        """Return a field that is a list."""
        return words(self.text(index))

    def place(self, index: int, field: str, known: dict[str, int]) -> int:
        """Return the position of the object that a field names."""
        name = self.text(index)
        if name not in known:
            raise self.fail(field, f"unknown name {name!r:.80}")
        return known[name]


def words(text: str) -> tuple[str, ...]:
    """Split a comma-separated list; an empty text is an empty list."""
    return tuple(text.split(",")) if text else ()


def load(data: str, source: str) -> Cluster:
    """Read a cluster from the content of a text file.

    Raises:
        DataError: naming ``source``, line and field.
    """
    _refuse_control(data, source)
    sections = _sections(data)
    if len(sections) == _SECTIONS - 1 and data.endswith("\n\n"):
        # An older form, without tags of the cluster.
        sections.append([])
    if len(sections) < _SECTIONS:
        raise _too_few(sections, source)

    def lines(index: int, kind: str) -> list[_Line]:
        rows = sections[index] if index < len(sections) else []
        return [_Line(source, no, kind, text.split("|")) for no, text in rows]

    group_lines, policy_lines = lines(0, "group"), lines(4, "policy")
    node_lines, instance_lines = lines(1, "node"), lines(2, "instance")
    # Names of instances may be repeated.
    for named in (group_lines, node_lines):
        _refuse_repeated(named, 0, "name")
    _refuse_repeated(group_lines, 1, "uuid")
    _refuse_repeated(policy_lines, 0, "owner")
    groups = [_group(line) for line in group_lines]
    known_groups = {group.uuid: k for k, group in enumerate(groups)}
    nodes = [_node(line, known_groups) for line in node_lines]
    known_nodes = {node.name: k for k, node in enumerate(nodes)}
    instances = [_instance(line, known_nodes) for line in instance_lines]
    policy = DEFAULT_POLICY
    owners = {group.name: k for k, group in enumerate(groups)}
    for line in policy_lines:
        line.need(6)
        owner, rows = line.text(0), _policy(line)
        if not owner:
            policy = rows
            continue
        place = line.place(0, "owner", owners)
        groups[place] = msgspec.structs.replace(groups[place], policy=rows)
    return Cluster(
        groups=tuple(groups),
        nodes=tuple(nodes),
        instances=tuple(instances),
        tags=tuple(text for _no, text in sections[3]),
        policy=policy,
    )


def _refuse_control(data: str, source: str) -> None:
    """Refuse characters that editors add or that control terminals."""
    match = control_chars.find(data)
    if match is None:
        return
    start = data.rfind("\n", 0, match.start()) + 1
    line, end = data.count("\n", 0, start) + 1, match.end()
    place = f"{source}, line {line}, field {data.count('|', start, end) + 1}"
    if match[0] == "\r" and data[end : end + 1] in {"", "\n"}:
        raise DataError(f"{place}: the line ends with a carriage return")
    if match[0] == "\ufeff" and not match.start():
        raise DataError(f"{place}: the file begins with a byte order mark")
    raise DataError(f"{place}: control character {match[0]!r}")


def _too_few(sections: list[list[tuple[int, str]]], source: str) -> DataError:
    """Return the error about a file that ends too early."""
    message = (
        f"{source}: Invalid format of the input file: {len(sections)} sections"
        f" instead of {_SECTIONS} or more"
    )
    last = sections[-1] if sections else []
    if last:
        message += (
            f"; it ends in line {last[-1][0]} among the {_KINDS[len(sections) - 1]}"
        )
    return DataError(message)


def _refuse_repeated(lines: list[_Line], index: int, field: str) -> None:
    """Refuse a field with the same value in two lines."""
    seen: dict[str, int] = {}
    for line in lines:
        name = line.text(index)
        if name in seen:
            reason = f"{name!r:.80} is already in line {seen[name]}"
            raise line.fail(field, reason)
        seen[name] = line.number


def _sections(data: str) -> list[list[tuple[int, str]]]:
    """Split into sections of numbered lines; an empty line ends a section."""
    sections: list[list[tuple[int, str]]] = []
    current: list[tuple[int, str]] = []
    lines = data.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        if line:
            current.append((number, line))
        else:
            sections.append(current)
            current = []
    if current:
        sections.append(current)
    return sections


def _group(line: _Line) -> Group:
    line.need(4)
    return Group(
        name=line.name(0, "name"),
        uuid=line.name(1, "uuid"),
        alloc_policy=AllocPolicy(
            line.choice(2, "allocation policy", list(AllocPolicy))
        ),
        tags=line.words(3),
        networks=line.words(4),
    )


def _node(line: _Line, groups: dict[str, int]) -> Node:
    line.need(9)
    flag = line.choice(7, "flag", ("Y", "M", "N"))
    group = line.place(8, "group", groups)
    unknown = any(line.text(k) == "?" for k in range(1, 7))
    if unknown:
        line = msgspec.structs.replace(
            line, cells=[line.cells[0], *["0"] * 6, *line.cells[7:]]
        )
    return Node(
        name=line.name(0, "name"),
        group=group,
        total_memory=line.real(1, "total memory"),
        node_memory=line.size(2, "node memory"),
        free_memory=line.whole(3, "free memory"),
        total_disk=line.real(4, "total disk"),
        free_disk=line.whole(5, "free disk"),
        cpus=line.real(6, "cpus"),
        offline=unknown or flag == "Y",
        master=flag == "M",
        spindles=line.size(9, "spindles", "1"),
        tags=line.words(10),
        exclusive=line.flag(11, "exclusive storage"),
        free_spindles=line.whole(12, "free spindles", "0"),
        node_cpus=line.size(13, "cpus of the node", "1"),
        cpu_speed=line.real(14, "cpu speed", "1.0"),
    )


def _instance(line: _Line, nodes: dict[str, int]) -> Instance:
    line.need(10)
    primary = line.place(6, "primary node", nodes)
    secondary = line.place(7, "secondary node", nodes) if line.text(7) else NONE
    template = line.choice(8, "disk template", TEMPLATES)
    _check_pair(line, template, primary, secondary)
    spindles = line.text(11, "-")
    disk = line.size(2, "disk")
    return Instance(
        name=line.name(0, "name"),
        memory=line.size(1, "memory"),
        disk=disk,
        vcpus=line.size(3, "vcpus"),
        status=line.choice(4, "status", STATES),
        auto_balance=line.flag(5, "auto balance"),
        primary=primary,
        secondary=secondary,
        template=template,
        tags=line.words(9),
        spindle_use=line.size(10, "spindle use", "1"),
        spindles=None if spindles == "-" else line.size(11, "spindles"),
        forthcoming=line.flag(12, "forthcoming"),
        disks=(disk,),
        movable=template in MOVABLE_TEMPLATES,
    )


def _check_pair(line: _Line, template: str, primary: int, secondary: int) -> None:
    """Refuse nodes that no instance of a template can have."""
    field = "secondary node"
    if template != "drbd":
        if secondary != NONE:
            raise line.fail(field, f"wanted none for {template}, found {line.text(7)}")
        return
    if primary == secondary:
        raise line.fail(field, "is the same as the primary node")
    if secondary == NONE:
        raise line.fail(field, "wanted one for drbd, found none")


def _policy(line: _Line) -> Policy:
    bounds = line.text(2).split(";")
    if len(bounds) % 2:
        raise line.fail("ranges", "a minimum without a maximum")
    specs = [_spec(line, "ranges", text) for text in bounds]
    templates = line.words(3)
    unknown = [name for name in templates if name not in TEMPLATES]
    if unknown:
        raise line.fail("disk templates", f"unknown value {unknown[0]!r}")
    policy = Policy(
        std=_spec(line, "standard", line.text(1)),
        ranges=tuple(zip(specs[::2], specs[1::2], strict=True)),
        templates=templates,
        vcpu_ratio=line.real(4, "vcpu ratio"),
        spindle_ratio=line.real(5, "spindle ratio"),
    )
    flaw = policy.flaw()
    if flaw:
        raise line.fail("ranges", flaw)
    return policy


def _spec(line: _Line, field: str, text: str) -> Spec:
    cells = text.split(",")
    if len(cells) != len(Spec.__struct_fields__):
        raise line.fail(field, f"wanted six numbers, found {text!r}")
    bad = [
        cell for cell in cells if not _WHOLE.fullmatch(cell) or len(cell) > _MOST_DIGITS
    ]
    if bad:
        raise line.fail(field, f"not a whole number: {bad[0]!r:.40}")
    if any(cell.startswith("-") for cell in cells):
        raise line.fail(field, f"below zero: {text}")
    return Spec(*(int(cell) for cell in cells))


def dump(cluster: Cluster) -> str:
    """Write a cluster as a text file."""
    uuids = [group.uuid for group in cluster.groups]
    groups = (*cluster.groups, *cluster.empty_groups)
    names = [node.name for node in cluster.nodes]
    sections = [
        [_group_line(group) for group in groups],
        [_node_line(node, uuids[node.group]) for node in cluster.nodes],
        [_instance_line(inst, names) for inst in cluster.instances],
        list(cluster.tags),
        [
            _policy_line("", cluster.policy),
            *(_policy_line(group.name, group.policy) for group in groups),
        ],
    ]
    return "\n".join("".join(f"{line}\n" for line in part) for part in sections)


def _yes(value: bool) -> str:
    return "Y" if value else "N"


def _group_line(group: Group) -> str:
    lists = (",".join(group.tags), ",".join(group.networks))
    return "|".join((group.name, group.uuid, group.alloc_policy.value, *lists))


def _node_line(node: Node, group: str) -> str:
    flag = "Y" if node.offline else "M" if node.master else "N"
    cells = (
        node.name,
        formatting.fixed(node.total_memory, 0),
        node.node_memory,
        node.free_memory,
        formatting.fixed(node.total_disk, 0),
        node.free_disk,
        formatting.fixed(node.cpus, 0),
        flag,
        group,
        node.spindles,
        ",".join(node.tags),
        _yes(node.exclusive),
        node.free_spindles,
        node.node_cpus,
        formatting.shown(node.cpu_speed),
    )
    return "|".join(str(cell) for cell in cells)


def _instance_line(inst: Instance, nodes: list[str]) -> str:
    cells = (
        inst.name,
        inst.memory,
        inst.disk,
        inst.vcpus,
        inst.status,
        _yes(inst.auto_balance),
        nodes[inst.primary],
        "" if inst.secondary == NONE else nodes[inst.secondary],
        inst.template,
        ",".join(inst.tags),
        inst.spindle_use,
        "-" if inst.spindles is None else inst.spindles,
        _yes(inst.forthcoming),
    )
    return "|".join(str(cell) for cell in cells)


def _spec_text(spec: Spec) -> str:
    return ",".join(str(value) for value in msgspec.structs.astuple(spec))


def _policy_line(owner: str, policy: Policy) -> str:
    ranges = [_spec_text(spec) for pair in policy.ranges for spec in pair]
    return "|".join(
        (
            owner,
            _spec_text(policy.std),
            ";".join(ranges),
            ",".join(policy.templates),
            formatting.shown(policy.vcpu_ratio),
            formatting.shown(policy.spindle_ratio),
        )
    )
