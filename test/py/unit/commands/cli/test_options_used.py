"""Each option that a command accepts is read by the code of this command.

An option without effect, accepted for the scripts that give it, prints a warning.
"""

import ast
import functools
import importlib
import inspect
import pathlib
import types

import msgspec
import pytest

from ganeti import commands as client
from ganeti.commands.cli.waiting import operation
from ganeti.model import opcodes

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
#: Commands that start a program of their own -> the function that reads the options.
OWN_PROGRAMS = {
    "commands.cluster.commands:simulate": "devel.sim.command:run",
}
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
    """Return all words of the code that a command's function leads to, and its names."""
    module_name, _, function = run.partition(":")
    todo = [(importlib.import_module(f"ganeti.{module_name}"), function)]
    seen, words, methods = set(), set(), []
    while todo:
        module, name = todo.pop()
        if (module, name) in seen or not module.__name__.startswith(PARTS):
            continue
        if (module, name) == (operation, "OWN"):
            continue  # it names options, and reads none
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
    return words, seen


COMMANDS = [
    pytest.param(program, command, id=f"{program} {command.name}")
    for program, command in commands_with_options()
]


def filled_by(command):
    """Return (option, parameter of the opcode), of a command that fills one."""
    _, seen = read_by(command.run)
    if (operation, "fill") not in seen:
        return []
    fields = [(option, operation.field_of(option)) for option in command.options]
    return [(option, field) for option, field in fields if field is not None]


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_every_option_is_read(program, command):
    words, _ = read_by(OWN_PROGRAMS.get(command.run, command.run))
    known = words | {option.dest for option, _ in filled_by(command)}
    ignored = {
        option.names[-1]
        for option in command.options
        if option.dest and option.dest not in known and not option.warns
    }
    assert ignored == set(), program


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_options_and_arguments_fill_parameters_of_the_opcode(program, command):
    filled = filled_by(command)
    if not filled:
        return  # its module builds the opcode
    opcode = opcodes.OPCODES[command.opcodes[0]]
    kinds = {field.name: field.type for field in msgspec.structs.fields(opcode)}
    of_arguments = {name for row in command.arguments for name in row.parameters}
    of_options = {field for _, field in filled}
    assert of_options | of_arguments <= kinds.keys(), program
    for option, field in filled:
        for choice in option.choices:
            msgspec.convert([choice] if option.repeat else choice, kinds[field])
