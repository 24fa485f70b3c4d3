r"""Filters as lists and as texts: their check, and the parser of texts.

Users write ``name =~ m/^web/ and not offline``.

Precedence from the tightest: ``not``, ``and``, ``or``; parentheses group. A value is an
integer or a text in single or double quotes; inside quotes a backslash makes the next
character literal, so that ``"a\"b"`` is the text ``a"b``.
"""

import re
from typing import Any, Final, NamedTuple, NoReturn

from ganeti.base import errors
from ganeti.base.constants import query
from ganeti.base.text import patterns

#: Operators on filters, on one field, and on a field and a value.
LOGIC: Final = frozenset({query.QLANG_OP_OR, query.QLANG_OP_AND})
_COMPARISONS: Final = {
    "==": query.QLANG_OP_EQUAL,
    "=": query.QLANG_OP_EQUAL,
    "!=": query.QLANG_OP_NOT_EQUAL,
    "<": query.QLANG_OP_LT,
    "<=": query.QLANG_OP_LE,
    ">": query.QLANG_OP_GT,
    ">=": query.QLANG_OP_GE,
}
COMPARISONS: Final = frozenset({*_COMPARISONS.values(), query.QLANG_OP_EQUAL_LEGACY})
#: Deeper nesting is refused; filters written by people have a few levels.
MAX_DEPTH: Final = 100
#: Instructions of all regular expressions of a filter, and what each counts at least:
#: they bound the time per row and, with `patterns`, the memory.
MAX_PATTERNS_SIZE: Final = 10_000
_MIN_PATTERN_SIZE: Final = 40


def check(qfilter: Any, *, max_depth: int = MAX_DEPTH) -> None:
    """Check that a value is a filter; None is a filter.

    Raises:
        ParseError: the value is not a filter; the text names the wrong part.
    """
    if qfilter is not None:
        _check(qfilter, max_depth)


def _check(node: Any, depth: int) -> int:
    """Check a part of a filter; return the size of its regular expressions."""
    if depth <= 0:
        raise errors.ParseError("filter: nested too deeply")
    if not isinstance(node, (list, tuple)) or not node:
        raise errors.ParseError(f"filter: wanted [operator, ...], found {node!r:.200}")
    operator, operands = node[0], node[1:]
    if not isinstance(operator, str):
        raise errors.ParseError(f"filter: wanted an operator, found {operator!r:.200}")
    if operator in LOGIC:
        size = 0
        for operand in operands:
            size += _check(operand, depth - 1)
            if size > MAX_PATTERNS_SIZE:
                raise errors.ParseError("filter: too many regular expressions")
        return size
    if operator == query.QLANG_OP_NOT:
        _want(operator, operands, 1)
        return _check(operands[0], depth - 1)
    if operator == query.QLANG_OP_TRUE:
        _want(operator, operands, 1)
        _check_field(operator, operands[0])
    elif operator in COMPARISONS or operator in {
        query.QLANG_OP_REGEXP,
        query.QLANG_OP_CONTAINS,
    }:
        _want(operator, operands, 2)
        _check_field(operator, operands[0])
        return _check_value(operator, operands[1])
    else:
        raise errors.ParseError(f"filter: {operator!r:.200} is not an operator")
    return 0


def _want(operator: str, operands: Any, count: int) -> None:
    if len(operands) != count:
        raise errors.ParseError(
            f"filter: {operator!r:.200} wants {count} operands, found {len(operands)}"
        )


def _check_field(operator: str, field: Any) -> None:
    if not isinstance(field, str):
        raise errors.ParseError(
            f"filter: {operator!r:.200} needs a field name, found {field!r:.200}"
        )


def _check_value(operator: str, value: Any) -> int:
    if operator == query.QLANG_OP_REGEXP:
        if not isinstance(value, str):
            raise errors.ParseError(f"filter: wanted a pattern, found {value!r:.200}")
        try:
            return max(patterns.compile_(value).size, _MIN_PATTERN_SIZE)
        except errors.ParseError as err:
            raise errors.ParseError(f"filter: {err}") from err
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise errors.ParseError(
            f"filter: {operator!r:.200} needs a string or an integer, found"
            f" {value!r:.200}"
        )
    return 0


def fields_of(qfilter: Any) -> frozenset[str]:
    """Return the names of all fields in a checked filter."""
    if qfilter is None:
        return frozenset()
    if qfilter[0] in LOGIC or qfilter[0] == query.QLANG_OP_NOT:
        return frozenset().union(*(fields_of(node) for node in qfilter[1:]))
    return frozenset((qfilter[1],))


