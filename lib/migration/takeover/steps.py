"""The steps of a take-over, in both directions, as the master runs them.

Each step can be repeated after an interruption. Guests are not touched: no step stops,
starts or signals an emulator. After a step that failed, one of the two Ganeti is
started again, so that the cluster has a master while somebody finds the cause.
"""

import os
from collections.abc import Callable, Sequence
from typing import Final

from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.bootstrap import jobs
from ganeti.migration import cfgupgrade, old_config, old_jobs
from ganeti.migration.takeover import journal as record
from ganeti.migration.takeover import node as node_module
from ganeti.migration.takeover.access import Node
from ganeti.migration.takeover.journal import Journal

#: Shows the administrator one line.
Feedback = Callable[[str], None]
_STORE_MODE: Final = 0o640
_CONFIG_MODE: Final = 0o640
_MASTERD: Final = "ganeti-masterd"
_ADVICE: Final = "run the same command again to repeat this step"
_UNDO: Final = "take-over --undo"

TITLES: Final = {
    "stop": "stop the daemons and the watcher of the other Ganeti on {nodes}",
    "keep": "keep the owners and modes of all files on {nodes}",
    "import": "import configuration and ended jobs into a store",
    "copy": "write the store on the master candidates {candidates}",
    "convert": "convert the runtime files of guests on {nodes}",
    "start": "start the daemons of this implementation on {nodes}",
    "verify": "verify the cluster, and that all guests still run",
    "halt": "stop the daemons of this implementation on {nodes}",
    "export": "export configuration and ended jobs",
    "put": "write config.data on the master candidates {candidates}",
    "restore": "put back runtime files, owners and modes on {nodes}",
    "start-old": "start the daemons of the other Ganeti on {nodes}",
    "forget": "remove the record of the take-over on {nodes}",
}


def title(step: str, journal: Journal) -> str:
    """Return a step as text."""
    return TITLES[step].format(
        nodes=", ".join(target.name for target in journal.nodes),
        candidates=", ".join(t.name for t in journal.nodes if t.is_candidate),
    )


def journal_path(paths: Paths) -> str:
    """Return the path of the record of a take-over."""
    return f"{node_module.state_dir(paths)}/journal.json"


