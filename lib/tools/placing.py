"""What the placement programs have in common: options, version, errors.

Options come from tables; the rest of the GNU rules (values glued to options that may
go without, unique prefixes, what ends with which status) is here.
"""

import dataclasses
import getopt
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from ganeti.constants import versions
from ganeti.htools import grid, model, text

#: Marks an option given without its optional value.
_BARE: Final = "\0"


class UsageError(Exception):
    """Wrong options; the program ends with status 2."""


@dataclasses.dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: long form, also the key of its value.
        help: one line.
        short: letter, if any.
        metavar: names the value; empty for a flag.
        is_optional: the value may be left out, then it is ``bare``.
        many: may be given again; the value is a list.
        parse: text -> value, raises ValueError naming what was wanted.
        default: without the option; flags are counted from it.
        step: what each use of a flag adds.
        key: of another option, that a flag changes.
        bare: value of an option given without one.
        completion: words for the shell.
    """

    name: str
    help: str
    short: str = ""
    metavar: str = ""
    is_optional: bool = False
    many: bool = False
    parse: Callable[[str], Any] = str
    default: Any = None
    step: int = 0
    key: str = ""
    bare: Any = None
    completion: str = "none"


COMMON: Final = (
    Option("version", "show the version of the program", "V"),
    Option("help", "show help", "h"),
    Option("help-completion", "show completion info"),
)


def natural(value: str) -> int:
    """Return a number from 0 on."""
    if not value.isdecimal():
        raise ValueError(f"wanted a number from 0 on, found {value!r}")
    return int(value)


def yes_no(value: str) -> bool:
    """Return the meaning of yes or no."""
    if value not in ("yes", "no"):
        raise ValueError(f"wanted yes or no, found {value!r}")
    return value == "yes"


def names(value: str) -> list[str]:
    """Return the parts of a comma list."""
    return [part for part in value.split(",") if part]


NODES: Final = Option(
    "print-nodes",
    "print the node list",
    "p",
    "FIELDS",
    is_optional=True,
    parse=names,
    bare=[],
)
SAVE: Final = Option(
    "save", "save the cluster's states to FILE.*", "S", "FILE", completion="file"
)
TEXT: Final = Option(
    "text-data", "read the cluster from FILE", "t", "FILE", completion="file"
)
SIMULATE: Final = Option(
    "simulate",
    "an empty cluster: policy,nodes,disk,memory,cpus",
    metavar="SPEC",
    many=True,
    completion="string",
)
VERBOSE: Final = Option("verbose", "more output", "v", default=1, step=1)
QUIET: Final = Option("quiet", "less output", "q", step=-1, key="verbose")
NO_CAPACITY: Final = Option(
    "no-capacity-checks", "do not test for global N+1 redundancy"
)
STATIC_MEMORY: Final = Option(
    "static-kvm-node-memory",
    "memory a KVM node uses itself; 0 for what it reports",
    metavar="MIB",
    parse=natural,
    default=4096,
    completion="integer",
)


class Parser:
    """Reads a command line by a table of options."""

    def __init__(self, program: str, options: Sequence[Option]) -> None:
        self.program = program
        self.options = (*options, *COMMON)

    def parse(self, argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Return the options' values by long name, and the arguments.

        Raises:
            UsageError: an option is unknown or lacks its value.
            ValueError: a value is wrong.
        """
        longs, shorts = [], ""
        for option in self.options:
            mark = "=" if option.metavar else ""
            longs.append(option.name + mark)
            shorts += option.short + (":" if mark and option.short else "")
        try:
            found, arguments = getopt.gnu_getopt(self._explicit(argv), shorts, longs)
        except getopt.GetoptError as err:
            raise UsageError(err.msg) from err
        values = {
            option.name: [] if option.many else option.default
            for option in self.options
        }
        for word, value in found:
            self._take(values, word, value)
        return values, arguments

    def _explicit(self, argv: Sequence[str]) -> list[str]:
        """Give options without their optional value the mark in its place."""
        out: list[str] = []
        for place, word in enumerate(argv):
            if word == "--":
                return [*out, *argv[place:]]
            out.append(self._with_mark(word))
        return out

    def _with_mark(self, word: str) -> str:
        if word.startswith("--") and "=" not in word:
            hits = [o for o in self.options if o.name.startswith(word[2:])]
            exact = [o for o in hits if o.name == word[2:]] or hits
            if len(exact) == 1 and exact[0].is_optional:
                return f"{word}={_BARE}"
        elif any(
            o.short and o.is_optional and word == f"-{o.short}" for o in self.options
        ):
            return word + _BARE
        return word

    def _take(self, values: dict[str, Any], word: str, value: str) -> None:
        option = next(
            o for o in self.options if word in (f"--{o.name}", f"-{o.short or '-'}")
        )
        if option.step:
            values[option.key or option.name] += option.step
        elif not option.metavar:
            values[option.name] = True
        elif value == _BARE:
            values[option.name] = option.bare
        else:
            try:
                parsed = option.parse(value)
            except ValueError as err:
                raise ValueError(f"--{option.name}: {err}") from err
            if option.many:
                values[option.name].append(parsed)
            else:
                values[option.name] = parsed

    def usage(self) -> str:
        """Return the help text."""
        lines = [version_line(self.program), f"Usage: {self.program} [OPTION...]"]
        rows = []
        for option in self.options:
            glue = f"[={option.metavar}]" if option.is_optional else ""
            value = glue or (f"={option.metavar}" if option.metavar else "")
            short = f"-{option.short}, " if option.short else "    "
            rows.append((f"  {short}--{option.name}{value}", option.help))
        width = max(len(left) for left, _help in rows)
        lines += [f"{left:<{width}}  {right}" for left, right in rows]
        return "\n".join(lines)

    def completion(self, arguments: str) -> str:
        """Return one line an option, for shells, and one for the arguments."""
        lines = []
        for option in self.options:
            both = f"-{option.short},--{option.name}" if option.short else option.name
            word = both if option.short else f"--{option.name}"
            lines.append(f"{word} {option.completion}")
        return "\n".join([*lines, arguments])


