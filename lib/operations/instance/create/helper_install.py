"""Installation of an OS: on the node, or if it is untrusted in a helper machine.

The helper machine boots from the cluster's install image. Its further disks are the
archive of the OS with the environment of the script, one for the result, and those of
the instance. ``doc/os-interface.rst`` is the contract of the image. The result is data
of an untrusted guest: anything but a success that the node could read is a failure.
"""

import contextlib
import string
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from ganeti.base import errors
from ganeti.base.constants.parameters import hvparams
from ganeti.model import objects, opcodes
from ganeti.operations import base
from ganeti.operations.instance import common
from ganeti.operations.instance.create import helper_machine
from ganeti.operations.instance.disks import node_disks
from ganeti.operations.instance.move import transfer_watch
from ganeti.protocols.rpc import calls, encode

#: Disks of the helper machine before those of the instance: its own, archive, result.
_OWN_DISKS: Final = 3
#: Hypervisor -> what the names of the disks begin with in the guest.
_PREFIXES: Final = {"kvm": "/dev/vd", "xen-hvm": "/dev/xvd"}
#: Parameters on which these names depend; the archive is in memory, whose files cannot
#: be opened without the host's cache.
_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "kvm": {"disk_type": "paravirtual", "disk_cache": "default", "disk_aio": "threads"},
    "xen-hvm": {"blockdev_prefix": "xvd"},
}
_OPTIONS: Final = ("helper_startup_timeout", "helper_shutdown_timeout")


class Limits(msgspec.Struct, frozen=True):
    """Seconds until the helper machine has begun, and from then until it has ended."""

    startup_s: float = hvparams.HELPER_VM_STARTUP
    shutdown_s: float = hvparams.HELPER_VM_SHUTDOWN

    @classmethod
    def from_request(cls, op: opcodes.InstanceCreate) -> "Limits":
        """Return the limits of a request, or the defaults."""
        given = (op.helper_startup_timeout, op.helper_shutdown_timeout)
        startup, shutdown = given
        return cls(
            cls().startup_s if startup is None else startup,
            cls().shutdown_s if shutdown is None else shutdown,
        )


class Progress(msgspec.Struct, frozen=True):
    """The state of an installation whose master daemon ended.

    Attributes:
        installing: uuid of the instance.
        former: progress of the creation of the instance before a reinstallation.
        has_begun: whether the helper machine was started: it has all that it needs.
        is_done: whether it was successful; the result may be removed already.
        failure: why it failed; the result may be removed already.
        was_cut: whether it ended early, as when a client had the job killed; the result
            may be removed already.
        without_secrets: the queue may continue the opcode without secret parameters.
    """

    installing: str
    former: str = ""
    has_begun: bool = False
    is_done: bool = False
    failure: str = ""
    was_cut: bool = False
    without_secrets: Literal[True] = True

    @classmethod
    def from_resumption(cls, saved: Any) -> "Progress | None":
        """Return the state, None if the opcode was interrupted elsewhere."""
        if isinstance(saved, dict) and "installing" in saved:
            return msgspec.convert(saved, cls)
        return None


