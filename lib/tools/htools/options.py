"""Command lines of the placement programs: GNU style, from one table of options.

An optional argument must be glued on; long names may be shortened.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti.constants import versions


class UsageError(Exception):
    """Option unknown or argument missing."""


class ValueProblem(Exception):
    """An option's value does not parse."""


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One option: its key in results, names, and how a value is read.

    ``parse`` of None is a flag; ``optional`` allows no value; ``many`` collects.
    """

    key: str
    names: tuple[str, ...]
    text: str
    parse: Callable[[str], Any] | None = None
    metavar: str = ""
    optional: bool = False
    many: bool = False
    default: Any = None


def _names(text: str) -> list[str]:
    return text.split(",")


def _number(what: str, kind: type) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return kind(text)
        except ValueError as err:
            raise ValueProblem(f"{what}: cannot parse string '{text}'") from err

    return parse


OPTIONS: Final = {
    option.key: option
    for option in (
        Option("p", ("-p", "--print-nodes"), "print nodes", str, "FIELDS", True),
        Option("pi", ("--print-instances",), "print instances"),
        Option("C", ("-C", "--print-commands"), "print commands", str, "FILE", True),
        Option("t", ("-t", "--text-data"), "read a text file", str, "FILE"),
        Option("sim", ("--simulate",), "invent nodes", str, "SPEC", many=True),
        Option("E", ("-E", "--evac-mode"), "only empty nodes that are offline"),
        Option("rm", ("--restricted-migration",), "do not migrate off nodes online"),
        Option("fjg", ("--first-job-group",), "only the first set of jobs"),
        Option("G", ("-G", "--group"), "node group", str, "ID"),
        Option(
            "l",
            ("-l", "--max-length"),
            "at most N rounds",
            _number("max length", int),
            "N",
            default=-1,
        ),
        Option("v", ("-v", "--verbose"), "more output"),
        Option("q", ("-q", "--quiet"), "less output"),
        Option("O", ("-O", "--offline"), "take as offline", str, "NODE", many=True),
        Option(
            "e",
            ("-e", "--min-score"),
            "distance to the ideal score that is enough",
            _number("min score", float),
            "X",
            default=1e-9,
        ),
        Option(
            "maxcpu",
            ("--max-cpu",),
            "limit of virtual cpus per cpu",
            _number("max cpu ratio", float),
            "RATIO",
        ),
        Option(
            "mindisk",
            ("--min-disk",),
            "part of the disk to keep free",
            _number("min free disk space", float),
            "RATIO",
            default=0.0,
        ),
        Option(
            "g",
            ("-g", "--min-gain"),
            "least gain of a move",
            _number("min gain", float),
            "X",
            default=0.01,
        ),
        Option(
            "mgl",
            ("--min-gain-limit",),
            "score below which the least gain counts",
            _number("min gain limit", float),
            "SCORE",
            default=0.1,
        ),
        Option("ndm", ("--no-disk-moves",), "only failover and migrate"),
        Option("nim", ("--no-instance-moves",), "only new secondaries"),
        Option(
            "sel",
            ("--select-instances",),
            "only these move",
            _names,
            "INSTS",
            default=(),
        ),
        Option(
            "exi",
            ("--exclude-instances",),
            "these do not move",
            _names,
            "INSTS",
            default=(),
        ),
        Option("ise", ("--ignore-soft-errors",), "go beyond soft limits"),
        Option("U", ("-U", "--dynu-file"), "utilisation of instances", str, "FILE"),
        Option("nodyn", ("--ignore-dynu",), "take utilisation as zero"),
        Option(
            "ext",
            ("--exclusion-tags",),
            "tag prefixes that keep instances apart",
            _names,
            "TAG,...",
            default=(),
        ),
        Option("offm", ("--offline-maintenance",), "instances will be shut down"),
        Option("nh", ("--no-headers",), "no header line"),
        Option("nt", ("--node-tags",), "only nodes with a tag", _names, "TAG,..."),
        Option("pm", ("--print-moves",), "show where instances go"),
        Option("fe", ("--full-evacuation",), "move secondaries off too"),
        Option("snr", ("--skip-non-redundant",), "no nodes of instances without copy"),
        Option("inr", ("--ignore-non-redundant",), "forget instances without copy"),
        Option("f", ("-f", "--force"), "go on despite warnings"),
        Option("oso", ("--one-step-only",), "only the first group"),
        Option("S", ("-S", "--save"), "save states", str, "FILE"),
    )
}
_COUNTED: Final = {"v", "q"}


@dataclasses.dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed command line."""

    values: dict[str, Any]
    arguments: list[str]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def verbosity(self) -> int:
        """1, plus one for each -v, minus one for each -q."""
        return int(1 + self.values.get("v", 0) - self.values.get("q", 0))


