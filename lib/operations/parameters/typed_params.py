"""Typed parameters of requests: texts and numbers converted to the tables' types.

For hypervisor, backend, NIC, node and disk parameters, at cluster, group, node and
instance level. Checks on nodes (files, bridges) do not belong here.
"""

import math
import os.path
from collections.abc import Callable, Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.parameters import forms, hvparams, params
from ganeti.base.constants.protocols import oob
from ganeti.base.constants.protocols import os as os_constants
from ganeti.base.net import netutils
from ganeti.base.text import control_chars, hv_syntax, messages, units

_OS_IMAGE_SCHEMES: Final = ("http://", "https://", "ftp://")

#: Place that explains every parameter.
_ALL_NAMES: Final = "; 'gnt-cluster modify --help-parameters' explains all"
#: Value that removes an override, in any request.
DEFAULT: Final = "default"
_LAST_PORT: Final = 65535
#: Value that stands for an empty optional text.
NONE: Final = "none"

#: The only texts for truth values, in any case; nothing is false, too.
_TRUTHS: Final = {"true": True, "false": False, "": False}


def coerce(value: Any, kind: str, what: str) -> Any:
    """Return a parameter value in its type.

    Args:
        value: from a request; texts are accepted for every type.
        kind: ``string``, ``maybe-string``, ``bool``, ``int``, ``float`` or ``size``.
        what: name of the parameter, such as ``hypervisor parameter kvm/acpi``.

    Raises:
        TypeEnforcementError: the value does not fit; contains wanted and found.
    """
    if kind == "maybe-string" and value is None:
        return None
    if kind in ("string", "maybe-string"):
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return str(value)
        if value is None or value is False:
            return ""
        raise _wrong_type(what, "a text", value)
    try:
        return _NUMBERS[kind](value)
    except (ValueError, TypeError, OverflowError, errors.UnitParseError) as err:
        raise _wrong_type(what, _WORDS[kind], value) from err


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    text = value.lower() if isinstance(value, str) else repr(value)
    if text not in _TRUTHS:
        raise ValueError(value)
    return _TRUTHS[text]


def _int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and value % 1):
        raise ValueError(value)
    number = units.integer(value.strip()) if isinstance(value, str) else int(value)
    if number is None:
        raise ValueError(value)
    return number


def _float(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):  # JSON has no form for it
        raise ValueError(value)
    return number


def _size(value: Any) -> int:
    if isinstance(value, str):
        return units.parse_size_mib(value)
    return _int(value)


_NUMBERS: Final[dict[str, Callable[[Any], Any]]] = {
    "bool": _bool,
    "int": _int,
    "float": _float,
    "size": _size,
}
_WORDS: Final = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "size": "a size such as 512 or 2g",
}


def _wrong_type(what: str, wanted: str, value: Any) -> errors.TypeEnforcementError:
    return errors.TypeEnforcementError(f"{what}: wanted {wanted}, found {value!r:.200}")


def _wrong(what: str, wanted: str, value: Any) -> errors.OpPrereqError:
    return errors.OpPrereqError(
        f"{what}: wanted {wanted}, found {value!r:.200}", ecodes.ECODE_INVAL
    )


def typed(
    given: Mapping[str, Any],
    table: Mapping[str, Any],
    what: str,
    *,
    allow_default: bool = False,
) -> dict[str, Any]:
    """Return parameters converted to the types of a table.

    Args:
        given: from a request.
        table: name -> row with a ``type``, see `constants.parameters.params`.
        what: kind of the parameters for messages, such as ``backend parameter``.
        allow_default: keep the value `DEFAULT`, which removes an override.

    Raises:
        TypeEnforcementError: unknown name or wrong type.
    """
    out = {}
    for name, value in given.items():
        row = table.get(name)
        if row is None:
            raise errors.TypeEnforcementError(
                f"{what} {name}: unknown; {messages.known_names(name, table)}"
                f"{_ALL_NAMES}"
            )
        if allow_default and value == DEFAULT:
            out[name] = DEFAULT
        else:
            out[name] = coerce(value, row.type, f"{what} {name}")
            _check_form(out[name], row.form, f"{what} {name}")
    return out


