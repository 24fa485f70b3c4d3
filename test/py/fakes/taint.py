"""A static check: values from nodes reach no path, command, address, key or term.

Every answer of a node is a *source*: ``payload``, ``unwrap()`` and ``require()`` of a
result, and the output of a program on another machine (``shell.run()``). A value made of
one is tainted, too: parts, formatted text, results of calls that take it, parameters of
our functions that get it, attributes that hold it, and what these functions return. A
*sink* is a call that uses its argument as a path, command, address, key or term. Only
*validators*, which return something of a narrow form, end a taint, and so do comparisons
and looking a value up in our own records (``records[value]``).

The check follows names over modules, not objects: a method is known by its name. It
errs on the side of reports. It does not see values that pass through our records
(classes with fields) and through queues.
"""

import ast
import dataclasses
import pathlib

SOURCES = frozenset({"unwrap", "require"})
#: Calls of a module whose arguments are paths, commands or addresses.
SINK_MODULES = frozenset({"subprocess", "shutil", "socket", "glob", "pty"})
SINK_CALLS = frozenset(
    {
        *("open", "os.open", "os.system", "os.kill", "os.killpg", "pathlib.Path"),
        *(
            f"os.{name}"
            for name in (
                *("access", "chmod", "chown", "execv", "execve", "execvp", "link"),
                *("listdir", "lstat", "makedirs", "mkdir", "readlink", "remove"),
                *("rename", "replace", "rmdir", "scandir", "stat", "symlink"),
                *("truncate", "unlink", "utime", "walk"),
            )
        ),
        *(
            f"os.path.{name}"
            for name in (
                *("abspath", "exists", "getsize", "isdir", "isfile", "islink"),
                *("join", "lexists", "realpath"),
            )
        ),
    }
)
#: Functions of ours, by the last parts of their names.
SINK_ENDINGS = (
    *("process.run", "process.run_bounded", "process.run_trimmed", "runner.run"),
    *("shell.put_file", "ssh_client.Client", "client.Client", "cluster_identity"),
    *("files.write_file", "files.read_file", "files.remove_file", "files.backup_file"),
    *("files.make_dir", "files.locked", "paths.data", "paths.at", "paths.localize"),
    *("rpc.Target", "Target", "tcp_ping", "address_answers", "tcp.connect"),
    *("authorized_keys.add", "update_node_keys", "ssconf.write"),
    *("write_known_hosts", "Term", "HTTPSConnection", "create_connection"),
)
_DOTTED_ENDINGS = tuple(f".{end}" for end in SINK_ENDINGS)
#: Of these, the first argument alone is a path; the others are content.
_WRITES = ("files.write_file", "shell.put_file")
VALIDATORS = frozenset(
    {
        *("int", "float", "bool", "len", "isinstance", "type", "hash", "id"),
        *("one_public_key", "requested_key", "parse_term", "is_address"),
    }
)


@dataclasses.dataclass(frozen=True)
class Violation:
    """A tainted argument of a sink."""

    module: str
    line: int
    call: str

    def __str__(self):
        return f"{self.module}:{self.line}: {self.call}() gets a value from a node"


class Function:
    """One function or method, and what is known of it."""

    def __init__(self, module, node):
        self.module = module
        self.node = node
        args = node.args
        self.parameters = [a.arg for a in (*args.posonlyargs, *args.args)]
        if self.parameters[:1] in (["self"], ["cls"]):
            self.parameters = self.parameters[1:]
        self.named = {*self.parameters, *(a.arg for a in args.kwonlyargs)}
        self.tainted = set()
        walked = list(ast.walk(node))
        #: All names in it: those of functions that it may call, and of attributes.
        self.mentions = {n.id for n in walked if isinstance(n, ast.Name)}
        self.mentions |= {n.attr for n in walked if isinstance(n, ast.Attribute)}
        #: Whether it returns values of nodes that it got itself, or from a parameter.
        self.returns_own = self.returns_given = False


