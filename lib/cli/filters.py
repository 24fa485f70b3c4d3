"""Which objects a list command means: names, globs, or a filter as people write it.

The text form becomes the list form that queries take; evaluating it is the master's
business.
"""

import re
from typing import Any, Final

from ganeti import errors
from ganeti.constants import ecodes
from ganeti.constants import query as q

Filter = list[Any]
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<string>"[^"]*"|'[^']*')
      | (?P<number>-?\d+(?![\w./]))
      | (?P<word>[A-Za-z][\w/.]*)
      | (?P<op>==|!=|<=|>=|=~|!~|=\*|!\*|[=<>()])
    )""",
    re.VERBOSE,
)
_REGEX: Final = re.compile(r"\s*m?([/#^|])(.*?)\1([is]*)(?![\w])", re.DOTALL)
_COMPARE: Final = {"==": "==", "=": "==", "!=": "!=", "<": "<", "<=": "<="} | {
    ">": ">",
    ">=": ">=",
}
_KEYWORDS: Final = frozenset(("and", "or", "not", "in"))


def looks_like_filter(text: str) -> bool:
    """Tell whether a single argument can only be a filter."""
    return any(char in text for char in q.QLANG_FILTER_DETECTION_CHARS)


def is_glob(text: str) -> bool:
    """Tell whether an argument is a name pattern."""
    return any(char in text for char in q.QLANG_GLOB_DETECTION_CHARS)


def glob_to_regex(pattern: str) -> str:
    """Return the regular expression of a name pattern.

    ``*`` is any run without dots, ``?`` one character but a dot; what follows a dot
    after the pattern does not matter.
    """
    body = "".join(
        r"[^.]*" if char == "*" else r"[^.]" if char == "?" else re.escape(char)
        for char in pattern
    )
    return rf"^{body}(\..*)?$"


def from_names(
    names: list[str], *, force_filter: bool, field: str, numeric: bool = False
) -> Filter | None:
    """Return the filter for the arguments of a list command, None for everything.

    Args:
        names: arguments.
        force_filter: the single argument is a filter (``-F``).
        field: what names are compared with.
        numeric: names are numbers.

    Raises:
        OpPrereqError: not one argument with ``-F``, or a name that is no number.
        QueryFilterParseError: the filter cannot be read.
    """
    if force_filter and len(names) != 1:
        raise errors.OpPrereqError(
            f"-F wants exactly one filter, found {len(names)} arguments",
            ecodes.ECODE_INVAL,
        )
    if not names:
        return None
    if len(names) == 1 and (force_filter or looks_like_filter(names[0])):
        return parse(names[0])
    return ["|", *(_name_filter(name, field, numeric=numeric) for name in names)]


def _name_filter(name: str, field: str, *, numeric: bool) -> Filter:
    if numeric:
        if not name.isdigit():
            raise errors.OpPrereqError(
                f"invalid {field}: wanted a number, found {name!r}", ecodes.ECODE_INVAL
            )
        return ["==", field, int(name)]
    if is_glob(name):
        return ["=~", field, glob_to_regex(name)]
    return ["==", field, name]


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def fail(self, wanted: str) -> errors.QueryFilterParseError:
        while self.text[self.position : self.position + 1].isspace():
            self.position += 1
        return errors.QueryFilterParseError(
            f"cannot parse filter {self.text!r}: wanted {wanted}\n"
            f"{self.text}\n{' ' * self.position}^\n"
            f"wanted {wanted} (at char {self.position})"
        )

    def peek(self) -> tuple[str, str]:
        """Return kind and text of the next token, empty at the end."""
        match = _TOKEN.match(self.text, self.position)
        if match is None or match.lastgroup is None:
            return "", ""
        return match.lastgroup, match.group(match.lastgroup)

    def take(self, *texts: str) -> str:
        """Return and pass the next token if it is one of these."""
        match = _TOKEN.match(self.text, self.position)
        kind, text = self.peek()
        if match is None or kind == "string" or text not in texts:
            return ""
        self.position = match.end()
        return text

    def expression(self) -> Filter:
        return self._joined("|", "or", self._conjunction)

    def _conjunction(self) -> Filter:
        return self._joined("&", "and", self._negation)

    def _joined(self, op: str, word: str, part: Any) -> Filter:
        parts = [part()]
        while self.take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else [op, *parts]

    def _negation(self) -> Filter:
        if self.take("not"):
            return ["!", self._negation()]
        if self.take("("):
            inner = self.expression()
            if not self.take(")"):
                raise self.fail("a closing parenthesis")
            return inner
        return self._condition()

    def _condition(self) -> Filter:
        kind, text = self.peek()
        if kind in ("string", "number"):
            return self._membership()
        if kind != "word" or text in _KEYWORDS:
            raise self.fail("a field name")
        field = self.take(text)
        op = self.take(*_COMPARE, "=~", "!~", "=*", "!*")
        if not op:
            return ["?", field]
        if op in _COMPARE:
            return [_COMPARE[op], field, self._value()]
        if op in ("=~", "!~"):
            found: Filter = ["=~", field, self._regex()]
        else:
            found = ["=~", field, glob_to_regex(self._string())]
        return ["!", found] if op.startswith("!") else found

    def _membership(self) -> Filter:
        value = self._value()
        negated = bool(self.take("not"))
        if not self.take("in"):
            raise self.fail("'in'")
        kind, text = self.peek()
        if kind != "word":
            raise self.fail("a field name")
        found: Filter = ["=[]", self.take(text), value]
        return ["!", found] if negated else found

    def _value(self) -> str | int:
        kind, text = self.peek()
        if kind == "number":
            match = _TOKEN.match(self.text, self.position)
            self.position = match.end() if match else self.position
            return int(text)
        return self._string()

    def _string(self) -> str:
        match = _TOKEN.match(self.text, self.position)
        if match is None or match.lastgroup != "string":
            raise self.fail("a number or a quoted text")
        self.position = match.end()
        return match.group("string")[1:-1]

    def _regex(self) -> str:
        match = _REGEX.match(self.text, self.position)
        if match is None:
            raise self.fail("a regular expression such as m/web.*/i")
        _, body, flags = match.groups()
        try:
            re.compile(body)
        except re.error as err:
            raise self.fail(f"a valid regular expression ({err})") from err
        self.position = match.end()
        return f"(?{''.join(sorted(set(flags)))}){body}" if flags else body

    def end(self) -> None:
        if self.text[self.position :].strip():
            raise self.fail("'and', 'or' or the end")


def parse(text: str) -> Filter:
    """Return the list form of a filter.

    Raises:
        QueryFilterParseError: with the place of the first problem.
    """
    parser = _Parser(text)
    found = parser.expression()
    parser.end()
    return found
