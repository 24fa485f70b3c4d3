"""Which changes of the library there are, and a sample of them.

Left out, as far as the syntax shows it, are changes that no user could notice:
annotations, docstrings, texts of log lines and messages, names of threads, ``__all__``,
assertions, and numbers of seconds, where one more or less is no break.
"""

import ast
import dataclasses
import random

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from mutants.operators import all_operators

LOGGERS = {"_log", "log", "logging", "logger"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
#: Arguments that describe something to people or to tools.
DESCRIPTIONS = {
    "help", "metavar", "description", "epilog", "title", "doc", "summary", "name",
    "daemon", "exc_info", "exits", "frozen", "slots", "repr", "kw_only", "strict", "stacklevel",
}  # fmt: skip
#: Decorators without which a function returns the same.
INVISIBLE_DECORATORS = {
    "cache", "lru_cache", "cached_property", "override", "overload", "wraps", "final",
    "runtime_checkable", "unique", "abstractmethod",
}  # fmt: skip
#: Where "*" and "|" are operators, not parts of a parameter list.
EXPRESSIONS = {
    "arith_expr",
    "term",
    "expr",
    "and_expr",
    "xor_expr",
    "shift_expr",
    "power",
}
DURATIONS = ("_s", "_seconds", "timeout", "interval", "delay", "pause", "patience")


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change; the path is relative to the tree, lines are those of its statement."""

    path: str
    line: int
    lines: tuple[int, ...]
    operator: str
    occurrence: int
    in_function: bool

    def apply(self, code):
        """Return the changed code."""
        operator = all_operators()[self.operator]
        return mutate_code(code, operator, self.occurrence)


@dataclasses.dataclass(frozen=True)
class Span:
    """A part of a file, from and to (line, column)."""

    start: tuple[int, int]
    end: tuple[int, int]

    @classmethod
    def of(cls, node):
        """Return the part that a syntax node takes."""
        return cls(
            (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        )

    def has(self, position):
        """Return whether a change at (start, end) lies in this part."""
        return self.start <= position[0] and position[1] <= self.end


def _last_name(node):
    """Return the last name of ``a.b.c`` or ``a.b.c(...)``, else an empty text."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_log_call(node):
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVELS
        and _last_name(node.func.value) in LOGGERS
    )


def _is_type_union(node):
    """Return whether ``a | b`` is a type: None, a built-in type or ``x[y]`` takes part."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.BitOr):
        return False
    parts = [node.left, node.right]
    return any(
        (isinstance(part, ast.Constant) and part.value is None)
        or (isinstance(part, ast.Subscript) and _last_name(part.value)[:1].isupper())
        or _last_name(part) in ("str", "int", "float", "bytes", "bool")
        or _is_type_union(part)
        for part in parts
    )


def _is_message(node):
    """Return whether a text is written for people: it has words and is not SQL."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    words = node.value.split()
    return len(words) > 1 and not words[0].isupper()


def _is_duration(name):
    return name.lower().endswith(DURATIONS)


def _hidden_types(node):
    """Yield the annotations of a syntax node."""
    match node:
        case ast.arg(annotation=ast.expr() as part) | ast.AnnAssign(annotation=part):
            yield part
        case ast.FunctionDef(returns=ast.expr() as part):
            yield part
    if _is_type_union(node):
        yield node


def _hidden_durations(node):
    """Yield the number that a syntax node gives to a duration."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() as value)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant() as value)
            | ast.keyword(arg=str() as name, value=ast.Constant() as value)
        ) if _is_duration(name):
            yield value


def _hidden_texts(node):
    """Yield the parts of a syntax node that are written for people."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            yield node
        case ast.keyword(arg=str() as name) if name in DESCRIPTIONS:
            yield node
        case ast.Raise(exc=ast.expr() as raised):
            yield from (part for part in ast.walk(raised) if _is_text(part))
    if _is_log_call(node) or _is_message(node) or _last_name(node) == "getLogger":
        yield node


def _hidden_statements(node):
    """Yield a statement that has no effect on what a program does."""
    match node:
        case ast.FunctionDef(name="__repr__") | ast.Assert():
            yield node
        # For readers alone: the function does not use this argument.
        case ast.Delete(targets=targets) if all(
            isinstance(target, ast.Name | ast.Tuple) for target in targets
        ):
            yield node
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            yield node
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            yield node
        case ast.If(test=test) if _last_name(test) == "TYPE_CHECKING":
            yield node


