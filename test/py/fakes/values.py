"""Values that fit a type annotation, for tests that try anything that is allowed."""

import types
import typing

import msgspec
from hypothesis import strategies as st

WORDS = st.sampled_from(
    [
        *("node1.example.com", "node2.example.com", "inst1.example.com", "inst2"),
        *("default", "new1.example.com", "name", "size", "mode", "rw", "auto", "none"),
        *("file", "sharedfile", "kvm", "tiny", "add", "remove", "modify", "0", "-1"),
        *("", "a b", "é", "../x", "/tmp", "192.0.2.7", "aa:00:00:00:00:01", "|", "="),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 5000)
    | st.floats(-10, 1e6)
    | WORDS
    | st.text(max_size=4)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3)
    ),
    max_leaves=6,
)


def fitting(hint):
    """Return a strategy of JSON values that mostly fit an annotation."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _constrained(args[0], args[1:])
    if origin in (typing.Union, types.UnionType):
        return st.one_of([fitting(arg) for arg in args])
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is list:
        return st.lists(fitting(args[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(fitting(args[0]), fitting(args[1]), max_size=3)
    if origin is tuple:
        return st.tuples(*[fitting(arg) for arg in args]).map(list)
    plain = {
        type(None): st.none(),
        bool: st.booleans(),
        int: st.integers(-3, 5000),
        float: st.floats(-10, 1e6),
        str: WORDS | st.text(max_size=4),
    }
    return plain.get(hint, JSON)


def _constrained(kind, notes):
    meta = next((note for note in notes if isinstance(note, msgspec.Meta)), None)
    if meta is None:
        return fitting(kind)
    if meta.pattern is not None:
        return st.from_regex(meta.pattern, fullmatch=True) | WORDS
    if kind is int:
        low = meta.ge if meta.ge is not None else (meta.gt or -4) + 1
        return st.integers(low, meta.le or low + 2000)
    if kind is str and meta.min_length:
        return WORDS.filter(bool)
    return fitting(kind)


def opcodes_of(cls):
    """Return a strategy of wire forms of an opcode class."""
    hints = typing.get_type_hints(cls, include_extras=True)
    required, optional = {}, {}
    for field in msgspec.structs.fields(cls):
        if field.name in {"depends", "reason", "priority", "comment"}:
            continue
        target = required if field.required else optional
        target[field.name] = fitting(hints[field.name])
    names = st.lists(st.sampled_from(sorted(optional) or ["dry_run"]), max_size=5)

    def build(chosen):
        picked = {name: optional[name] for name in set(chosen) & optional.keys()}
        return st.fixed_dictionaries({**required, **picked})

    return names.flatmap(build).map(lambda values: {**values, "OP_ID": cls.op_id()})
