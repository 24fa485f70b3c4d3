"""LUXI methods of automatons and of the readers of their decision journal."""

from typing import Any, Final

import msgspec

from ganeti.masterd.calls import Later, method
from ganeti.masterd.deps import MasterDeps
from ganeti.repair.journal import Entry, Round, Selection

#: The request that waits for a commit, as the subject of a sentence.
_CHANGE: Final = "The entry of the journal"


@method("QueryAutomation")
def query_automation(deps: MasterDeps) -> dict[str, Any]:
    """Return what a round begins with; an addition to Ganeti."""
    return {"revision": deps.config.snapshot().revision}


@method("RecordRound")
def record_round(deps: MasterDeps, entry: Round) -> Later:
    """Add a round to the journal and return its number; an addition to Ganeti."""
    return Later(deps.slow.submit(deps.journal.record, entry), committing=_CHANGE)


@method("QueryJournal")
def query_journal(deps: MasterDeps, selection: Selection) -> Later:
    """Return entries of the journal, the oldest first; an addition to Ganeti."""

    def entries() -> list[Entry]:
        return deps.journal.entries(selection)

    return Later(deps.slow.submit(entries), msgspec.to_builtins, can_cancel=True)
