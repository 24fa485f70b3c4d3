"""OS definitions on this node, and the environment of their scripts.

An OS definition is a directory of scripts that install instances. This module finds and
validates it, and computes the environment variables of its scripts; the daemon's own
environment is not passed on. `os_scripts` runs them. Specified in os-and-extstorage,
sections 1 and 2.
"""

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors, pathutils, process
from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants.protocols import os as os_constants
from ganeti.base.filesystem import script_directories
from ganeti.model.objects import cloud_init
from ganeti.model.objects.filled import DiskX, InstanceX, NicX
from ganeti.node import storage
from ganeti.node.calls.registry import LocalNode

_OS_API_FILE: Final = "ganeti_api_version"
_OS_VARIANTS_FILE: Final = "variants.list"
_OS_PARAMETERS_FILE: Final = "parameters.list"

#: First version with variants, and with parameters and a verify script.
_API_VARIANTS: Final = 15
_API_PARAMETERS: Final = 20
#: Separates an OS name from its variant.
VARIANT_SEPARATOR: Final = "+"


@dataclasses.dataclass(frozen=True)
class OsDefinition:
    """One usable OS definition.

    Attributes:
        name: name without a variant.
        path: directory.
        api_versions: its API versions that are supported, ascending; never empty.
        variants: names, in the order of its file.
        parameters: ``(name, text)``, in the order of its file.
        scripts: path by script name.
        words: further words of a script's command.
    """

    name: str
    path: str
    api_versions: tuple[int, ...]
    variants: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    scripts: dict[str, str]
    words: tuple[str, ...] = ()

    @property
    def api_version(self) -> int:
        """The newest supported version."""
        return self.api_versions[-1]

    @property
    def is_trusted(self) -> bool:
        """Whether the create script may run on the node itself."""
        return os_constants.OS_SCRIPT_CREATE in self.scripts

    def command(self, script: str) -> list[str]:
        """Return the command of a script."""
        return [self.scripts[script], *self.words]

    def knows(self, parameter: str) -> bool:
        """Return whether the scripts use a parameter themselves."""
        return any(name == parameter for name, _text in self.parameters)

    def check_variant(self, full_name: str) -> str:
        """Return the variant in ``name+variant``, empty without one.

        Raises:
            OpExecError: the variant is missing, unknown, or not supported by the OS.
        """
        variant = split_name(full_name)[1]
        if not self.variants:
            if variant:
                raise errors.OpExecError(
                    f"OS {self.name}: has no variants, found {variant}"
                )
            return ""
        if not variant:
            raise errors.OpExecError(f"OS {self.name}: name must include a variant")
        if variant not in self.variants:
            raise errors.OpExecError(
                f"OS {self.name}: wanted a variant of {', '.join(self.variants)},"
                f" found {variant}"
            )
        return variant


def split_name(full_name: str) -> tuple[str, str]:
    """Return OS name and variant, which may be empty."""
    name, _, variant = full_name.partition(VARIANT_SEPARATOR)
    return name, variant


def find(paths: pathutils.Paths, full_name: str) -> OsDefinition:
    """Return the OS definition of a name with or without a variant.

    Raises:
        OpExecError: the OS definition does not exist, or it is not valid.
    """
    name = split_name(full_name)[0]
    directory = _locate(paths, name)
    if directory is None:
        raise errors.OpExecError(
            f"OS {name}: not found in {', '.join(paths.os_search_path)}"
        )
    try:
        return _read(name, directory)
    except script_directories.DefectError as err:
        raise errors.OpExecError(f"OS {name}: {directory}: {err}") from err


def of_image(paths: pathutils.Paths, script: str) -> OsDefinition:
    """Return what installs the image of the parameter ``os-image``; it needs no files.

    Args:
        paths: of this node.
        script: the only script of the result.
    """
    program = f"{paths.tools_dir}/{os_constants.OS_IMAGE_PARAMETER}"
    is_check = script == os_constants.OS_SCRIPT_VERIFY
    checks = [os_constants.OS_VALIDATE_PARAMETERS] if is_check else []
    return OsDefinition(
        name=os_constants.OS_IMAGE_PARAMETER,
        path="/",
        api_versions=os_constants.OS_API_VERSIONS[-1:],
        variants=(),
        parameters=tuple((name, "") for name in os_constants.OS_IMAGE_PARAMETERS),
        scripts={script: program},
        words=(script, *checks),
    )