class Check:
    """All functions of some modules; `violations` runs until nothing new is tainted."""

    def __init__(self, sources):
        """Parse modules: name -> source text."""
        self.functions = {}
        self.classes = set()
        self.attributes = set()
        self.seen = set()
        #: Functions that use something that was found since they were looked at.
        self.pending = []
        self.users = {}
        for module, text in sorted(sources.items()):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef):
                    made = Function(module, node)
                    self.functions.setdefault(node.name, []).append(made)
                    for name in made.mentions:
                        self.users.setdefault(name, []).append(made)
                elif isinstance(node, ast.ClassDef):
                    self.classes.add(node.name)

    def violations(self):
        self.pending = [f for group in self.functions.values() for f in group]
        while self.pending:
            functions, self.pending = dict.fromkeys(self.pending), []
            for function in functions:
                _Body(self, function, given=False).run()
                _Body(self, function, given=True).run()
        return sorted(self.seen, key=str)

    def note_argument(self, function, name):
        if name not in function.tainted:
            function.tainted.add(name)
            self.pending.append(function)

    def note_attribute(self, module, name):
        if (module, name) not in self.attributes:
            self.attributes.add((module, name))
            self.pending += [f for f in self.users.get(name, ()) if f.module == module]

    def note_result(self, function):
        self.pending += self.users.get(function.node.name, ())


