"""Operations from their opcode to locks, node calls, messages, records and results.

The transcripts are in test/data/cmdlib. Every run begins with the cluster of
`fakes.unit_cluster`; next to the parameters of the opcode, CLUSTER changes parameters of the
cluster, ANSWERS answers of nodes, and ALLOCATION is the answer of an allocator. Lines that begin with ``lock`` are lock requests, ``>`` calls of
nodes, ``limit`` their time limits, ``say`` messages, ``job`` submitted jobs; ``+``, ``-`` and ``~`` are new, removed
and changed records.

A file begins with what its runs share, so that a new parameter changes few lines: ``@name``
is a long value, and ``hook`` a variable of hooks on objects of one type, which runs print
only if theirs differs. ``RECORD_TRANSCRIPTS=1`` writes the files as the code prints them now;
values that are as before keep their names.
"""

import collections
import functools
import itertools
import json
import os
import pathlib
import re

import msgspec
import pytest

from fakes import clusters, golden
from fakes.unit_cluster import UnitCluster
from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants.parameters import hvparams
from ganeti.master.jqueue.effects import LockTimeout
from ganeti.master.locking import Level
from ganeti.model import objects
from ganeti.protocols.rpc import PROCEDURES

FOLDER = pathlib.Path(__file__).parents[3] / "data" / "cmdlib"
RUNS = [
    (path, words)
    for path in sorted(FOLDER.glob("*.txt"))
    for words, _ in golden.runs(path)
]
#: Longer values have names.
_LONG = 100
_UUID = 36
#: Strings and names of values in what is printed.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|@[\w.]+')
#: Hypervisor parameters of the cluster, and some by which they are recognised.
_DEFAULTS = {
    **{
        name: row.default
        for name, row in hvparams.HYPERVISOR["kvm"].items()
        if row.added
    },
    **clusters.EXAMPLE["cluster"]["hvparams"]["kvm"],
}
_SIGNS = {"acpi", "boot_order", "kernel_path"}
#: Values that are left out of mappings.
_EMPTY = (None, "", [], {})


class _Shared:
    """Names of long values and variables of hooks, which the runs of a file share."""

    def __init__(self):
        #: JSON of a value -> its name
        self.names = {}
        #: JSON of a value -> what its name begins with; in the order of the runs
        self.met = {}
        #: type of object -> variables
        self.hooks = collections.defaultdict(dict)
        #: type of object -> the variables of each run
        self.hooks_met = collections.defaultdict(list)

    @classmethod
    def read(cls, path):
        """Return what the head of a file says."""
        head = re.split(r"^\$ ", path.read_text(), flags=re.MULTILINE)[0].splitlines()
        shared, texts = cls(), {}
        for kind, _, rest in (line.partition(" ") for line in head):
            if kind == "hook":
                object_type, _, variable = rest.partition(" ")
                key, _, value = variable.partition("=")
                shared.hooks[object_type][key] = value
            else:
                texts[kind] = rest

        def whole(text):
            base, _, rest = text.partition(" {") if text[0] == "@" else ("", "", text)
            if base:
                changed = json.loads(whole("{" + rest))
                return json.dumps(
                    {**json.loads(whole(texts[base])), **changed}, sort_keys=True
                )
            return _TOKEN.sub(
                lambda m: whole(texts[m[0]]) if m[0][0] == "@" else m[0], text
            )

        shared.names = {whole(text): name for name, text in texts.items()}
        return shared

    def head(self):
        """Return the head of the file; of like mappings, the first one and differences."""
        rows, first = [], {}
        for text, name in sorted(self.names.items(), key=lambda row: _natural(row[1])):
            value = json.loads(text)
            keys = (*value,) if isinstance(value, dict) else ()
            base_name, base = (
                first.setdefault(keys, (name, value)) if keys else (name, value)
            )
            if base is not value:
                value = {k: item for k, item in value.items() if item != base[k]}
                rows.append(f"{name} {base_name} {self.parts(value)}")
            else:
                rows.append(f"{name} {self.parts(value)}")
        return [
            *rows,
            *(
                f"hook {object_type} {key}={value}"
                for object_type, variables in sorted(self.hooks.items())
                for key, value in sorted(variables.items())
            ),
        ]

    def text(self, value, key="value"):
        """Return a value as JSON, or its name; the key is that of its mapping."""
        parts = self.parts(value, key)
        if not _has_name(value):
            return parts
        text = json.dumps(value, sort_keys=True)
        if isinstance(value, dict) and "uuid" in value:
            own = value.get("name", value["uuid"])
            key = key if len(own) == _UUID else own
        self.met.setdefault(text, "@" + re.sub(r"\W+", "_", key).strip("_"))
        return self.names.get(text, parts)

    def parts(self, value, key="value"):
        """Return a value as JSON, with names of what is in it."""
        if isinstance(value, list):
            return "[" + ", ".join(self.text(item, key) for item in value) + "]"
        if isinstance(value, dict):
            items = (f'"{k}": {self.text(value[k], k)}' for k in sorted(value))
            return "{" + ", ".join(items) + "}"
        return json.dumps(value)

    def renewed(self):
        """Return the names and variables for what runs printed."""
        after = _Shared()
        after.names = {
            text: self.names[text] for text in self.met if text in self.names
        }
        taken = set(after.names.values())
        for text, begin in self.met.items():
            if text not in after.names:
                names = (f"{begin}.{number}" for number in itertools.count(1))
                after.names[text] = next(name for name in names if name not in taken)
                taken.add(after.names[text])
        for object_type, runs in self.hooks_met.items():
            for key in {key for env in runs for key in env}:
                values = collections.Counter(env.get(key) for env in runs)
                value = max(values, key=lambda value: (values[value], str(value)))
                if value is not None:
                    after.hooks[object_type][key] = value
        return after