_PATTERNS: Final = frozenset({"=~", "!~"})
_GLOBS: Final = frozenset({"=*", "!*"})
_WORDS: Final = frozenset({"and", "or", "not", "in"})
_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?\d+)(?![A-Za-z_\d.])
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<word>[A-Za-z][A-Za-z0-9_/.]*)
    | (?P<op>=~|!~|=\*|!\*|==|!=|<=|>=|=|<|>|\(|\))
    | (?P<end>$)
    | (?P<unknown>.)
    )""",
    re.VERBOSE,
)
_REGEX: Final = re.compile(
    r"\s*m?(?P<mark>[/#^|])(?P<body>(?:\\.|(?!(?P=mark))[^\\])*)(?P=mark)"
    r"(?P<flags>[A-Za-z]*)",
    re.DOTALL,
)


def glob_regex(glob: str) -> str:
    """Return the pattern for a glob over dotted names.

    ``*`` and ``?`` do not match dots. The glob matches a whole name or its leading
    components.
    """
    parts = {"*": "[^.]*", "?": "[^.]"}
    body = "".join(parts.get(char) or re.escape(char) for char in glob)
    return f"^{body}(\\..*)?$"


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._token = _Token("", "", 0, 0)
        self._advance()

    def parse(self) -> list[Any]:
        result = self._disjunction()
        if self._token.kind != "end":
            self._fail("'and', 'or' or the end")
        return result

    # Grammar
    def _disjunction(self) -> list[Any]:
        return self._chain("or", query.QLANG_OP_OR, self._conjunction)

    def _conjunction(self) -> list[Any]:
        return self._chain("and", query.QLANG_OP_AND, self._negation)

    def _chain(self, word: str, operator: str, part: Any) -> list[Any]:
        parts = [part()]
        while self._take("word", word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else [operator, *parts]

    def _negation(self) -> list[Any]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"at most {MAX_DEPTH} levels of nesting")
        if self._take("word", "not"):
            result = [query.QLANG_OP_NOT, self._negation()]
        elif self._take("op", "("):
            result = self._disjunction()
            if not self._take("op", ")"):
                self._fail("a closing parenthesis")
        else:
            result = self._condition()
        self._depth -= 1
        return result

    def _condition(self) -> list[Any]:
        if self._token.kind in {"number", "string"}:
            return self._membership()
        if self._token.kind != "word" or self._token.text in _WORDS:
            self._fail("a field name")
        field = self._token.text
        self._advance()
        operator = self._token.text if self._token.kind == "op" else ""
        if operator in _PATTERNS:
            return self._maybe_not(
                operator, [query.QLANG_OP_REGEXP, field, self._regex()]
            )
        if operator in _GLOBS:
            self._advance()
            return self._maybe_not(
                operator,
                [
                    query.QLANG_OP_REGEXP,
                    field,
                    glob_regex(self._string("a quoted text")),
                ],
            )
        if operator in _COMPARISONS:
            self._advance()
            return [_COMPARISONS[operator], field, self._value()]
        return [query.QLANG_OP_TRUE, field]

    def _membership(self) -> list[Any]:
        value = self._value()
        negated = self._take("word", "not")
        if not self._take("word", "in"):
            self._fail("'in'")
        if self._token.kind != "word" or self._token.text in _WORDS:
            self._fail("a field name")
        result: list[Any] = [query.QLANG_OP_CONTAINS, self._token.text, value]
        self._advance()
        return [query.QLANG_OP_NOT, result] if negated else result

    @staticmethod
    def _maybe_not(operator: str, result: list[Any]) -> list[Any]:
        return [query.QLANG_OP_NOT, result] if operator.startswith("!") else result

    def _value(self) -> str | int:
        if self._token.kind == "number":
            number = int(self._token.text)
            self._advance()
            return number
        return self._string("a number or a quoted text")

    def _string(self, wanted: str) -> str:
        if self._token.kind != "string":
            self._fail(wanted)
        text = re.sub(r"\\(.)", r"\1", self._token.text[1:-1])
        self._advance()
        return text

    def _regex(self) -> str:
        # Only after =~ does a slash begin a pattern, so tokens cannot know it.
        match = _REGEX.match(self._text, self._token.end)
        if match is None:
            self._token = _Token("", "", self._token.end, self._token.end)
            self._fail("a regular expression such as m/web.*/i")
        flags = "".join(sorted(set(match["flags"])))
        body = f"(?{flags}){match['body']}" if flags else match["body"]
        self._token = _Token("", "", match.start("body"), match.end())
        if not set(flags) <= {"i", "s"}:
            self._fail("only the flags i and s")
        try:
            patterns.compile_(body)
        except errors.ParseError as err:
            self._fail(f"a valid regular expression ({err})")
        self._advance()
        return body

    # Tokens
    def _take(self, kind: str, text: str) -> bool:
        if (self._token.kind, self._token.text) != (kind, text):
            return False
        self._advance()
        return True

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._token.end)
        if match is None or match.lastgroup is None:  # the last alternative matches
            raise errors.ProgrammerError(f"no token at {self._token.end}")
        kind = match.lastgroup
        self._token = _Token(kind, match[kind], match.start(kind), match.end())

    def _fail(self, wanted: str) -> NoReturn:
        start = self._token.start
        line_start = self._text.rfind("\n", 0, start) + 1
        line = self._text[line_start:].split("\n", 1)[0]
        column = start - line_start
        raise errors.QueryFilterParseError(
            f"cannot parse filter {self._text!r}: wanted {wanted}",
            f"{line}\n{' ' * column}^\nwanted {wanted} (at char {start})",
        )


def parse(text: str) -> list[Any]:
    """Return the filter for its text form.

    Raises:
        QueryFilterParseError: its second argument shows the position: the line, a caret
            below it, and the expected token.
    """
    return _Parser(text).parse()
