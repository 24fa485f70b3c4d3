"""Kinds of events, in LUXI, in the remote API and in commands; see doc/luxi.rst."""

import enum


class Kind(enum.StrEnum):
    """The kind of an event."""

    #: A record of the configuration was created, changed or removed.
    OBJECT = "object"
    #: The state of a job or of one of its opcodes has changed, or it was archived.
    JOB = "job"
    JOB_LOG = "job-log"
    #: An automaton has reported a round.
    JOURNAL = "journal"
    #: A node does not answer, or something was done about that, or it is back.
    NODE_DEATH = "node-death"
    #: A fault that a node reports.
    INCIDENT = "incident"
    #: Automatons were frozen or thawed.
    FREEZE = "freeze"


def unknown_kind(word: str) -> str:
    """Return the text about a word that is no kind."""
    return f"wanted kinds of events among {', '.join(Kind)}, found {word[:40]!r}"
