"""Forms of the answers that commands read, so that they need not check them.

An answer of another form comes from a program that is not the master daemon of this
release. Every command imports this module, so it imports little itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import errors

_EXCERPT: Final = 80


class _Form(NamedTuple):
    """The documented form of an answer, and its check, given the arguments."""

    wanted: str
    check: Callable[[Any, Sequence[Any]], bool]


def check(method: str, args: Sequence[Any], answer: Any) -> None:
    """Refuse an answer of an undocumented form; methods not listed here pass.

    Raises:
        ProtocolError: names the method, the documented form and the answer.
    """
    form = _FORMS.get(method)
    if form is None or form.check(answer, args):
        return
    text = ascii(answer)
    excerpt = text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."
    raise errors.ProtocolError(
        f"{method}: wanted {form.wanted}, found {excerpt}. Commands and daemons may be"
        " of different releases: restart the daemons after an installation"
    )


def _is_table(answer: Any, args: Sequence[Any]) -> bool:
    if not isinstance(answer, Mapping) or not _are_fields(answer.get("fields")):
        return False
    rows, width = answer.get("data"), len(answer["fields"])
    if width != len(args[1]):
        return False
    if not isinstance(rows, (list, tuple)):
        # Large tables are decoded, and checked, when they are used.
        return isinstance(rows, Sequence) and not isinstance(rows, str)
    return all(
        type(row) in _LISTS
        and len(row) == width
        and all(
            type(cell) in _LISTS and len(cell) == 2 and isinstance(cell[0], int)
            for cell in row
        )
        for row in rows
    )


def _is_page(answer: Any, args: Sequence[Any]) -> bool:
    return _is_table(answer, args) and _is_name(answer.get("next"), args)


def _is_matches(answer: Any, _args: Sequence[Any]) -> bool:
    return type(answer) in _LISTS and all(
        isinstance(row, Mapping)
        and all(isinstance(row.get(key), str) for key in _MATCH)
        for row in answer
    )


def _is_field_list(answer: Any, _args: Sequence[Any]) -> bool:
    return isinstance(answer, Mapping) and _are_fields(answer.get("fields"))


def _are_fields(fields: Any) -> bool:
    return type(fields) in _LISTS and all(
        isinstance(field, Mapping)
        and all(isinstance(field.get(key), str) for key in ("name", "title", "kind"))
        for field in fields
    )


def _is_rows(answer: Any, args: Sequence[Any]) -> bool:
    """Return whether an answer of a classic query has a value per field."""
    width = len(args[1]) if len(args) > 1 else None
    return type(answer) in _LISTS and all(
        type(row) in _LISTS and width in {None, len(row)} for row in answer
    )


def _is_job_rows(answer: Any, args: Sequence[Any]) -> bool:
    """Return whether an answer about jobs has a value per field, or null, per job."""
    width = len(args[1]) if len(args) > 1 else None
    return type(answer) in _LISTS and all(
        row is None or (type(row) in _LISTS and width in {None, len(row)})
        for row in answer
    )


def _is_waits(answer: Any, _args: Sequence[Any]) -> bool:
    """Return whether an answer has a text and two times, or null, per wait."""
    numbers = (int, float)
    return type(answer) in _LISTS and all(
        type(row) in _LISTS
        and len(row) == len(("text", "waited", "left"))
        and type(row[0]) is str
        and type(row[1]) in numbers
        and type(row[2]) in (*numbers, type(None))
        for row in answer
    )


def _is_values(answer: Any, args: Sequence[Any]) -> bool:
    return type(answer) in _LISTS and len(answer) == len(args[0])


def _is_id(answer: Any, _args: Sequence[Any] = ()) -> bool:
    return isinstance(answer, int) or (isinstance(answer, str) and answer.isdigit())


def _is_submitted(answer: Any, args: Sequence[Any]) -> bool:
    return (
        type(answer) in _LISTS
        and len(answer) == len(args[0])
        and all(
            type(row) in _LISTS
            and len(row) == 2
            and (_is_id(row[1]) if row[0] is True else row[0] is False)
            for row in answer
        )
    )


def _is_outcome(answer: Any, _args: Sequence[Any]) -> bool:
    return (
        type(answer) in _LISTS
        and len(answer) == 2
        and isinstance(answer[0], bool)
        and isinstance(answer[1], str)
    )


def _is_change(answer: Any, args: Sequence[Any]) -> bool:
    if answer == "nochange":
        return True
    if type(answer) not in _LISTS or len(answer) != 2:
        return False
    values, entries = answer
    return (
        type(values) in _LISTS
        and len(values) == len(args[1])
        and (
            entries is None
            or (
                type(entries) in _LISTS
                and all(type(entry) in _LISTS and len(entry) == 4 for entry in entries)
            )
        )
    )


def _is_counts(answer: Any, _args: Sequence[Any]) -> bool:
    return (
        type(answer) in _LISTS
        and len(answer) == 2
        and all(isinstance(count, int) for count in answer)
    )


def _is_texts(answer: Any, _args: Sequence[Any]) -> bool:
    return type(answer) in _LISTS and all(isinstance(text, str) for text in answer)


def _is_maintenance(answer: Any, _args: Sequence[Any]) -> bool:
    from ganeti.decisions.repair.incidents import MaintenanceState

    return _is_of(answer, MaintenanceState)


def _is_journal(answer: Any, _args: Sequence[Any]) -> bool:
    from ganeti.decisions.repair.journal import Entry

    return _is_of(answer, list[Entry])


def _is_sessions(answer: Any, _args: Sequence[Any]) -> bool:
    from ganeti.decisions.sessions import Shown

    return _is_of(answer, list[Shown])


def _is_of(answer: Any, kind: Any) -> bool:
    import msgspec

    try:
        msgspec.convert(answer, kind)
    except msgspec.ValidationError:
        return False
    return True


def _is_text(answer: Any, _args: Sequence[Any]) -> bool:
    return isinstance(answer, str)


def _is_name(answer: Any, _args: Sequence[Any]) -> bool:
    return answer is None or isinstance(answer, str)


def _is_time(answer: Any, _args: Sequence[Any]) -> bool:
    return answer is None or type(answer) in {int, float}


def _object(*keys: str) -> _Form:
    """Return the form of an object with some members."""
    wanted = f"an object with {', '.join(keys)}" if keys else "an object"
    return _Form(
        wanted,
        lambda answer, _args: isinstance(answer, Mapping) and answer.keys() >= {*keys},
    )


_LISTS: Final = (list, tuple)
#: Members of an object that matches a search.
_MATCH: Final = ("kind", "name", "match", "field", "value")
_TABLE: Final = _Form("fields and rows of [status, value]", _is_table)
_ROWS: Final = _Form("a list of rows with a value per field", _is_rows)
_OUTCOME: Final = _Form("[success, text]", _is_outcome)
_ID: Final = _Form("a job id", _is_id)
_FORMS: Final[Mapping[str, _Form]] = {
    "Query": _TABLE,
    "QueryPage": _Form(f"{_TABLE.wanted}, and a cursor or null", _is_page),
    "Search": _Form("a list of objects that match", _is_matches),
    "QueryFields": _Form("the fields' definitions", _is_field_list),
    "QueryNodes": _ROWS,
    "QueryInstances": _ROWS,
    "QueryGroups": _ROWS,
    "QueryFilters": _ROWS,
    "QueryJobs": _Form("a list of rows with a value per field", _is_job_rows),
    "QueryDiskName": _Form("a name or null", _is_name),
    "QueryJobWaits": _Form("a list of waits", _is_waits),
    "QueryConfigValues": _Form("a value per name", _is_values),
    "QueryClusterInfo": _object("name", "software_version"),
    "QueryTags": _Form("a list of tags", _is_texts),
    "SubmitJob": _ID,
    "SubmitJobToDrainedQueue": _ID,
    "SubmitManyJobs": _Form(
        "[true, job id] or [false, text] per job",
        _is_submitted,
    ),
    "WaitForEvents": _object("position", "lost", "events"),
    "WaitForJobChange": _Form("values and log entries, or 'nochange'", _is_change),
    "CancelJob": _OUTCOME,
    "ChangeJobPriority": _OUTCOME,
    "AutoArchiveJobs": _Form("two numbers", _is_counts),
    "OpenConsole": _object("uuid", "node", "node_uuid", "address", "port", "ticket"),
    "PlanJob": _object(),
    "PlanBalance": _object("groups"),
    "QueryAutomation": _object("revision", "limits", "freeze"),
    "QueryCapacity": _object("disk_template"),
    "QueryJournal": _Form("a list of entries", _is_journal),
    "QueryNodeDeaths": _object("state"),
    "QueryStatus": _object("severity", "status", "findings"),
    "QueryMaintenance": _Form("the state with its incidents", _is_maintenance),
    **dict.fromkeys(
        ("QuerySessions", "RevokeSessions"), _Form("a list of sessions", _is_sessions)
    ),
    "ReplaceFilter": _Form("a uuid", _is_text),
    "SetWatcherPause": _Form("a time or null", _is_time),
}