def _check_form(value: Any, form: forms.Form | None, what: str) -> None:
    if form is None or not isinstance(value, str) or value in ("", NONE):
        return
    for bad in hv_syntax.bad_parts(value, form):
        raise _wrong(what, form.wanted, f"{bad:.200}")


def merge(
    base: Mapping[str, Any], changes: Mapping[str, Any], *, none_removes: bool = False
) -> dict[str, Any]:
    """Return overrides after changes; the value `DEFAULT` removes one."""
    out = dict(base)
    for name, value in changes.items():
        if value == DEFAULT or (none_removes and value is None):
            out.pop(name, None)
        else:
            out[name] = value
    return out


def backend(given: Mapping[str, Any], *, allow_default: bool = False) -> dict[str, Any]:
    """Return typed backend parameters; ``memory`` sets minimum and maximum.

    Raises:
        TypeEnforcementError: unknown name or wrong type.
        OpPrereqError: value out of range.
    """
    what = "backend parameter"
    out = typed(given, params.BACKEND, what, allow_default=allow_default)
    if "memory" in out:
        out["minmem"] = out["maxmem"] = out.pop("memory")
    for name in ("minmem", "maxmem", "vcpus", "spindle_use"):
        value = out.get(name)
        if value is not None and value != DEFAULT and value < 1:
            raise _wrong(f"{what} {name}", "1 or more", value)
    return out


def node(given: Mapping[str, Any], *, allow_default: bool = False) -> dict[str, Any]:
    """Return typed node parameters.

    Raises:
        TypeEnforcementError: unknown name or wrong type.
        OpPrereqError: value out of range.
    """
    what = "node parameter"
    out = typed(given, params.NODE, what, allow_default=allow_default)
    port = out.get("ssh_port", DEFAULT)
    if port != DEFAULT and not 1 <= port <= _LAST_PORT:
        raise _wrong(f"{what} ssh_port", f"a port from 1 to {_LAST_PORT}", port)
    program = out.get("oob_program", DEFAULT)
    if program not in (DEFAULT, "", oob.OOB_OPT_OUT) and not os.path.isabs(program):
        wanted = f"an absolute path, {oob.OOB_OPT_OUT} for no helper, or nothing"
        raise _wrong(f"{what} oob_program", wanted, program)
    for name in ("spindle_count", "cpu_speed"):
        value = out.get(name, DEFAULT)
        if value != DEFAULT and value < 0:
            raise _wrong(f"{what} {name}", "0 or more", value)
    return out


def check_osparams(what: str, *groups: Mapping[str, Any] | None) -> None:
    """Refuse OS parameters that no script can get, and images at unknown places.

    Scripts get them as environment variables.

    Args:
        what: beginning of the error message.
        groups: requested OS parameters, if any.

    Raises:
        OpPrereqError: contains the name, or the place of the image.
    """
    for values in groups:
        for name, value in (values or {}).items():
            if not name or "=" in name or any(map(control_chars.is_control, name)):
                problem = "wanted a name without '=' and control characters"
            elif "\0" in str(value):
                problem = "wanted a value without NUL characters"
            else:
                continue
            raise errors.OpPrereqError(
                f"{what}: OS parameter {control_chars.escape(name)!r}: {problem}",
                ecodes.ECODE_INVAL,
            )
        image = (values or {}).get(os_constants.OS_IMAGE_PARAMETER)
        if image not in (None, "", DEFAULT):
            _check_os_image(str(image), what)


def _check_os_image(text: str, what: str) -> None:
    if not text.startswith(("/", *_OS_IMAGE_SCHEMES)):
        raise errors.OpPrereqError(
            f"{what}: OS parameter {os_constants.OS_IMAGE_PARAMETER}: wanted an"
            f" absolute path or a URL ({', '.join(_OS_IMAGE_SCHEMES)}),"
            f" found {text!r}",
            ecodes.ECODE_INVAL,
        )


def check_memory_order(filled: Mapping[str, Any], what: str) -> None:
    """Refuse a minimum above the maximum.

    Raises:
        OpPrereqError: contains both values.
    """
    if filled["minmem"] > filled["maxmem"]:
        raise errors.OpPrereqError(
            f"{what}: minimum memory {filled['minmem']} MiB is above the maximum"
            f" {filled['maxmem']} MiB",
            ecodes.ECODE_INVAL,
        )