def _locate(paths: pathutils.Paths, name: str) -> str | None:
    if not name or "/" in name or name.startswith("."):
        return None
    candidates = (f"{root}/{name}" for root in paths.os_search_path)
    return next((path for path in candidates if os.path.isdir(path)), None)


def diagnose(paths: pathutils.Paths) -> list[list[Any]]:
    """Return all OS definitions in wire form; the first one of each name counts.

    Shape: ``[name, path, ok, message, [variant], [[parameter, text]], [API version],
    trusted]``, in search order, then by name.
    """
    return [
        _diagnose_one(name, f"{root}/{name}")
        for root in paths.os_search_path
        for name in script_directories.subdirectories(root)
    ]


def _diagnose_one(name: str, path: str) -> list[Any]:
    try:
        definition = _read(name, path)
    except script_directories.DefectError as err:
        return [name, path, False, str(err), [], [], [], True]
    return [
        name,
        path,
        True,
        "",
        list(definition.variants),
        [list(row) for row in definition.parameters],
        list(definition.api_versions),
        definition.is_trusted,
    ]


def _read(name: str, path: str) -> OsDefinition:
    versions = _api_versions(path)
    newest = versions[-1]
    variants: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    if newest >= _API_VARIANTS:
        variants = tuple(
            script_directories.lines(path, _OS_VARIANTS_FILE, required=False)
        )
    if newest >= _API_PARAMETERS:
        parameters = script_directories.parameters(path, _OS_PARAMETERS_FILE)
    return OsDefinition(
        name, path, versions, variants, parameters, _scripts(path, newest)
    )


def _api_versions(path: str) -> tuple[int, ...]:
    lines = script_directories.lines(path, _OS_API_FILE, required=True)
    try:
        versions = {int(line) for line in lines}
    except ValueError:
        raise script_directories.DefectError(
            f"{_OS_API_FILE}: wanted one number per line, found {lines}"
        ) from None
    supported = sorted(versions & set(os_constants.OS_API_VERSIONS))
    if not supported:
        raise script_directories.DefectError(
            f"API version: wanted one of {list(os_constants.OS_API_VERSIONS)}, found"
            f" {sorted(versions)}"
        )
    return tuple(supported)


def _scripts(path: str, api_version: int) -> dict[str, str]:
    required = [
        os_constants.OS_SCRIPT_EXPORT,
        os_constants.OS_SCRIPT_IMPORT,
        os_constants.OS_SCRIPT_RENAME,
    ]
    if api_version >= _API_PARAMETERS:
        required.append(os_constants.OS_SCRIPT_VERIFY)
    either = [os_constants.OS_SCRIPT_CREATE, os_constants.OS_SCRIPT_CREATE_UNTRUSTED]
    present = [name for name in either if os.path.lexists(f"{path}/{name}")]
    if not present:
        raise script_directories.DefectError(f"script {' or '.join(either)}: not found")
    return {name: script_directories.script(path, name) for name in required + present}


def core_environment(
    paths: pathutils.Paths,
    definition: OsDefinition,
    variant: str,
    osparams: Mapping[str, Any],
    debug: int,
) -> dict[str, str]:
    """Return the variables that do not depend on an instance."""
    env = {
        "OS_API_VERSION": str(definition.api_version),
        "OS_NAME": definition.name,
        "OS_VARIANT": variant,
        "DEBUG_LEVEL": str(debug),
        "PATH": process.SAFE_PATH,
        "GANETI_TOOLS_DIR": paths.tools_dir,
    }
    if paths.is_virtual:
        env |= {
            pathutils.ROOTDIR_ENV: paths.root,
            pathutils.HOSTNAME_ENV: paths.hostname,
        }
    for name, value in osparams.items():
        env[f"OSP_{name.upper().replace('-', '_')}"] = _text(value)
    return env


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def all_osparams(instance: InstanceX) -> dict[str, Any]:
    """Return public, private and secret OS parameters in one dict.

    Those of the cloud-init seed, which are for the guest, are left out.
    """
    given = {
        **instance.osparams,
        **instance.osparams_private,
        **instance.osparams_secret,
    }
    return cloud_init.without_parameters(given)


