"""Filters over rows: operators, kinds, absent values, two passes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base import errors
from ganeti.model import qlang

KINDS = {
    "name": ("text", "hostname"),
    "os": ("text", ""),
    "cnt": ("number", ""),
    "size": ("unit", ""),
    "when": ("timestamp", ""),
    "up": ("bool", ""),
    "tags": ("other", ""),
    "port": ("other", ""),
    "end_ts": ("other", "seconds"),
    "id": ("number", "jobid"),
    "gone": ("number", ""),
    "gone_up": ("bool", ""),
    "live": ("number", ""),
}
ROW = {
    "name": (0, "web1.example.com"),
    "os": (0, "tiny"),
    "cnt": (0, 3),
    "size": (0, 1024),
    "when": (0, 17.5),
    "up": (0, True),
    "tags": (0, ["a", "b"]),
    "port": (0, 11000),
    "end_ts": (0, [100, 900000]),
    "id": (0, 7),
    "gone": (2, None),
    "gone_up": (3, None),
    "live": (0, 5),
}


def resolve(name, skip=()):
    if name not in KINDS:
        raise errors.ParameterError(name)
    kind, match = KINDS[name]
    return qlang.Leaf(name, kind, lambda row: row[name], match, name in skip)


def run(qfilter, skip=()):
    qlang.check(qfilter)
    return qlang.compile_(qfilter, lambda name: resolve(name, skip))(ROW)


@pytest.mark.parametrize(
    ("qfilter", "wanted"),
    [
        (None, True),
        (["|"], False),
        (["&"], True),
        (["|", ["?", "up"], ["==", "cnt", 9]], True),
        (["&", ["?", "up"], ["==", "cnt", 9]], False),
        (["!", ["?", "up"]], False),
        (["==", "name", "web1"], True),
        (["==", "name", "web1.example"], True),
        (["==", "name", "web"], False),
        (["=", "name", "web1.example.com"], True),
        (["!=", "name", "web1"], False),
        (["==", "os", "tin"], False),
        (["<", "cnt", 4], True),
        (["<=", "cnt", 3], True),
        ([">", "cnt", 3], False),
        ([">=", "size", 1024], True),
        ([">", "when", 17], True),
        (["<", "os", "z"], True),
        (["=~", "name", "^web[0-9]+"], True),
        (["=~", "name", "example$"], False),
        (["=[]", "tags", "a"], True),
        (["=[]", "tags", "c"], False),
        (["==", "port", 11000], True),
        (["==", "end_ts", 100], True),
        (["<", "end_ts", 100], False),
        (["==", "id", "7"], True),
        (["==", "id", 7], True),
        (["==", "gone", 1], True),
        (["!=", "gone", 1], False),
        (["!", ["==", "gone", 1]], False),
        (["?", "gone_up"], True),
        (["!", ["?", "gone_up"]], False),
    ],
)
def test_operators(qfilter, wanted):
    assert run(qfilter) is wanted


@pytest.mark.parametrize(
    "qfilter",
    [
        ["==", "cnt", "3"],
        ["==", "os", 3],
        ["<", "up", 1],
        ["?", "cnt"],
        ["?", "port"],
        ["=~", "cnt", "3"],
        ["=~", "tags", "3"],
        ["=[]", "os", "t"],
        ["=[]", "port", "t"],
        ["==", "tags", "a"],
        ["==", "port", "a"],
        ["==", "end_ts", "a"],
        ["?", "unknown"],
        ["&", ["==", "unknown", 1]],
    ],
)
def test_misfits_are_parameter_errors(qfilter):
    with pytest.raises(errors.ParameterError):
        run(qfilter)


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        "==",
        5,
        [5],
        ["??", "a"],
        ["==", "a"],
        ["==", "a", "b", "c"],
        ["==", 5, "b"],
        ["==", "a", 1.5],
        ["==", "a", True],
        ["==", "a", None],
        ["==", "a", []],
        ["?", ["a"]],
        ["!", "a"],
        ["!"],
        ["|", "a"],
        ["=~", "a", 1],
        ["=~", "a", "("],
    ],
)
def test_what_is_no_filter(value):
    with pytest.raises(errors.ParseError):
        qlang.check(value)


def test_a_filter_cannot_backtrack():
    qfilter = ["=~", "name", "(([a-z0-9.]|web)+)+!$"]
    qlang.check(qfilter)
    assert run(qfilter) is False


def test_the_expressions_of_a_filter_are_bounded_together():
    few = ["|", *(["=~", "name", f"^web{n}$"] for n in range(250))]
    qlang.check(few)
    for many in ([*few, few[1]], ["&", few, ["!", few[1]]]):
        with pytest.raises(errors.ParseError, match="too many regular expressions"):
            qlang.check(many)
    large = ["=~", "name", "a" * 2000]
    qlang.check(["|", *[large] * 4])
    with pytest.raises(errors.ParseError, match="too many regular expressions"):
        qlang.check(["|", *[large] * 5])


def test_depth_is_bounded():
    deep = ["?", "up"]
    for _ in range(9):
        deep = ["!", deep]
    qlang.check(deep, max_depth=10)
    with pytest.raises(errors.ParseError):
        qlang.check(["!", deep], max_depth=10)


def test_fields_of_a_filter():
    assert qlang.fields_of(None) == frozenset()
    assert qlang.fields_of(
        ["|", ["!", ["?", "up"]], ["==", "name", "x"], ["=~", "os", "y"]]
    ) == {"up", "name", "os"}


def test_requests_for_names():
    ask = ["|", ["==", "name", "b"], ["|", ["=", "name", "a"]], ["==", "name", "b"]]
    assert qlang.requested_names(ask, "name") == ["b", "a"]
    assert qlang.requested_names(["==", "name", "b"], "name") == ["b"]
    assert qlang.requested_names(["|"], "name") == []
    assert qlang.requested_names(None, "name") is None
    assert qlang.requested_names(["&", ["==", "name", "b"]], "name") is None
    assert qlang.requested_names(["|", ["==", "os", "b"]], "name") is None


LEAVES = st.sampled_from(
    [["==", "live", 5], ["==", "live", 6], ["?", "up"], ["==", "cnt", 9]]
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda part: ["!", part], inner),
        st.builds(lambda parts: ["&", *parts], st.lists(inner, max_size=3)),
        st.builds(lambda parts: ["|", *parts], st.lists(inner, max_size=3)),
    ),
    max_leaves=8,
)


@given(FILTERS)
def test_first_pass_never_decides_wrongly(qfilter):
    early = run(qfilter, skip={"live"})
    assert early is None or early is run(qfilter)


def test_skipped_leaves_do_not_drop_rows():
    for part in itertools.product((["==", "live", 5], ["==", "live", 6]), repeat=2):
        assert run(["!", ["&", *part]], skip={"live"}) is None
    assert run(["&", ["==", "live", 5], ["==", "cnt", 9]], skip={"live"}) is False


def test_a_choice_of_members_reads_its_list_once():
    read = []

    def resolve_once(name):
        leaf = resolve(name)
        return leaf._replace(get=lambda row: read.append(name) or leaf.get(row))

    qfilter = ["|", ["=[]", "tags", "x"], ["=[]", "tags", "y"], ["=[]", "tags", "b"]]
    assert qlang.compile_(qfilter, resolve_once)(ROW) is True
    assert qlang.compile_(qfilter[:-1], resolve_once)(ROW) is False
    assert read == ["tags", "tags"]
    mixed = ["|", ["=[]", "tags", "x"], ["==", "cnt", 3]]
    assert run(mixed) is True


def test_messages_show_the_beginning_of_a_wrong_filter():
    long = "x" * 1_000_000
    wrong = (long, [long], [5, long], ["=~", "a", [long]], ["?", [long]], [long, 1])
    for value in (*wrong, ["==", "a", [long]], ["=~", "a", long]):
        with pytest.raises(errors.ParseError) as err:
            qlang.check(value)
        assert len(str(err.value)) < 1000
