"""Messages to people about values that do not fit."""

from typing import Annotated, Literal

import msgspec
import pytest

from ganeti.base import errors
from ganeti.base.text import control_chars, messages
from ganeti.model import ht
from ganeti.model.opcodes import codec

KEYS = (
    "x: [0]: unknown key 'foo', wanted one of"
    " bridge, ip, link, mac, mode, name, network, vlan"
)
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
AtMostTwo = Annotated[float, msgspec.Meta(le=2.0)]
Named = Annotated[str, msgspec.Meta(min_length=1)]
NEAREST = KEYS.replace("'foo'", "'lnk' (did you mean link?)")


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ([{"foo": "x"}], list[ht.NicSpec], KEYS),
        ([{"lnk": "x"}], list[ht.NicSpec], NEAREST),
        (
            [{"size": True}],
            list[dict[str, int]],
            "x: [0]: wanted a whole number, found yes or no",
        ),
        (
            {"a": [1]},
            dict[str, list[str]],
            "x: [0]: wanted a text, found a whole number",
        ),
        (-1, AtLeastOne, "x: wanted a whole number of at least 1"),
        ([9], list[AtMostTwo], "x: [0]: wanted a number of at most 2.0"),
        ("", Named, "x: wanted a text of length at least 1"),
        (None, int | str, "x: wanted a whole number or a text, found nothing"),
    ],
)
def test_the_place_and_both_kinds_are_named(value, kind, text):
    with pytest.raises(errors.OpPrereqError) as caught:
        ht.convert(value, kind, "x")
    assert caught.value.args[0] == text


def test_fields_of_records_are_named():
    class Box(msgspec.Struct, forbid_unknown_fields=True):
        size: int

    for value, text in (
        ({}, "x: parameter size is missing"),
        ({"size": 1, "lid": 2}, "x: unknown parameter lid"),
    ):
        with pytest.raises(errors.OpPrereqError) as caught:
            ht.convert(value, Box, "x")
        assert caught.value.args[0] == text


def test_few_names_are_listed_and_of_many_those_alike():
    assert messages.known_names("x", ["b", "a"]) == "there are a, b"
    text = messages.known_names("lnk", ["mode", "link", "vlan"])
    assert text == "there are link, mode, vlan; did you mean link?"
    many = [f"parameter{letter}" for letter in "abcdefghijklmnop"] + ["boot_order"]
    assert messages.known_names("boot_ordre", many) == "did you mean boot_order?"
    assert messages.known_names("zzz", many) == (
        "none of the 17 known names is similar"
    )


def test_of_very_many_objects_the_first_are_named():
    assert messages.some(["b", "a"]) == "a, b"
    assert messages.some(f"n{number:02}" for number in range(12)).endswith("n10, n11")
    many = messages.some(f"n{number:02}" for number in reversed(range(40)))
    assert many.startswith("n00, n01, ")
    assert many.endswith("n11 and 28 more")


def test_a_wrong_choice_names_what_there_is():
    asked = {"group_name": "g", "alloc_policy": "odd", "OP_ID": "OP_GROUP_SET_PARAMS"}
    with pytest.raises(errors.OpPrereqError) as caught:
        codec.decode(asked)
    assert caught.value.args[0] == (
        "OP_GROUP_SET_PARAMS: alloc_policy: wanted one of"
        " last_resort, preferred, unallocable, found 'odd'"
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"network": "fe80::/64"},
            "network: wanted an IPv4 range such as 192.0.2.0/24, found 'fe80::/64'",
        ),
        (
            {"gateway": ""},
            "gateway: wanted an IPv4 address such as 192.0.2.1, found ''",
        ),
        (
            {"add_reserved_ips": ["192.0.2.1", "x" * 100]},
            "add_reserved_ips[1]: wanted an IPv4 address such as 192.0.2.1,"
            " found '" + "x" * 80 + "'...",
        ),
    ],
)
def test_a_text_of_the_wrong_form_is_shown_with_the_wanted_form(given, text):
    asked = {"OP_ID": "OP_NETWORK_ADD", "network_name": "n", "network": "192.0.2.0/24"}
    with pytest.raises(errors.OpPrereqError) as caught:
        codec.decode(asked | given)
    assert caught.value.args[0] == f"OP_NETWORK_ADD: {text}"


def test_of_many_keys_and_opcodes_those_alike_are_named():
    keys = dict[Literal[tuple(f"key{letter}" for letter in "abcdefghijklmn")], int]
    with pytest.raises(errors.OpPrereqError) as caught:
        ht.convert({"kexa": 1}, keys, "x")
    assert caught.value.args[0].startswith("x: unknown key 'kexa'; did you mean keya")
    for wrong, text in (
        ("OP_NODE_AD", "unknown opcode 'OP_NODE_AD'; did you mean OP_NODE_ADD"),
        (None, "unknown opcode None"),
        (7, "unknown opcode 7"),
    ):
        with pytest.raises(errors.OpPrereqError) as caught:
            codec.decode({"OP_ID": wrong})
        assert caught.value.args[0].startswith(text)


def test_of_many_choices_those_alike_are_named():
    asked = {"ignore_errors": ["ENODESHH"], "OP_ID": "OP_CLUSTER_VERIFY"}
    with pytest.raises(errors.OpPrereqError) as caught:
        codec.decode(asked)
    text = caught.value.args[0]
    assert "ignore_errors[0]: unknown value 'ENODESHH'; did you mean ENODESSH" in text
    assert "ECLUSTERCERT" not in text


@pytest.mark.parametrize("cls", codec.OPCODES.values())
def test_the_choices_of_every_opcode_can_be_looked_up(cls):
    assert messages.misfit("Invalid enum value 'x' - at `$.no_such`", cls) == (
        "no_such: unknown value 'x'"
    )


def test_places_are_named_with_their_numbers_and_no_names_as_none():
    assert [messages.places(count) for count in (0, 1, 3)] == [
        "none",
        "1: 0",
        "3: 0 to 2",
    ]
    assert messages.known_names("x", ()) == "there are none"


def test_repeated_values_are_found_in_one_pass():
    assert messages.repeated([3, 1, 3, 2, 1, 3]) == [3, 1]
    assert messages.repeated("") == []
    assert messages.repeated(str(number) for number in range(300_000)) == []


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "\ud7ff", "x" * 5000])
def test_a_wrong_name_or_word_is_shown_in_one_short_line(name):
    shown = control_chars.escape(name[:80]) + "..." * (len(name) > 80)
    text = messages.misfit(f"Object contains unknown field `{name}`", int)
    assert text == f"unknown parameter {shown}"
    text = messages.misfit(f"Invalid enum value {name}", Literal["a", "b"])
    assert text == f"wanted one of a, b, found {shown}"
