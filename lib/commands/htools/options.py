"""Command lines of the placement programs: GNU style, from a table of options.

An optional argument must be attached to its option; long names may be abbreviated. The
table of options is in ``option_table``.
"""

import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base.constants import versions
from ganeti.decisions.htools.model.policy import TEMPLATES


class UsageError(Exception):
    """Unknown option or missing argument."""


class OptionValueError(Exception):
    """Invalid value of an option."""


class Option(msgspec.Struct, frozen=True):
    """One option.

    Attributes:
        key: key of the value in `ParsedOptions`.
        names: short form first, if one exists.
        text: one line of help.
        parse: text -> value, raises OptionValueError; None for a flag.
        metavar: name of the value in the help.
        optional: the value may be left out; then the empty text is parsed.
        many: the option may be repeated; the value is a list.
        counted: a flag whose value is the number of its uses.
        default: the value if the option is not given.
        completion: kind of values that shells offer.
    """

    key: str
    names: tuple[str, ...]
    text: str
    parse: Callable[[str], Any] | None = None
    metavar: str = ""
    optional: bool = False
    many: bool = False
    counted: bool = False
    default: Any = None
    completion: str = "none"

    @property
    def initial(self) -> Any:
        """The value before the first use."""
        return [] if self.many else 0 if self.counted else self.default


#: Options of every program.
ALWAYS: Final = (
    Option("version", ("-V", "--version"), "show the version of the program"),
    Option("help", ("-h", "--help"), "show help"),
    Option("completion", ("--help-completion",), "show completion info"),
)


class ParsedOptions(msgspec.Struct, frozen=True):
    """A parsed command line: values by the keys of the program's options."""

    values: Mapping[str, Any]
    arguments: list[str] = msgspec.field(default_factory=list)

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def get(self, key: str) -> Any:
        """Return a value, None if the program has no such option."""
        return self.values.get(key)

    @property
    def verbosity(self) -> int:
        """1, plus the number of -v, minus the number of -q."""
        return int(1 + self.values.get("v", 0) - self.values.get("q", 0))


def usage(program: str, options: Sequence[Option]) -> str:
    """Return the help text of a program."""
    rows = []
    for option in (*options, *ALWAYS):
        short = option.names[0] if len(option.names[0]) == 2 else ""
        long = option.names[-1]
        if option.metavar:
            if short:
                short += (
                    f"[{option.metavar}]" if option.optional else f" {option.metavar}"
                )
            value = f"={option.metavar}"
            long += f"[{value}]" if option.optional else value
        rows.append((short, long, option.text))
    wide = [max(len(row[k]) for row in rows) for k in range(2)]
    lines = [version_line(program), f"Usage: {program} [OPTION...]"]
    lines += [
        f"  {short:{wide[0]}s}  {long:{wide[1]}s}  {text}" for short, long, text in rows
    ]
    return "\n".join(lines)


def completion(options: Sequence[Option], arguments: str) -> str:
    """Return one line per option, and one for arguments if any, for shells."""
    lines = [
        f"{','.join(option.names)} {option.completion}"
        for option in (*options, *ALWAYS)
    ]
    return "\n".join([*lines, arguments] if arguments else lines)


def version_line(program: str) -> str:
    """Return the first line that --version prints."""
    return f"{program} (ganeti) version {versions.RELEASE_VERSION}"


def version(program: str) -> str:
    """Return version, interpreter and platform, one per line."""
    return (
        f"{version_line(program)}\n"
        f"compiled with {platform.python_implementation()}"
        f" {platform.python_version()}\n"
        f"running on {sys.platform} {platform.machine()}"
    )


def parse(words: Sequence[str], options: Sequence[Option]) -> ParsedOptions:
    """Parse a command line; ``options`` are those of the program.

    ``help``, ``version`` and ``completion`` are True in the values if given.

    Raises:
        UsageError, OptionValueError: the text names the problem.
    """
    return _OptionReader([*options, *ALWAYS]).read(words)


class _OptionReader:
    """Parser of one command line."""

    def __init__(self, options: Sequence[Option]) -> None:
        self._options = options
        self._known = {name: option for option in options for name in option.names}
        self._values = {option.key: option.initial for option in options}
        self._rest: list[str] = []

    def read(self, words: Sequence[str]) -> ParsedOptions:
        arguments: list[str] = []
        self._rest = list(words)
        while self._rest:
            word = self._rest.pop(0)
            if word == "--":
                arguments += self._rest
                break
            if word.startswith("--"):
                self._long(word)
            elif word.startswith("-") and word != "-":
                self._short(word[1:])
            else:
                arguments.append(word)
        return ParsedOptions(self._values, arguments)

    def _long(self, word: str) -> None:
        name, equals, glued = word.partition("=")
        option = self._find(name)
        if option.parse is None:
            if equals:
                raise UsageError(f"option `{name}' doesn't allow an argument")
            self._flag(option)
        else:
            self._store(option, glued if equals else self._next(option, name))

    def _find(self, name: str) -> Option:
        """Return an option by its long name or an unambiguous prefix."""
        if name in self._known:
            return self._known[name]
        matches = {full: o for full, o in self._known.items() if full.startswith(name)}
        if not matches:
            from ganeti.base.text import messages

            question = messages.similar_options(name, self._known)
            raise UsageError(f"unrecognized option `{name}'{question}")
        if len(matches) > 1:
            raise UsageError(
                f"option `{name}' is ambiguous; could be one of:"
                f" {', '.join(sorted(matches))}"
            )
        return next(iter(matches.values()))

    def _short(self, letters: str) -> None:
        while letters:
            name, letters = f"-{letters[0]}", letters[1:]
            option = self._known.get(name)
            if option is None:
                raise UsageError(f"unrecognized option `{name}'")
            if option.parse is None:
                self._flag(option)
                continue
            self._store(option, letters or self._next(option, name))
            return

    def _next(self, option: Option, name: str) -> str:
        """Return the next word as value, or an empty text if the value is optional."""
        if option.optional:
            return ""
        if not self._rest:
            raise UsageError(f"option `{name}' requires an argument {option.metavar}")
        return self._rest.pop(0)

    def _flag(self, option: Option) -> None:
        before = self._values[option.key]
        self._values[option.key] = before + 1 if option.counted else True

    def _store(self, option: Option, text: str) -> None:
        assert option.parse is not None
        value = option.parse(text)
        if option.many:
            self._values[option.key].append(value)
        else:
            self._values[option.key] = value


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
        from ganeti.decisions.htools.model import simulate

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
