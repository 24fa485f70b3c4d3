"""OS definitions on this node: directories of scripts that install instances.

This module finds and validates them; `os_scripts` runs their scripts. Specified in
os-and-extstorage, section 1.
"""

import dataclasses
import os
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.constants.protocols import os as os_constants
from ganeti.base.filesystem import script_directories as directories

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
    except directories.DefectError as err:
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
        for name in directories.subdirectories(root)
    ]


def _diagnose_one(name: str, path: str) -> list[Any]:
    try:
        definition = _read(name, path)
    except directories.DefectError as err:
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
            directories.lines(path, os_constants.OS_VARIANTS_FILE, required=False)
        )
    if newest >= _API_PARAMETERS:
        parameters = directories.parameters(path, os_constants.OS_PARAMETERS_FILE)
    return OsDefinition(
        name, path, versions, variants, parameters, _scripts(path, newest)
    )


def _api_versions(path: str) -> tuple[int, ...]:
    lines = directories.lines(path, os_constants.OS_API_FILE, required=True)
    try:
        versions = {int(line) for line in lines}
    except ValueError:
        raise directories.DefectError(
            f"{os_constants.OS_API_FILE}: wanted one number per line, found {lines}"
        ) from None
    supported = sorted(versions & set(os_constants.OS_API_VERSIONS))
    if not supported:
        raise directories.DefectError(
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
        raise directories.DefectError(f"script {' or '.join(either)}: not found")
    return {name: directories.script(path, name) for name in required + present}
