"""The model of a disk after a power cut, from records made by hand."""

import random

from fakes import power_cut

D, A = "/d", "/d/a"


def record(*entries):
    made = b""
    for kind, path, number, data in entries:
        size = 0 if kind == "T" else len(data)
        made += f"{kind} {number} {size} {path}\n".encode() + data
    return made


def cuts(entries, before, tries=200):
    """Return all outcomes of many cuts, as the contents of one file."""
    contents = set()
    for seed in range(tries):
        disk = power_cut.Disk(D, before)
        disk.replay(record(*entries))
        contents.add(disk.cut(random.Random(seed)).get(A))
    return contents


def sync(path, number=1):
    return ("B", path, number, b""), ("E", path, number, b"")


OLD, NEW = b"old old", b"NEW"


def test_a_synced_write_is_kept_and_another_may_be():
    write = ("W", A, 0, NEW)
    assert cuts([write, *sync(A)], {A: OLD}) == {b"NEW old"}
    assert cuts([write], {A: OLD}) == {OLD, b"NEW old"}


def test_what_is_written_during_a_sync_is_not_covered():
    begin, end = sync(A)
    assert cuts([begin, ("W", A, 0, NEW), end], {A: OLD}) == {OLD, b"NEW old"}


def test_a_new_name_needs_a_sync_of_its_directory():
    made = [("N", A, 0, b""), ("W", A, 0, NEW), *sync(A)]
    assert cuts(made, {}) == {None, NEW}
    assert cuts([*made, *sync(D, 2)], {}) == {NEW}


def test_a_file_is_replaced_whole_or_not():
    new = [("N", "/d/n", 0, b""), ("W", "/d/n", 0, NEW), *sync("/d/n")]
    assert cuts([*new, ("R", A, 0, b"/d/n")], {A: OLD}) == {OLD, NEW}
    assert cuts([*new, ("R", A, 0, b"/d/n"), *sync(D, 2)], {A: OLD}) == {NEW}


def test_a_removal_needs_a_sync_too():
    gone = ("U", A, 0, b"")
    assert cuts([gone], {A: OLD}) == {OLD, None}
    assert cuts([gone, *sync(D)], {A: OLD}) == {None}


def test_the_torn_end_of_a_record_is_left_out():
    disk = power_cut.Disk(D, {A: OLD})
    disk.replay(record(("W", A, 0, NEW), *sync(A))[:-5] + b"W 0 99 /d/a\nx")
    assert disk.cut(random.Random(1))[A] in {OLD, b"NEW old"}
