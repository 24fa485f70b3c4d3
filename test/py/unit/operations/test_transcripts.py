"""Operations from their opcode to locks, node calls, messages, records and results.

The transcripts are in test/data/cmdlib. Every run begins with the cluster of
`fakes.unit_cluster`; next to the parameters of the opcode, CLUSTER changes parameters of the
cluster, ANSWERS answers of nodes, and ALLOCATION is the answer of an allocator. Lines that begin with ``lock`` are lock requests, ``>`` calls of
nodes, ``limit`` their time limits, ``say`` messages, ``job`` submitted jobs; ``+``, ``-`` and ``~`` are new, removed
and changed records. A value that was printed before is left out, as ``@number``.
"""

import collections
import json
import pathlib

import msgspec
import pytest

from fakes import clusters, golden
from fakes.unit_cluster import UnitCluster
from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants.parameters import hvparams
from ganeti.master.jqueue.executor import LockTimeout
from ganeti.master.locking import Level
from ganeti.model import objects
from ganeti.protocols.rpc.table import PROCEDURES

FOLDER = pathlib.Path(__file__).parents[3] / "data" / "cmdlib"
RUNS = [
    (path, words)
    for path in sorted(FOLDER.glob("*.txt"))
    for words, _ in golden.runs(path)
]
#: Longer values are printed once.
_LONG = 100
#: Hypervisor parameters of the cluster, and some by which they are recognised.
_DEFAULTS = {
    **{
        name: hvparams.HYPERVISOR["kvm"][name].default
        for name in hvparams.ADDITIONS["kvm"]
    },
    **clusters.EXAMPLE["cluster"]["hvparams"]["kvm"],
}
_SIGNS = {"acpi", "boot_order", "kernel_path"}
#: Values that are left out of mappings.
_EMPTY = (None, "", [], {})


class _Printer:
    """Texts of values, each long one only once."""

    def __init__(self):
        self._known = {}

    def text(self, value):
        """Return a value as JSON, without hypervisor parameters that are defaults."""
        if isinstance(value, str) and value.startswith("{"):
            value = json.loads(value)  # the request to an allocator
        plain = msgspec.json.decode(msgspec.json.encode(value))
        return self._short(self._without_defaults(plain))

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

    def _short(self, value):
        if isinstance(value, list) and not isinstance(value, str):
            text = "[" + ", ".join(map(self._short, value)) + "]"
        elif isinstance(value, dict):
            items = (f'"{key}": {self._short(value[key])}' for key in sorted(value))
            text = "{" + ", ".join(items) + "}"
        else:
            text = json.dumps(value)
        if len(text) <= _LONG:
            return text
        if text in self._known:
            return f"@{self._known[text]}"
        self._known[text] = len(self._known) + 1
        return text


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
            yield from _hook(name, *args, before)
            before = args[2]
            continue
        yield name
        for key, value in zip(PROCEDURES[procedure].args, args, strict=False):
            yield f">   {key}: {printer.text(value)}"


def _limits(limits):
    """Yield the time limits of calls that differ from that of the procedure."""
    for procedure in sorted(limits):
        if own := limits[procedure] - {None}:
            yield f"limit {procedure}: {' '.join(f'{limit:g} s' for limit in sorted(own))}"


def _hook(name, hook, phase, env, before):
    """Yield a run of hooks, without variables that have defaults or were there before."""
    yield f"{name}: {hook} {phase}"
    for key in sorted(env):
        default = str(_DEFAULTS.get(key.rpartition("INSTANCE_HV_")[2], ...))
        of_pre = before.get(key.replace("GANETI_POST_", "GANETI_"))
        if env[key] not in (default, of_pre):
            yield f">   {key}={env[key]}"
    yield from (f">   no {key}" for key in sorted(before) if key not in env)


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
        yield f"+ {table} {key}: {printer.text(objects.to_dict(new))}"
    elif new is None:
        yield f"- {table} {key}"
    else:
        was, now = objects.to_dict(old), objects.to_dict(new)
        for field in sorted({*was, *now}):
            if was.get(field) != now.get(field):
                yield (
                    f"~ {table} {key} {field}: {printer.text(was.get(field))}"
                    f" -> {printer.text(now.get(field))}"
                )


def run(words):
    """Execute an opcode and print the transcript."""
    op_id, *parameters = words
    op = {"OP_ID": op_id, **json.loads(" ".join(parameters) or "{}")}
    cluster = UnitCluster(**op.pop("CLUSTER", {}))
    engine, printer = cluster.engine, _Printer()
    cluster.allocation = op.pop("ALLOCATION", [])
    for name, answer in op.pop("ANSWERS", {}).items():
        cluster.answer(name, answer)
    before = engine.snapshot
    try:
        ending = [f"result {printer.text(engine.run(op))}"]
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


@pytest.mark.parametrize(
    ("path", "words"), RUNS, ids=[f"{path.stem}: {words}"[:70] for path, words in RUNS]
)
def test_a_run_is_the_transcript(path, words):
    golden.check(path, words, run)


def test_every_run_stands_once():
    counts = collections.Counter(words for _, words in RUNS)
    assert {words for words, count in counts.items() if count > 1} == set()
