"""Names of hypervisors, and their parameters; those of KVM and Xen have modules."""

from typing import Final

from ganeti.base.constants.parameters import forms
from ganeti.base.constants.parameters.forms import Param
from ganeti.base.constants.parameters.hvparams.kvm import KVM
from ganeti.base.constants.parameters.hvparams.xen import XEN_HVM, XEN_PVM

#: Parameters of ``chroot``.
CHROOT: Final[dict[str, Param]] = {
    "init_script": Param(
        "string",
        "/ganeti-chroot",
        "script run inside the chroot",
        required=True,
        allowed="absolute normalised path (inside the chroot)",
        form=forms.INSIDE,
        root=forms.ANY,
    ),
}

#: Parameters of ``fake``.
FAKE: Final[dict[str, Param]] = {
    "migration_mode": KVM["migration_mode"],
}

#: Parameters of ``lxc``.
LXC: Final[dict[str, Param]] = {
    "cpu_mask": Param(
        "string",
        "",
        "physical CPUs that the virtual CPUs may use, per virtual CPU separated by colons",
        allowed="one CPU mask such as 0-3,5",
        form=forms.LINE,
    ),
    "devices": Param(
        "string",
        "c 1:3 rw,c 1:5 rw,c 1:7 rw,c 1:8 rw,c 1:9 rw,c 1:10 rw,c 5:0 rw,c 5:1 rw,c 5:2 rw,c 136:* rw",
        "device nodes that the container may use, separated by commas",
        form=forms.DEVICES,
        root=forms.ANY,
    ),
    "drop_capabilities": Param(
        "string",
        "mac_override,sys_boot,sys_module,sys_time,sys_admin",
        "capabilities to drop, comma separated",
        form=forms.DROPPED,
        root=forms.EVEN_EMPTY,
    ),
    "extra_cgroups": Param(
        "string",
        "",
        "further cgroup subsystems to mount",
        form=forms.CONTROLLERS,
        root=forms.ANY,
    ),
    "extra_config": Param(
        "string",
        "",
        "extra container config lines, comma separated",
        form=forms.SETTINGS,
        root=forms.ANY,
    ),
    "num_ttys": Param(
        "int", 6, "consoles in the container", required=True, allowed=">= 0"
    ),
    "startup_timeout": Param("int", 30, "seconds to wait for start", allowed=">= 0"),
}


#: Parameters by hypervisor.
HYPERVISOR: Final[dict[str, dict[str, Param]]] = {
    "chroot": CHROOT,
    "fake": FAKE,
    "kvm": KVM,
    "lxc": LXC,
    "xen-hvm": XEN_HVM,
    "xen-pvm": XEN_PVM,
}


HYPER_TYPES: Final = ("chroot", "fake", "kvm", "lxc", "xen-hvm", "xen-pvm")
VNC_BASE_PORT: Final = 5900
CPU_PINNING_ALL: Final = "all"
QEMU_PCI_SLOTS: Final = 32
#: Seconds.
HELPER_VM_STARTUP: Final = 300
#: Seconds.
HELPER_VM_SHUTDOWN: Final = 7200
