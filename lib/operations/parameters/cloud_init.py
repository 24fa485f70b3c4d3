"""Checks of the OS parameters from which the cloud-init seed of a guest is made.

The seed itself is made by `ganeti.model.objects.cloud_init`. Errors never contain the
values, which may be private.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.parameters import cloud_init as constants
from ganeti.base.text import messages
from ganeti.model import objects
from ganeti.model.objects import cloud_init, params
from ganeti.operations.parameters import typed_params

#: A public key as in authorized_keys, without options.
_SSH_KEY: Final = re.compile(
    r"(ssh|ecdsa|sk)-[a-z0-9@.-]+ +[A-Za-z0-9+/]+=*( [ -~]*)?", re.ASCII
)


def check(values: Mapping[str, Any] | None, what: str) -> None:
    """Refuse seed parameters that are unknown, too large or malformed.

    Args:
        values: requested public or private OS parameters, if any.
        what: beginning of the error message.

    Raises:
        OpPrereqError: names the parameter.
    """
    for name, value in (values or {}).items():
        if name.startswith(constants.PREFIX):
            _check_one(name, value, f"{what}: OS parameter {name}")


def _check_one(name: str, value: Any, what: str) -> None:
    limit = constants.PARAMETERS.get(name)
    if limit is None:
        raise _refusal(
            f"{what}: unknown; {messages.known_names(name, constants.PARAMETERS)}"
        )
    if value in (None, typed_params.DEFAULT):
        return
    if not isinstance(value, str) or "\0" in value:
        raise _refusal(f"{what}: wanted a text without NUL characters")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise _refusal(f"{what}: wanted a text in UTF-8") from None
    if size > limit:
        raise _refusal(f"{what}: wanted at most {limit} bytes, found {size}")
    if name == constants.SSH_KEY:
        for number, line in enumerate(value.splitlines(), 1):
            if line.strip() and not _SSH_KEY.fullmatch(line.strip()):
                raise _refusal(
                    f"{what}: line {number}: wanted a public key such as"
                    " 'ssh-ed25519 AAAA... comment'"
                )


def refuse_unstored(values: Mapping[str, Any] | None, what: str) -> None:
    """Refuse seed parameters that no record keeps: the next start would lack them.

    Raises:
        OpPrereqError: names the parameter.
    """
    for name in values or {}:
        if name.startswith(constants.PREFIX):
            raise _refusal(
                f"{what}: OS parameter {name}: is used at every start, so it has to be"
                " stored; give it as a private parameter at creation, or with"
                " gnt-instance modify"
            )


def check_instance(snapshot: objects.Snapshot, instance: objects.Instance) -> None:
    """Refuse a seed for a guest that cannot have one, or with two sources of a key.

    Raises:
        OpPrereqError: names the instance.
    """
    filled = params.fill_osparams(snapshot, instance)
    filled |= params.fill_osparams_private(snapshot, instance)
    own = {**instance.osparams, **instance.osparams_private}
    if cloud_init.has_parameters(own) and instance.hypervisor != constants.HYPERVISOR:
        raise _refusal(
            f"instance {instance.name}: OS parameters {constants.PREFIX}* need"
            f" hypervisor {constants.HYPERVISOR}, found {instance.hypervisor}"
        )
    meta_data = f"{constants.PREFIX}{constants.META_DATA}"
    if filled.get(meta_data) and filled.get(constants.SSH_KEY):
        raise _refusal(
            f"instance {instance.name}: OS parameters {meta_data} and"
            f" {constants.SSH_KEY} exclude each other: put the key into the metadata"
        )


def _refusal(text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(text, ecodes.ECODE_INVAL)
