"""Each option that a command accepts is read by the code of this command.

An option without effect, accepted for the scripts that give it, prints a warning.
"""

import ast
import functools
import importlib
import inspect
import pathlib
import types

import pytest

from fakes import commands
from ganeti import commands as client

PROGRAMS = {
    "backup": "gnt-backup",
    "cluster": "gnt-cluster",
    "debug": "gnt-debug",
    "filter": "gnt-filter",
    "group": "gnt-group",
    "instance": "gnt-instance",
    "job": "gnt-job",
    "network": "gnt-network",
    "node": "gnt-node",
    "os": "gnt-os",
    "storage": "gnt-storage",
    "rapi_token": "gnt-rapi-token",
}
#: Directory of one package per program.
CLIENT = pathlib.Path(client.__file__).parent
#: Parts of the library that commands consist of.
PARTS = ("ganeti.commands.cli", "ganeti.commands", "ganeti.bootstrap", "ganeti.devel")


def commands_with_options():
    for name, program in PROGRAMS.items():
        table = importlib.import_module(f"ganeti.commands.{name}.table")
        for command in table.PROGRAM.commands:
            if command.options:
                yield program, command


def test_every_table_of_commands_is_checked():
    assert {path.parent.name for path in CLIENT.glob("*/table.py")} == set(PROGRAMS)


@functools.cache
def parsed(module):
    """Return a module's top-level statements by the names they define."""
    rows = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            rows[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    rows[target.id] = node
    return rows


def words_of(node):
    """Return all names, attributes and texts below a node."""
    words = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            words.add(part.id)
        elif isinstance(part, ast.Attribute):
            words.add(part.attr)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            words.add(part.value)
    return words


def names_in(node, module):
    """Return what the names in a function refer to, with its own imports."""
    names = dict(vars(module))
    for part in ast.walk(node):
        if isinstance(part, ast.ImportFrom) and part.module.startswith("ganeti"):
            for alias in part.names:
                names[alias.name] = imported(part.module, alias.name)
    return names


def imported(source, name):
    parent = importlib.import_module(source)
    if hasattr(parent, name):
        return getattr(parent, name)
    return importlib.import_module(f"{source}.{name}")


def targets(node, module):
    """Yield module and name of all that a function refers to."""
    names = names_in(node, module)
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            if isinstance(names.get(part.value.id), types.ModuleType):
                yield names[part.value.id], part.attr
        elif isinstance(part, ast.Name):
            value = names.get(part.id)
            if isinstance(value, (types.FunctionType, type)):
                yield inspect.getmodule(value), value.__name__
            else:
                yield module, part.id


def read_by(run):
    """Return all words of the code that a command's function leads to."""
    module_name, _, function = run.partition(":")
    todo = [(importlib.import_module(f"ganeti.{module_name}"), function)]
    seen, words, methods = set(), set(), []
    while todo:
        module, name = todo.pop()
        if (module, name) in seen or not module.__name__.startswith(PARTS):
            continue
        seen.add((module, name))
        node = parsed(module).get(name)
        read = [node] if node is not None else []
        if isinstance(node, ast.ClassDef):
            rows = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            read = [part for part in rows if part.name.startswith("__")]
            methods += [(module, part) for part in rows if part not in read]
        while read:
            words |= words_of(read[-1])
            todo += targets(read.pop(), module)
            # Methods whose names occur are called, in one of the classes.
            for row in [row for row in methods if row[1].name in words]:
                methods.remove(row)
                words |= words_of(row[1])
                todo += targets(row[1], row[0])
    return words


@pytest.mark.parametrize(
    ("program", "command"),
    [
        pytest.param(program, command, id=f"{program} {command.name}")
        for program, command in commands_with_options()
    ],
)
def test_every_option_is_read(program, command):
    known = read_by(command.run)
    ignored = {
        option.names[-1]
        for option in command.options
        if option.dest and option.dest not in known and not option.warns
    }
    assert ignored == set(), program


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        (
            "gnt-node add --force-join",
            "--force-join: no effect, this is not supported any more",
        ),
        (
            "gnt-node add --no-node-setup",
            "--no-node-setup: no effect any more, see modify_ssh_setup of the cluster",
        ),
        (
            "gnt-node power --submit on",
            "--submit: no effect, the command waits for the nodes",
        ),
        (
            "gnt-instance console --priority=low",
            "--priority: no effect, a console needs no job",
        ),
        (
            "gnt-instance add --file-driver=blktap2 web1",
            "--file-driver: no effect, hypervisors choose how they open files",
        ),
        (
            "gnt-backup import --helper-shutdown-timeout=60 web1",
            "--helper-shutdown-timeout: no effect, an import needs no helper machine",
        ),
    ],
)
def test_an_option_without_effect_says_so(line, warning):
    done = commands.run(line)
    assert done.err.startswith(f"Warning: {warning}\n")
