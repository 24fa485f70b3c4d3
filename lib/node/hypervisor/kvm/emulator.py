"""Facts about the emulator binary and the processors: version, machine, acceleration.

Hardware acceleration is measured, not assumed: a probe guest of one sector counts down
and must not be slower than under plain emulation. On some machines ``/dev/kvm`` opens,
but each instruction is extremely slow. The result is valid until the node's next boot.
"""

import logging
import os
import re
import tempfile
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.model import serializer
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm.devices import options
from ganeti.node.hypervisor.kvm.files import root_dir

_log = logging.getLogger(__name__)
#: A filter that the emulator must know, for a probe that starts no guest.
_SANDBOX_PROBE: Final = (
    "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
)
#: Time limit of an emulated probe guest, in seconds; it needs less than one.
_PROBE_TIMEOUT_S: Final = 20.0
#: Smallest limit of an accelerated probe, in seconds, and its multiple of the emulated
#: probe's time.
_PROBE_MIN_S: Final = 1.0
_PROBE_FACTOR: Final = 3.0
#: Boot sector: ``mov ecx, 1 << 24``; ``dec ecx``; ``jnz`` back; then ``mov al, 0x2a``;
#: ``out 0xf4, al``; ``hlt``; ``jmp`` to the halt. The device at port 0xf4 ends the
#: emulator with exit code 2 * 0x2a + 1.
_PROBE_CODE: Final = (
    b"\x66\xb9\x00\x00\x00\x01\x66\x49\x75\xfc\xb0\x2a\xe6\xf4\xf4\xeb\xfd"
)
_PROBE_EXIT: Final = 85
_KVM_DEVICE: Final = "/dev/kvm"


def version(effects: NodeEffects, binary: str) -> tuple[int, ...]:
    """Return the emulator's version.

    Raises:
        HypervisorError: the emulator cannot be run, or prints no version.
    """
    text = _run(effects, binary, "--version")
    match = re.search(r"version (\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise errors.HypervisorError(
            f"{binary}: no version number in its output {text[:80]!r}"
        )
    return tuple(int(part) for part in match.groups() if part is not None)


def problem(effects: NodeEffects, binary: str) -> str | None:
    """Return the reason why the emulator cannot be run, or None."""
    if not os.access(binary, os.X_OK):
        return f"emulator {binary}: not found or not executable"
    try:
        version(effects, binary)
    except errors.HypervisorError as err:
        return str(err)
    return None


def default_machine(effects: NodeEffects, binary: str) -> str:
    """Return the machine type that the emulator uses by default.

    Raises:
        HypervisorError: the emulator lists no default.
    """
    text = _run(effects, binary, "-machine", "help")
    match = re.search(r"^(\S+)\s.*\(default\)", text, re.MULTILINE)
    if match is None:
        raise errors.HypervisorError(f"{binary}: lists no default machine type")
    return match.group(1)


def machines(effects: NodeEffects, binary: str) -> frozenset[str]:
    """Return all machine types of the emulator.

    Raises:
        HypervisorError: the emulator cannot be run.
    """
    lines = _run(effects, binary, "-machine", "help").splitlines()[1:]
    return frozenset(line.split()[0] for line in lines if line.split())


def has_device(effects: NodeEffects, binary: str, device: str) -> bool:
    """Return whether the emulator was built with a device."""
    try:
        _run(effects, binary, "-device", f"{device},help")
    except errors.HypervisorError:
        return False
    return True


def vga_adapters(effects: NodeEffects, binary: str) -> list[str]:
    """Return the models of VGA adapters that the emulator was built with.

    Raises:
        HypervisorError: the emulator cannot be run.
    """
    text = _run(effects, binary, "-vga", "help")
    # Warnings are between the lines.
    return re.findall(r"^(\w+) ", text, re.MULTILINE)


def _run(effects: NodeEffects, binary: str, *args: str) -> str:
    try:
        result = effects.process.run([binary, *args], timeout_s=30)
    except errors.CommandError as err:
        raise errors.HypervisorError(str(err)) from err
    if result.failed:
        raise errors.HypervisorError(
            f"{binary} {' '.join(args)}: {result.reason}: {result.output.strip()[:200]}"
        )
    return result.output


