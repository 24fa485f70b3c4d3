"""The steps of an upgrade, as the master runs them.

Each step can be repeated, and the record says which are done, so that an upgrade that
was interrupted continues with ``--resume``. When the links lead to the new release,
the program ends with `Outcome.HANDED_OVER` and that release continues.

A node that fails, other than the master, is left out with a warning: a node that dies
during an upgrade must not keep the cluster down. It is tried again at each step.
"""

import enum
import os
import tarfile
import threading
from collections.abc import Callable
from typing import Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import ecodes
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner
from ganeti.bootstrap import jobs
from ganeti.bootstrap.options import Feedback
from ganeti.bootstrap.upgrade import journal as record
from ganeti.bootstrap.upgrade.access import Node, run_on
from ganeti.bootstrap.upgrade.journal import Journal
from ganeti.model.opcodes import ClusterRedistConf
from ganeti.protocols import luxi
from ganeti.store import choice

#: Seconds until all jobs have ended, and between two looks.
_DRAIN_S: Final = 129600.0
_POLL_S: Final = 10.0
#: Seconds for which the watcher pauses.
_PAUSE_S: Final = 3600.0
#: Longest time of the program after the change, in seconds.
_HOOKS_S: Final = 1800.0
#: Jobs that the message about the wait names.
_NAMED: Final = 5
_RESUME: Final = "when that is mended, run: gnt-cluster upgrade --resume"

_STOPPING_MASTER: Final = "Stopping daemons on master node."
TITLES: Final = {
    "drain": "Draining queue",
    "pause": "Pausing the watcher for one hour.",
    "stop": "Stopping daemons everywhere.",
    "backup": "Backing up configuration as {backup}",
    "go-back": "Downgrading configuration",
    "switch": "Switching to version {new} on all nodes",
    "convert": "Upgrading configuration",
    "start": "Starting daemons everywhere.",
    "redistribute": "Redistributing the configuration.",
    "restart": "Restarting daemons everywhere.",
    "undrain": "Undraining the queue.",
    "hooks": "Running post-upgrade hooks",
    "unpause": "Unpausing the watcher.",
    "verify": "Verifying cluster.",
}


class Outcome(enum.Enum):
    """The end of a run."""

    DONE = "all nodes run the new release"
    PARTLY = "nodes were left out, or the cluster has problems"
    HANDED_OVER = "the new release has to continue"


