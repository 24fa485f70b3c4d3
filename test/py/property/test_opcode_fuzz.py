"""Whatever a client sends as an opcode is an opcode, or refused with one clear error."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base import errors
from ganeti.model import opcodes

WORDS = st.sampled_from(["add", "remove", "modify", "success", "name", "-1", "", "a/b"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | WORDS
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def decode_or_refusal(wire):
    try:
        return opcodes.decode(wire), None
    except errors.OpPrereqError as err:
        return None, err


def fields(cls):
    return [field.name for field in msgspec.structs.fields(cls)]


@pytest.mark.parametrize("op_id", sorted(opcodes.OPCODES))
def test_any_values_are_taken_or_refused(op_id):
    names = fields(opcodes.OPCODES[op_id])

    @settings(max_examples=60, deadline=None, database=None)
    @given(st.dictionaries(st.sampled_from(names), JSON, max_size=len(names)))
    def check(values):
        op, refusal = decode_or_refusal({"OP_ID": op_id, **values})
        if op is None:
            assert str(refusal.args[0]).startswith(op_id)
            assert len(refusal.args) == 2
            return
        wire = opcodes.encode(op)
        assert opcodes.decode(wire) == op
        assert isinstance(op.summary(), str)
        assert isinstance(opcodes.short_summary(op), str)
        assert isinstance(opcodes.redact(wire), dict)
        # As the queue does: to the disk and back.
        assert opcodes.decode(msgspec.json.decode(msgspec.json.encode(wire))) == op

    check()


@settings(max_examples=200, deadline=None, database=None)
@given(JSON)
def test_what_is_no_opcode_at_all_is_refused(value):
    with pytest.raises(errors.OpPrereqError):
        opcodes.decode(value)