def instance_environment(
    node: LocalNode,
    instance: InstanceX,
    definition: OsDefinition,
    *,
    debug: int = 0,
) -> dict[str, str]:
    """Return the complete environment of a script for one instance.

    Whoever starts the script replaces the paths of disks that are files, see
    `held_disks`.
    """
    variant = split_name(instance.os)[1]
    env = core_environment(
        node.paths, definition, variant, all_osparams(instance), debug
    )
    env |= {
        "INSTANCE_NAME": instance.name,
        "INSTANCE_OS": instance.os,
        "INSTANCE_UUID": instance.uuid,
        "INSTANCE_CTIME": _text(instance.ctime),
        "INSTANCE_MTIME": _text(instance.mtime),
        "INSTANCE_PRIMARY_NODE": instance.primary_node,
        "INSTANCE_SECONDARY_NODES": " ".join(instance.secondary_nodes),
        "HYPERVISOR": instance.hypervisor,
        "INSTANCE_HYPERVISOR": instance.hypervisor,
        "DISK_COUNT": str(len(instance.disks_info)),
        "NIC_COUNT": str(len(instance.nics)),
    }
    for name, value in instance.beparams.items():
        env[f"INSTANCE_BE_{name}"] = _text(value)
    for name, value in instance.hvparams.items():
        env[f"INSTANCE_HV_{name}"] = _text(value)
    for index, disk in enumerate(instance.disks_info):
        env |= _disk_variables(node, index, disk, instance)
    for index, nic in enumerate(instance.nics):
        env |= _nic_variables(index, nic, instance.hvparams)
    return env


def held_disks(
    node: LocalNode, disks: Sequence[DiskX], stack: contextlib.ExitStack
) -> dict[int, int]:
    """Open disks on shared file systems until a stack ends: index -> descriptor.

    A script reaches them below ``/proc/PID/fd`` of the process that holds them: by the
    time it opens a path on shared storage, another node could have put a link there.
    Paths on storage of this node alone stay as they are known.

    Raises:
        BlockDeviceError: a disk cannot be opened.
    """
    held = {}
    for index, disk in enumerate(disks):
        if disk.dev_type in disk_constants.DTS_SHARED_DIRS:
            device = storage.device(node.paths, disk, node.process)
            held[index] = stack.enter_context(device.opened(os.O_RDONLY))
    return held


def _given(**values: Any) -> dict[str, str]:
    """Return the variables that have a value; scripts test whether others are set."""
    return {name: str(value) for name, value in values.items() if value}


def _disk_variables(
    node: LocalNode, index: int, disk: DiskX, instance: InstanceX
) -> dict[str, str]:
    hvparams = instance.hvparams
    device = storage.device(node.paths, disk, node.process)
    is_file = disk.dev_type in disk_constants.DTS_FILEBASED
    values = {
        "PATH": device.path,
        "ACCESS": disk.mode,
        "UUID": disk.uuid,
        "SIZE": str(disk.size),
        "BACKEND_TYPE": f"file:{disk.logical_id[0]}" if is_file else "block",
    }
    values |= _given(URI=device.uri(instance.hypervisor), NAME=disk.name)
    if "disk_type" in hvparams:
        values["FRONTEND_TYPE"] = _text(hvparams["disk_type"])
    return {f"DISK_{index}_{key}": value for key, value in values.items()}


def _nic_variables(
    index: int, nic: NicX, hvparams: Mapping[str, Any]
) -> dict[str, str]:
    mode, link = nic.nicparams.get("mode", ""), _text(nic.nicparams.get("link"))
    values = {
        "MAC": nic.mac,
        "UUID": nic.uuid,
        "MODE": mode,
        "LINK": link,
    }
    values |= _given(NAME=nic.name, IP=nic.ip)
    if mode == "bridged":
        values["BRIDGE"] = link
    if "nic_type" in hvparams:
        values["FRONTEND_TYPE"] = _text(hvparams["nic_type"])
    if nic.netinfo is not None:
        values |= nic.netinfo.environment()
    return {f"NIC_{index}_{key}": value for key, value in values.items()}
