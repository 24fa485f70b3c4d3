"""The move of one instance between two clusters.

The old instance is stopped before its disks are copied, and removed only when the new
one has all content and, if the old one ran, runs. So neither a failure nor the end of
this program loses data or leaves a guest running twice.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, Final

from ganeti.base.constants import ecodes, jobqueue
from ganeti.migration.move_instance import jobs, requests
from ganeti.migration.move_instance.settings import Settings
from ganeti.protocols import rapi

_SOURCE: Final = "source"
_DESTINATION: Final = "destination"
#: Messages of jobs that are always printed.
_IMPORTANT: Final = ("* disk/", " - WARNING", "      Hint")

#: Seconds that the receiver gets to notice that its sender has ended, and to clean up.
_NOTICE_S: Final = 5.0


class MoveError(Exception):
    """An instance was not moved; the text has the words of both clusters."""


@dataclasses.dataclass(frozen=True)
class Clients:
    """The remote APIs of both clusters."""

    source: rapi.GanetiRapiClient
    destination: rapi.GanetiRapiClient


class Mover:
    """Moves one instance."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        clients: Clients,
        say: jobs.Say,
        *,
        wait: Callable[[float], None],
    ) -> None:
        """Prepare; nothing is sent.

        Args:
            name: of the instance in the source cluster.
            settings: options of the run.
            clients: of both clusters.
            say: prints a line about the progress.
            wait: waits for some seconds.
        """
        self._name = name
        self._settings = settings
        self._source = clients.source
        self._destination = clients.destination
        self._say = say
        self._wait = wait
        self._has_stopped = False
        #: The signed name of a prepared key that no export removes.
        self._key: list[Any] | None = None

    @property
    def new_name(self) -> str:
        """Name of the new instance."""
        return self._settings.target.name or self._name

    def run(self) -> None:
        """Move the instance.

        Raises:
            MoveError: it was not moved; the source is as before.
        """
        try:
            self._run()
        except (MoveError, jobs.JobError, rapi.Error) as err:
            self.discard_key()
            raise MoveError(self._put_back(str(err))) from err

    def discard_key(self) -> None:
        """Have the source cluster remove a key that no export is going to use.

        The job is not waited for. A cluster that does not know such jobs refuses it;
        ganeti-cleaner removes the key there after a day.
        """
        key, self._key = self._key, None
        if key is not None:
            with contextlib.suppress(rapi.Error):
                self._source.ExportInstance(self._name, "remote", [], x509_key_name=key)

    def _run(self) -> None:
        info = self._described()
        is_up = info["config_state"] == "up"
        self._say("preparing the export")
        prepared = self._job(
            _SOURCE, self._source.PrepareExport(self._name, "remote")
        ).result()
        self._key = prepared["x509_key_name"]
        request = requests.creation(
            info, prepared, self._settings.target, self._settings.compress
        )
        request["tags"] = self._source.GetInstanceTags(self._name)
        self._say(f"creating instance {self.new_name} in the destination cluster")
        creation, where = self._created(request)
        try:
            if is_up:
                self._stop()
            self._say("copying the disks")
            self._export(prepared, where)
        except (jobs.JobError, rapi.Error) as err:
            # A receiver with a connection notices it, and its words say whether
            # anything arrived. One without would wait for minutes.
            creation.end_soon(_NOTICE_S)
            raise MoveError(f"{err}; {self._words_of(creation)}") from err
        creation.result()
        self._complete(is_up=is_up)

    # Steps
    def _job(self, where: str, job_id: Any) -> jobs.Job:
        client = self._source if where == _SOURCE else self._destination
        return jobs.Job(client, where, job_id, self._show, wait=self._wait)

    def _show(self, line: str, message: str) -> None:
        """Print a message of a job, if it is about a copy or a warning or wanted."""
        if self._settings.verbose or message.startswith(_IMPORTANT):
            self._say(line)

    def _described(self) -> dict[str, Any]:
        """Return the description of the instance in the source cluster."""
        job = self._job(_SOURCE, self._source.GetInstanceInfo(self._name, static=False))
        described: dict[str, Any] = job.result()
        if len(described) != 1:
            raise MoveError(f"instance {self._name}: has no description")
        info: dict[str, Any]
        (info,) = described.values()
        # The source may know it under a longer name.
        self._name = info["name"]
        if not info["disks"]:
            raise MoveError(
                f"instance {self._name}: has no disks, so there is nothing to copy;"
                " create it in the destination cluster"
            )
        if info["run_state"] == "up" and info["config_state"] != "up":
            raise MoveError(
                f"instance {self._name}: is marked {info['config_state']}, but runs in"
                " the source cluster; stop it with gnt-instance shutdown, or mark it up"
                " with gnt-instance startup"
            )
        target = self._settings.target
        if problem := target.misfit(target.template or info["disk_template"]):
            raise MoveError(f"instance {self._name}: {problem}")
        return info

    def _created(self, request: dict[str, Any]) -> tuple[jobs.Job, Any]:
        """Return the job of the creation, and where it receives the disks.

        The first tries use only nodes that are free at the moment.
        """
        for left in range(self._settings.tries, 0, -1):
            try:
                return self._try(request | {"opportunistic_locking": True})
            except jobs.JobError as err:
                if err.ecode != ecodes.ECODE_TEMP_NORES:
                    raise
                self._say(f"{err}; tries left with free nodes alone: {left - 1}")
            self._wait(self._settings.delay_s)
        return self._try(request)

    def _try(self, request: dict[str, Any]) -> tuple[jobs.Job, Any]:
        job_id = self._destination.CreateInstance(**request)
        job = self._job(_DESTINATION, job_id)
        return job, job.wait_for_entry(jobqueue.ELOG_REMOTE_IMPORT)

    def _stop(self) -> None:
        self._say("stopping it in the source cluster")
        self._has_stopped = True
        self._job(_SOURCE, self._source.ShutdownInstance(self._name)).result()

    def _export(self, prepared: dict[str, Any], where: dict[str, Any]) -> None:
        job_id = self._source.ExportInstance(
            self._name,
            "remote",
            where["disks"],
            shutdown=True,
            x509_key_name=prepared["x509_key_name"],
            destination_x509_ca=where["x509_ca"],
            compress=self._settings.compress,
        )
        # Its job removes the key, if it is not refused.
        key, self._key = self._key, None
        try:
            self._job(_SOURCE, job_id).result()
        except jobs.JobError as err:
            if not err.has_begun:
                self._key = key
            raise

    def _words_of(self, job: jobs.Job) -> str:
        """Return how a job ended that depends on one which failed."""
        try:
            job.result()
        except (jobs.JobError, rapi.Error) as err:
            return str(err)
        return f"{job}: succeeded, so both clusters have the instance"

    def _complete(self, *, is_up: bool) -> None:
        """Start the new instance if the old one ran, then remove the old one."""
        if self._settings.keeps:
            self._start_again()
            return
        if is_up:
            self._say(f"starting instance {self.new_name} in the destination cluster")
            try:
                job_id = self._destination.StartupInstance(self.new_name)
                self._job(_DESTINATION, job_id).result()
            except (jobs.JobError, rapi.Error) as err:
                # It may run all the same.
                self._has_stopped = False
                raise MoveError(
                    f"{err}; the content is complete there, and the stopped instance"
                    f" is still in the source cluster; remove one of them"
                ) from err
        self._has_stopped = False
        self._say("removing it from the source cluster")
        try:
            self._job(_SOURCE, self._source.DeleteInstance(self._name)).result()
        except (jobs.JobError, rapi.Error) as err:
            raise MoveError(
                f"{err}; the new instance is complete, remove the old one by hand"
            ) from err

    # Failures
    def _start_again(self) -> None:
        if self._has_stopped:
            self._has_stopped = False
            self._say("starting it again in the source cluster")
            self._job(_SOURCE, self._source.StartupInstance(self._name)).result()

    def _put_back(self, text: str) -> str:
        """Start the old instance again if it was stopped; return the whole failure."""
        try:
            self._start_again()
        except (jobs.JobError, rapi.Error) as err:
            return f"{text}; {err}; start it with gnt-instance startup"
        return text
