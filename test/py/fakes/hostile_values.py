"""Hostile values of parameters and addresses: refused, or one unsplit argument.

A target as those of `fakes.fuzz`. A value goes through the checks of a request, and also
straight into the builders, as a record of an earlier release would. The emulator's and
Xen's way to split options is repeated here.
"""

import re

import msgspec

from fakes import guests, nodes, xen_guests
from ganeti.base import errors, pathutils
from ganeti.base.constants.parameters import hvparams
from ganeti.base.net import ip
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor import lxc as driver
from ganeti.node.hypervisor.kvm import argv
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.xen import config as xen
from ganeti.operations.parameters import typed_params

PIECES = (
    *(",", ",,", ";", ":", "=", "|", "&", " ", "\t", "%", "/", "..", "-", "^", "~"),
    *("\n", "\r", "\0", "\x1b[2J", "\x7f", "\u2028", "\u202e", "\ud800", "é", "\uff10"),
    *("'", '"', "`", "\\", "$(id)", "${HOME}", "`id`", "%lo", "%lo,unix=on,addr=N"),
    *("%n", "{}", "unix=on", "addr=/N", "script=/x", "file=/etc/shadow", "usb-host"),
    *("vif = x", "lxc.hook.pre-start=/x", "../../x", "-x", "--", "default", "none"),
)
STARTS = (
    *("", "a", "lo", "fe80::1", "::", "127.0.0.1", "/srv/x", "/", "de", "hda", "0-3"),
    *("std", "pc", "host", "http://x/", "c 1:3 rw", "sys_time", "a=/srv/a", "ro"),
)
#: Names of parameters that are lists of options by definition; others who may set them.
LISTS = {"cpu_type", "kvm_extra", "machine_version", "soundhw", "usb_devices"}
LISTS |= {"devices", "drop_capabilities", "extra_config", "extra_cgroups", "pci_pass"}
ROWS = [
    (kind, name)
    for kind, table in hvparams.HYPERVISOR.items()
    for name, row in table.items()
    if "string" in row.type
]
FILES = Files(pathutils.Paths("/v/n1", "n1"), "web1")
FACTS = argv.EmulatorFacts("pc-9.9", {})
#: Options whose value the emulator does not split.
WHOLE = {"-append", "-D", "-initrd", "-k", "-kernel", "-mem-path", "-pidfile"}
#: Options without a value.
ALONE = {"-daemonize", "-mem-prealloc", "-no-reboot", "-no-user-config", "-nodefaults"}
ALONE |= {"-usb"}
#: With these, more of the parameters get into the command line.
DISPLAYS = (
    {"vnc_bind_address": "::", "vnc_tls": True, "vnc_x509_path": "/p"},
    {"spice_bind": "::", "spice_use_tls": True},
)


def hostile(chance):
    """Return a text with pieces that have a meaning to other programs."""
    text = chance.choice(STARTS)
    for _ in range(chance.randint(1, 4)):
        place = chance.randint(0, len(text))
        text = text[:place] + chance.choice(PIECES) + text[place:]
    return text * chance.choice((1, 1, 1, 1, 1, 500))


def split(option):
    """Return the keys of an option as the emulator reads it; ``,,`` is a comma."""
    parts = option.replace(",,", "\0").split(",")
    return [part.partition("=")[0] for part in parts[1:]]


def kvm_lines(params):
    wire = guests.kvm_instance("web1", guests.kvm_params(**params))
    made = msgspec.convert({**wire, "network_port": 11005}, InstanceX)
    args = iter(argv.build(made, FILES, FACTS)[1:])
    lines = []
    for arg in args:
        value = "" if arg in ALONE else next(args, "")
        lines.append([arg] if arg in WHOLE else [arg, *split(value)])
    return lines


def xen_lines(kind, params):
    text = xen.build(
        xen_guests.instance(kind, **params), [xen_guests.disk()], script="/s"
    )
    return [line.partition(" = ")[0] for line in text.split("\n")]


def lxc_lines(params):
    table = hvparams.HYPERVISOR["lxc"]
    defaults = {name: row.default for name, row in table.items()}
    wire = nodes.instance(hypervisor="lxc", disks=1, hvparams=defaults | params)
    text = driver.build_config(
        msgspec.convert(wire, InstanceX), root="/r", mount=["m"], console_log="/c"
    )
    return [line.partition(" = ")[0] for line in text.split("\n")]


def built(kind, params):
    """Return what a program reads, without values."""
    if kind == "kvm":
        return [kvm_lines(display | params) for display in DISPLAYS]
    if kind == "lxc":
        return lxc_lines(params)
    return xen_lines(kind, params) if kind.startswith("xen") else None


class Values:
    """Every text of a hypervisor, and addresses."""

    name = "values"

    def __init__(self):
        self.accepted = set()

    def step(self, chance):
        kind, name = chance.choice(ROWS)
        value = hostile(chance)
        self._request(kind, name, value)
        self._build(kind, name, value)
        self._address(value, chance)

    def _request(self, kind, name, value):
        row = hvparams.HYPERVISOR[kind][name]
        defaults = {n: r.default for n, r in hvparams.HYPERVISOR[kind].items()}
        try:
            given = typed_params.hypervisor(
                kind, {name: value}, allow_cluster_only=True
            )
            typed_params.check_hypervisor_syntax(kind, defaults | given)
        except errors.GenericError as err:
            (text, *_) = err.args
            assert text.isprintable(), ascii(text)
            assert len(text) < 1500
            assert name in text or kind == "kvm", text
            return
        assert value.isprintable()
        assert row.form is not None or value in row.allowed or "boot" in name
        self.accepted.add((kind, name))

    def _build(self, kind, name, value):
        # A text of the same kind: what is built must have the same parts.
        plain = "/plain" if value.startswith("/") else "plain"
        try:
            actual = built(kind, {name: value})
        except (errors.GenericError, KeyError):
            return
        if name in LISTS or actual is None:
            return
        try:
            wanted = built(kind, {name: plain})
        except (errors.GenericError, KeyError):
            return
        assert actual == wanted, (kind, name, value)

    def _address(self, value, chance):
        for scope_ok in (False, True):
            text = chance.choice(("fe80::1%", "", "::1", "192.0.2.1")) + value
            try:
                parsed = str(ip.parse(text, scope_ok=scope_ok))
            except ValueError:
                continue
            assert re.fullmatch(r"[0-9a-f:.]+(%[A-Za-z0-9_.-]{1,15})?", parsed), text
            assert scope_ok or "%" not in parsed

    def close(self):
        pass
