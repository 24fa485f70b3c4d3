"""Displays of a guest; pure, interface addresses are arguments."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.parameters.hvparams import VNC_BASE_PORT
from ganeti.base.net import netutils
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor.base import ConsolePlace
from ganeti.node.hypervisor.kvm.devices import options
from ganeti.node.hypervisor.kvm.files import Files

_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})
#: Credentials of VNC.
_VNC_TLS: Final = "vnctls0"
#: SPICE options that are passed on when set: parameter, option.
_SPICE_OPTIONS: Final = (
    ("spice_image_compression", "image-compression"),
    ("spice_jpeg_wan_compression", "jpeg-wan-compression"),
    ("spice_zlib_glz_wan_compression", "zlib-glz-wan-compression"),
    ("spice_streaming_video", "streaming-video"),
)


def bound_interface(hvparams: Mapping[str, Any]) -> str | None:
    """Return the value of the display parameter that names an interface, or None."""
    value = hvparams.get("vnc_bind_address") or hvparams.get("spice_bind") or ""
    is_interface = value and not value.startswith("/")
    return (
        value
        if is_interface and not netutils.is_address(value, scope_ok=True)
        else None
    )


def arguments(
    instance: InstanceX, files: Files, addresses: Mapping[str, str]
) -> list[str]:
    """Return the display arguments of a guest.

    Args:
        instance: the instance's record.
        files: paths of its files.
        addresses: first address of the interface that `bound_interface` names.

    Raises:
        HypervisorError: VNC and SPICE are both configured, the instance has no port,
            or the path of its socket is too long.
    """
    hvp = instance.hvparams
    keymap = ["-k", hvp["keymap"]] if hvp.get("keymap") else []
    if hvp.get("vnc_bind_address") and hvp.get("spice_bind"):
        raise errors.HypervisorError(
            f"instance {instance.name}: vnc_bind_address and spice_bind exclude each"
            " other"
        )
    if hvp.get("vnc_bind_address"):
        return _vnc(instance, files, addresses) + _vga(hvp, "std") + keymap
    if hvp.get("spice_bind"):
        return _spice(instance, files, addresses) + _vga(hvp, "qxl") + keymap
    return ["-display", "none", *_vga(hvp, None), *keymap]


def _vga(hvp: Mapping[str, Any], default: str | None) -> list[str]:
    name = hvp.get("vga") or default
    return ["-vga", options.value(name)] if name else []


def _port(instance: InstanceX) -> int:
    if instance.network_port is None:
        raise errors.HypervisorError(
            f"instance {instance.name}: a display needs a network port, but the"
            " instance has none"
        )
    return instance.network_port


def _vnc(instance: InstanceX, files: Files, addresses: Mapping[str, str]) -> list[str]:
    hvp = instance.hvparams
    bind: str = hvp["vnc_bind_address"]
    if bind.startswith("/"):
        where = f"unix:{files.checked(f'{bind}/{instance.name}.vnc')}"
    else:
        address = addresses.get(bind, bind)
        shown = "" if address in _WILDCARDS else address
        number = _port(instance) - VNC_BASE_PORT
        where = f"{_bracketed(shown)}:{number}"
    args, credentials = _vnc_tls(hvp) if hvp.get("vnc_tls") else ([], None)
    password = "on" if hvp.get("vnc_password_file") else None
    vnc = options.join(where, tls_creds=credentials, password=password)
    return [*args, "-vnc", vnc]


#: The first part of an option; two commas are one in a value.
_FIRST_PART: Final = re.compile(r"(?:[^,]|,,)*")


def vnc_place(argv: Sequence[str]) -> ConsolePlace | None:
    """Return where a guest that was started with these arguments has VNC on its node.

    Guests of earlier releases have the same option. None without VNC.
    """
    values = [value for word, value in itertools.pairwise(argv) if word == "-vnc"]
    first = _FIRST_PART.findall(values[-1])[0].replace(",,", ",") if values else ""
    if first.startswith("unix:"):
        return ConsolePlace(path=first.removeprefix("unix:"))
    host, colon, number = first.rpartition(":")
    if not colon or not number.isdecimal():
        return None
    host = host.strip("[]")
    if not host or host in _WILDCARDS:
        host = "::1" if host == "::" else "127.0.0.1"
    return ConsolePlace(host=host, port=VNC_BASE_PORT + int(number))


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _vnc_tls(hvp: Mapping[str, Any]) -> tuple[list[str], str | None]:
    path = hvp.get("vnc_x509_path") or None
    creds = options.join(
        f"tls-creds-{'x509' if path else 'anon'}",
        id=_VNC_TLS,
        dir=path,
        endpoint="server",
        verify_peer=("yes" if hvp.get("vnc_x509_verify") else "no") if path else None,
    )
    return ["-object", creds], _VNC_TLS


def _spice(
    instance: InstanceX, files: Files, addresses: Mapping[str, str]
) -> list[str]:
    hvp = instance.hvparams
    address = addresses.get(hvp["spice_bind"], hvp["spice_bind"])
    port = "tls-port" if hvp.get("spice_use_tls") else "port"
    parts: dict[str, Any] = {"addr": address, port: _port(instance)}
    if hvp.get("spice_use_tls"):
        parts |= {
            "tls-ciphers": hvp["spice_tls_ciphers"],
            "x509-key-file": files.spice_pem,
            "x509-cert-file": files.spice_pem,
            "x509-cacert-file": files.spice_ca_pem,
        }
    if not hvp.get("spice_password_file"):
        # Without a password and without this, SPICE lets nobody in.
        parts["disable-ticketing"] = "on"
    if version := hvp.get("spice_ip_version"):
        parts[f"ipv{version}"] = "on"
    parts |= {word: hvp[key] for key, word in _SPICE_OPTIONS if hvp.get(key)}
    if not hvp.get("spice_playback_compression", True):
        parts["playback-compression"] = "off"
    agent = hvp.get("spice_use_vdagent", True)
    parts["agent-mouse"] = "on" if agent else "off"
    args = ["-spice", options.join(**parts)]
    if agent:
        args += [
            *("-device", "virtio-serial-pci,id=spice"),
            *("-chardev", "spicevmc,id=spicechannel0,name=vdagent"),
            *(
                "-device",
                "virtserialport,chardev=spicechannel0,name=com.redhat.spice.0",
            ),
        ]
    return args