def has_sandbox(effects: NodeEffects, binary: str) -> bool:
    """Return whether the emulator can filter its system calls.

    The result is kept until the binary changes.
    """
    verdict_file = f"{root_dir(effects.paths)}/sandbox"
    try:
        info = os.stat(binary)
    except OSError:
        return False
    key = {"binary": binary, "time": info.st_mtime_ns, "size": info.st_size}
    known = _read_verdict(verdict_file)
    if {name: known.get(name) for name in key} == key:
        return bool(known["works"])
    try:
        _run(effects, binary, "-sandbox", _SANDBOX_PROBE, "-machine", "help")
        works = True
    except errors.HypervisorError as err:
        _log.warning("guests run without a system call filter: %s", err)
        works = False
    _write_verdict(verdict_file, {**key, "works": works})
    return works


def _read_verdict(path: str) -> Mapping[str, Any]:
    """Return a result of an earlier probe, empty if there is none."""
    try:
        known = serializer.load(files.read_file(path, follow=False))
    except (OSError, errors.GenericError):
        return {}
    return known if isinstance(known, dict) else {}


def _write_verdict(path: str, record: Mapping[str, Any]) -> None:
    os.makedirs(os.path.dirname(path), mode=0o750, exist_ok=True)
    files.write_file(path, serializer.dump(record), mode=0o644)


def acceleration(effects: NodeEffects, binary: str, flag: str) -> str:
    """Return ``kvm`` or ``tcg``.

    Args:
        effects: effect interfaces of this node.
        binary: path of the emulator.
        flag: hvparam ``kvm_flag``: enabled, disabled, or empty to measure.
    """
    if flag == "enabled":
        return "kvm"
    if flag == "disabled":
        return "tcg"
    return "kvm" if _kvm_works(effects, binary) else "tcg"


def _kvm_works(effects: NodeEffects, binary: str) -> bool:
    if not os.access(_KVM_DEVICE, os.R_OK | os.W_OK):
        return False
    verdict_file = f"{root_dir(effects.paths)}/acceleration"
    this_boot = _boot_id()
    known = _read_verdict(verdict_file)
    if known.get("boot") == this_boot and known.get("binary") == binary:
        return bool(known["works"])
    works = _is_faster(effects, binary)
    _write_verdict(verdict_file, {"boot": this_boot, "binary": binary, "works": works})
    return works


def _boot_id() -> str:
    path = "/proc/sys/kernel/random/boot_id"
    return files.text_of(path, files.MAX_PROC).strip()


def _is_faster(effects: NodeEffects, binary: str) -> bool:
    """Return whether an accelerated guest is as fast as an emulated one."""
    emulated_s = probe(effects, binary, "tcg", _PROBE_TIMEOUT_S)
    # Without a time to compare with, any end of the other probe counts.
    if emulated_s is None:
        return probe(effects, binary, "kvm", _PROBE_TIMEOUT_S) is not None
    limit_s = max(_PROBE_MIN_S, _PROBE_FACTOR * emulated_s)
    return probe(effects, binary, "kvm", limit_s) is not None


def probe(
    effects: NodeEffects, binary: str, accel: str, limit_s: float
) -> float | None:
    """Run a guest of one sector; return its seconds, None after the timeout."""
    begin = effects.clock.monotonic()
    with tempfile.NamedTemporaryFile(prefix="ganeti-probe-") as image:
        image.write(_PROBE_CODE.ljust(510, b"\0") + b"\x55\xaa")
        image.flush()
        argv = [
            *(binary, "-accel", accel, "-m", "16", "-display", "none"),
            *("-nodefaults", "-no-user-config", "-net", "none"),
            *("-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"),
            *("-drive", options.join(if_="ide", format="raw", file=image.name)),
        ]
        try:
            result = effects.process.run(argv, timeout_s=limit_s)
        except errors.CommandError:
            return None
    if result.code != _PROBE_EXIT:
        return None
    return effects.clock.monotonic() - begin
