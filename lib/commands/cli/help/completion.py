"""Completion of command lines for bash, zsh and fish, generated from the tables.

A value is completed by a shell command that prints one word per line: ``echo`` of what
the tables know, or a list command for what the cluster knows. In zsh, the script for
bash is read with bashcompinit; zsh has neither ``mapfile`` nor ``compopt``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ganeti.base.constants.parameters import hvparams, params
from ganeti.base.constants.parameters.forms import Param
from ganeti.commands.cli.model import COMMON_OPTIONS, Argument, Command, Option, Program

_LIST: Final = "{} list --no-headers -o {}"
#: Kinds of names that a running cluster can complete: kind -> command.
_NAMES: Final = {
    "instance": _LIST.format("gnt-instance", "name"),
    "node": _LIST.format("gnt-node", "name"),
    "group": _LIST.format("gnt-group", "name"),
    "network": _LIST.format("gnt-network", "name"),
    "os": "gnt-os list --no-headers",
    "jobid": _LIST.format("gnt-job", "id"),
    "job": _LIST.format("gnt-job", "id"),
    "filter": _LIST.format("gnt-filter", "uuid"),
    "export": _LIST.format("gnt-backup", "export"),
}
#: Attribute of an option -> kind of the names that are its value.
_KINDS: Final = {
    **dict.fromkeys(("dst_node", "new_primary_node", "node", "nodes"), "node"),
    **dict.fromkeys(("on_nodes", "src_node"), "node"),
    **dict.fromkeys(("nodegroup", "target_groups", "to"), "group"),
    "os": "os",
}
Rows = Mapping[str, Param]


def _merged(kinds: Mapping[str, Rows]) -> Rows:
    return {name: row for rows in kinds.values() for name, row in rows.items()}


#: Attribute of an option -> parameters that its value sets.
_PARAMETERS: Final[Mapping[str, Rows]] = {
    "beparams": params.BACKEND,
    "diskparams": _merged(params.DISK),
    "disks": params.IDISK,
    "hvparams": _merged(hvparams.HYPERVISOR),
    "ndparams": params.NODE,
    "nicparams": params.NIC,
    "nics": params.INIC,
}
#: The same of a value that begins with what has the parameters.
_IDENTS: Final[Mapping[str, Mapping[str, Rows]]] = {
    "diskparams": params.DISK,
    "hvparams": hvparams.HYPERVISOR,
    "hypervisor": hvparams.HYPERVISOR,
}
#: Completion of options of placement programs -> kind of names.
_PLACED: Final = {
    "manyinstances": "instance",
    "manynodes": "node",
    "onegroup": "group",
    "onenode": "node",
}


class Word(NamedTuple):
    """An option of a command, or of a program without commands.

    Attributes:
        names: the spellings.
        text: the help.
        values: command that prints the values; empty if only the user knows them.
        takes_value: whether a value follows.
    """

    names: tuple[str, ...]
    text: str
    values: str = ""
    takes_value: bool = False


def placement_word(names: tuple[str, ...], text: str, completion: str) -> Word:
    """Return an option of a placement program, by its ``--help-completion``."""
    values = ""
    if completion.startswith("choices="):
        values = _echo(completion.removeprefix("choices=").split(","))
    elif completion in _PLACED:
        values = _NAMES[_PLACED[completion]]
    return Word(names, text, values, takes_value=completion != "none")


def _echo(words: Iterable[str]) -> str:
    return f"echo {' '.join(words)}"


def _words(program: Program, command: Command) -> list[Word]:
    return [
        Word(
            option.names, option.help, _values(program, command, option),
            option.takes_value,
        )
        for option in (*COMMON_OPTIONS, *command.options)
    ]  # fmt: skip


def _values(program: Program, command: Command, option: Option) -> str:
    if option.listed:
        return _echo(option.listed)
    if option.kind == "bool":
        return "echo yes no"
    if option.dest in {"output", "sort"}:
        return _fields(program, command)
    if option.dest in _KINDS and option.kind == "string":
        return _NAMES[_KINDS[option.dest]]
    if option.dest in _IDENTS and option.kind == "identkeyval":
        kinds = _IDENTS[option.dest].items()
        return _echo(
            f"{kind}:{word}" for kind, rows in kinds for word in _settings(rows)
        )
    if option.dest in _PARAMETERS and option.kind == "keyval":
        return _echo(_settings(_PARAMETERS[option.dest]))
    if option.dest in _PARAMETERS and option.kind == "identkeyval":
        rows = _PARAMETERS[option.dest]
        return _echo(
            f"{index}:{word}" for index in range(2) for word in _settings(rows)
        )
    return ""


def _settings(rows: Rows) -> Iterator[str]:
    """Yield ``NAME=`` of each parameter, or ``NAME=VALUE`` if the values are known."""
    for name, row in sorted(rows.items()):
        values = ("true", "false") if row.type == "bool" else row.allowed
        if isinstance(values, tuple):
            yield from (f"{name}={value}" for value in values)
        else:
            yield f"{name}="


def _fields(program: Program, command: Command) -> str:
    """Return the command that prints the fields of a listing."""
    if command.name == "list" and program.find("list-fields"):
        return f"_ganeti_fields {program.name}"
    return _echo((*command.fields, *command.more_fields))


def _argument(row: Argument) -> str:
    if row.choices:
        return _echo(row.choices)
    return _NAMES.get(row.kind) or _NAMES.get(row.name, "")


def _arguments(command: Command) -> str:
    """Return the command that prints names of the first kind of argument."""
    return next(filter(None, map(_argument, command.arguments)), "")


#: In bash, the last of COMP_WORDS is what follows the last "=" or ":" of the word.
_BASH: Final = r"""
_ganeti_fields() {
  "$1" list-fields --no-headers --separator=: | cut -d: -f1
}

