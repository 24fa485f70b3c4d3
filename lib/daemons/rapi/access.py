"""Rights: which requests a user may make.

The documented options ``read`` and ``write`` apply to all resources. An option
``RIGHT:PATTERN`` applies to the paths that a shell pattern matches, such as
``write:/2/instances/web-*``; ``*`` also matches slashes. The right of such an option is
``read``, ``write``, ``root``, or a method such as ``get`` or ``delete``, which grants
requests of that method whatever right they need.

``root`` permits parameters that give control of the nodes themselves. It is not part of
``write``.
"""

import dataclasses
import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base.constants.misc import UUID_REGEX
from ganeti.base.constants.parameters import forms, hvparams, params
from ganeti.model.opcodes import codec
from ganeti.protocols.rapi import model
from ganeti.protocols.rapi.model import Resource
from ganeti.protocols.rapi.resource_table import RESOURCES

_UUID: Final = re.compile(UUID_REGEX, re.IGNORECASE)
_METHODS: Final = frozenset({"get", "put", "post", "delete"})
_LIMITED: Final = frozenset({model.READ, model.WRITE, model.ROOT}) | _METHODS


class RightsError(ValueError):
    """Malformed options."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """A right that applies to some paths."""

    right: str
    pattern: str

    def matches(self, path: str) -> bool:
        """Return whether the rule applies to a path."""
        return fnmatch.fnmatchcase(path, self.pattern)


@dataclasses.dataclass(frozen=True)
class Rights:
    """The rights of a user.

    Attributes:
        words: rights on all paths; unknown words are kept and grant nothing.
        rules: rights on some paths.
    """

    words: frozenset[str] = frozenset()
    rules: tuple[Rule, ...] = ()

    def joined(self, other: "Rights") -> "Rights":
        """Return the rights of both."""
        return Rights(self.words | other.words, self.rules + other.rules)

    def allow(self, resource: Resource, paths: Sequence[str]) -> bool:
        """Return whether a request is permitted.

        Args:
            resource: that is requested.
            paths: of the request and of all objects that it creates.
        """
        if not resource.access or self.words & set(resource.access):
            return True
        wanted = {*resource.access, resource.method.lower()}
        return all(self._has(wanted, path) for path in paths)

    def allow_root(self, paths: Sequence[str]) -> bool:
        """Return whether parameters that mean root on nodes are permitted."""
        if model.ROOT in self.words:
            return True
        return all(self._has({model.ROOT}, path) for path in paths)

    def _has(self, wanted: set[str], path: str) -> bool:
        return any(rule.right in wanted and rule.matches(path) for rule in self.rules)


def parse_rights(words: Iterable[str]) -> Rights:
    """Return the rights of some options.

    Raises:
        RightsError: an option of one path has an unknown right, or no path.
    """
    plain, rules = set(), []
    for word in words:
        right, colon, pattern = word.partition(":")
        if not colon:
            plain.add(word)
        elif right not in _LIMITED or not pattern.startswith(("/", "*")):
            raise RightsError(
                f"option {word!r}: wanted RIGHT:/PATH, the right one of"
                f" {', '.join(sorted(_LIMITED))}"
            )
        else:
            rules.append(Rule(right, pattern))
    return Rights(frozenset(plain), tuple(rules))


#: Opcode -> parameter with the name of a new object, and path of its collection.
_NEW_OBJECTS: Final[Mapping[str, tuple[str, str]]] = {
    each.job.op_id: (each.job.creates, model.collection_of(each.path))
    for each in RESOURCES
    if each.job is not None and each.job.creates
}
_MODIFY: Final = "OP_INSTANCE_SET_PARAMS"
_WITH_DISKS: Final = (_MODIFY, "OP_INSTANCE_RECREATE_DISKS")
#: Keys of a disk in a request; all else goes to a provider's programs, which run as
#: root. Rights know it by the name that it has in a conversion.
_DISK_KEYS: Final = frozenset({*params.IDISK, "uuid"})
_PROVIDED: Final = "ext_params"
#: Opcode -> parameters with names of objects that it changes beside that of its path,
#: and the paths of their collections.
_OTHERS: Final[Mapping[str, Mapping[str, str]]] = {
    each.job.op_id: each.job.touches
    for each in RESOURCES
    if each.job is not None and each.job.touches
}


#: (kind of object, UUID) -> its name; the UUID if it has none, or is unknown.
NameOf = Callable[[str, str], str]


def named_path(path: str, name_of: NameOf) -> str:
    """Return a path with the name of its object in place of a UUID.

    Else a pattern such as ``/2/instances/db*`` would match UUIDs of any instance.
    """
    parts = path.split("/")
    kind = model.kind_of(path)
    if kind and len(parts) > 3 and _UUID.fullmatch(parts[3]):
        parts[3] = model.segment(name_of(kind, parts[3]))
    return "/".join(parts)


def paths_of(path: str, ops: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the paths that a right must cover: of the request and all that it touches.

    New objects are among them, see also `others_of`.

    The right to create ``/2/instances/web1`` permits ``POST /2/instances`` with that
    name. A reservation without a name needs the right for ``/2/instances/``.
    """
    children = [child for op in ops for child in op.get("instances") or ()]
    created = [
        f"{collection}/{model.segment(str(op.get(name) or ''))}"
        for op in [*ops, *(child for child in children if isinstance(child, dict))]
        for name, collection in filter(None, [_NEW_OBJECTS.get(op.get("OP_ID", ""))])
    ]
    is_collection = any(new.startswith(f"{path}/") for new in created)
    many = path == "/2/instances-multi-alloc" and created
    touched = [
        f"{collection}/{model.segment(str(name))}"
        for op in ops
        for collection, name in others_of(op)
    ]
    return [*(created if is_collection or many else [path, *created]), *touched]