class _Body:
    """One pass over a function's statements."""

    def __init__(self, check, function, *, given):
        self.check = check
        self.function = function
        self.given = given
        self.names = set(function.tainted) if given else set()
        #: Names of our own records by our own keys, whose values are from nodes.
        self.records = set()

    def run(self):
        # Twice: a loop may use a name before the line that taints it.
        for _ in range(2):
            for statement in self.function.node.body:
                self.visit(statement)

    def visit(self, node):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return
        if isinstance(node, ast.Assign):
            self.assign(node.targets, self.value(node.value))
            self.note_records(node)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value:
            self.assign([node.target], self.value(node.value))
        elif isinstance(node, ast.For):
            self.iterate(node.target, node.iter)
        elif isinstance(node, ast.With):
            for item in node.items:
                tainted = self.value(item.context_expr)
                if item.optional_vars is not None:
                    self.assign([item.optional_vars], tainted)
        elif isinstance(node, ast.Return) and node.value:
            self.result(self.value(node.value))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child)
            elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                self.visit(child)

    def result(self, is_tainted):
        name = "returns_given" if self.given else "returns_own"
        if is_tainted and not getattr(self.function, name):
            setattr(self.function, name, True)
            self.check.note_result(self.function)

    def iterate(self, target, over):
        is_tainted = self.value(over)
        call = over.func if isinstance(over, ast.Call) else None
        method = call.attr if isinstance(call, ast.Attribute) else ""
        base = call.value if method in ("items", "values") else over
        own_keys = isinstance(base, ast.Name) and base.id in self.records
        if own_keys and method == "":
            return
        is_pair = isinstance(target, ast.Tuple) and len(target.elts) == 2
        is_numbered = isinstance(call, ast.Name) and call.id == "enumerate"
        if is_pair and (is_numbered or (own_keys and method == "items")):
            target = target.elts[1]
        self.assign([target], is_tainted)

    def assign(self, targets, is_tainted):
        for target in targets if is_tainted else ():
            for node in ast.walk(target):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    self.names.add(node.id)
                elif isinstance(node, ast.Attribute) and _is_self(node.value):
                    self.check.note_attribute(self.function.module, node.attr)
                elif isinstance(node, ast.Subscript):
                    self.assign_container(node.value)

    def assign_container(self, node):
        if isinstance(node, ast.Name):
            self.names.add(node.id)

    def note_records(self, node):
        """Note a dictionary that has our own keys."""
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name) and isinstance(value, ast.DictComp):
            if not self.value(value.key):
                self.records.add(target.id)
        elif (
            isinstance(target, ast.Subscript)
            and isinstance(target.value, ast.Name)
            and not self.value(target.slice)
        ):
            self.records.add(target.value.id)

    def value(self, node):
        """Return whether an expression is tainted; look at all calls in it."""
        if isinstance(node, ast.Name):
            return node.id in self.names
        if isinstance(node, ast.Attribute):
            return self.attribute(node)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.Compare):
            self.all_of(node)
            return False
        if isinstance(node, ast.Subscript):
            self.value(node.slice)
            return self.value(node.value)
        if isinstance(node, ast.Lambda):
            return False
        if isinstance(
            node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
        ):
            return self.comprehension(node)
        if isinstance(node, ast.IfExp):
            self.value(node.test)
            return any([self.value(node.body), self.value(node.orelse)])
        if isinstance(node, ast.NamedExpr):
            is_tainted = self.value(node.value)
            self.assign([node.target], is_tainted)
            return is_tainted
        if isinstance(node, ast.Yield) and node.value:
            self.result(self.value(node.value))
            return False
        return self.all_of(node)

    def attribute(self, node):
        inner = self.value(node.value)
        if node.attr == "payload":
            return True
        if _is_self(node.value):
            return (self.function.module, node.attr) in self.check.attributes
        # Our own words about an answer, not those of the node.
        return inner and node.attr not in ("failed", "offline", "fail_msg")

    def all_of(self, node):
        parts = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
        return any(self.value(part) for part in parts)

    def comprehension(self, node):
        for generator in node.generators:
            self.iterate(generator.target, generator.iter)
            for test in generator.ifs:
                self.value(test)
        if isinstance(node, ast.DictComp):
            return any([self.value(node.key), self.value(node.value)])
        return self.value(node.elt)

    def call(self, node):
        name = _dotted(node.func)
        last = name.rpartition(".")[2]
        arguments = [self.value(arg) for arg in node.args]
        keywords = {word.arg: self.value(word.value) for word in node.keywords}
        target = isinstance(node.func, ast.Attribute) and self.value(node.func.value)
        is_given = any(arguments) or any(keywords.values())
        is_used = any(arguments[:1]) if name.endswith(_WRITES) else is_given
        if is_used and _is_sink(name):
            self.check.seen.add(Violation(self.function.module, node.lineno, name))
        if last in SOURCES or name.endswith("shell.run"):
            return True
        if last in VALIDATORS:
            return False
        if last == "get" and not target:
            return any(arguments[1:])
        if last in ("append", "add", "extend", "update", "setdefault") and is_given:
            container = (
                node.func.value if isinstance(node.func, ast.Attribute) else None
            )
            if container is not None:
                self.assign_container(container)
        if (last == "replace" and keywords) or last in self.check.classes:
            return False
        ours = self.ours(name)
        for function in ours:
            self.pass_on(function, arguments, keywords)
        if ours:
            return any(
                function.returns_own or (is_given and function.returns_given)
                for function in ours
            )
        return bool(target or is_given)

    def ours(self, name):
        """Return the functions that a call may mean: of the module, or by module."""
        parts = name.split(".")
        group = self.check.functions.get(parts[-1], [])
        if len(parts) == 1 or parts[0] in ("self", "cls"):
            return [f for f in group if f.module == self.function.module]
        return [f for f in group if parts[-2] in f.module.split(".")]

    def pass_on(self, function, arguments, keywords):
        given = dict(zip(function.parameters, arguments, strict=False)) | keywords
        for name, is_tainted in given.items():
            if is_tainted and name in function.named:
                self.check.note_argument(function, name)


def _is_self(node):
    return isinstance(node, ast.Name) and node.id == "self"


def _dotted(node):
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "()"


def _is_sink(name):
    return (
        name in SINK_CALLS
        or name.partition(".")[0] in SINK_MODULES
        or f".{name}".endswith(_DOTTED_ENDINGS)
    )


def modules(top, packages):
    """Return the sources of packages below a directory: module name -> text."""
    missing = [name for name in packages if not pathlib.Path(top, name).is_dir()]
    assert not missing, missing
    return {
        ".".join(path.relative_to(top).with_suffix("").parts): path.read_text()
        for package in packages
        for path in [
            *pathlib.Path(top, package).rglob("*.py"),
            *pathlib.Path(top).glob(f"{package}.py"),
        ]
    }
