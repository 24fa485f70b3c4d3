"""Checks of the common parts of allocators' answers. Pure.

Every error names the allocator, the part of its answer, the wanted and the actual
value.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.text import control_chars
from ganeti.master.iallocator import requests
from ganeti.model import objects

#: Most characters that are kept of an allocator's text; a job's log has them.
MOST_TEXT: Final = 1 << 16


class Checker:
    """Checker of one allocator's answer."""

    def __init__(self, name: str, snapshot: objects.Snapshot) -> None:
        self.name = name
        self.snapshot = snapshot

    def wrong(self, what: str, wanted: str, actual: Any) -> errors.GenericError:
        """Return the error for one part of an answer."""
        return errors.ResultValidationError(
            f"allocator {self.name}: {what}: wanted {wanted}, found {actual!r:.200}"
        )

    def check(self, fine: bool, what: str, wanted: str, actual: Any) -> None:
        """Raise an error unless a part is valid."""
        if not fine:
            raise self.wrong(what, wanted, actual)

    def node(self, name: str) -> objects.Node:
        """Return the record of a node whose name `nodes` has checked."""
        return self.snapshot.nodes[self.snapshot.uuid_of("nodes", name) or ""]

    def group(self, uuid: str) -> str:
        """Return a group's name."""
        return self.snapshot.nodegroups[uuid].name

    def nodes(self, answer: Any, count: int | None, what: str) -> list[str]:
        """Return distinct names of known nodes; any number if ``count`` is None."""
        self.check(isinstance(answer, list), what, "a list of node names", answer)
        if count is not None:
            self.check(len(answer) == count, what, f"{count} node names", answer)
        for item in answer:
            known = isinstance(item, str) and self.snapshot.uuid_of("nodes", item)
            self.check(bool(known), what, "names of known nodes", item)
        self.check(len(set(answer)) == len(answer), what, "distinct nodes", answer)
        return list(answer)

    def usable(self, answer: Any, count: int | None, what: str) -> list[str]:
        """Return names of nodes that may take instances."""
        names = self.nodes(answer, count, what)
        for name in names:
            self.require_usable(name, what)
        return names

    def require_usable(self, name: str, what: str) -> None:
        """Refuse a node that may not take instances."""
        node = self.node(name)
        states = (
            (node.offline, "offline"),
            (node.drained, "drained"),
            (not node.vm_capable, "not vm_capable"),
        )
        for is_excluded, state in states:
            wanted = "nodes that may take instances"
            self.check(not is_excluded, what, wanted, f"{name}, which is {state}")

    def placement(
        self, request: requests.Allocate, answer: Any, what: str
    ) -> list[str]:
        """Return the nodes of a new instance, all of them allowed by the request."""
        names = self.usable(answer, request.required_nodes, what)
        if request.group_name is not None:
            self.within([request.group_name], names, what)
        if request.restrict_to is not None:
            outside = [name for name in names if name not in request.restrict_to]
            wanted = "nodes that the request allows"
            self.check(not outside, what, wanted, "".join(outside[:1]))
        return names

    def within(self, groups: Collection[str], names: Sequence[str], what: str) -> None:
        """Refuse nodes outside some groups, given by name."""
        for name in names:
            group = self.group(self.node(name).group)
            wanted = f"nodes of group {' or '.join(sorted(groups))}"
            fine = group in groups
            self.check(fine, what, wanted, f"{name}, which is in group {group}")


def instance_of(snapshot: objects.Snapshot, name: str) -> objects.Instance:
    """Return the record of an instance of the request."""
    return snapshot.instances[snapshot.uuid_of("instances", name) or ""]


def printable(text: str) -> str:
    """Return an allocator's text without control characters and limited in length."""
    shown = control_chars.replace(text[:MOST_TEXT])
    if len(text) <= MOST_TEXT:
        return shown
    return f"{shown} [{len(text) - MOST_TEXT} more characters]"


def is_list(value: Any, length: int) -> bool:
    """Return whether a value is a list of a length."""
    return isinstance(value, list) and len(value) == length


def is_one_of(value: Any, known: Collection[str]) -> bool:
    """Return whether a value is one of some strings."""
    return isinstance(value, str) and value in known


def all_texts(value: Any) -> bool:
    """Return whether a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