class Steps:
    """The steps of one take-over; each method but `run` is one."""

    def __init__(
        self,
        paths: Paths,
        clock: Clock,
        journal: Journal,
        nodes: Sequence[Node],
        feedback: Feedback,
    ) -> None:
        self.journal = journal
        self._paths = paths
        self._clock = clock
        self._nodes = nodes
        self._feedback = feedback

    def run(self) -> None:
        """Run the steps that are left, and record each.

        Raises:
            GenericError: a step failed; the text says which Ganeti runs now, and the
                command that goes on.
        """
        self._stop_again()
        for step in self.journal.todo:
            self._save(self.journal.begun(step))
            self._feedback(title(step, self.journal))
            problem = self._attempt(step)
            if problem:
                raise errors.OpExecError(f"{problem}; {self._after_failure(step)}")

    def _save(self, journal: Journal) -> None:
        self.journal = journal
        record.save(journal_path(self._paths), journal)

    def _attempt(self, step: str) -> str:
        """Run one step and record its end; return why it failed, or nothing."""
        try:
            _METHODS[step](self)
        except (errors.GenericError, OSError) as err:
            return f"{step}: {err}"
        if self.journal.todo[:1] == (step,):
            self.journal = self.journal.done(step)
            if step != record.BACK[-1]:
                self._save(self.journal)
        return ""

    def _after_failure(self, step: str) -> str:
        """Start the Ganeti to which the cluster belongs; return how to go on."""
        journal = self.journal
        if step in (record.OVER[-1], record.BACK[-1]):
            return _ADVICE if journal.is_back else f"{_ADVICE}, or {_UNDO} to go back"
        if not journal.is_back:
            if step == record.STORE_IN_USE and self._leads():
                return f"the master daemon runs; {_ADVICE}, or {_UNDO} to go back"
            return self._turn_back()
        if journal.has_used_store and step in _BEFORE_OLD:
            # The other Ganeti has not got the configuration yet.
            self._feedback(title("start", journal))
            problem = self._attempt("start")
            self._save(journal.replace(back=()))
            state = problem or "the daemons of this implementation run again"
            return f"{state}; {_ADVICE}"
        for later in record.BACK[record.BACK.index(step) + 1 : -1]:
            self._feedback(title(later, journal))
            if problem := self._attempt(later):
                return f"{problem}; {_ADVICE}"
        return f"the other Ganeti was started where it can run; {_ADVICE}"

    def _turn_back(self) -> str:
        """Go back, since there is no master; return the result as text."""
        self._save(self.journal.turned())
        for step in record.BACK:
            self._feedback(title(step, self.journal))
            problem = self._attempt(step)
            if not problem:
                continue
            if self.journal.has_used_store and step in _BEFORE_OLD:
                return f"going back failed: {problem}; there is no master: run {_UNDO}"
            for later in record.BACK[record.BACK.index(step) + 1 : -1]:
                self._attempt(later)
            return f"going back failed: {problem}; run {_UNDO} to finish it"
        return "the other Ganeti runs again"

    def _leads(self) -> bool:
        """Return whether our master daemon runs here."""
        try:
            return _MASTERD in self._nodes[0].run("look").running
        except (errors.GenericError, OSError):
            return False

    def _stop_again(self) -> None:
        """Stop other daemons that somebody started while the take-over was interrupted.

        They would change the configuration that is imported.
        """
        journal = self.journal
        if journal.over and not journal.is_back and not journal.has_used_store:
            self._everywhere("stop")

    def _everywhere(self, step: str) -> None:
        for node in self._nodes:
            node.run(step)

    def _wherever_possible(self, step: str) -> None:
        """Run a step on all nodes, the master last, also if it fails on some.

        Raises:
            OpExecError: it failed on some nodes.
        """
        problems = []
        for node in reversed(self._nodes):
            try:
                node.run(step)
            except (errors.GenericError, OSError) as err:
                problems.append(str(err))
        if problems:
            raise errors.OpExecError("; ".join(problems))

    def stop(self) -> None:
        """Stop the other daemons: on the master first, so that no job begins."""
        self._everywhere("stop")

    def keep(self) -> None:
        """Keep owners and modes."""
        self._everywhere("keep")

    @property
    def _fresh(self) -> str:
        return f"{node_module.state_dir(self._paths)}/store.db"

    def import_(self) -> None:
        """Make a store of the configuration, outside of its place."""
        places = cfgupgrade.UpgradePaths.of(self._paths)
        changes = old_config.read(
            places.config_data, check=True, cluster_name=self.journal.cluster
        )
        changes += old_jobs.read(places.queue_dir)
        cfgupgrade.make_store(self._fresh, changes, self._clock, seen_term=0)

    def copy(self) -> None:
        """Put the store in place on all master candidates."""
        data = files.read_file(self._fresh, max_size=files.WHOLE_STATE)
        for node in self._nodes:
            if node.target.is_candidate:
                node.put(self._paths.store_db, data, mode=_STORE_MODE)

    def convert(self) -> None:
        """Convert runtime files."""
        for node in self._nodes:
            for name in node.run("convert").names:
                self._feedback(f"  {name} on {node.target.name}")

    def start(self) -> None:
        """Start our daemons: on the master last, as it needs the others' votes."""
        self._wherever_possible("start")

    def verify(self) -> None:
        """Verify the cluster and compare the guests.

        Raises:
            OpExecError: a guest is gone, or the master daemon does not answer.
        """
        present = {
            name: (node.target.name, pid)
            for node in self._nodes
            for name, pid in node.run("look").guests.items()
        }
        lost = sorted(
            name
            for name, place in self.journal.guests.items()
            if place != present.get(name)
        )
        if lost:
            raise errors.OpExecError(
                f"guests {', '.join(lost)} do not run any more as before; gnt-instance"
                " list shows their state"
            )
        if not jobs.verify_cluster(self._paths, self._feedback):
            self._feedback("Warning: the cluster has problems, listed above")

    # Back
    def halt(self) -> None:
        """Stop our daemons: on the master first."""
        self._everywhere("halt")

    @property
    def _exported(self) -> str:
        return f"{node_module.state_dir(self._paths)}/config.data"

    def export(self) -> None:
        """Write the configuration, unless the old file is still the newest."""
        if not self.journal.has_used_store or not os.path.exists(self._paths.store_db):
            return
        places = cfgupgrade.UpgradePaths.of(self._paths)
        cfgupgrade.write_config(
            cfgupgrade.UpgradePaths(
                config_data=self._exported,
                queue_dir=places.queue_dir,
                store_db=places.store_db,
                backup_dir=places.backup_dir,
            ),
            dry_run=False,
            check=True,
            version=self.journal.version,
        )
        files.backup_file(places.store_db, places.backup_dir)

    def put(self) -> None:
        """Put the exported file in place."""
        if os.path.exists(self._exported):
            data = files.read_file(self._exported, max_size=files.WHOLE_STATE)
            path = self._paths.data("config.data")
            for node in self._nodes:
                if node.target.is_candidate:
                    node.put(path, data, mode=_CONFIG_MODE)

    def restore(self) -> None:
        """Put back what the other Ganeti needs."""
        self._wherever_possible("restore")

    def start_old(self) -> None:
        """Start the other daemons: on the master last."""
        self._wherever_possible("start-old")

    def forget(self) -> None:
        """Remove all records: of the master last, with the journal."""
        for node in reversed(self._nodes):
            node.run("forget")


