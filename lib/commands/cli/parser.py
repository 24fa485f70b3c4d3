"""Parser of one command's options and positional arguments, in this order.

Parsing stops at the first positional argument or after ``--``. Long options may be
abbreviated. A value follows after ``=`` or as the next word. Short options may be
joined with each other and with their value.
"""

import itertools
import types
from collections.abc import Iterator
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.errors import refusal
from ganeti.commands.cli import values
from ganeti.commands.cli.model import COMMON_OPTIONS, Argument, Command, Option

#: Kinds of arguments that never begin with a dash.
_NAMES: Final = frozenset(
    ("filter", "group", "host", "instance", "jobid", "network", "node", "os")
)
#: Kind of the words of a command line for other machines.
_COMMAND: Final = "command"


class UsageError(Exception):
    """A usage error; the command's usage is printed too."""


class Values(types.SimpleNamespace):
    """Option values by the ``dest`` of their rows."""

    def __getattr__(self, name: str) -> Any:  # absent options have no value
        raise AttributeError(name)


class _Scanner:
    def __init__(self, options: tuple[Option, ...]) -> None:
        self.by_name: Final = {name: o for o in options for name in o.names}
        self.values = Values()
        self.warnings: list[str] = []
        for option in options:
            if option.dest:
                setattr(self.values, option.dest, _default(option))
        self._repeated: set[str] = set()

    def scan(self, words: list[str]) -> list[str]:
        """Parse the leading options; return the positional arguments."""
        position = 0
        while position < len(words):
            word = words[position]
            if word == "--":
                return words[position + 1 :]
            if not word.startswith("-") or word == "-":
                break
            scan = self._long if word.startswith("--") else self._short
            position = scan(words, position)
        return words[position:]

    def _long(self, words: list[str], position: int) -> int:
        name, equals, value = words[position].partition("=")
        name = self._complete(name)
        option = self.by_name[name]
        if not option.takes_value:
            if equals:
                raise UsageError(f"{name} option does not take a value")
            self._store(option, name, None)
            return position + 1
        if equals:
            self._store(option, name, value)
            return position + 1
        return self._next_word(option, name, words, position)

    def _short(self, words: list[str], position: int) -> int:
        letters = words[position][1:]
        for index, letter in enumerate(letters):
            name = f"-{letter}"
            option = self.by_name.get(name)
            if option is None:
                raise UsageError(f"no such option: {name}")
            if option.takes_value:
                glued = letters[index + 1 :]
                if glued:
                    self._store(option, name, glued)
                    return position + 1
                return self._next_word(option, name, words, position)
            self._store(option, name, None)
        return position + 1

    def _next_word(
        self, option: Option, name: str, words: list[str], position: int
    ) -> int:
        if position + 1 >= len(words):
            raise UsageError(f"{name} option requires 1 argument")
        self._store(option, name, words[position + 1])
        return position + 2

    def _complete(self, name: str) -> str:
        if name in self.by_name:
            return name
        matches = sorted(n for n in self.by_name if n.startswith(name))
        if not matches or name == "--":
            from ganeti.base.text import messages

            question = messages.similar_options(name, self.by_name)
            raise UsageError(f"no such option: {name}{question}")
        if len(matches) > 1:
            raise UsageError(f"ambiguous option: {name} ({', '.join(matches)}?)")
        return matches[0]

    def _store(self, option: Option, name: str, text: str | None) -> None:
        if option.warns:
            self.warnings.append(f"{name}: {option.warns}")
        if not option.dest:
            return
        if text is None:
            if option.kind == "count":
                setattr(self.values, option.dest, getattr(self.values, option.dest) + 1)
            else:
                setattr(self.values, option.dest, option.sets)
            return
        value = _parse(option, name, text)
        if option.repeat:
            getattr(self.values, option.dest).append(value)
        else:
            setattr(self.values, option.dest, value)


def _default(option: Option) -> Any:
    if option.repeat:
        return []
    if option.default is None and option.kind == "flag":
        return False
    if isinstance(option.default, (dict, list)):
        return option.default.copy()
    return option.default


def _parse(option: Option, name: str, text: str) -> Any:
    if option.kind == "choice" and text not in option.choices:
        from ganeti.base.text import messages

        wanted = messages.choices(text, option.listed)
        where = "" if wanted.startswith("choose") else "; --help lists all"
        raise UsageError(f"option {name}: invalid choice: {text!r} ({wanted}{where})")
    try:
        return values.PARSERS[option.kind](text)
    except values.BadValueError as err:
        raise UsageError(f"option {name}: {err}") from err


def parse(command: Command, words: list[str]) -> tuple[Values, list[str], list[str]]:
    """Return option values, positional arguments and warnings.

    Raises:
        UsageError: an option is unknown or misused.
        ParameterError: an option's value is malformed.
    """
    scanner = _Scanner(COMMON_OPTIONS + command.options)
    positional = scanner.scan(words)
    return scanner.values, positional, scanner.warnings


def check_count(command: Command, arguments: list[str]) -> None:
    """Refuse a wrong number of positional arguments, or options among them.

    Raises:
        GenericError: with the documented text.
    """
    problem = _count_problem(command.arguments, len(arguments))
    if problem:
        late = [word for word in arguments if _looks_like_option(word)]
        problem = f"expects {problem}"
    else:
        late = _late_options(command, arguments)
        if not late:
            return
        problem = "has options among its arguments"
    text = f"Error: Command {command.name} {problem}"
    if late:
        text += f"\n(options must stand before the first argument: {' '.join(late)})"
    raise errors.GenericError(text)


def check_options(command: Command, given: Values) -> None:
    """Refuse options that the command's row excludes, or the lack of one.

    Raises:
        OpPrereqError: with the documented text.
    """
    for dest, text in command.requires:
        if not getattr(given, dest):
            raise refusal(text)
    long_names = {row.dest: row.names[-1] for row in command.options}
    for first, second in command.excludes:
        if getattr(given, first) and getattr(given, second):
            raise refusal(
                f"{long_names[first]} and {long_names[second]} exclude each other"
            )


def _late_options(command: Command, arguments: list[str]) -> list[str]:
    """Return the arguments that are meant as options.

    A name never begins with a dash. A tag or another free text may, but not one that is
    an option of this command. A command line for the nodes has options of its own.
    """
    own = {name for row in COMMON_OPTIONS + command.options for name in row.names}
    return [
        word
        for word, kind in zip(arguments, _kinds(command.arguments), strict=False)
        if _looks_like_option(word)
        and (kind in _NAMES or (kind != _COMMAND and word.partition("=")[0] in own))
    ]


def _looks_like_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _kinds(rows: tuple[Argument, ...]) -> Iterator[str]:
    """Yield the kind of each possible argument; the last kind may repeat."""
    for row in rows:
        times = itertools.repeat(row.kind)
        yield from (
            times if row.maximum is None else itertools.islice(times, row.maximum)
        )


def _count_problem(rows: tuple[Argument, ...], count: int) -> str:
    least = sum(row.minimum for row in rows)
    most: int | None = 0
    for row in rows:
        most = None if most is None or row.maximum is None else most + row.maximum
    if not rows:
        return "no arguments" if count else ""
    if least == most and count != least:
        return f"{least} argument(s)"
    if most is not None and count > most:
        return f"only {most} argument(s)"
    if count < least:
        return f"at least {least} argument(s)"
    return ""
