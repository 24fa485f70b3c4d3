"""Names in natural order."""

from ganeti.base.text import nicesort


def test_numbers_in_names_are_compared_as_numbers():
    names = ["node10", "node2", "node1", "a10b10", "a10b9", "node", "node02x"]
    assert nicesort.nice_names(names) == [
        "a10b9",
        "a10b10",
        "node",
        "node1",
        "node2",
        "node02x",
        "node10",
    ]


def test_objects_are_sorted_by_their_names():
    rows = [("x", "n10"), ("y", "n9")]
    assert nicesort.nice_sorted(rows, lambda row: row[1]) == rows[::-1]
    assert nicesort.key("web12.b3") == ["web", 12, ".b", 3, ""]
