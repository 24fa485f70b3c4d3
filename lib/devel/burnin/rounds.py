"""A burn-in: runs the steps one after another, and removes the instances at the end."""

from collections.abc import Callable, Sequence
from typing import Any

from ganeti.base import errors
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import error_text, listing
from ganeti.commands.cli.waiting import jobs
from ganeti.devel.burnin import steps
from ganeti.devel.burnin.settings import Settings

#: ``(instance, seconds)`` -> None; raises ProbeError.
AskGuest = Callable[[str, float], None]
#: ``(master, primaries)`` -> lines; see `main.ask_confd`.
AskConfd = Callable[[str, dict[str, str]], list[str]]


class BurnInError(errors.GenericError):
    """A step has failed."""


class BurnIn:
    """One run.

    Args:
        ctx: the command; its options are reason and debug level.
        settings: what to do.
        ask_guest: waits for a guest.
        ask_confd: compares the answers of confd.
        is_verbose: print the messages of jobs.
    """

    def __init__(
        self,
        ctx: CommandContext,
        settings: Settings,
        *,
        ask_guest: AskGuest,
        ask_confd: AskConfd,
        is_verbose: bool = False,
    ) -> None:
        self._ctx = ctx
        self._settings = settings
        self._ask_guest = ask_guest
        self._ask_confd = ask_confd
        self._is_verbose = is_verbose
        self._nodes: list[str] = []
        #: Instances that this run may have created.
        self._created: list[str] = []
        #: UUIDs of all of them, once they are known.
        self._uuids: frozenset[str] = frozenset()

    def run(self) -> None:
        """Run all steps, then remove the instances, also after a failure.

        Raises:
            GenericError: a step has failed; the instances are removed unless they are
                to be kept.
        """
        self._prepare()
        try:
            for step in steps.STEPS:
                self._run_step(step)
        finally:
            self._clean_up()

    def _prepare(self) -> None:
        """Check what can be checked, without changes.

        Raises:
            GenericError: the OS is unknown, no node is usable, or a name is in use.
        """
        self._ctx.out("- Checking the OS, the nodes and the names")
        settings = self._settings
        self._require_os(self._systems())
        fields = ["name", "offline", "drained", "vm_capable"]
        rows = listing.named(self._ctx, "node", fields, list(settings.nodes))
        usable = [r["name"] for r in rows if not r["offline"] and not r["drained"]]
        usable = [r["name"] for r in rows if r["name"] in usable and r["vm_capable"]]
        if left := [row["name"] for row in rows if row["name"] not in usable]:
            if settings.nodes:
                raise BurnInError(
                    f"node {left[0]}: wanted one that is online, not drained and"
                    " vm_capable"
                )
            self._ctx.out(f"  * left out: {', '.join(left)}")
        mirrored = settings.template == "drbd"
        if len(usable) < 1 + mirrored:
            raise BurnInError(
                f"template {settings.template}: wanted {1 + mirrored} usable nodes or"
                f" more, found {len(usable)}"
            )
        self._nodes = usable
        spare = (settings.rename,) if settings.rename else ()
        if used := self._existing((*settings.instances, *spare)):
            raise BurnInError(f"instance {used[0]}: exists; give names that are free")

    def _systems(self) -> list[dict[str, Any]]:
        """Return the OS definitions with the fields name, valid and variants."""
        fields = ["name", "valid", "variants"]
        question = jobs.op("OP_OS_DIAGNOSE", output_fields=fields)
        rows = jobs.run(self._ctx, question)
        return [dict(zip(fields, row, strict=True)) for row in rows]

    def _require_os(self, systems: Sequence[dict[str, Any]]) -> None:
        name, _, variant = self._settings.os_name.partition("+")
        row = next((row for row in systems if row["name"] == name), None)
        if row is None or not row["valid"]:
            known = ", ".join(sorted(r["name"] for r in systems if r["valid"]))
            raise BurnInError(
                f"OS {name}: wanted one that is valid on all nodes: {known or 'none'}"
            )
        offered = row["variants"] or []
        if variant and variant not in offered:
            raise BurnInError(
                f"OS {name}: wanted a variant of {', '.join(offered) or 'none'},"
                f" found {variant}"
            )

    def _run_step(self, step: steps.Step) -> None:
        reason = self._why_left_out(step)
        if reason:
            self._ctx.out(f"- {step.title}: left out, {reason}")
            return
        self._ctx.out(f"- {step.title}")
        if step is steps.CONFD:
            self._compare_confd()
            return
        try:
            self._work(step, self._places(step))
        finally:
            if step is steps.EXPORTS:
                self._uuids |= self._uuids_made_of_exports()
        if step is steps.CREATION:
            self._uuids = frozenset(row["uuid"] for row in self._present(["uuid"]))
        if step.is_running and self._settings.http_check:
            for name in self._settings.instances:
                self._ask_guest(name, self._settings.net_timeout_s)

    def _uuids_made_of_exports(self) -> frozenset[str]:
        """Return the UUIDs of the instances that have the names of this run now."""
        rows = listing.query_objects(self._ctx, "instance", ["name", "uuid"])
        names = set(self._settings.instances)
        return frozenset(row["uuid"] for row in rows if row["name"] in names)

    def _why_left_out(self, step: steps.Step) -> str:
        if step.option in self._settings.left_out:
            return f"--no-{step.option}"
        return step.obstacle(self._settings, len(self._nodes))

    def _places(self, step: steps.Step) -> list[steps.Place]:
        """Return where the instances are now; for the first step, where to put them."""
        if step is steps.CREATION:
            return steps.places(self._settings, self._nodes)
        placed = []
        for row in self._present(["name", "pnode", "snodes"]):
            own = [row["pnode"], *row["snodes"]]
            others = tuple(node for node in self._nodes if node not in own)
            placed.append(
                steps.Place(row["name"], own[0], own[1] if own[1:] else "", others)
            )
        return placed

    def _present(self, fields: list[str]) -> list[dict[str, Any]]:
        names = list(self._settings.instances)
        return listing.named(self._ctx, "instance", fields, names)

    def _work(self, step: steps.Step, placed: Sequence[steps.Place]) -> None:
        """Run the jobs of a step: one per instance, all at once if that is wanted."""
        operations = {
            place.name: [
                jobs.with_generic(self._ctx, operation)
                for operation in step.ops(self._settings, place)
            ]
            for place in placed
        }
        if not self._settings.is_parallel:
            for name, ops in operations.items():
                self._ctx.out(f"  * instance {name}")
                self._finish(step, name, self._submit(step, name, ops))
            return
        submitted = {
            name: self._submit(step, name, o) for name, o in operations.items()
        }
        failed: errors.GenericError | None = None
        for name, job_id in submitted.items():
            self._ctx.out(f"  * instance {name}")
            try:
                self._finish(step, name, job_id)
            except BurnInError as err:
                failed = failed or err
        if failed is not None:
            raise failed

    def _submit(self, step: steps.Step, name: str, ops: list[jobs.Op]) -> int:
        if step is steps.CREATION:
            self._created.append(name)
        try:
            return jobs.submit(self._ctx, ops)
        except errors.OpPrereqError:
            self._forget(step, name)
            raise

    def _forget(self, step: steps.Step, name: str) -> None:
        """Note that an instance was not created by this run."""
        if step is steps.CREATION:
            self._created.remove(name)

    def _finish(self, step: steps.Step, name: str, job_id: int) -> None:
        """Wait for a job.

        Raises:
            BurnInError: it has failed.
            LuxiError: the master daemon does not answer.
        """
        try:
            jobs.wait(self._ctx, job_id, self._show if self._is_verbose else None)
        except (errors.LuxiError, errors.CommitUnknownError):
            raise
        except errors.GenericError as err:
            if isinstance(err, errors.OpPrereqError):
                self._forget(step, name)
            title = step.title[0].lower() + step.title[1:]
            raise BurnInError(f"{title}: job {job_id}: {_reason(err)}") from err

    def _show(self, entry: list[Any]) -> None:
        if entry[2] != jobs.PLACEMENT:
            self._ctx.out(f"    {entry[3]}")

    def _compare_confd(self) -> None:
        rows = listing.query_objects(self._ctx, "node", ["name", "role"])
        master = next(row["name"] for row in rows if row["role"] == "M")
        primaries = {r["name"]: r["pnode"] for r in self._present(["name", "pnode"])}
        for line in self._ask_confd(master, primaries):
            self._ctx.out(f"  * {line}")

    def _clean_up(self) -> None:
        """Remove the instances that this run has created, whatever their names are now.

        Somebody may have taken one of the names during the run.
        """
        if not self._uuids:
            # No step after the creation has renamed one.
            left = self._existing(self._created) if self._created else []
        else:
            rows = listing.query_objects(self._ctx, "instance", ["name", "uuid"])
            left = [row["name"] for row in rows if row["uuid"] in self._uuids]
        if not left:
            return
        if self._settings.keeps:
            self._ctx.out(f"- Keeping instances: {', '.join(left)}")
            return
        self._ctx.out(f"- {steps.REMOVAL.title}")
        self._work(steps.REMOVAL, [steps.Place(name) for name in left])

    def _existing(self, given: Sequence[str]) -> list[str]:
        """Return the names of instances with a given name, or a domain after it."""
        names = [
            r["name"] for r in listing.query_objects(self._ctx, "instance", ["name"])
        ]
        return [n for n in names if any(f"{n}.".startswith(f"{g}.") for g in given)]


def _reason(err: errors.GenericError) -> str:
    """Return the text of an error, without the words before it where it has some."""
    if err.args and isinstance(err.args[0], str):
        return err.args[0]
    return error_text.describe(err)[0]