# Prints one word per line: words of the tables, or what a list command prints.
_ganeti_lines() {
  case "$1" in
    "echo "*) printf '%s\n' ${1#echo } ;;
    *) $1 2> /dev/null ;;
  esac
}

# Names are chosen by others. One that a shell would not read as a plain word is left
# out, and nothing here evaluates one, as compgen -W would.
_ganeti_reply() {
  local item=$word last=${COMP_WORDS[COMP_CWORD]} strip="" line="" from="echo $1"
  case "$last" in "=" | ":") last="" ;; esac
  if [ -n "$3" ]; then
    from=$3
    item=${word##*,}
    if [ "$option" != "$previous" ]; then item=${item#"$option="}; fi
  elif [ -n "$2" ]; then
    case "$word" in -*) ;; *) from=$2 ;; esac
  fi
  COMPREPLY=()
  while IFS= read -r line; do
    case "$line" in
      "" | *[!-A-Za-z0-9_.,:=+@%/]*) ;;
      "$item"*) COMPREPLY+=("$line") ;;
    esac
  done <<< "$(_ganeti_lines "$from")"
  case "$item" in
    *"$last") strip=${item%"$last"}; COMPREPLY=("${COMPREPLY[@]#"$strip"}") ;;
    *) COMPREPLY=("${COMPREPLY[@]/#/${last%"$item"}}") ;;
  esac
  case "${COMPREPLY[*]}" in
    *=) if type compopt > /dev/null 2>&1; then compopt -o nospace 2> /dev/null; fi ;;
  esac
}

