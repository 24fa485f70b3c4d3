"""Main function of ``move-instance``."""

import concurrent.futures
import contextlib
import dataclasses
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base.constants import ecodes, exitcodes, jobqueue
from ganeti.base.constants.protocols import export
from ganeti.base.text import control_chars
from ganeti.migration.move_instance import jobs, settings
from ganeti.migration.move_instance.settings import Settings, Target
from ganeti.protocols.rapi import api

# The move of one instance between two clusters.
#
# The old instance is stopped before its disks are copied, and removed only when the new
# one has all content and, if the old one ran, runs. So neither a failure nor the end of
# this program loses data or leaves a guest running twice.

# The request for the new instance, from the description of the old one.
#
# Values of the source cluster are data: the destination checks them like those of any
# request. Pure functions.

#: Members of a NIC in the description of an instance, in their order.
_NIC: Final = ("name", "uuid", "ip", "mac", "mode", "link", "vlan", "network")
_NIC_IN_NETWORK: Final = ("name", "ip", "mac", "network")
_NIC_ALONE: Final = ("name", "ip", "mac", "mode", "link", "vlan")
#: Backend parameters that one of older requests stands for.
_MEMORY: Final = ("maxmem", "minmem")


def creation_request(
    info: Mapping[str, Any], prepared: Mapping[str, Any], target: Target, compress: str
) -> dict[str, Any]:
    """Return the arguments of the creation of the new instance.

    Args:
        info: description of the old instance by its cluster.
        prepared: result of the preparation of its export.
        target: requested properties.
        compress: compression tool.
    """
    is_other = bool(target.hypervisor) and target.hypervisor != info["hypervisor"]
    own_hvparams = {} if is_other else info["hv_instance"]
    nodes = {"pnode": target.primary, "snode": target.secondary}
    choice = {**nodes, "iallocator": target.iallocator}
    return {
        "mode": "remote-import",
        "name": target.name or info["name"],
        "disk_template": target.template or info["disk_template"],
        "disks": [_disk(disk) for disk in info["disks"]],
        "nics": nic_requests(info["nics"], target.nics),
        "os_type": info["os"] or None,
        "hypervisor": target.hypervisor or info["hypervisor"],
        "hvparams": {**own_hvparams, **target.hvparams},
        "beparams": _backend(info["be_actual"], target.beparams),
        "osparams": {**info["os_instance"], **target.osparams},
        # The source may still run and answer. The name was checked when it was created.
        "ip_check": False,
        "name_check": False,
        "force_variant": True,
        # Only when all content is there, and the source stays stopped.
        "start": False,
        "source_handshake": prepared["handshake"],
        "source_x509_ca": prepared["x509_ca"],
        "source_instance_name": info["name"],
        "compress": compress,
        **{key: value for key, value in choice.items() if value},
    }


def _disk(disk: Mapping[str, Any]) -> dict[str, Any]:
    spec = {"size": disk["size"], "mode": disk["mode"]}
    return spec | ({"name": disk["name"]} if disk.get("name") else {})