def usage(program: str, keys: Sequence[str]) -> str:
    """Describe a program's options."""
    lines = [f"Usage: {program} [OPTION...]"]
    for option in (OPTIONS[key] for key in keys):
        short = next((name for name in option.names if len(name) == 2), "")
        long = option.names[-1]
        if option.metavar:
            value = f"={option.metavar}"
            long += f"[{value}]" if option.optional else value
        lines.append(f"  {short:3s} {long:30s} {option.text}")
    lines.append("  -V  --version                      show the version")
    lines.append("  -h  --help                         show this text")
    return "\n".join(lines)


def version(program: str) -> str:
    """Tell the version, the interpreter and the platform, one a line."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    return (
        f"{program} (ganeti) version {versions.RELEASE_VERSION}\n"
        f"running with {sys.implementation.name} {python}\n"
        f"running on {sys.platform}"
    )


def parse(words: Sequence[str], keys: Sequence[str]) -> Parsed:
    """Parse a command line; ``keys`` are the options of the program.

    ``help`` and ``version`` are True in the values when asked for.

    Raises:
        UsageError, ValueProblem: with what was wrong.
    """
    options = [
        *(OPTIONS[key] for key in keys),
        Option("help", ("-h", "--help"), ""),
        Option("version", ("-V", "--version"), ""),
    ]
    values: dict[str, Any] = {
        option.key: []
        if option.many
        else 0
        if option.key in _COUNTED
        else option.default
        for option in options
    }
    arguments: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            arguments += rest
            break
        if word.startswith("--"):
            _long(word, options, rest, values)
        elif word.startswith("-") and word != "-":
            _short(word[1:], options, rest, values)
        else:
            arguments.append(word)
    return Parsed(values, arguments)


def _long(
    word: str, options: Sequence[Option], rest: list[str], values: dict[str, Any]
) -> None:
    name, equals, glued = word.partition("=")
    found = [o for o in options if name in o.names] or [
        o for o in options if any(full.startswith(name) for full in o.names)
    ]
    if not found:
        raise UsageError(f"unrecognized option `{name}'")
    if len(found) > 1:
        raise UsageError(f"option `{name}' is ambiguous")
    option = found[0]
    if option.parse is None:
        if equals:
            raise UsageError(f"option `{name}' doesn't allow an argument")
        _store(option, None, values)
    elif equals or option.optional:
        _store(option, glued, values)
    elif rest:
        _store(option, rest.pop(0), values)
    else:
        raise UsageError(f"option `{name}' requires an argument {option.metavar}")


def _short(
    letters: str, options: Sequence[Option], rest: list[str], values: dict[str, Any]
) -> None:
    known = {name: option for option in options for name in option.names}
    while letters:
        name, letters = f"-{letters[0]}", letters[1:]
        option = known.get(name)
        if option is None:
            raise UsageError(f"unrecognized option `{name}'")
        if option.parse is None:
            _store(option, None, values)
            continue
        if letters or option.optional:
            _store(option, letters, values)
        elif rest:
            _store(option, rest.pop(0), values)
        else:
            raise UsageError(f"option `{name}' requires an argument {option.metavar}")
        return


def _store(option: Option, text: str | None, values: dict[str, Any]) -> None:
    if option.parse is None or text is None:
        flag = values[option.key] + 1 if option.key in _COUNTED else True
        values[option.key] = flag
        return
    found = option.parse(text)
    if option.many:
        values[option.key].append(found)
    else:
        values[option.key] = found