class Request(msgspec.Struct, frozen=True):
    """One installation.

    Attributes:
        osparams_secret: secret parameters, which no record has.
        reinstall: whether a system is there already.
        debug: debug level of the script.
        reason: reason trail of the opcode.
        limits: of the helper machine.
    """

    osparams_secret: dict[str, Any] | None = None
    reinstall: bool = False
    debug: int = 0
    reason: Any = ()
    limits: Limits = Limits()


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of an installation.

    Attributes:
        error: why it failed, None after a success.
        may_run: whether what installs may still write to the disks.
    """

    error: errors.GenericError | None = None
    may_run: bool = False

    def check(self) -> None:
        """Raise the error of an installation that failed."""
        if self.error is not None:
            raise errors.OpExecError(*self.error.args) from self.error


class _MachineLeftError(errors.OpExecError):
    """The installation failed, and its helper machine may still run."""


def check_arguments(op: opcodes.InstanceCreate) -> None:
    """Refuse time limits that are wrong.

    Raises:
        OpPrereqError: names the option, wanted and found.
    """
    for name in _OPTIONS:
        value = getattr(op, name)
        if value is not None and not 1 <= value <= helper_machine.MAX_S:
            raise errors.refusal(
                f"instance {op.instance_name}: --{name.replace('_', '-')}: wanted 1 to"
                f" {helper_machine.MAX_S:.0f} seconds, found {value}"
            )


def check(ctx: base.Context, name: str, os: str, hypervisor: str) -> None:
    """Refuse an untrusted OS that cannot be installed.

    Raises:
        OpPrereqError: the cluster has no image, or the hypervisor no helper machines.
    """
    helper_machine.require_image(
        f"instance {name}: installing OS {os}, which is not trusted on nodes,",
        ctx.snapshot.cluster.install_image,
        hypervisor,
        option="gnt-cluster modify --install-image",
        parameter="an install image",
    )


def private_wire(
    ctx: base.Context, instance: objects.Instance, request: Request
) -> dict[str, Any]:
    """Return the record that the script of the OS gets."""
    return encode.private_instance(
        ctx.snapshot,
        instance,
        osparams_secret=request.osparams_secret,
    )


class Installation(common.InstanceWork):
    """One installation; a later master daemon may continue it."""

    def __init__(
        self,
        ctx: base.Context,
        instance: objects.Instance,
        request: Request,
        progress: Progress,
        *,
        is_continued: bool,
    ) -> None:
        """Start from the recorded state.

        Args:
            ctx: dependencies of the opcode.
            instance: the instance, whose disks are active if the installation begins.
            request: parameters and limits.
            progress: the state.
            is_continued: whether an earlier master daemon has saved the state.
        """
        super().__init__(ctx, instance)
        self._request = request
        self._progress = progress
        self._is_continued = is_continued
        #: Names instance, OS and node in errors.
        self._whole = (
            f"instance {instance.name}: cannot install OS {instance.os} on node"
            f" {ctx.node_name(instance.primary_node)}"
        )

    def run(self) -> Outcome:
        """Install; no helper machine is left at the end if its node answers.

        Raises:
            Canceled: a client had the job killed; the system may be incomplete.
            OpExecError: the same, and the master daemon was restarted afterwards.
        """
        try:
            self._install()
        except _MachineLeftError as err:
            return Outcome(err, may_run=True)
        except errors.GenericError as err:
            if self._progress.was_cut:
                raise
            return Outcome(err)
        return Outcome()

    def _install(self) -> None:
        try:
            if self._is_continued:
                self.ctx.log.message(
                    "* the master daemon was restarted; the installation of"
                    f" {self.instance.name} continues"
                )
            self._work()
        except BaseException as err:
            self._end(err)
            raise
        self._end(None)

    def _work(self) -> None:
        """Do all but the clean-up, which removes the result: its meaning is saved."""
        # An earlier master has stored the end, and the result may be removed by then.
        if self._progress.failure:
            raise errors.OpExecError(self._progress.failure)
        if self._progress.was_cut:
            raise errors.OpExecError(
                f"{self._whole}: was killed, so the system may be incomplete; install"
                f" it again with gnt-instance reinstall {self.instance.name}"
            )
        try:
            if not self._progress.has_begun:
                self._begin()
            if not self._progress.is_done:
                self._wait()
                self._check()
                self._save(is_done=True)
        except errors.GenericError as err:
            self._save_end(failure=str(err.args[0] if err.args else err))
            raise
        except Exception:
            # Such as Canceled: a client had the job killed, nothing has failed.
            self._save_end(was_cut=True)
            raise

    def _save_end(self, **changes: Any) -> None:
        # The caller raises the error of the installation, which matters more.
        with contextlib.suppress(errors.GenericError):
            self._save(**changes)

    def _end(self, failure: BaseException | None) -> None:
        """End the helper machine, and remove all that was made for it."""
        try:
            helper_machine.end(self.ctx, self.instance)
        except errors.GenericError as err:
            if failure is not None and not isinstance(failure, errors.GenericError):
                self.ctx.log.warn(str(err))
                return
            texts = [str(each) for each in (failure, err) if each is not None]
            raise _MachineLeftError("; ".join(texts)) from err
        # Last: until the machine has ended, a restarted master has to know of it.
        self.ctx.save_resumption(None)

    def _save(self, **changes: Any) -> None:
        self._progress = msgspec.structs.replace(self._progress, **changes)
        self.ctx.save_resumption(msgspec.to_builtins(self._progress))

    def _begin(self) -> None:
        """Start the helper machine; one of an interrupted run is ended before."""
        ctx, instance, request = self.ctx, self.instance, self._request
        if self._is_continued:
            helper_machine.end(ctx, instance)
            self._require_secrets()
            node_disks.assemble(ctx, instance)
        # Stored before anything is made, so that a restarted master removes it.
        self._save()
        image = ctx.snapshot.cluster.install_image
        helper_machine.add_image(ctx, instance, image, self._whole)
        self._require_memory()
        # The last step before the start: the archive has secrets, and is in memory.
        ctx.rpc.call_node(
            instance.primary_node,
            calls.os_export(private_wire(ctx, instance, request), self._overrides()),
        ).unwrap(f"{self._whole}: no archive of it")
        ctx.log.message("* starting the helper machine")
        ctx.rpc.call_node(
            instance.primary_node,
            calls.helper_start(self._wire(), True, request.reason),
        ).unwrap(f"{self._whole}: its helper machine could not be started")
        # From here on a restarted master needs no secret parameters: the machine has
        # them, and has only to be waited for.
        self._save(has_begun=True)

    def _require_secrets(self) -> None:
        """Refuse to begin again without secret parameters, which are never stored."""
        if self._request.osparams_secret:
            raise errors.OpExecError(
                f"{self._whole}: the master daemon was restarted before its helper"
                " machine had begun, and secret parameters are not stored; reinstall"
                " the instance with them"
            )

    def _require_memory(self) -> None:
        """Check the memory that others may have used since locks were released."""
        try:
            helper_machine.require_memory(self.ctx, self.instance)
        except errors.OpPrereqError as err:
            raise errors.OpExecError(f"{self._whole}: {err.args[0]}") from err

    def _wire(self) -> dict[str, Any]:
        """Return the helper machine, which may write to read-only disks."""
        instance = self.instance
        form = helper_machine.wire(self.ctx, instance, _PARAMETERS[instance.hypervisor])
        form["disks_info"] = [{**disk, "mode": "rw"} for disk in form["disks_info"]]
        return form

    def _overrides(self) -> dict[str, Any]:
        """Return the variables of the script that differ in the helper machine."""
        prefix = _PREFIXES[self.instance.hypervisor]
        env: dict[str, Any] = {"DEBUG_LEVEL": str(self._request.debug)}
        if self._request.reinstall:
            env["INSTANCE_REINSTALL"] = "1"
        for index in range(len(self.instance.disks)):
            # One letter suffices: an instance has at most 16 disks (MAX_DISKS).
            letter = string.ascii_lowercase[_OWN_DISKS + index]
            env |= {
                f"DISK_{index}_PATH": f"{prefix}{letter}",
                # The helper machine has block devices only, whatever the node uses.
                f"DISK_{index}_URI": None,
                f"DISK_{index}_BACKEND_TYPE": "block",
            }
        return env

    # Waiting
    def _wait(self) -> None:
        """Wait until the helper machine has powered itself off.

        Raises:
            OpExecError: it did not begin, or did not end in time.
        """
        limits, clock = self._request.limits, self.ctx.clock
        self.ctx.log.message(
            "* waiting for the helper machine (at most"
            f" {limits.startup_s:g} s to begin, {limits.shutdown_s:g} s to end)"
        )
        watch = helper_machine.Watch(self.ctx, self.instance, self._whole)
        begun = clock.monotonic()
        self._wait_while(
            watch,
            lambda: self._state() in ("none", "wrong"),
            limits.startup_s,
            "did not begin its work",
            "--helper-startup-timeout",
        )
        self._wait_while(
            watch,
            lambda: True,
            limits.shutdown_s,
            "did not power itself off",
            "--helper-shutdown-timeout",
        )
        self.ctx.log.message(
            f" - the helper machine has ended after {clock.monotonic() - begun:.0f} s"
        )

    def _wait_while(
        self,
        watch: helper_machine.Watch,
        is_pending: Callable[[], bool],
        limit_s: float,
        fault: str,
        option: str,
    ) -> None:
        clock = self.ctx.clock
        begun = reported = clock.monotonic()
        while watch.is_running() and is_pending():
            now = clock.monotonic()
            if now - begun >= limit_s:
                # A reinstallation has no such options.
                more = (
                    "" if self._request.reinstall else f" allow more with {option}, or"
                )
                raise errors.OpExecError(
                    f"{self._whole}: its helper machine {fault} in {limit_s:g} s;{more}"
                    " have the administrator test the install image"
                    f" {self.ctx.snapshot.cluster.install_image} and the OS definition"
                )
            if now - reported >= transfer_watch.REPORT_S:
                reported = now
                self.ctx.log.message(" - the helper machine is running")
            self.ctx.pause(min(helper_machine.POLL_S, limit_s))

    def _state(self) -> str:
        """Return the state so far; ``none`` while the node does not answer."""
        instance = self.instance
        answer = self.ctx.rpc.call_node(
            instance.primary_node, calls.helper_result(instance.name)
        )
        return "none" if answer.failed else answer.payload.state

    def _check(self) -> None:
        """Check the result of a helper machine that has ended.

        Raises:
            OpExecError: it is no success.
        """
        what, instance = f"{self._whole}: its result", self.instance
        state, code, lines = common.ask_again(
            self.ctx, instance.primary_node, calls.helper_result(instance.name)
        ).unwrap(what)
        shown = " / ".join(lines)
        if state != "ended":
            image = self.ctx.snapshot.cluster.install_image
            outcome = {
                "none": "none",
                "started": "only the mark that the work has begun",
                "wrong": f"a text that starts with {shown!r}",
            }[state]
            raise errors.OpExecError(
                f"{what}: wanted the exit code of create_untrusted, found {outcome};"
                " the administrator can mend the install image"
                f" {image}, or give the instance more memory"
            )
        if code != 0:
            output = f"last lines: {shown}" if shown else "it wrote nothing"
            raise errors.OpExecError(
                f"{self._whole}: create_untrusted: wanted exit code 0, found {code},"
                f" {output}; the author of the OS definition can mend it"
            )


def on_node(
    ctx: base.Context, instance: objects.Instance, request: Request, what: str
) -> Outcome:
    """Have the primary node run the create script of a trusted OS.

    Args:
        ctx: dependencies of the opcode.
        instance: the instance, whose disks are active.
        request: parameters of the script.
        what: the attempt, for errors.
    """
    result = ctx.rpc.call_node(
        instance.primary_node,
        calls.instance_os_add(
            private_wire(ctx, instance, request), request.reinstall, request.debug
        ),
    )
    try:
        result.unwrap(what)
    except errors.GenericError as err:
        return Outcome(err, may_run=result.is_lost)
    return Outcome()
