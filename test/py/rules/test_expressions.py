"""Python's `re` evaluates expressions of our own, and none that takes too long.

It tries alternatives one after the other. If an expression can match a part of a text in
two ways and repeat that, a text of 30 characters has a billion ways. Expressions of
users go to ``ganeti.base.text.patterns``; ours are checked here, each for such a part.
"""

import ast
import collections
import functools
import re
import re._constants as c
import re._parser as parser

import pytest
from rules.test_patterns import sources

CALLS = {
    *("compile", "search", "match", "fullmatch", "split"),
    *("sub", "subn", "findall", "finditer"),
}
IMPORT = re.compile(r"^\s*(?:import|from) +re(?:gex|2)?\b", re.MULTILINE)
#: File -> why it passes `re` an expression that is not visibly our own.
EXEMPT = {
    "lib/commands/cli/output/hints.py": "rows of a table of constants",
    "lib/protocols/rapi/resource_table.py": "made from the table of resources",
    "lib/tools/oob/oob_common.py": "a mapping of constants",
    "lib/tools/oob/oob_redfish.py": "one of two constants",
    "lib/tools/os_image/sources.py": "a number of a table of constants",
    "lib/base/text/hv_syntax.py": "forms of the parameters' rows",
    "lib/node/hypervisor/xen/files.py": "the line above has re.escape",
    "lib/base/text/patterns.py": "its module re2",
    "lib/devel/vcluster/serial.py": "a developer's own, in the process of the command",
}


@functools.cache
def trees():
    """Return name -> nodes of each source that uses expressions."""
    return {
        name: list(ast.walk(ast.parse(text)))
        for name, text in sources()
        if IMPORT.search(text)
    }


def calls(nodes):
    """Yield the calls of functions of `re`."""
    for node in nodes:
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if not is_call or node.func.attr not in CALLS or not node.args:
            continue
        if getattr(node.func.value, "id", "") == "re":
            yield node


def is_own(node):
    """Return whether an expression consists of constants and of escaped texts."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "re.escape":
        return True
    if isinstance(node, ast.Name):
        return node.id.isupper()
    if isinstance(node, ast.Attribute) and node.attr.isupper():
        return True
    return all(map(is_own, ast.iter_child_nodes(node)))


def foreign(nodes):
    """Yield (line, fault) of the nodes of one source."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "re":
            yield node.lineno, "wanted import re"
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name == "regex" or (name.name == "re" and name.asname):
                    yield node.lineno, "wanted import re"
                if name.name == "re2":
                    yield node.lineno, "wanted ganeti.base.text.patterns"
    for call in calls(nodes):
        if not is_own(call.args[0]):
            yield call.lineno, f"wanted a constant, seen {ast.unparse(call.args[0])}"


def test_re_gets_expressions_of_our_own_only():
    seen = collections.defaultdict(list)
    for name, nodes in trees().items():
        for line, fault in foreign(nodes):
            seen[name].append(f"{line}: {fault}")
    others = {name: faults for name, faults in seen.items() if name not in EXEMPT}
    assert others == {}
    assert set(EXEMPT) <= set(seen), "these need no exemption any more"


@pytest.mark.parametrize(
    "text",
    ["re.search(pattern, x)", "re.compile(op.pattern)", "re.sub(f'{x}a', '', y)",
     "import regex", "import re as r", "from re import compile", "import re2"],
)  # fmt: skip
def test_the_rule_sees(text):
    assert list(foreign([*ast.walk(ast.parse(text))]))


@pytest.mark.parametrize(
    "text",
    ["re.search('a', x)", "re.compile(misc.UUID_REGEX)", "re.split(_A.strip('^'), x)",
     "re.compile(re.escape(x) + 'a')", "pattern.search(x)"],
)  # fmt: skip
def test_the_rule_allows(text):
    assert not list(foreign([*ast.walk(ast.parse(text))]))


# Ambiguous repetitions. Positions of an expression and the steps between them, counted:
# a repetition is ambiguous if two ways lead from a position back to it over one text.
ALPHABET = frozenset(range(128)) | {0xA0, 0xE9}
#: Repetitions up to this many are few enough to try all.
FEW = 8


@functools.cache
def category(name):
    letter = str(name).rsplit("_", 1)[1][0].lower()
    letter = letter.upper() if "NOT" in str(name) else letter
    return frozenset(n for n in ALPHABET if re.match(f"\\{letter}", chr(n)))


