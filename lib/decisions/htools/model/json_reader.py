"""Strict reader of JSON and of policies in it: errors name path, wanted and found.

Callers know the meaning of the fields.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ganeti.decisions.htools.model.cluster import DataError
from ganeti.decisions.htools.model.policy import DEFAULT_POLICY, Policy, Spec

_TOO_LARGE = 1 << 62
# Types as tuples: creating a union for each test takes longer than the test.
_LISTS = (list, tuple)
_NUMBERS = (int, float)


def decode(data: bytes, source: str) -> Any:
    """Decode JSON; raises DataError that names the source."""
    try:
        return json.loads(data)
    except ValueError as err:
        raise DataError(f"{source}: not valid JSON: {err}") from err
    except RecursionError as err:
        raise DataError(f"{source}: JSON is nested too deeply") from err


class JsonPart:
    """One JSON object with its path and its source, which messages name."""

    def __init__(self, data: Any, path: str, source: str) -> None:
        self.path, self.source = path, source
        if type(data) is not dict and not isinstance(data, Mapping):
            raise self._error(path, "an object", data)
        self.data = data

    def at(self, key: str) -> str:
        """Return the path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def wrong(self, key: str, wanted: str, actual: Any) -> DataError:
        """Return the error about a key."""
        return self._error(self.at(key), wanted, actual)

    def _error(self, path: str, wanted: str, actual: Any) -> DataError:
        shown = actual if actual == "nothing" else f"{actual!r:.80}"
        return DataError(
            f"{self.source}: {path or 'input'}: wanted {wanted}, found {shown}"
        )

    def has(self, key: str) -> bool:
        """Return whether a key is present and not null."""
        return self.data.get(key) is not None

    def get(self, key: str) -> Any:
        """Return the value of a required key."""
        if key not in self.data:
            raise self.wrong(key, "a value", "nothing")
        return self.data[key]

    def part(self, key: str) -> "JsonPart":
        """Return an object."""
        return JsonPart(self.get(key), self.at(key), self.source)

    def part_or_empty(self, key: str) -> "JsonPart":
        """Return an object; an empty one for a missing key."""
        return JsonPart(self.data.get(key, {}), self.at(key), self.source)

    def members(self) -> Iterator[tuple[str, "JsonPart"]]:
        """Yield all members, which are objects."""
        for key, value in self.data.items():
            yield key, JsonPart(value, self.at(key), self.source)

    def text(self, key: str, choices: Sequence[str] = ()) -> str:
        """Return a string; if ``choices`` are given, one of them."""
        value = self.get(key)
        if not isinstance(value, str):
            raise self.wrong(key, "a text", value)
        if choices and value not in choices:
            raise self.wrong(key, f"one of {', '.join(choices)}", value)
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean."""
        value = self.data.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false", value)
        return value

    def size(self, key: str, default: int | None = None) -> int:
        """Return a number of at least 0, truncated to an integer."""
        value = self.data.get(key, default)
        if type(value) is int and 0 <= value < _TOO_LARGE:
            return value
        return int(self.number(key, default, least=0))

    def number(
        self, key: str, default: float | None = None, *, least: float | None = None
    ) -> float:
        """Return a number."""
        value = self.get(key) if default is None else self.data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, _NUMBERS):
            raise self.wrong(key, "a number", value)
        if not abs(value) < _TOO_LARGE:
            raise self.wrong(key, "a number below 2^62", value)
        if least is not None and value < least:
            raise self.wrong(key, f"a number from {least:g}", value)
        return value

    def texts(self, key: str, *, optional: bool = False) -> tuple[str, ...]:
        """Return a list of strings."""
        value = self.data.get(key, []) if optional else self.get(key)
        if type(value) is list and not value:
            return ()
        if not _is_list(value) or not all(isinstance(v, str) for v in value):
            raise self.wrong(key, "a list of texts", value)
        return tuple(value)

    def parts(self, key: str, *, optional: bool = False) -> list["JsonPart"]:
        """Return a list of objects."""
        value = self.data.get(key, []) if optional else self.get(key)
        if not _is_list(value):
            raise self.wrong(key, "a list", value)
        return [
            JsonPart(item, f"{self.at(key)}[{n}]", self.source)
            for n, item in enumerate(value)
        ]


def _is_list(value: Any) -> bool:
    """Return whether a value is a list in JSON; inside a daemon it may be a tuple."""
    return isinstance(value, _LISTS)


def read_spec(part: JsonPart) -> Spec:
    """Read the size of an instance."""
    return Spec(
        memory=part.size("memory-size"),
        cpus=part.size("cpu-count"),
        disk=part.size("disk-size"),
        disks=part.size("disk-count"),
        nics=part.size("nic-count"),
        spindles=part.size("spindle-use"),
    )


def read_policy(part: JsonPart, *, may_lack_parts: bool = False) -> Policy:
    """Read a policy.

    Args:
        part: the policy.
        may_lack_parts: the default ones stand in for parts that are absent.

    Raises:
        DataError: malformed, or no instance can fulfil the policy.
    """

    def is_read(key: str) -> bool:
        return part.has(key) or not may_lack_parts

    default = DEFAULT_POLICY
    ranges = default.ranges
    if is_read("minmax"):
        ranges = tuple(
            (read_spec(pair.part("min")), read_spec(pair.part("max")))
            for pair in part.parts("minmax")
        )
    if not ranges:
        raise part.wrong("minmax", "at least one pair", [])
    templates = default.templates
    if is_read("disk-templates"):
        templates = part.texts("disk-templates")
    vcpus, spindles = default.vcpu_ratio, default.spindle_ratio
    if is_read("vcpu-ratio"):
        vcpus = part.number("vcpu-ratio", least=0)
    if is_read("spindle-ratio"):
        spindles = part.number("spindle-ratio", least=0)
    policy = Policy(
        std=read_spec(part.part("std")) if is_read("std") else default.std,
        ranges=ranges,
        templates=templates,
        vcpu_ratio=vcpus,
        spindle_ratio=spindles,
    )
    flaw = policy.flaw()
    if flaw:
        raise part.wrong("minmax", "a minimum below its maximum", flaw)
    return policy