def others_of(op: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the further objects that an opcode touches: path of a collection, name.

    Where an instance is placed is no such object: nodes that only carry it.
    """
    others = [
        (collection, name)
        for parameter, collection in _OTHERS.get(op.get("OP_ID", ""), {}).items()
        for name in _names(op.get(parameter))
    ]
    # While a disk is detached it has no owner: whoever attaches it gets its data.
    for change in _names(op.get("disks") if op.get("OP_ID") == _MODIFY else None):
        if isinstance(change, list | tuple) and change and change[0] == "attach":
            values = change[-1] if isinstance(change[-1], Mapping) else {}
            item = change[1] if len(change) > 2 else ""
            others.append(
                ("/2/disks", values.get("uuid") or values.get("name") or item)
            )
    return others


def _names(value: Any) -> Sequence[Any]:
    return (
        value if isinstance(value, list | tuple) else [] if value is None else [value]
    )


#: Objects whose keys are chosen by definitions of operating systems.
_FREE_FORM: Final = frozenset(
    {"osparams", "osparams_private", "osparams_secret", "tags", "reason"}
)
#: In place of a present value.
_UNKNOWN: Final = object()


def _root_values() -> dict[str, frozenset[forms.Root]]:
    tables: list[Mapping[str, Any]] = [
        *hvparams.HYPERVISOR.values(),
        *params.DISK.values(),
        *(params.BACKEND, params.NIC, params.INIC, params.IDISK, params.NODE),
    ]
    rows = [(name, row.root) for table in tables for name, row in table.items()]
    out: dict[str, set[forms.Root]] = {}
    for name, root in [*rows, *codec.root_fields()]:
        if root is not None:
            out.setdefault(name, set()).add(root)
    return {name: frozenset(roots) for name, roots in out.items()}


#: Parameters, of whatever object, that can give control of nodes -> the values that do.
ROOT_VALUES: Final[Mapping[str, frozenset[forms.Root]]] = _root_values()


def root_parameters(ops: Sequence[Mapping[str, Any]], present: Any = None) -> list[str]:
    """Return the names of the given parameters that mean root on nodes, sorted.

    Args:
        ops: opcodes of a request.
        present: the present values, nested as in the opcodes. Clients write back what
            they have read, so an equal value is none of these parameters.
    """
    names = {name for op in ops for name in _walk(op, present)}
    return sorted(names | {_PROVIDED for op in ops if _has_provided(op)})


def without_root(ops: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return opcodes without the parameters that mean root on nodes.

    A job runs later than its request was checked. A value that was there then could be
    another one by now, which the job must not change back.
    """
    return [_bare(op) for op in ops]


def _bare(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: item if name in _FREE_FORM else _bare(item)
            for name, item in value.items()
            if name in _FREE_FORM or not _needs_root(name, item)
        }
    return [_bare(each) for each in value] if isinstance(value, list) else value


def _has_provided(op: Mapping[str, Any]) -> bool:
    """Return whether disks of a request have parameters of their provider.

    A new instance names the provider; its present disks have one.
    """
    if op.get("OP_ID") not in _WITH_DISKS:
        return False
    changes = [row for row in op.get("disks") or () if isinstance(row, list | tuple)]
    values = [row[-1] for row in changes if row and isinstance(row[-1], Mapping)]
    return any(each.keys() - _DISK_KEYS for each in values)


def _walk(value: Any, present: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name in _FREE_FORM:
                continue
            known = _UNKNOWN
            if isinstance(present, Mapping):
                known = present.get(name, _UNKNOWN)
            if _needs_root(name, item) and not _is_same(item, known):
                yield name
            yield from _walk(item, known)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _walk(item, _UNKNOWN)


def _needs_root(name: str, value: Any) -> bool:
    return any(root.applies(value) for root in ROOT_VALUES.get(name, ()))


def _is_same(value: Any, present: Any) -> bool:
    """Return whether a value is the present one; truth values are texts, too."""
    if isinstance(present, bool):
        return str(value).lower() == str(present).lower()
    return type(value) is type(present) and bool(value == present)
