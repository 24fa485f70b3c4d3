"""Opcodes to and from the wire form: one flat object with ``OP_ID``."""

import typing
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.misc import REDACTED
from ganeti.base.constants.parameters import forms
from ganeti.base.text import messages
from ganeti.model import ht
from ganeti.model.opcodes import (
    cluster,
    group,
    instance,
    instance_create,
    instance_move,
    network,
    node,
    query,
    test,
)
from ganeti.model.opcodes.common import Opcode

_MODULES: Final = (
    cluster,
    group,
    instance,
    instance_create,
    instance_move,
    network,
    node,
    query,
    test,
)

#: Opcode classes by wire name.
OPCODES: Final[dict[str, type[Opcode]]] = {
    cls.op_id(): cls
    for module in _MODULES
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Opcode) and cls is not Opcode
}

_DEFAULTED: Final[dict[str, frozenset[str]]] = {
    op_id: frozenset(f.name for f in msgspec.structs.fields(cls) if not f.required)
    for op_id, cls in OPCODES.items()
}


def _hidden_fields() -> dict[str, dict[str, bool]]:
    hidden: dict[str, dict[str, bool]] = {}
    for op_id, cls in OPCODES.items():
        for name, hint in typing.get_type_hints(cls, include_extras=True).items():
            text = repr(hint)
            if "Hidden(" in text:
                hidden.setdefault(op_id, {})[name] = "stored=True" in text
    return hidden


#: Parameters that logs never show: op id -> {name: may be written to disk}.
HIDDEN: Final = _hidden_fields()

#: Parameters that contain other requests: op id -> (name, op id of those requests).
_CHILDREN: Final = {"OP_INSTANCE_MULTI_ALLOC": ("instances", "OP_INSTANCE_CREATE")}


def _hotplug_of_3_0(given: dict[str, Any]) -> None:
    """Translate the hotplug parameters of Ganeti 3.0 clients, which always send both.

    There, ``hotplug`` fails without hotplug support, unlike ``hotplug_if_possible``.
    The only parameter here is ``hotplug``, with the meaning of the latter.
    """
    best_effort = given.get("hotplug_if_possible")
    if best_effort is None or isinstance(best_effort, bool):
        given.pop("hotplug_if_possible", None)
    if best_effort is True:
        given["hotplug"] = True


def _optional_of_reservation(given: dict[str, Any]) -> None:
    """Add what may be left out of a reservation, and of its later creation."""
    if given.get("forthcoming") is True:
        given.setdefault("instance_name", "")
    if given.get("forthcoming") is True or given.get("commit") is True:
        given.setdefault("mode", "create")
        given.setdefault("disks", [])
        given.setdefault("nics", [])


#: Translations of parameters that are not as declared, by op id: those that only
#: earlier releases have, and those that are optional in some requests.
_TRANSLATED: Final = {
    "OP_INSTANCE_CREATE": _optional_of_reservation,
    "OP_INSTANCE_SET_PARAMS": _hotplug_of_3_0,
}


def decode(data: Any) -> Opcode:
    """Return the opcode for its wire form.

    A null for a parameter with a default means the default. Parameters of earlier
    releases are translated. What a reservation may lack is added.

    Raises:
        OpPrereqError: unknown ``OP_ID`` or parameter, missing or wrong value.
    """
    if not isinstance(data, dict):
        raise errors.OpPrereqError(
            f"opcode: wanted an object, found {type(data).__name__}",
            ecodes.ECODE_INVAL,
        )
    op_id = data.get("OP_ID")
    cls = OPCODES.get(op_id) if isinstance(op_id, str) else None
    if cls is None or not isinstance(op_id, str):
        alike = ""
        if isinstance(op_id, str):
            alike = f"; {messages.known_names(op_id, OPCODES)}"
        raise errors.OpPrereqError(
            f"unknown opcode {op_id!r}{alike}", ecodes.ECODE_INVAL
        )
    defaulted = _DEFAULTED[op_id]
    given = {k: v for k, v in data.items() if v is not None or k not in defaulted}
    if op_id in _TRANSLATED:
        _TRANSLATED[op_id](given)
    op: Opcode = ht.convert(given, cls, op_id)
    return op


def encode(op: Opcode) -> dict[str, Any]:
    """Return the wire form; unset optional parameters are left out."""
    data = msgspec.to_builtins(op)
    optional = _DEFAULTED[op.op_id()] - {"depends", "comment"}
    return {
        key: value
        for key, value in data.items()
        if value is not None or key not in optional
    }


def redact(data: dict[str, Any], *, for_disk: bool = False) -> dict[str, Any]:
    """Return a wire form without its hidden values.

    Args:
        data: wire form of one opcode.
        for_disk: keep private values, which may be stored; secret ones never are.
    """
    op_id = str(data.get("OP_ID"))
    hidden, children = HIDDEN.get(op_id, {}), _CHILDREN.get(op_id)
    if not hidden and children is None:
        return data
    out = dict(data)
    for name, stored in hidden.items():
        if out.get(name) and not (stored and for_disk):
            out[name] = _redact_leaves(out[name])
    if children is not None:
        name, child_id = children
        out[name] = [
            _redact_child(child, child_id, for_disk=for_disk)
            for child in out.get(name) or ()
        ]
    return out


def _redact_child(child: Any, op_id: str, *, for_disk: bool) -> Any:
    """Redact a request inside another one, regardless of its ``OP_ID``."""
    if not isinstance(child, dict):
        return REDACTED
    clean = redact({**child, "OP_ID": op_id}, for_disk=for_disk)
    return {**clean, "OP_ID": child.get("OP_ID")}


def lost_secrets(data: dict[str, Any]) -> bool:
    """Return whether a wire form was stored without its secret values."""
    op_id = str(data.get("OP_ID"))
    own = any(
        not stored and REDACTED in _leaves(data.get(name))
        for name, stored in HIDDEN.get(op_id, {}).items()
    )
    name, child_id = _CHILDREN.get(op_id, ("", ""))
    children = [child for child in data.get(name) or () if isinstance(child, dict)]
    return own or any(lost_secrets({**child, "OP_ID": child_id}) for child in children)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    return [value]


def _redact_leaves(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _redact_leaves(item) for key, item in value.items()}
    return REDACTED


def short_summary(op: Opcode) -> str:
    """Return the summary for process titles and logs, such as ``I_STARTUP(web1)``."""
    text = op.summary()
    for prefix in ("CLUSTER_", "GROUP_", "NODE_", "INSTANCE_"):
        if text.startswith(prefix):
            return f"{prefix[0]}_{text.removeprefix(prefix)}"
    return text


def root_fields() -> Iterator[tuple[str, forms.Root]]:
    """Yield the names of fields that can give control of nodes, and the values."""
    for cls in OPCODES.values():
        for name, hint in typing.get_type_hints(cls, include_extras=True).items():
            for mark in getattr(hint, "__metadata__", ()):
                if isinstance(mark, forms.Root):
                    yield name, mark