_METHODS: Final[dict[str, Callable[[Steps], None]]] = {
    "stop": Steps.stop,
    "keep": Steps.keep,
    "import": Steps.import_,
    "copy": Steps.copy,
    "convert": Steps.convert,
    "start": Steps.start,
    "verify": Steps.verify,
    "halt": Steps.halt,
    "export": Steps.export,
    "put": Steps.put,
    "restore": Steps.restore,
    "start-old": Steps.start_old,
    "forget": Steps.forget,
}
#: Steps back before which the other Ganeti has an old configuration.
_BEFORE_OLD: Final = ("halt", "export", "put")


def incompatible_changes(paths: Paths, journal: Journal) -> list[str]:
    """Return the changes since the take-over that the other Ganeti cannot read."""
    if not journal.has_used_store or "halt" in journal.back:
        return []
    follower = store.Follower(paths.store_db)
    try:
        snapshot = follower.snapshot()
        changes = waiting_jobs(follower)
    finally:
        follower.close()
    changes += old_config.without_extensions(snapshot)[1]
    known = {target.name for target in journal.nodes}
    changes += [
        f"node {node.name} was added; remove it first"
        for node in snapshot.nodes.values()
        if node.name not in known and not node.offline
    ]
    master = snapshot.nodes[snapshot.cluster.master_node].name
    if master != journal.master:
        changes.append(
            f"the master is {master}; make {journal.master} the master again, with"
            " gnt-cluster master-failover"
        )
    if b"PRIVATE KEY-----" not in files.read_file(paths.server_pem):
        changes.append(
            f"{paths.server_pem} has no private key: the cluster certificate was"
            " renewed in a form that the other Ganeti does not read"
        )
    return changes


def waiting_jobs(follower: store.Follower) -> list[str]:
    """Return a line for each job that has not ended."""
    return [
        f"job {job.id} has not ended ({job.status.value})"
        for job in old_jobs.live(follower)
        if not job.is_final
    ]