def _hidden_parts(node):
    """Yield the parts of one syntax node in which no change matters."""
    for find in (_hidden_types, _hidden_durations, _hidden_texts, _hidden_statements):
        yield from find(node)


def _is_text(node):
    return isinstance(node, ast.Constant | ast.JoinedStr) and not isinstance(
        getattr(node, "value", ""), int
    )


def _invisible_decorators(node):
    for item in getattr(node, "decorator_list", ()):
        if _last_name(item) in INVISIBLE_DECORATORS:
            # The "@" stands one column before the expression.
            span = Span.of(item)
            start = (span.start[0], span.start[1] - 1)
            yield Span(start, (span.end[0] + 1, 0))


class Syntax:
    """The syntax of a file as the standard parser reads it: statements, functions, hidden parts."""

    def __init__(self, code):
        """Parse the code of one file."""
        module = ast.parse(code)
        self._hidden = []
        self._functions = []
        self._statements = []
        for node in ast.walk(module):
            self._hidden += [Span.of(part) for part in _hidden_parts(node)]
            self._hidden += _invisible_decorators(node)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._functions.append(range(node.body[0].lineno, node.end_lineno + 1))
            if isinstance(node, ast.stmt):
                self._statements.append(self._header(node))

    @staticmethod
    def _header(node):
        """Return the lines of a statement without those of the statements in it."""
        body = getattr(node, "body", None) or getattr(node, "cases", None)
        end = node.end_lineno
        if isinstance(body, list):
            first = body[0]
            # A case of a match statement has no line of its own, but its pattern has.
            first = getattr(first, "pattern", first)
            end = max(node.lineno, first.lineno - 1)
        return range(node.lineno, end + 1)

    def is_hidden(self, position):
        """Return whether a change at (start, end) cannot be noticed."""
        return any(span.has(position) for span in self._hidden)

    def statement_lines(self, line):
        """Return the lines of the smallest statement that has a line."""
        actual = [lines for lines in self._statements if line in lines]
        return tuple(min(actual, key=len)) if actual else (line,)

    def is_in_function(self, line):
        """Return whether a line runs when a function is called, not on import."""
        return any(line in lines for lines in self._functions)


def _is_expression(name, node):
    is_binary = name.startswith("ReplaceBinaryOperator")
    return not is_binary or node.parent.type in EXPRESSIONS


def changes_of(path, code):
    """Return the mutants of one file, as lists of those at the same position."""
    syntax = Syntax(code)
    nodes = list(ast_nodes(get_ast(code)))
    positions = {}
    for name, operator in all_operators().items():
        occurrence = 0
        for node in nodes:
            for position in operator.mutation_positions(node):
                if not syntax.is_hidden(position) and _is_expression(name, node):
                    line = position[0][0]
                    mutant = Mutant(
                        path,
                        line,
                        syntax.statement_lines(line),
                        name,
                        occurrence,
                        syntax.is_in_function(line),
                    )
                    positions.setdefault(position, []).append(mutant)
                occurrence += 1
    return list(positions.values())


def files_of(top, package):
    """Return the files of a package or module of lib, relative to the tree.

    Args:
        top: folder of the tree.
        package: below lib, for example ``hypervisor/kvm``; empty for all of lib.

    Raises:
        LookupError: there is no such package.
    """
    base = top / "lib" / package
    single = base.with_name(base.name + ".py")
    if single.is_file():
        return [str(single.relative_to(top))]
    actual = sorted(base.rglob("*.py")) if base.is_dir() else []
    if not actual:
        raise LookupError(f"lib has no package {package}")
    return [
        str(path.relative_to(top)) for path in actual if path.name != "_buildconf.py"
    ]


def packages(top):
    """Return the names of all packages and modules of lib."""
    actual = []
    for path in sorted((top / "lib").iterdir()):
        if path.is_dir() and any(path.rglob("*.py")):
            actual.append(path.name)
        elif path.suffix == ".py" and path.stem not in ("__init__", "_buildconf"):
            actual.append(path.stem)
    return actual


def sample(top, package, count, seed):
    """Return (number of positions, a seeded sample with one mutant per position)."""
    # The seed of a package does not depend on the other packages of the run.
    chance = random.Random(f"{seed} {package}")
    positions = []
    for path in files_of(top, package):
        positions += changes_of(path, (top / path).read_text())
    chosen = chance.sample(positions, min(count, len(positions)))
    return len(positions), [chance.choice(mutants) for mutants in chosen]