def members(items):
    seen = set()
    for kind, value in items:
        if kind is c.LITERAL:
            seen.add(value)
        elif kind is c.RANGE:
            seen |= ALPHABET & set(range(value[0], value[1] + 1))
        elif kind is c.CATEGORY:
            seen |= category(value)
    return ALPHABET - seen if (c.NEGATE, None) in items else frozenset(seen)


class Steps:
    """The positions of an expression: their characters, and the ways between them."""

    def __init__(self, expression):
        self.chars = []
        self.ways = collections.Counter()
        self._sequence(parser.parse(expression))

    def _sequence(self, nodes):
        nullable, first, last = True, [], []
        for node in nodes:
            may_be_empty, begin, end = self._node(*node)
            self._join(last, begin)
            first = first + begin if nullable else first
            last = last + end if may_be_empty else end
            nullable = nullable and may_be_empty
        return nullable, first, last

    def _join(self, ends, begins):
        self.ways.update((end, begin) for end in ends for begin in begins)

    def _node(self, kind, value):
        if kind in (c.MAX_REPEAT, c.MIN_REPEAT):
            low, high, body = value
            nullable, first, last = self._sequence(body)
            if high > FEW:
                self._join(last, first)
            return nullable or low == 0, first, last
        if kind is c.BRANCH:
            parts = [self._sequence(part) for part in value[1]]
            return (
                any(part[0] for part in parts),
                [position for part in parts for position in part[1]],
                [position for part in parts for position in part[2]],
            )
        if kind is c.SUBPATTERN:
            return self._sequence(value[-1])
        chars = self._chars(kind, value)
        if chars is None:
            return True, [], []
        self.chars.append(chars)
        return False, [len(self.chars) - 1], [len(self.chars) - 1]

    @staticmethod
    def _chars(kind, value):
        if kind is c.LITERAL:
            return frozenset({value})
        if kind is c.NOT_LITERAL:
            return ALPHABET - {value}
        if kind is c.ANY:
            return ALPHABET
        return members(value) if kind is c.IN else None

    def is_ambiguous(self):
        """Return whether a position is reached again in two ways over one text."""
        after = collections.defaultdict(set)
        for start, end in self.ways:
            after[start].add(end)
        ends = {n: reached(n, after.__getitem__) for n in range(len(self.chars))}
        done = set()
        for start, later in ends.items():
            # One position of a cycle stands for all of them.
            cycle = {end for end in later if start in ends[end]} - done
            done |= cycle
            inside = {n: after[n] & cycle for n in cycle}
            if start in cycle and self._returns_twice(start, inside):
                return True
        return False

    def _returns_twice(self, start, after):
        def pairs(state):
            left, right, has_split = state
            for one in after[left]:
                for two in after[right]:
                    if self.chars[one] & self.chars[two]:
                        is_double = left == right and one == two
                        is_double = is_double and self.ways[left, one] > 1
                        yield one, two, has_split or one != two or is_double

        return (start, start, True) in reached((start, start, False), pairs)


def reached(start, after):
    """Return what is reached from a start in one step or more."""
    seen, todo = set(), [start]
    while todo:
        for item in after(todo.pop()):
            if item not in seen:
                seen.add(item)
                todo.append(item)
    return seen


def test_no_expression_of_ours_is_ambiguous():
    actual = []
    for name, nodes in trees().items():
        for call in calls(nodes):
            value = getattr(call.args[0], "value", None)
            if isinstance(value, bytes):
                value = value.decode("latin-1")
            if isinstance(value, str):
                is_verbose = "VERBOSE" in ast.unparse(call)
                steps = Steps(f"(?x){value}" if is_verbose else value)
                if steps.is_ambiguous():
                    actual.append(f"{name}:{call.lineno}: {value}")
    assert actual == []


@pytest.mark.parametrize(
    "text",
    ["(a|aa)+$", "(a*)*b", "(a+b?)+c", "(.*,)*x", r"(\w+\s?)*$", "(ab|a?b)*c",
     r"m?([/#])(?:\\.|(?!\1).)*\1", "(?:[a-z]b|xb)*-", r"((\d+)*\.)*x"],
)  # fmt: skip
def test_ambiguity_is_seen(text):
    assert Steps(text).is_ambiguous()


@pytest.mark.parametrize(
    "text",
    ["a*b*c", "(?:a+,)*a+", r"(?:\\.|[^\\])*", "[a-z]+[a-z]+", "(ab|ac)*d",
     r"\d+(?:\.\d+)*", "(a|b){1,3}"],
)  # fmt: skip
def test_what_is_not_ambiguous(text):
    assert not Steps(text).is_ambiguous()
