"""KVM guests under QEMU.

`driver` is the driver; `argv`, `devices` and `display` build command lines and are
pure; `launch`, `migrate` and `hotplug` act on emulators; `qmp` talks to them; `taps`
makes NICs; `files` and `runtime` are what is kept on the node.
"""

from ganeti.hypervisor.kvm.driver import KvmHypervisor

__all__ = ["KvmHypervisor"]
