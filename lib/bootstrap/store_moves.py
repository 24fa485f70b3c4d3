"""Moving the store of a cluster from files to etcd, and back, on its master.

A majority of the master candidates learns the new engine before a move to etcd, so that
no candidate can be elected over the files any more. Each move can be repeated.
"""

import os
from typing import Any

from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import ecodes
from ganeti.base.errors import refusal
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner
from ganeti.bootstrap import store_access
from ganeti.bootstrap.options import Feedback
from ganeti.decisions.quorum import majority
from ganeti.model.objects import Node, Snapshot
from ganeti.node.services import Services
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls, wire
from ganeti.store import choice
from ganeti.store.etcd import Servers, to_file

_STANDBY = "ganeti-standby"
_CALL_S = 15.0
_REPEAT = "Run 'gnt-cluster redist-conf' when it answers"


class Move:
    """One move; the constructor checks, and `run` does it."""

    def __init__(
        self,
        paths: Paths,
        process: Runner,
        clock: Clock,
        target: str,
        feedback: Feedback,
    ) -> None:
        """Check the target.

        Args:
            paths: of the master.
            process: starts and stops daemons.
            clock: paces requests.
            target: ``file``, or the address of a store in etcd.
            feedback: called with each step and each warning.

        Raises:
            OpPrereqError: the store is there already, or cannot be moved there.
            ConfigurationError: the present store is damaged.
        """
        self._paths = paths
        self._services = Services(paths, process)
        self._clock = clock
        self._feedback = feedback
        self._place: store_access.Place | None = None
        self._from = choice.read(paths)
        if target != choice.FILE_ENGINE:
            self._place = store_access.find_place(target, is_new=False)
        if (self._from is None) == (self._place is None):
            raise refusal(
                f"the store is {choice.describe(paths)}; wanted"
                f" {'file' if self._from else 'the address of a store in etcd'}"
            )
        self._snapshot = store.read_snapshot(paths.store_db)
        self._own = _own(self._snapshot, paths)
        self._others = [
            node
            for node in self._snapshot.nodes.values()
            if node.master_candidate and not node.offline and node is not self._own
        ]

    def steps(self) -> list[str]:
        """Return the steps as text, in order."""
        others = ", ".join(sorted(node.name for node in self._others)) or "none"
        if self._place is not None:
            return [
                "stop the master daemons",
                f"record the new engine on the other candidates: {others}",
                f"copy everything to {self._place.servers}, under a new term",
                f"start {_STANDBY} on all candidates, and the master daemons",
            ]
        return [
            f"stop {_STANDBY} and the master daemons",
            f"copy everything from {self._from} to {self._paths.store_db}",
            "keep all masters out of the store in etcd, which stays as it is",
            f"record the engine on the other candidates: {others}",
            "start the master daemons",
        ]

    def run(self) -> None:
        """Move the store.

        Raises:
            OpExecError: the store was not moved, and the master daemons run as before;
                or a daemon does not start.
        """
        if self._place is not None:
            self._to_etcd(self._place)
        elif self._from is not None:
            self._to_file(self._from)

    def _to_etcd(self, place: store_access.Place) -> None:
        is_recording = False
        try:
            self._feedback("Stopping the master daemons")
            self._services.stop_master()
            self._feedback("Recording the engine on the other candidates")
            is_recording = True
            # Before the copy: from then on a majority of the candidates takes no part
            # in an election over the files.
            self._record(place.files, needs_majority=True)
            self._feedback(f"Copying everything to {place.servers}")
            place.fill(self._paths, self._own.uuid)
        except (errors.GenericError, OSError, KeyboardInterrupt) as err:
            # The record of this node is the last step of `fill`; with it the store has
            # moved, and the records of the others are right.
            text = f"the store was not moved: {str(err) or type(err).__name__}"
            try:
                if is_recording and not choice.is_etcd(self._paths):
                    choice.write_file_engine(self._paths)
                    self._record(None, needs_majority=False)
            except (errors.GenericError, OSError) as also:
                text += f". Repeat the command; its records remain: {also}"
            finally:
                self._feedback("Starting the master daemons")
                self._services.start_master()
            raise errors.OpExecError(text) from err
        self._feedback("Starting the master daemons")
        self._services.start_master()
        self._services.start(_STANDBY)
        self._switch_standbys(is_on=True)

    def _to_file(self, servers: Servers) -> None:
        try:
            self._feedback(f"Stopping {_STANDBY} and the master daemons")
            # The standby first: it would take over when the master daemon has gone.
            self._services.stop(_STANDBY)
            self._services.stop_master()
            self._feedback(f"Copying everything from {servers}")
            to_file(servers, self._paths.store_db, self._own.uuid, self._clock)
            choice.write_file_engine(self._paths)
        except (errors.GenericError, OSError, KeyboardInterrupt) as err:
            text = f"the store was not moved: {str(err) or type(err).__name__}"
            try:
                if choice.is_etcd(self._paths):
                    self._services.start(_STANDBY)
            except (errors.GenericError, OSError) as also:
                text += f". {_STANDBY} does not start: {also}"
            try:
                self._services.start_master()
            except errors.OpExecError as also:
                text += f". Repeat the command; the master does not start: {also}"
            raise errors.OpExecError(text) from err
        try:
            self._feedback("Recording the engine on the other candidates")
            self._switch_standbys(is_on=False)
            self._record(None, needs_majority=False)
        finally:
            self._feedback("Starting the master daemons")
            self._services.start_master()

    def _record(
        self, prepared: choice.Prepared | None, *, needs_majority: bool
    ) -> None:
        """Write the record of the engine on the other candidates.

        Args:
            prepared: for a store in etcd; None for that of this node.
            needs_majority: raise if too few candidates take it.
        """
        names = (choice.ENGINE_FILE,) if prepared is None else tuple(prepared.contents)
        uploads = []
        for name in names:
            path = self._paths.data(name)
            if prepared is None:
                uploads.append(wire.upload(path, self._paths))
                continue
            # The same record for this node follows with the last step.
            temporary = f"{path}.move"
            files.write_file(temporary, prepared.contents[name], mode=0o600)
            try:
                upload = wire.upload(temporary, self._paths)
            finally:
                os.unlink(temporary)
            # The nodes write it under its final name; the temporary file is only read
            # here.
            upload[0] = self._paths.virtualize(path)
            uploads.append(upload)
        # Those that took each of the files; one without the certificates could not use
        # the store.
        having = {node.uuid for node in self._others}
        for upload in uploads:
            having -= self._call(
                calls.upload_file(upload), "the engine is not recorded"
            )
        wanted = majority(1 + len(self._others))
        if needs_majority and 1 + len(having) < wanted:
            raise errors.StorageError(
                f"{1 + len(having)} of {1 + len(self._others)} candidates know the new"
                f" engine, {wanted} are needed"
            )

    def _switch_standbys(self, *, is_on: bool) -> None:
        word = "started" if is_on else "stopped"
        self._call(
            calls.node_ensure_daemon(_STANDBY, is_on), f"{_STANDBY} was not {word}"
        )

    def _call(self, request: rpc.Request[Any], problem: str) -> set[str]:
        """Call the other candidates; return those that failed, with a warning each."""
        if not self._others:
            return set()
        runner = rpc.NetworkRunner(lambda: self._snapshot, self._paths, None)
        try:
            answers = runner.call_nodes(
                [n.uuid for n in self._others], request, timeout_s=_CALL_S
            )
        finally:
            runner.close()
        failed = {uuid for uuid, answer in answers.items() if answer.failed}
        for uuid in failed:
            self._feedback(f"Warning: {answers[uuid].describe(problem)}. {_REPEAT}")
        return failed


def _own(snapshot: Snapshot, paths: Paths) -> Node:
    uuid = snapshot.uuid_of("nodes", paths.hostname)
    if uuid is None or uuid != snapshot.cluster.master_node:
        raise errors.OpPrereqError(
            f"{paths.hostname} is not the master", ecodes.ECODE_STATE
        )
    return snapshot.nodes[uuid]
