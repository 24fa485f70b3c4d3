"""User of an emulator: the daemon's own, a named user, or a user of the pool."""

import contextlib
import os
import pwd
from collections.abc import Iterator, Mapping
from typing import Any

from ganeti.base import errors
from ganeti.base.filesystem import pidfile
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.protocols import uidpool
from ganeti.protocols.ssconf import SimpleStore


@contextlib.contextmanager
def user(
    effects: NodeEffects, guest: Files, hvparams: Mapping[str, Any]
) -> Iterator[str | None]:
    """Yield the name of the user for one start, None for the daemon's own.

    The guest keeps a user of the pool if the body succeeds; the user is released if the
    body fails.

    Raises:
        HypervisorError: the user does not exist, or the pool has no free user.
    """
    model = hvparams.get("security_model")
    if model == "user":
        yield _known(guest, pwd.getpwnam, hvparams.get("security_domain") or "")
    elif model == "pool":
        with _pooled(effects, guest) as name:
            yield name
    else:
        yield None


def _known(guest: Files, look_up: Any, what: str | int) -> str:
    try:
        return str(look_up(what).pw_name)
    except KeyError:
        raise errors.HypervisorError(
            f"instance {guest.name}: user {what!r} of the emulator does not exist on"
            " this node"
        ) from None


@contextlib.contextmanager
def _pooled(effects: NodeEffects, guest: Files) -> Iterator[str]:
    try:
        text = SimpleStore(effects.paths).GetUidPool()
        pool = uidpool.ExpandUidPool(uidpool.ParseUidPool(text, "\n"))
        locked = uidpool.RequestUnusedUid(
            pool, paths=effects.paths, runner=effects.process
        )
    except errors.GenericError as err:
        raise errors.HypervisorError(
            f"instance {guest.name}: cannot get a user of the pool: {err}"
        ) from err
    try:
        yield _known(guest, pwd.getpwuid, locked.GetUid())
        with open(guest.uid, "w", encoding="ascii") as out:
            out.write(str(locked))
    except BaseException:
        uidpool.ReleaseUid(locked, paths=effects.paths)
        raise
    locked.Unlock()


def release(guest: Files) -> None:
    """Release a guest's user of the pool, if it has one."""
    uid = pidfile.pid_in(guest.uid)
    if uid is None:
        return
    with contextlib.suppress(errors.LockError):
        uidpool.ReleaseUid(uid, paths=guest.paths)
    os.unlink(guest.uid)
