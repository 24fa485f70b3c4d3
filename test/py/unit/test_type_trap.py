"""No type that values are decoded to may trip the decoder's memory trap.

msgspec 0.22 reads past its own type when a number with bounds and a tuple of fixed
length are alternatives in one union.
"""

import importlib
import pkgutil
import types
import typing

import msgspec
import pytest

import ganeti
from ganeti.model import ht, opcodes

BOUNDS = ("gt", "ge", "lt", "le", "multiple_of")


def alternatives(hint):
    """Return the types in a union, flattened; the hint itself if it is none."""
    inner = typing.get_args(hint)[0] if is_annotated(hint) else hint
    if typing.get_origin(inner) in (typing.Union, types.UnionType):
        return [alt for arg in typing.get_args(inner) for alt in alternatives(arg)]
    return [hint]


def is_annotated(hint):
    return typing.get_origin(hint) is typing.Annotated


def is_bounded_number(hint):
    if not is_annotated(hint):
        return False
    kind, *notes = typing.get_args(hint)
    return kind in (int, float) and any(
        isinstance(note, msgspec.Meta)
        and any(getattr(note, name) is not None for name in BOUNDS)
        for note in notes
    )


def is_fixed_tuple(hint):
    kind = typing.get_args(hint)[0] if is_annotated(hint) else hint
    if isinstance(kind, type) and issubclass(kind, tuple) and kind is not tuple:
        return True
    args = typing.get_args(kind)
    return typing.get_origin(kind) is tuple and Ellipsis not in args


def traps(hint, seen=None):
    """Yield the unions below a type that mix both."""
    seen = set() if seen is None else seen
    if repr(hint) in seen:
        return
    seen.add(repr(hint))
    actual = alternatives(hint)
    if any(map(is_bounded_number, actual)) and any(map(is_fixed_tuple, actual)):
        yield hint
    children = [arg for arg in typing.get_args(hint) if arg is not Ellipsis]
    if isinstance(hint, type) and hasattr(hint, "__annotations__"):
        children += typing.get_type_hints(hint, include_extras=True).values()
    for child in children:
        yield from traps(child, seen)


def decoded_types():
    for cls in opcodes.OPCODES.values():
        yield cls.op_id(), cls
        yield f"result of {cls.op_id()}", cls.RESULT
    for name, value in vars(ht).items():
        if typing.get_origin(value) is not None:
            yield f"ht.{name}", value
    for actual in pkgutil.walk_packages(ganeti.__path__, "ganeti."):
        if actual.name.startswith(
            ("ganeti.model.objects", "ganeti.master.jqueue", "ganeti.protocols.rpc")
        ):
            module = importlib.import_module(actual.name)
            for name, value in vars(module).items():
                if isinstance(value, type) and issubclass(value, msgspec.Struct):
                    yield f"{actual.name}.{name}", value


def test_the_trap_is_recognised():
    bad = dict[str, list[ht.DiskIndex | tuple[int, str]]]
    assert list(traps(bad))
    assert not list(traps(list[int | tuple[ht.DiskIndex, str]]))


@pytest.mark.parametrize(
    ("name", "hint"), [pytest.param(*row, id=row[0]) for row in decoded_types()]
)
def test_no_type_mixes_bounds_and_tuples(name, hint):
    assert not list(traps(hint)), name
