"""Parameters of containers, chroots and pretended guests."""

from typing import Final

from ganeti.base.constants.parameters import forms
from ganeti.base.constants.parameters.hvparams.row import HvParam

#: Parameters of ``chroot``.
CHROOT: Final[dict[str, HvParam]] = {
    "init_script": HvParam(
        "string",
        "/ganeti-chroot",
        True,
        "absolute normalised path (inside the chroot)",
        False,
        "script run inside the chroot",
        form=forms.INSIDE,
        root=forms.ANY,
    ),
}

#: Parameters of ``fake``.
FAKE: Final[dict[str, HvParam]] = {
    "migration_mode": HvParam(
        "string",
        "live",
        True,
        ("live", "non-live"),
        True,
        "kind of migration unless the command chooses another: live or with a pause",
    ),
}

#: Parameters of ``lxc``.
LXC: Final[dict[str, HvParam]] = {
    "cpu_mask": HvParam(
        "string",
        "",
        False,
        "one CPU mask such as 0-3,5",
        False,
        "physical CPUs that the virtual CPUs may use, per virtual CPU separated by colons",
        form=forms.LINE,
    ),
    "devices": HvParam(
        "string",
        "c 1:3 rw,c 1:5 rw,c 1:7 rw,c 1:8 rw,c 1:9 rw,c 1:10 rw,c 5:0 rw,c 5:1 rw,c 5:2 rw,c 136:* rw",
        False,
        None,
        False,
        "device nodes that the container may use, separated by commas",
        form=forms.DEVICES,
        root=forms.ANY,
    ),
    "drop_capabilities": HvParam(
        "string",
        "mac_override,sys_boot,sys_module,sys_time,sys_admin",
        False,
        None,
        False,
        "capabilities to drop, comma separated",
        form=forms.DROPPED,
        root=forms.EVEN_EMPTY,
    ),
    "extra_cgroups": HvParam(
        "string",
        "",
        False,
        None,
        False,
        "further cgroup subsystems to mount",
        form=forms.CONTROLLERS,
        root=forms.ANY,
    ),
    "extra_config": HvParam(
        "string",
        "",
        False,
        None,
        False,
        "extra container config lines, comma separated",
        form=forms.SETTINGS,
        root=forms.ANY,
    ),
    "num_ttys": HvParam("int", 6, True, ">= 0", False, "consoles in the container"),
    "startup_timeout": HvParam(
        "int", 30, False, ">= 0", False, "seconds to wait for start"
    ),
}