# Sets the word that is typed, the word before, and the option whose value is typed.
_ganeti_word() {
  local at=$COMP_CWORD
  word=${COMP_WORDS[at]}
  while [ "$at" -gt 1 ]; do
    case " ${COMP_WORDS[at-1]} ${COMP_WORDS[at]} " in
      " = "* | " : "* | *" = " | *" : ") ;;
      *) break ;;
    esac
    at=$((at - 1))
    word=${COMP_WORDS[at]}$word
  done
  previous=${COMP_WORDS[at-1]}
  option=$previous
  case "$word" in --*=*) option=${word%%=*} ;; esac
}
""".lstrip("\n")


def bash(programs: Sequence[Program], placement: Mapping[str, Sequence[Word]]) -> str:
    """Return the script for bash and zsh.

    Args:
        programs: those with commands.
        placement: options of the programs without.
    """
    lines = [
        "# Completion of Ganeti's commands; generated from their tables.",
        "# In zsh: autoload -U +X bashcompinit && bashcompinit, then source this file.",
        *_BASH.splitlines(),
    ]
    for program in programs:
        lines += _bash_function(program)
    for name, words in placement.items():
        lines += ["", f"_{name}() {{", *_BASH_START, *_bash_case(words, "", "  ")]
        lines += ['  _ganeti_reply "$flags" "$names" "$values"', "}"]
        lines.append(f"complete -o default -F _{name} {name}")
    return "\n".join(lines) + "\n"


_BASH_START: Final = (
    '  local word previous option flags="" names="" values=""',
    "  _ganeti_word",
)


def _bash_function(program: Program) -> Iterator[str]:
    name = "_" + program.name.replace("-", "_")
    known = sorted(w for row in program.offered() for w in (row.name, *row.aliases))
    yield from ("", f"{name}() {{", *_BASH_START)
    yield '  if [ "$COMP_CWORD" = 1 ]; then'
    yield f'    _ganeti_reply "{" ".join(known)}" "" ""'
    yield "    return"
    yield "  fi"
    yield '  case "${COMP_WORDS[1]}" in'
    for row in program.offered():
        yield f"    {'|'.join((row.name, *row.aliases))})"
        yield from _bash_case(_words(program, row), _arguments(row), "      ")
        yield "      ;;"
    yield from ("  esac", '  _ganeti_reply "$flags" "$names" "$values"', "}")
    yield f"complete -o default -F {name} {program.name}"


def _bash_case(words: Sequence[Word], names: str, indent: str) -> Iterator[str]:
    spellings = " ".join(sorted(name for word in words for name in word.names))
    yield f'{indent}flags="{spellings}" names="{names}"'
    valued = [word for word in words if word.values]
    if valued:
        yield f'{indent}case "$option" in'
        for word in valued:
            yield f'{indent}  {"|".join(word.names)}) values="{word.values}" ;;'
        yield f"{indent}esac"


def fish(programs: Sequence[Program], placement: Mapping[str, Sequence[Word]]) -> str:
    """Return the script for fish; see `bash`."""
    lines = [
        "# Completion of Ganeti's commands; generated from their tables.",
        "function _ganeti_fields",
        "  $argv[1] list-fields --no-headers --separator=: | cut -d: -f1",
        "end",
    ]
    for program in programs:
        start = f"complete -c {program.name} -f"
        for row in program.offered():
            names = " ".join((row.name, *row.aliases))
            text = _quoted(row.summary)
            lines.append(f"{start} -n __fish_use_subcommand -a '{names}' -d {text}")
            start_row = f"{start} -n '__fish_seen_subcommand_from {names}'"
            if names := _arguments(row):
                lines.append(f"{start_row} -a {_fish_words(names)}")
            lines += [_fish_option(start_row, word) for word in _words(program, row)]
    for name, words in placement.items():
        lines += [_fish_option(f"complete -c {name}", word) for word in words]
    return "\n".join(lines) + "\n"


def _fish_option(start: str, word: Word) -> str:
    parts = [
        start,
        *(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in word.names),
    ]
    if word.values:
        parts.append(f"-x -a {_fish_words(word.values)}")
    elif word.takes_value:
        parts.append("-r")
    return " ".join((*parts, "-d", _quoted(word.text)))


def _fish_words(command: str) -> str:
    """Return the words that a command prints; a value may be a list with commas."""
    if command.startswith("echo "):
        return _quoted(command.removeprefix("echo "))
    return _quoted(f"({command} 2> /dev/null)")


def _quoted(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"
