"""Text files: what is refused, and the messages."""

import contextlib
import pathlib

import pytest

from ganeti.decisions.htools.model import text
from ganeti.decisions.htools.model.cluster import DataError

KITE = pathlib.Path(__file__).parents[5] / "data" / "htools" / "kite.data"


def test_what_is_written_reads_back_the_same() -> None:
    cluster = text.load(KITE.read_text(), "kite")
    assert text.load(text.dump(cluster), "again") == cluster


def test_instances_with_lone_disks_do_not_move() -> None:
    cluster = text.load(KITE.read_text(), "kite")
    assert [inst.movable for inst in cluster.instances] == [
        inst.template == "drbd" for inst in cluster.instances
    ]


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("kite2.lab.test|16384", "kite2.lab.test|-16384", "line 4: node, field 'total memory': below zero"),
        ("kite2.lab.test|16384", "kite2.lab.test|1_000", "line 4: node, field 'total memory': not a number"),
        ("kite2.lab.test|16384", "kite2.lab.test|nan", "line 4: node, field 'total memory': not a number"),
        ("kite2.lab.test|16384|512", "kite2.lab.test|16384|-1", "'node memory': below zero"),
        ("kite2.lab.test|16384|512", "kite2.lab.test|16384|" + "9" * 5000, "'node memory': not a whole number"),
        ("kite2.lab.test|16384", "kite1.lab.test|16384", "line 4: node, field 'name': 'kite1.lab.test' is already in line 3"),
        ("owl2.lab.test|2048", "owl2.lab.test|-2048", "instance, field 'memory': below zero"),
        ("owl2.lab.test|2048|20480", "owl2.lab.test|2048|-1", "instance, field 'disk': below zero"),
        ("kite1.lab.test|kite2.lab.test|drbd", "kite1.lab.test|kite9.lab.test|drbd", "'secondary node': unknown name 'kite9.lab.test'"),
        ("kite1.lab.test|kite2.lab.test|drbd", "kite1.lab.test|kite1.lab.test|drbd", "the same as the primary node"),
        ("kite1.lab.test|kite2.lab.test|drbd", "kite1.lab.test||drbd", "'secondary node': wanted one for drbd, found none"),
        ("kite1.lab.test|kite2.lab.test|drbd", "kite1.lab.test|kite2.lab.test|plain", "'secondary node': wanted none for plain, found kite2"),
        ("kite2.lab.test|16384", "|16384", "line 4: node, field 'name': is empty"),
        ("owl2.lab.test|2048", "|2048", "instance, field 'name': is empty"),
        ("\nrackA|128", "\n|128", "line 18: policy, field 'owner': '' is already in line 17"),
        ("kite2.lab.test|16384", "kite\x1b[2m.lab.test|16384", "line 4, field 1: control character '\\x1b'"),
        ("owl2.lab.test|2048", "owl2.lab.test|\x002048", "field 2: control character '\\x00'"),
        ("\nrackA|128,1,1024,1,1,1|128,1,1024,1,1,1;32768", "\nrackA|128,1,1024,1,1,1|128,1,1024,1,1,1;64", "line 18: policy, field 'ranges': memory: minimum 128, maximum 64"),
        ("|4.0|32.0\nrackA", "|-4.0|32.0\nrackA", "line 17: policy, field 'vcpu ratio': below zero"),
        ("128,1,1024,1,1,1|128", "128,1,1024,1,1,-1|128", "field 'standard': below zero"),
    ],
)  # fmt: skip
def test_a_bad_field_is_named_with_its_file_and_line(
    old: str, new: str, reported: str
) -> None:
    data = KITE.read_text()
    assert old in data
    with pytest.raises(DataError) as caught:
        text.load(data.replace(old, new, 1), "kite.data")
    assert str(caught.value).startswith("kite.data, line ")
    assert reported in str(caught.value)


@pytest.mark.parametrize(
    ("spoil", "reported"),
    [
        (
            lambda data: data.replace("\n", "\r\n"),
            "the line ends with a carriage return",
        ),
        (lambda data: f"\ufeff{data}", "the file begins with a byte order mark"),
    ],
)
def test_what_editors_add_is_named(spoil, reported: str) -> None:
    with pytest.raises(DataError, match=reported) as caught:
        text.load(spoil(KITE.read_text()), "kite.data")
    assert str(caught.value).startswith("kite.data, line 1, field ")


def test_a_file_that_ends_early_reports_where() -> None:
    data = KITE.read_text()
    with pytest.raises(DataError) as caught:
        text.load(data[: data.index("owl2")], "kite.data")
    assert str(caught.value) == (
        "kite.data: Invalid format of the input file: 3 sections instead of 4 or more;"
        " it ends in line 8 among the instances"
    )


def test_three_sections_and_a_final_empty_line_are_an_older_form() -> None:
    data = KITE.read_text()
    older = "\n\n".join(data.split("\n\n")[:3]) + "\n\n"
    cluster = text.load(older, "older")
    assert cluster.nodes == text.load(data, "kite").nodes
    assert cluster.tags == ()


def test_names_of_instances_may_be_repeated() -> None:
    data = KITE.read_text().replace("owl2.lab.test|2048", "owl1.lab.test|2048")
    names = [item.name for item in text.load(data, "kite").instances]
    assert names.count("owl1.lab.test") == 2


def test_every_truncation_is_reported_or_readable() -> None:
    data = KITE.read_text()
    for length in range(0, len(data), 7):
        with contextlib.suppress(DataError):
            text.load(data[:length], "cut")