def _has_name(value):
    """Return whether a value is printed by a name: records, and what is long."""
    if isinstance(value, dict) and "uuid" in value:
        return True
    if isinstance(value, list) and any(map(_has_name, value)):
        return False
    return len(json.dumps(value)) > _LONG


def _natural(name):
    """Return by what to sort a name that ends with a number."""
    begin, _, number = name.rpartition(".")
    return begin, int(number)


class _Printer:
    """Texts of values, without what is empty or has its default."""

    def __init__(self, shared):
        self.shared = shared

    def text(self, value, key="value"):
        """Return a value as JSON, without hypervisor parameters that are defaults."""
        if isinstance(value, str) and value.startswith("{"):
            value = json.loads(value)  # the request to an allocator
        wire = msgspec.json.encode(value).decode()
        plain = json.loads(wire.replace(_buildconf.TOOLSDIR, "TOOLSDIR"))
        return self.shared.text(self._without_defaults(plain), key)

    def _without_defaults(self, value):
        """Return a value whose mappings lack what is empty or has its default."""
        if isinstance(value, list):
            return [self._without_defaults(item) for item in value]
        if not isinstance(value, dict):
            return value
        defaults = _DEFAULTS if value.keys() >= _SIGNS else {}
        return {
            key: self._without_defaults(item)
            for key, item in value.items()
            if item not in _EMPTY and defaults.get(key, ...) != item
        }

    def hook(self, name, hook, phase, env, before):
        """Yield a run of hooks, without variables of all runs or of the one before."""
        yield f"{name}: {hook} {phase}"
        plain = {
            key: value for key, value in env.items() if not self._is_default(key, value)
        }
        if not before:
            object_type = env["GANETI_OBJECT_TYPE"]
            self.shared.hooks_met[object_type].append(plain)
            before = self.shared.hooks[object_type]
        for key in sorted(env):
            was = before.get(key.replace("GANETI_POST_", "GANETI_"))
            if env[key] != was and (key in plain or was is not None):
                yield f">   {key}={env[key]}"
        yield from (f">   no {key}" for key in sorted(before) if key not in env)

    @staticmethod
    def _is_default(key, value):
        name = key.rpartition("INSTANCE_HV_")[2]
        return name in _DEFAULTS and value == str(_DEFAULTS[name])


def _node(uuid):
    """Return the number of a node."""
    return f"n{int(uuid[-2:], 16)}" if uuid.startswith("00000000-") else uuid


def _locks(requests):
    for row in requests:
        if row.level is Level.CLUSTER and row.shared:
            continue
        mode = "shared" if row.shared else "exclusive"
        names = "all" if row.names is None else " ".join(sorted(row.names))
        yield f"lock {row.level.name.lower()} {mode}: {names}"