def version_line(program: str) -> str:
    """Return the first line that --version prints."""
    return f"{program} (ganeti) version {versions.RELEASE_VERSION}"


def version(program: str) -> str:
    """Return all that --version prints."""
    return (
        f"{version_line(program)}\n"
        f"compiled with {platform.python_implementation()}"
        f" {platform.python_version()}\n"
        f"running on {sys.platform} {platform.machine()}"
    )


def fail(message: str) -> NoReturn:
    """End with an error message and status 1."""
    sys.stderr.write(f"Error: {message}\n")
    raise SystemExit(1)


def run(
    parser: Parser,
    body: Callable[[Mapping[str, Any], list[str]], int],
    *,
    arguments: str = "",
) -> int:
    """Run a program: read options, answer the common ones, print errors.

    Args:
        parser: of the program.
        body: does the work with options and arguments; its return is the status.
        arguments: the completion line of the arguments.
    """
    try:
        values, found = parser.parse(sys.argv[1:])
    except UsageError as err:
        sys.stderr.write(f"Command line error: {err}\n\n{parser.usage()}\n")
        return 2
    except ValueError as err:
        sys.stderr.write(f"Error while parsing command line arguments:\n{err}\n")
        return 1
    for name, shown in (
        ("help", parser.usage()),
        ("version", version(parser.program)),
        ("help-completion", parser.completion(arguments)),
    ):
        if values[name]:
            sys.stdout.write(f"{shown}\n")
            return 0
    try:
        return body(values, found)
    except model.DataError as err:
        fail(str(err))
    except OSError as err:
        fail(f"{err.filename}: {err.strerror}")


def read_text(path: str) -> model.Cluster:
    """Return the cluster in a text file.

    Raises:
        DataError, OSError: it cannot be understood or read.
    """
    with open(path, encoding="utf-8") as stream:
        try:
            return text.load(stream.read(), path)
        except UnicodeDecodeError as err:
            raise model.DataError(f"{path}: is no text: {err.reason}") from err


def save(path: str, state: grid.State, suffix: str, words: str) -> None:
    """Write a state in the text format to a file with a suffix, and say so."""
    target = f"{path}.{suffix}"
    with open(target, "w", encoding="utf-8") as stream:
        stream.write(text.dump(state.as_cluster()))
    sys.stderr.write(f"The cluster state {words} has been written to file '{target}'\n")
