"""Forms of the answers that commands read: which are taken, and which are refused."""

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from ganeti.base import errors
from ganeti.protocols.luxi import answers, client, framing

FIELD = {"name": "a", "title": "A", "kind": "text"}


def table(*rows, fields=(FIELD,)):
    return {"fields": list(fields), "data": list(rows)}


class Lazy(Sequence):
    """Rows of a large table, which are checked when they are used."""

    def __init__(self, rows):
        self._rows = rows

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, index):
        return self._rows[index]


QUERY = ("node", ["a"], None)
TICKET = ("uuid", "node", "node_uuid", "address", "port", "ticket")
#: Method, arguments, answers that are taken, and those that are refused.
FORMS = [
    (
        "Query",
        QUERY,
        [table(), table([[0, "x"]]), table(([0, None],)), {**table(), "data": Lazy([5])}],
        [
            None,
            [],
            {"data": []},
            table([[0, "x"]], fields=()),
            table([[0, "x"]], fields=(FIELD, FIELD)),
            table([0, "x"]),
            table([[0, "x"], [0, "y"]]),
            table([["0", "x"]]),
            table([[0]]),
            table([[0, "x", 1]]),
            table("x"),
            {**table(), "data": "text"},
            {**table(), "data": None},
            {**table(), "data": 5},
            table(fields=({"name": "a", "title": "A"},)),
            table(fields=({**FIELD, "title": 5},)),
            {"fields": FIELD, "data": []},
        ],
    ),
    ("QueryFields", ("node", None), [{"fields": [FIELD]}, {"fields": []}], [{}, [FIELD], {"fields": [5]}]),
    *(
        (name, ([], ["a", "b"]), [[], [[1, 2]], ([1, 2],)], [None, {}, [[1]], [[1, 2, 3]], ["ab"]])
        for name in ("QueryNodes", "QueryInstances", "QueryGroups", "QueryFilters")
    ),
    ("QueryNodes", ([],), [[[1]], [[1, 2]]], [[1]]),
    (
        "QueryJobs",
        ([1], ["a", "b"]),
        [[], [None], [[1, 2], None]],
        [None, [[1]], [5], ["ab"]],
    ),
    ("QueryJobs", ([1],), [[[1], [1, 2]]], [[1]]),
    ("QueryConfigValues", (["a", "b"],), [[1, 2], (None, None)], [[1], [1, 2, 3], "ab"]),
    # The number of the names counts, not that of another argument.
    ("QueryConfigValues", (["a", "b"], ["x"]), [[1, 2]], [[1]]),
    (
        "QueryClusterInfo",
        (),
        [{"name": "c", "software_version": "3", "more": 1}],
        [{"name": "c"}, {"software_version": "3"}, []],
    ),
    ("QueryTags", ("cluster", ""), [[], ["a", "b"]], ["ab", [1], None]),
    *(
        (name, ([],), [1, "17"], [None, "x", "", 1.5, [1], "-1"])
        for name in ("SubmitJob", "SubmitJobToDrainedQueue")
    ),
    (
        "SubmitManyJobs",
        ([[], []],),
        [[[True, 1], [False, "full"]], [(True, "2"), [True, 3]]],
        [[[True, 1]], [[True, "x"], [True, 1]], [[1, 1], [True, 1]], [[True], [True, 1]], "ab"],
    ),
    (
        "WaitForJobChange",
        (1, ["status", "ops"], None, None, 1.0),
        ["nochange", [["queued", []], None], [["a", "b"], [[1, [0, 0], "message", "x"]]]],
        [
            "change",
            None,
            [["a"], None],
            [["a", "b"]],
            [["a", "b"], [], 1],
            ["ab", None],
            [["a", "b"], [[1, 2, 3]]],
            [["a", "b"], "text"],
            [["a", "b"], ["abcd"]],
        ],
    ),
    *(
        (name, (1,), [[True, "x"], (False, "")], [[1, "x"], [True], [True, None], "ab"])
        for name in ("CancelJob", "ChangeJobPriority")
    ),
    ("AutoArchiveJobs", (1, 2), [[1, 2]], [[1], [1, "2"], [1, 2, 3], None]),
    ("OpenConsole", (), [dict.fromkeys(TICKET)], [{}, None, dict.fromkeys(TICKET[1:])]),
    ("PlanJob", ([],), [{}, {"a": 1}], [None, []]),
    ("PlanBalance", (), [{"groups": []}], [{}, []]),
    ("QueryCapacity", ({},), [{"disk_template": "x"}], [{}, None]),
    ("QueryJournal", ({},), [[]], [None, {}, [5]]),
    ("QueryMaintenance", (), [], [None, [], {"incidents": 5}]),
    ("ReplaceFilter", (), ["uuid"], [None, 5]),
    ("SetWatcherPause", (None,), [None, 1, 1.5], ["1", True, []]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "args", "good", "bad"),
    FORMS,
    ids=[f"{number}-{row[0]}" for number, row in enumerate(FORMS)],
)
def test_answers_have_their_documented_form(method, args, good, bad):
    for answer in good:
        answers.check(method, args, answer)
    for answer in bad:
        with pytest.raises(errors.ProtocolError) as caught:
            answers.check(method, args, answer)
        assert caught.value.args[0].startswith(f"{method}: wanted ")


