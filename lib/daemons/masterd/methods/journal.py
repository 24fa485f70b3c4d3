"""LUXI methods of automatons and of the readers of their decision journal."""

from typing import Final

import msgspec

from ganeti.daemons.masterd import automation
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.methods.calls import Later, method
from ganeti.decisions.repair.journal import Entry, Round, Selection
from ganeti.model import objects

#: The request that waits for a commit, as the subject of a sentence.
_CHANGE: Final = "The entry of the journal"
_FREEZE: Final = "The change of the freeze"


@method("QueryAutomation")
def query_automation(deps: MasterDeps) -> Later:
    """Return what a round begins with; an addition to Ganeti."""
    return Later(deps.slow.submit(automation.load, deps), msgspec.to_builtins)


@method("FreezeAutomation")
def freeze_automation(deps: MasterDeps, reason: str) -> Later:
    """Let no automaton act until it is thawed; an addition to Ganeti."""
    return Later(deps.slow.submit(automation.freeze, deps, reason), committing=_FREEZE)


@method("ThawAutomation")
def thaw_automation(deps: MasterDeps) -> Later:
    """Let automatons act again; an addition to Ganeti."""
    return Later(deps.slow.submit(automation.thaw, deps), committing=_FREEZE)


@method("RecordRound")
def record_round(deps: MasterDeps, entry: Round) -> Later:
    """Add a round to the journal and return its number; an addition to Ganeti."""
    return Later(deps.slow.submit(deps.journal.record, entry), committing=_CHANGE)


@method("QueryJournal")
def query_journal(deps: MasterDeps, selection: Selection) -> Later:
    """Return entries of the journal, the oldest first; an addition to Ganeti."""
    named = _by_name(deps.config.snapshot(), selection)

    def entries() -> list[Entry]:
        return deps.journal.entries(named)

    return Later(deps.slow.submit(entries), msgspec.to_builtins, can_cancel=True)


def _by_name(snapshot: objects.Snapshot, selection: Selection) -> Selection:
    """Return a selection with names, which entries have, in place of UUIDs."""
    node, instance = selection.node, selection.instance
    if node is not None and node in snapshot.nodes:
        node = snapshot.nodes[node].name
    if instance is not None and instance in snapshot.instances:
        instance = snapshot.instances[instance].name
    return msgspec.structs.replace(selection, node=node, instance=instance)