def _backend(own: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the present parameters, also those by default, and the changed ones."""
    kept = dict(own)
    if "memory" in changed:
        for name in _MEMORY:
            kept.pop(name, None)
    return {**kept, **changed}


def nic_requests(
    own: Sequence[Sequence[Any]], changed: Mapping[int, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the NICs of the new instance: the present ones with changes.

    Indices above those of the present ones add NICs. A change of the place, such as
    ``link`` or ``network``, replaces all of it.
    """
    count = max([len(own), *(index + 1 for index in changed)])
    wanted = []
    for index in range(count):
        nic = _nic(own[index]) if index < len(own) else {}
        given = changed.get(index, {})
        if "network" in given:
            nic = {k: v for k, v in nic.items() if k not in ("mode", "link", "vlan")}
        elif {"mode", "link"} & set(given):
            nic.pop("network", None)
        wanted.append({**nic, **given})
    return wanted


def _nic(row: Sequence[Any]) -> dict[str, Any]:
    values = dict(zip(_NIC, row, strict=False))
    keys = _NIC_IN_NETWORK if values.get("network") else _NIC_ALONE
    return {key: values[key] for key in keys if values.get(key)}


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

    source: api.GanetiRapiClient
    destination: api.GanetiRapiClient


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
        except (MoveError, jobs.JobError, api.Error) as err:
            self.discard_key()
            raise MoveError(self._put_back(str(err))) from err

    def discard_key(self) -> None:
        """Have the source cluster remove a key that no export is going to use.

        The job is not waited for. A cluster that does not know such jobs refuses it;
        ganeti-cleaner removes the key there after a day.
        """
        key, self._key = self._key, None
        if key is not None:
            with contextlib.suppress(api.Error):
                self._source.ExportInstance(self._name, "remote", [], x509_key_name=key)

    def _run(self) -> None:
        info = self._described()
        is_up = info["config_state"] == "up"
        self._say("preparing the export")
        prepared = self._job(
            _SOURCE, self._source.PrepareExport(self._name, "remote")
        ).result()
        self._key = prepared["x509_key_name"]
        request = creation_request(
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
        except (jobs.JobError, api.Error) as err:
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
        except (jobs.JobError, api.Error) as err:
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
            except (jobs.JobError, api.Error) as err:
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
        except (jobs.JobError, api.Error) as err:
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
        except (jobs.JobError, api.Error) as err:
            return f"{text}; {err}; start it with gnt-instance startup"
        return text


_LOGGER: Final = logging.getLogger(settings.NAME)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; return the exit code."""
    parser = settings.build_parser()
    wanted = settings.parse(parser, parser.parse_args(argv))
    logging.basicConfig(
        level=logging.DEBUG if wanted.debug else logging.WARNING, stream=sys.stderr
    )
    try:
        return api.UsesRapiClient(run)(
            wanted,
            Clients(
                jobs.connect(wanted.source, logger=_LOGGER),
                jobs.connect(wanted.destination, logger=_LOGGER),
            ),
        )
    except KeyboardInterrupt:
        sys.stdout.flush()
        # The threads would wait for these jobs.
        os._exit(exitcodes.EXIT_FAILURE)
    except (MoveError, api.Error) as err:
        _complain(str(err))
    return exitcodes.EXIT_FAILURE


def _complain(line: str) -> None:
    sys.stderr.write(f"{settings.NAME}: {control_chars.escape(line)}\n")


def run(wanted: settings.Settings, clients: Clients) -> int:
    """Move all instances; print a line about each at the end; return the exit code.

    If the user ends it, prepared keys that no export has used are removed.

    Raises:
        MoveError: the clusters cannot exchange instances.
        Error: one of the clusters does not answer.
    """
    movers: list[Mover] = []
    try:
        return _run(wanted, clients, movers)
    except KeyboardInterrupt:
        _complain("ended by the user; jobs that run go on in both clusters")
        for mover in movers:
            mover.discard_key()
        raise


def _run(wanted: settings.Settings, clients: Clients, movers: list[Mover]) -> int:
    """Move all instances; ``movers`` gets the mover of each whose move begins."""
    check_tool(wanted, clients)
    printing = threading.Lock()

    def move(name: str) -> str:
        """Return the failure of a move, empty after success."""

        def say(line: str) -> None:
            with printing:
                sys.stdout.write(f"{name}: {control_chars.escape(line)}\n")
                sys.stdout.flush()

        mover = Mover(name, wanted, clients, say, wait=time.sleep)
        movers.append(mover)
        try:
            mover.run()
        except MoveError as err:
            return str(err)
        return ""

    pool = concurrent.futures.ThreadPoolExecutor(wanted.parallel)
    failures = list(pool.map(move, wanted.instances))
    pool.shutdown()
    for name, failure in zip(wanted.instances, failures, strict=True):
        outcome = f"Failed: {control_chars.escape(failure)}" if failure else "Success"
        sys.stdout.write(f"{name}: {outcome}\n")
    return exitcodes.EXIT_FAILURE if any(failures) else exitcodes.EXIT_SUCCESS


def check_tool(wanted: settings.Settings, clients: Clients) -> None:
    """Refuse a compression tool that one of the clusters does not allow.

    Otherwise the other one would wait for the transfer in vain. Both clusters are asked
    in any case, so nothing begins if one cannot be reached or trusted.
    """
    for where, client in (
        (wanted.source.name, clients.source),
        (wanted.destination.name, clients.destination),
    ):
        try:
            allowed = client.GetInfo()["compression_tools"]
        except api.Error as err:
            raise MoveError(f"cluster {where}: {err}") from err
        if wanted.compress not in (export.IEC_NONE, *allowed):
            raise MoveError(
                f"--compress: wanted one of {', '.join(['none', *allowed])} for cluster"
                f" {where}, found {wanted.compress}"
            )


if __name__ == "__main__":
    sys.exit(main())