class Master:
    """Requests to the master daemon, which must run."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def set_drain(self, is_drained: bool) -> None:
        """Refuse new jobs, or accept them again."""
        with luxi.Client.of_node(self._paths) as client:
            client.call("SetDrainFlag", [is_drained])

    def set_pause(self, until: float | None) -> None:
        """Pause the watchers, or end the pause."""
        with luxi.Client.of_node(self._paths) as client:
            client.call("SetWatcherPause", [until])

    def open_jobs(self) -> list[int]:
        """Return the jobs that have not ended."""
        with luxi.Client.of_node(self._paths) as client:
            rows = client.call("QueryJobs", [None, ["id", "status"]])
        return sorted(int(row[0]) for row in rows if row[1] not in jobs.ENDED)

    def redistribute(self, feedback: Feedback) -> None:
        """Send the configuration to all nodes, although the queue is drained."""
        jobs.run(self._paths, [ClusterRedistConf()], feedback, to_drained=True)

    def verify(self, feedback: Feedback) -> bool:
        """Verify the cluster; return whether all is well."""
        return jobs.verify_cluster(self._paths, feedback)


class Upgrade:
    """One upgrade; each method but `run` is a step."""

    def __init__(
        self,
        paths: Paths,
        effects: tuple[Runner, Clock, Master],
        journal: Journal,
        nodes: list[Node],
        feedback: Feedback,
    ) -> None:
        """Take everything that the steps need.

        Args:
            paths: of the master, this node.
            effects: runs programs here, paces the wait for jobs, asks the master.
            journal: what is done already.
            nodes: the online nodes, the master first.
            feedback: called with each step and each warning.
        """
        self.journal = journal
        self._paths = paths
        self._process, self._clock, self._master = effects
        self._nodes = nodes
        self._feedback = feedback
        self._is_well = True

    def run(self, release: str) -> Outcome:
        """Run the steps that are left, and record each.

        Args:
            release: that of this program.

        Raises:
            GenericError: a step failed on the master; a second run repeats it. Nothing
                was changed if it was the wait for jobs.
        """
        record.begin(self._paths, self.journal)
        for step in self.journal.todo:
            if self.journal.is_switched and release != self.journal.new:
                return Outcome.HANDED_OVER
            self._do(step)
            self.journal = self.journal.replace(done=(*self.journal.done, step))
            # An end before this line repeats the step.
            record.save(self._paths, self.journal)
        record.end(self._paths)
        failed = self.journal.failed
        for name in sorted(failed):
            self._feedback(f"Warning: {name} was left out: {failed[name]}")
        return Outcome.PARTLY if failed or not self._is_well else Outcome.DONE

    def _do(self, step: str) -> None:
        if step not in _SPEAKING:
            self._feedback(TITLES[step].format(new=self.journal.new))
        try:
            METHODS[step](self)
        except (errors.GenericError, OSError, KeyboardInterrupt) as err:
            # KeyboardInterrupt has no text.
            text = str(err) or type(err).__name__
            if record.FIRST_STOPPED in self.journal.done or step not in _UNDOABLE:
                raise errors.OpExecError(
                    f"upgrade to {self.journal.new}: {step}: {text}; {_RESUME}"
                ) from err
            self._give_up()
            raise errors.OpExecError(
                f"upgrade to {self.journal.new}: {step}: {text}; nothing was changed"
            ) from err

    def _give_up(self) -> None:
        """Undo what was done while all daemons run."""
        try:
            self._master.set_drain(False)
            self._master.set_pause(None)
        except errors.GenericError as err:
            self._feedback(
                f"Warning: {err}; run 'gnt-cluster queue undrain' and 'gnt-cluster"
                " watcher continue'"
            )
        record.end(self._paths)

    # Nodes
    def _run_on(
        self, nodes: list[Node], version: str, step: str, store: int = 0
    ) -> None:
        """Run a step on nodes; leave out those that fail, except for the master."""
        failed = dict(self.journal.failed)
        for name, answer in run_on(nodes, version, step, store).items():
            if not isinstance(answer, errors.GenericError):
                # A start puts the release in use by itself, so the node lacks nothing
                # any more.
                if step == "start":
                    failed.pop(name, None)
                continue
            if name == self._nodes[0].name:
                raise answer
            if name not in failed:
                self._feedback(f"Warning: {answer}")
            failed[name] = str(answer)
        self.journal = self.journal.replace(failed=failed)

    def _parts(self) -> list[list[Node]]:
        """Return the nodes in the order in which they are stopped.

        The master is the first, so that no job begins. With the store in etcd it is the
        last: another candidate would take over while the master is down.
        """
        parts = [self._nodes[:1], self._nodes[1:]]
        return parts[::-1] if choice.is_etcd(self._paths) else parts

    # Steps
    def drain(self) -> None:
        """Accept no new jobs, and wait for the end of all jobs."""
        self._master.set_drain(True)
        last = self._clock.monotonic() + _DRAIN_S
        shown: list[int] = []
        while left := self._master.open_jobs():
            if left != shown:
                names = ", ".join(map(str, left[:_NAMED]))
                more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
                self._feedback(f"Waiting for the end of jobs: {names}{more}")
                shown = left
            if self._clock.monotonic() >= last:
                raise errors.OpPrereqError(
                    f"{len(left)} jobs have not ended within {_DRAIN_S:.0f} seconds",
                    ecodes.ECODE_STATE,
                )
            self._clock.wait(threading.Event(), _POLL_S)

    def pause(self) -> None:
        """Keep the watchers from starting daemons."""
        self._master.set_pause(self._clock.time() + _PAUSE_S)

    def stop(self) -> None:
        """Stop all daemons."""
        for part in self._parts():
            is_master = part == self._nodes[:1]
            self._feedback(_STOPPING_MASTER if is_master else TITLES["stop"])
            self._run_on(part, self.journal.newer, "stop")

    def backup(self) -> None:
        """Write all files of the state directory of this node to an archive."""
        os.makedirs(self._paths.backup_dir, exist_ok=True)
        path = f"{self._paths.backup_dir}/ganeti{self._clock.time():.0f}.tar"
        self._feedback(TITLES["backup"].format(backup=path))
        temporary = f"{path}.new"
        # The state directory has the private keys of the cluster.
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as stream:
            with tarfile.open(fileobj=stream, mode="w") as archive:
                archive.add(self._paths.data_dir, arcname="ganeti")
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, path)
        files.sync_dir(self._paths.backup_dir)

    def go_back(self) -> None:
        """Bring the stores back to the form of the earlier release."""
        self._convert(self.journal.store)

    def convert(self) -> None:
        """Bring the stores to the form of the new release."""
        self._convert(self.journal.store)

    def _convert(self, version: int) -> None:
        self._run_on(self._nodes, self.journal.newer, "convert", version)

    def switch(self) -> None:
        """Put the new release in use, on the master last."""
        self._run_on(self._nodes[1:], self.journal.new, "use")
        # Until the links of the master lead to the new release, this program has to go
        # on.
        self._run_on(self._nodes[:1], self.journal.new, "use")

    def start(self) -> None:
        """Start all daemons."""
        for part in reversed(self._parts()):
            self._run_on(part, self.journal.new, "start")

    def redistribute(self) -> None:
        """Send the configuration to all nodes."""
        self._master.redistribute(self._feedback)

    def restart(self) -> None:
        """Start all daemons again, with the files that were redistributed."""
        for part in self._parts():
            self._run_on(part, self.journal.new, "stop")
        self.start()

    def undrain(self) -> None:
        """Accept jobs again."""
        self._master.set_drain(False)

    def hooks(self) -> None:
        """Run what the new release has to do once."""
        program = f"{self._paths.tools_dir}/post-upgrade"
        result = self._process.run([program, self.journal.old], timeout_s=_HOOKS_S)
        # The cluster runs the new release by now, so nothing goes back.
        if result.failed:
            self._is_well = False
            self._feedback(
                f"Warning: {program} {result.reason}: {result.output.strip():.500}"
            )

    def unpause(self) -> None:
        """Let the watchers go on."""
        self._master.set_pause(None)

    def verify(self) -> None:
        """Verify the cluster."""
        if not self._master.verify(self._feedback):
            self._is_well = False
            self._feedback("Warning: the cluster has problems, listed above")


#: Steps that say themselves what they do.
_SPEAKING: Final = ("stop", "backup")
#: Steps that are undone if they fail: all daemons run.
_UNDOABLE: Final = ("drain", "pause")
METHODS: Final[dict[str, Callable[[Upgrade], None]]] = {
    "drain": Upgrade.drain,
    "pause": Upgrade.pause,
    "stop": Upgrade.stop,
    "backup": Upgrade.backup,
    "go-back": Upgrade.go_back,
    "switch": Upgrade.switch,
    "convert": Upgrade.convert,
    "start": Upgrade.start,
    "redistribute": Upgrade.redistribute,
    "restart": Upgrade.restart,
    "undrain": Upgrade.undrain,
    "hooks": Upgrade.hooks,
    "unpause": Upgrade.unpause,
    "verify": Upgrade.verify,
}
