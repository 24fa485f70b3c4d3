"""A real guest for machines below Xen: the kernel of the lab, and an initial archive.

Its system is busybox. Where it has a disk, it writes a line of 512 bytes to its beginning
about ten times a second: the number of its start, which is random, and a counter in its
memory. So the disk shows whether it went on or was started again. It hears the requests
of Xen to shut down and to reboot, as distributions do.
"""

import base64
import pathlib
import shutil
import tempfile

from lab import initramfs
from lab.product import PACKAGES, check

#: Places on the machines.
KERNEL = "/boot/vmlinuz-guest"
ARCHIVE = "/boot/initrd-guest"
_MODULES = ("xen-blkfront", "xen-netfront")
_START = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module; done
ifconfig lo up
[ ! -e /sys/class/net/eth0 ] || ifconfig eth0 up
start=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
echo "$start" > /start
echo "GUEST STARTED $start"
"""
#: Its memory is that of the shell; the file descriptor of the disk stays open.
_WRITER = """#!/bin/sh
read -r start < /start
disk=
for _ in 1 2 3 4 5 6 7 8 9 10; do
  for name in xvda sda; do [ ! -b /dev/$name ] || disk=/dev/$name; done
  [ -z "$disk" ] || break
  sleep 1
done
number=0
while :; do
  number=$((number + 1))
  if [ -n "$disk" ]; then
    printf '%-511s\\n' "$start $number" | dd of=$disk bs=512 count=1 oflag=direct conv=notrunc 2> /dev/null
  fi
  sleep 0.1
done
"""
_TABLE = """::sysinit:/start.sh
::respawn:/writer.sh
hvc0::respawn:/bin/sh
::shutdown:/stop.sh
::ctrlaltdel:/sbin/reboot
"""
_STOP = """#!/bin/sh
echo "GUEST STOPS"
"""


def files():
    """Return the bytes of the kernel and of the initial archive."""
    kernel, release = initramfs.kernel()
    modules = PACKAGES / "usr" / "lib" / "modules" / release
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for folder in ("bin", "sbin", "etc", "modules", "proc", "sys", "dev", "tmp"):
            (root / folder).mkdir()
        shutil.copy("/bin/busybox", root / "bin" / "busybox")
        for applet in check("/bin/busybox", "--list").split():
            folder = "sbin" if applet in {"init", "poweroff", "reboot"} else "bin"
            if applet != "busybox":
                (root / folder / applet).symlink_to("/bin/busybox")
        (root / "init").symlink_to("/bin/busybox")
        texts = {"start.sh": _START, "writer.sh": _WRITER, "stop.sh": _STOP}
        for path, text in texts.items():
            (root / path).write_text(text)
            (root / path).chmod(0o755)
        (root / "etc" / "inittab").write_text(_TABLE)
        order = initramfs.in_order(modules, _MODULES)
        for path in order:
            shutil.copy(path, root / "modules")
        names = "".join(f"{path.name}\n" for path in order)
        (root / "modules" / "order").write_text(names)
        return kernel.read_bytes(), initramfs.packed(root)


def install(machines, node):
    """Put kernel and archive on a machine."""
    for path, content in zip((KERNEL, ARCHIVE), files(), strict=True):
        text = base64.b64encode(content).decode()
        machines.check("sh", "-c", f"base64 -d > {path}", node=node, stdin=text)