def _calls(calls, printer):
    """Yield the calls, one line for all nodes that get equal ones in a row."""
    rows = []
    for procedure, node, args in calls:
        if rows and rows[-1][0] == procedure and rows[-1][2] == args:
            rows[-1][1].append(_node(node))
        else:
            rows.append((procedure, [_node(node)], args))
    before = {}
    for procedure, nodes, args in rows:
        name = f"> {procedure} on {' '.join(sorted(nodes))}"
        if procedure == "hooks_runner":
            yield from printer.hook(name, *args, before)
            before = args[2]
            continue
        yield name
        for key, value in zip(PROCEDURES[procedure].args, args, strict=False):
            yield f">   {key}: {printer.text(value, key)}"


def _limits(limits):
    """Yield the time limits of calls that differ from that of the procedure."""
    for procedure in sorted(limits):
        if own := limits[procedure] - {None}:
            yield f"limit {procedure}: {' '.join(f'{limit:g} s' for limit in sorted(own))}"


def _changes(before, after, printer):
    """Yield the records that differ."""
    for table in sorted(objects.TABLES):
        if table == "cluster":
            old, new = {"": before.cluster}, {"": after.cluster}
        else:
            old, new = getattr(before, table), getattr(after, table)
        for key in sorted({*old, *new}):
            yield from _change(table, key, old.get(key), new.get(key), printer)


def _change(table, key, old, new, printer):
    if old == new:
        return
    if old is None:
        yield f"+ {table} {key}: {printer.text(objects.to_dict(new), table)}"
    elif new is None:
        yield f"- {table} {key}"
    else:
        was, now = objects.to_dict(old), objects.to_dict(new)
        for field in sorted({*was, *now}):
            if was.get(field) != now.get(field):
                yield (
                    f"~ {table} {key} {field}: {printer.text(was.get(field), field)}"
                    f" -> {printer.text(now.get(field), field)}"
                )


def run(words, shared):
    """Execute an opcode and print the transcript."""
    op_id, *parameters = words
    op = {"OP_ID": op_id, **json.loads(" ".join(parameters) or "{}")}
    cluster = UnitCluster(**op.pop("CLUSTER", {}))
    engine, printer = cluster.engine, _Printer(shared)
    cluster.allocation = op.pop("ALLOCATION", [])
    for name, answer in op.pop("ANSWERS", {}).items():
        cluster.answer(name, answer)
    before = engine.snapshot
    try:
        ending = [f"result {printer.text(engine.run(op), 'result')}"]
    except (errors.GenericError, LockTimeout) as err:
        ending = [f"{type(err).__name__} {err}"]
    lines = [
        *_locks(engine.locks.requests),
        *_calls(engine.rpc.calls, printer),
        *_limits(engine.rpc.limits),
        *(f"say {kind} {payload}" for kind, payload in engine.callbacks.entries),
        *(
            f"job {number} {printer.text(op)}"
            for number, job in enumerate(engine.callbacks.submitted)
            for op in job
        ),
        *_changes(before, engine.snapshot, printer),
        *ending,
    ]
    print("\n".join(lines).replace(_buildconf.TOOLSDIR, "TOOLSDIR"))
    assert engine.locks.is_idle()
    return 0


def _record(path):
    """Write a file as the code prints it now."""
    before = _Shared.read(path)
    all_words = [words for words, _ in golden.runs(path)]
    for words in all_words:
        golden.printed(functools.partial(run, shared=before), words.split())
    after = before.renewed()
    play = functools.partial(run, shared=after)
    runs = [f"$ {words}\n{golden.printed(play, words.split())}" for words in all_words]
    path.write_text("".join([*(f"{line}\n" for line in after.head()), *runs]))


if os.environ.get("RECORD_TRANSCRIPTS"):
    for each in sorted(FOLDER.glob("*.txt")):
        _record(each)


@functools.cache
def _read(path):
    return dict(golden.runs(path)), _Shared.read(path)


@pytest.mark.parametrize(
    ("path", "words"), RUNS, ids=[f"{path.stem}: {words}"[:70] for path, words in RUNS]
)
def test_a_run_is_the_transcript(path, words):
    runs, shared = _read(path)
    play = functools.partial(run, shared=shared)
    assert golden.printed(play, words.split()) == runs[words]


def test_every_run_stands_once():
    counts = collections.Counter(words for _, words in RUNS)
    assert {words for words, count in counts.items() if count > 1} == set()


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem
)
def test_each_shared_value_is_used(path):
    counts = collections.Counter(re.findall(r"@\w+\.\d+", path.read_text()))
    assert {name for name, count in counts.items() if count == 1} == set()
