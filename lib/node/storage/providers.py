"""Providers of external storage on this node: directories of scripts.

This module finds and validates them; `external` runs their scripts. Their scripts run
as root, so nobody else may be able to change them. Specified in os-and-extstorage,
section 3.
"""

import dataclasses
import os
import re
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.constants.protocols import hooks
from ganeti.base.constants.protocols import os as constants
from ganeti.base.filesystem import script_directories

_ES_PARAMETERS_FILE: Final = "parameters.list"
_ES_SCRIPTS: Final = (
    "attach",
    "close",
    "create",
    "detach",
    "grow",
    "open",
    "remove",
    "setinfo",
    "snapshot",
    "verify",
)

_OPTIONAL: Final = (
    constants.ES_ACTION_SNAPSHOT,
    constants.ES_ACTION_OPEN,
    constants.ES_ACTION_CLOSE,
)
_NAME: Final = re.compile(hooks.EXT_PLUGIN_MASK)


@dataclasses.dataclass(frozen=True)
class Provider:
    """One usable provider.

    Attributes:
        name: of its directory.
        path: its directory.
        parameters: ``(name, text)``, in the order of its file.
        scripts: path by action; optional ones only if it has them.
    """

    name: str
    path: str
    parameters: tuple[tuple[str, str], ...]
    scripts: dict[str, str]

    def unknown(self, names: Any) -> list[str]:
        """Return those names that are no parameters of the provider, sorted."""
        return sorted(set(names) - {name for name, _text in self.parameters})


def is_name(text: object) -> bool:
    """Return whether a provider may have this name."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def find(paths: pathutils.Paths, name: str) -> Provider:
    """Return a provider; the first directory of its name counts.

    Raises:
        BlockDeviceError: it does not exist, or it is not valid.
    """
    candidates = (f"{root}/{name}" for root in paths.es_search_path)
    directory = next((path for path in candidates if os.path.isdir(path)), None)
    if directory is None or not is_name(name):
        raise errors.BlockDeviceError(
            f"external storage provider {name}: not found in"
            f" {', '.join(paths.es_search_path)}"
        )
    try:
        return _read(paths, name, directory)
    except script_directories.DefectError as err:
        raise errors.BlockDeviceError(
            f"external storage provider {name}: {directory}: {err}"
        ) from err


def diagnose(paths: pathutils.Paths) -> list[list[Any]]:
    """Return all providers in wire form; the first one of each name counts.

    Shape: ``[name, path, ok, message, [[parameter, text]]]``, in search order, then by
    name.
    """
    return [
        _diagnose_one(paths, name, f"{root}/{name}")
        for root in paths.es_search_path
        for name in script_directories.subdirectories(root)
        if is_name(name)
    ]


def _diagnose_one(paths: pathutils.Paths, name: str, path: str) -> list[Any]:
    try:
        provider = _read(paths, name, path)
    except script_directories.DefectError as err:
        return [name, path, False, str(err), []]
    return [name, path, True, "", [list(row) for row in provider.parameters]]


def _read(paths: pathutils.Paths, name: str, path: str) -> Provider:
    parameters = script_directories.parameters(path, _ES_PARAMETERS_FILE)
    scripts = {}
    for action in _ES_SCRIPTS:
        if action in _OPTIONAL and not os.path.lexists(f"{path}/{action}"):
            continue
        scripts[action] = script_directories.script(path, action)
    # On a virtual node, which may belong to another user, its user counts as root.
    owner = os.geteuid() if paths.is_virtual else 0
    for file in (*scripts.values(), f"{path}/{_ES_PARAMETERS_FILE}"):
        script_directories.require_owned(file, top=paths.root, owner=owner)
    return Provider(name, path, parameters, scripts)
