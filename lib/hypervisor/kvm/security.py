"""The user an emulator runs as: the daemon's own, a given one, or one of the pool."""

import contextlib
import os
import pwd
from collections.abc import Iterator, Mapping
from typing import Any

from ganeti import errors, uidpool
from ganeti.hypervisor.base import NodeEffects
from ganeti.hypervisor.kvm.files import Files
from ganeti.ssconf import SimpleStore


@contextlib.contextmanager
def user(
    effects: NodeEffects, guest: Files, hvparams: Mapping[str, Any]
) -> Iterator[str | None]:
    """Give the name of the user for one start, None for the daemon's own.

    A user of the pool is kept for the guest when the body succeeds, and given back when
    it fails.

    Raises:
        HypervisorError: there is no such user, or the pool has none left.
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
            f"instance {guest.name}: no user {what!r} on this node to run as"
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
            f"instance {guest.name}: no user of the pool to run as: {err}"
        ) from err
    try:
        yield _known(guest, pwd.getpwuid, locked.uid)
        with open(guest.uid, "w", encoding="ascii") as out:
            out.write(str(locked))
    except BaseException:
        uidpool.ReleaseUid(locked, paths=effects.paths)
        raise
    locked.Unlock()


def release(guest: Files) -> None:
    """Give a guest's user back to the pool, if it has one."""
    try:
        with open(guest.uid, encoding="ascii") as src:
            uid = int(src.read())
    except (FileNotFoundError, ValueError):
        return
    with contextlib.suppress(errors.LockError):
        uidpool.ReleaseUid(uid, paths=guest.paths)
    os.unlink(guest.uid)