def hypervisor(
    name: str,
    given: Mapping[str, Any],
    *,
    allow_default: bool = False,
    allow_cluster_only: bool = False,
) -> dict[str, Any]:
    """Return typed hypervisor parameters.

    Raises:
        TypeEnforcementError: unknown name or wrong type.
        OpPrereqError: a parameter that only the cluster has.
    """
    table = hvparams.HYPERVISOR[name]
    out = typed(
        given, table, f"hypervisor {name}: parameter", allow_default=allow_default
    )
    if not allow_cluster_only:
        for key in sorted(out):
            if table[key].cluster_only:
                raise errors.OpPrereqError(
                    f"hypervisor {name}: parameter {key} can only be set for the"
                    " whole cluster",
                    ecodes.ECODE_INVAL,
                )
    return out


def check_hypervisor_syntax(name: str, filled: Mapping[str, Any]) -> None:
    """Check a complete set of hypervisor parameters as far as the master can.

    Raises:
        OpPrereqError: a required parameter is empty, or a value is not allowed.
    """
    for key, row in hvparams.HYPERVISOR[name].items():
        value, what = filled.get(key), f"hypervisor {name}: parameter {key}"
        if value in (None, ""):
            if row.required:
                raise _wrong(what, "a value", value)
        elif row.required or value != row.default:
            _check_allowed(row.allowed, value, what)
    try:
        hv_syntax.check(name, filled)
    except errors.ParseError as err:
        raise errors.OpPrereqError(str(err), ecodes.ECODE_INVAL) from err
    _check_kvm_combinations(name, filled)


def _check_allowed(allowed: Any, value: Any, what: str) -> None:
    if isinstance(allowed, tuple) and len(allowed) and isinstance(value, str):
        parts = value.split(",") if what.endswith("boot_order") else [value]
        for part in parts:
            if part not in allowed:
                raise _wrong(what, "one of " + ", ".join(map(str, allowed)), value)
    elif allowed == ">= 0" and value < 0:
        raise _wrong(what, "0 or more", value)
    elif isinstance(allowed, str) and ".." in allowed and isinstance(value, int):
        low, high = (int(part) for part in allowed.split(".."))
        if not low <= value <= high:
            raise _wrong(what, f"{low} to {high}", value)


def _check_kvm_combinations(name: str, filled: Mapping[str, Any]) -> None:
    if name != "kvm":
        return
    _check_display_address("vnc_bind_address", filled, directory_ok=True)
    _check_display_address("spice_bind", filled, directory_ok=False)
    rules = (
        (
            filled["kernel_path"] and not filled["root_path"],
            "kernel_path needs root_path",
        ),
        (
            filled["vnc_bind_address"] and filled["spice_bind"],
            "vnc_bind_address and spice_bind exclude each other",
        ),
        (
            filled["vnc_x509_verify"] and not filled["vnc_x509_path"],
            "vnc_x509_verify needs vnc_x509_path",
        ),
        (
            filled["security_model"] == "user" and not filled["security_domain"],
            "security_model user needs security_domain",
        ),
        (
            filled["security_model"] != "user" and filled["security_domain"],
            "security_domain needs security_model user",
        ),
        (
            "cdrom" in filled["boot_order"] and not filled["cdrom_image_path"],
            "boot_order cdrom needs cdrom_image_path",
        ),
        (
            filled["disk_aio"] == "native" and filled["disk_cache"] != "none",
            "disk_aio native needs disk_cache none",
        ),
    )
    for broken, text in rules:
        if broken:
            raise errors.OpPrereqError(f"hypervisor kvm: {text}", ecodes.ECODE_INVAL)


def _check_display_address(
    key: str, filled: Mapping[str, Any], *, directory_ok: bool
) -> None:
    value = filled[key]
    if not value or (directory_ok and os.path.isabs(value)):
        return
    if not netutils.is_bind_target(value):
        wanted = "an IP address, the name of a network interface"
        wanted += " or an absolute directory" if directory_ok else ""
        raise _wrong(f"hypervisor kvm: parameter {key}", wanted, value)
