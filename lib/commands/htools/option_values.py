"""Parsers of the placement programs' option values.

Each raises OptionValueError with the text that the programs print.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from ganeti.commands.htools.options import OptionValueError
from ganeti.decisions.htools.model.policy import TEMPLATES

Parse = Callable[[str], Any]
# Patterns are compiled at their use: few runs have such options.
_WHOLE: Final = r"-?(\d+|0[xX][0-9a-fA-F]+|0[oO][0-7]+)\Z"
_REAL: Final = r"-?\d+(\.\d+)?([eE][+-]?\d+)?\Z"
#: Most digits of a number; a longer one cannot be a size.
_MOST_DIGITS: Final = 30
#: Largest number that is accepted, so that sums stay exact enough.
_LARGEST: Final = 1e18


def names(text: str) -> list[str]:
    """Split at commas; an empty text is an empty list."""
    return text.split(",") if text else []


def whole(what: str, *, least: int | None = None) -> Parse:
    """Return a parser of integers."""

    def parse(text: str) -> int:
        if not re.fullmatch(_WHOLE, text, re.ASCII) or len(text) > _MOST_DIGITS:
            raise OptionValueError(f"{what}: cannot parse string '{text}'")
        number = int(text, 10 if text.lstrip("-").isdecimal() else 0)
        if abs(number) > _LARGEST:
            raise OptionValueError(f"{what}: out of range: '{text}'")
        if least is not None and number < least:
            raise OptionValueError(f"Invalid value of the {what} (expected >= {least})")
        return number

    return parse


def real(what: str, *, least: float | None = None) -> Parse:
    """Return a parser of numbers."""

    def parse(text: str) -> float:
        if not re.fullmatch(_REAL, text, re.ASCII) or len(text) > _MOST_DIGITS:
            raise OptionValueError(f"{what}: cannot parse string '{text}'")
        if abs(float(text)) > _LARGEST:
            raise OptionValueError(f"{what}: out of range: '{text}'")
        if least is not None and float(text) < least:
            raise OptionValueError(
                f"Invalid value of the {what} (expected >= {least:g})"
            )
        return float(text)

    return parse


def ratio(text: str) -> float:
    """Parse the limit of virtual per physical CPUs."""
    limit: float = real("parsing max-cpu")(text)
    if limit <= 0:
        raise OptionValueError("Invalid value of the max-cpu ratio, expected >0")
    return limit


def share(what: str) -> Parse:
    """Return a parser of fractions from 0 to 1."""

    def parse(text: str) -> float:
        result: float = real(what)(text)
        if not 0 <= result <= 1:
            raise OptionValueError(f"{what}: wanted a number from 0 to 1, found {text}")
        return result

    return parse


def yes_no(text: str) -> bool:
    """Parse yes or no; an empty text is yes."""
    if text not in {"", "yes", "no"}:
        raise OptionValueError(f"Invalid choice '{text}', pass one of 'yes' or 'no'")
    return text != "no"


def priority(text: str) -> str:
    """Parse the name of a job priority."""
    if text not in {"low", "normal", "high"}:
        raise OptionValueError(f"Unknown priority '{text}'")
    return text


def template(text: str) -> str:
    """Parse the name of a disk template."""
    if text not in TEMPLATES:
        raise OptionValueError(f'Invalid string value for type DiskTemplate: "{text}"')
    return text


def size(what: str) -> Parse:
    """Return a parser of DISK,RAM,CPU[,SPINDLES]: (MiB, MiB, number, number)."""

    def amount(field: str, text: str) -> int:
        # Imported here because few runs have sizes.
        from ganeti.decisions.htools.model.loaders import simulate

        try:
            return simulate.size_mib(text)
        except ValueError as err:
            raise OptionValueError(f"{what} specs {field}: {err}") from err

    def parse(text: str) -> tuple[int, int, int, int]:
        cells = text.split(",")
        if len(cells) not in {3, 4}:
            raise OptionValueError(
                f"Invalid {what} specification: '{text}', expected disk,ram,cpu"
            )
        return (
            amount("disk", cells[0]),
            amount("memory", cells[1]),
            whole(f"{what} specs cpus")(cells[2]),
            whole(f"{what} specs spindles")(cells[3]) if len(cells) > 3 else 1,
        )

    return parse