def test_examples_are_of_methods_with_a_form_and_other_methods_pass():
    assert {row[0] for row in FORMS} <= set(answers._FORMS)
    answers.check("DeleteFilter", (), object())


def test_the_error_names_the_form_and_a_part_of_the_answer():
    with pytest.raises(errors.ProtocolError) as caught:
        answers.check("CancelJob", (1,), ["\u20ac" * 100])
    shown = "['" + "\\u20ac" * 13
    assert caught.value.args == (
        (
            f"CancelJob: wanted [success, text], found {shown}...."
            " Commands and daemons may be of different releases: restart the daemons after"
            " an installation"
        ),
    )
    with pytest.raises(errors.ProtocolError, match=r"found 'x'\. Commands and"):
        answers.check("QueryClusterInfo", (), "x")
    with pytest.raises(
        errors.ProtocolError, match="wanted an object with name, software_version"
    ):
        answers.check("QueryClusterInfo", (), 5)
    longest = "x" * 78
    with pytest.raises(errors.ProtocolError, match=f"found '{longest}'\\. "):
        answers.check("CancelJob", (), longest)


# Messages
def result(data, **options):
    warnings = []
    actual = client._result(bytearray(data), warnings.append, **options)
    return actual, warnings


def test_an_answer_carries_a_result_and_perhaps_a_warning():
    assert result(b'{"success": true, "result": 5}') == (5, [])
    assert result(b'{"success": true}') == (None, [])
    text = b'{"success": true, "result": 5, "warning": "few copies"}'
    assert result(text) == (5, ["few copies"])
    for odd in (b'""', b"5", b"null"):
        data = b'{"success": true, "result": 5, "warning": ' + odd + b"}"
        assert result(data) == (5, [])


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"[]", errors.ProtocolError, "wanted an answer, found "),
        (b'{"result": 5}', errors.ProtocolError, "wanted an answer, found "),
        (b"{", errors.ProtocolError, "the answer is not JSON: "),
        (
            b'{"success": true, "version": 1}',
            errors.LuxiError,
            "the daemon speaks version 1, wanted ",
        ),
        (
            b'{"success": false, "result": ["OpPrereqError", ["no", "state"]]}',
            errors.OpPrereqError,
            "no",
        ),
        (b'{"success": false, "result": "odd"}', errors.RequestError, "odd"),
    ],
)
def test_answers_that_are_errors(data, kind, text):
    with pytest.raises(kind) as caught:
        result(data)
    assert str(caught.value.args[0]).startswith(text)


def test_large_tables_alone_are_decoded_by_column(monkeypatch):
    decoded = []
    monkeypatch.setattr(client, "_LARGE", 40)
    monkeypatch.setattr(
        client,
        "_decode_table",
        lambda data: decoded.append(len(data)) or {"success": True},
    )
    short = b'{"success": true, "result": 5}'
    long = short + b" " * (40 - len(short))
    assert result(long[:-1], is_table=True) == (5, [])
    assert result(long) == (5, [])
    assert decoded == []
    result(long, is_table=True)
    assert decoded == [40]


def test_a_request_ends_with_the_byte_that_no_message_has():
    data = client._encode({"method": "x", "args": []})
    assert data.endswith(b"\n\x03")
    assert data.count(framing.END) == 1
    assert framing.MAX_MESSAGE_BYTES == 32 << 20


def test_long_paths_of_sockets_are_reached_by_a_descriptor(tmp_path):
    short = "/" + "x" * 106
    with framing.reachable(short) as path:
        assert path == short
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    with framing.reachable(str(folder / "socket")) as path:
        number = int(path.removeprefix("/proc/self/fd/").removesuffix("/socket"))
        assert os.readlink(f"/proc/self/fd/{number}") == str(folder)
        assert not os.get_inheritable(number)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_commands_that_wait_for_jobs_load_no_codec():
    """Its import takes as long as all other modules of such a command."""
    script = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "from ganeti.protocols import luxi\n"
        "from ganeti.commands.cluster import verify\n"
        "from ganeti.protocols.luxi import answers\n"
        "print('msgspec' in sys.modules)"
    )
    argv = [sys.executable, "-I", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
