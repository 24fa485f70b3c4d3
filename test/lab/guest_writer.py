"""A program in place of a guest: it writes to a disk, and knows what was acknowledged.

It writes 1, 2, 3... one after the other, each to a place of its own, and records each
number when the disk has acknowledged it. `Writer.require_all` reads all places. While an
instance moves, its writer is stopped and goes on elsewhere, as a guest does.
"""

import json

#: Arguments: device, name, first number. Ends when a file appears.
_WRITE = """
import os, sys, time
device, name, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
disk = os.open(device, os.O_WRONLY | os.O_SYNC)
with open(f"/run/{name}.acknowledged", "w", buffering=1) as out:
    while not os.path.exists(f"/run/{name}.stop"):
        os.pwrite(disk, b"%-512d" % number, 512 * number)
        print(number, file=out)
        number += 1
        # Without a pause the kernel leaves almost nothing of the disk to a mirroring.
        time.sleep(0.05)
"""
#: Arguments: device, last number. Prints the numbers that are not in their places.
_READ = """
import json, sys
with open(sys.argv[1], "rb") as src:
    src.seek(512)
    found = [src.read(512).strip() for _number in range(int(sys.argv[2]))]
print(json.dumps([n for n, text in enumerate(found, 1) if text != str(n).encode()]))
"""


class Writer:
    """The writer of one instance.

    Attributes:
        last: number of the last acknowledged write.
    """

    def __init__(self, machines, name):
        self._machines, self._name, self._node = machines, name, None
        self.last = 0

    def _shell(self, script):
        return self._machines.check("sh", "-c", script, node=self._node)

    def start(self, node, device):
        """Go on writing, on a machine where the device is primary."""
        self._node = node
        run = f"/run/{self._name}"
        self._shell(f"cat > {run}.py <<'E'\n{_WRITE}\nE\nrm -f {run}.stop")
        self._shell(
            f"python3 {run}.py {device} {self._name} {self.last + 1} > {run}.log 2>&1 &"
            f" echo $! > {run}.pid; until [ -s {run}.acknowledged ]; do sleep 0.1; done"
        )

    def acknowledged(self):
        """Return the number of the latest acknowledged write; it goes on."""
        return int(self._shell(f"tail -n 1 /run/{self._name}.acknowledged"))

    def stop(self):
        """End it; no write may have failed."""
        run = f"/run/{self._name}"
        self._shell(f"touch {run}.stop; tail --pid=$(cat {run}.pid) -f /dev/null")
        assert self._shell(f"cat {run}.log") == ""
        self.last = self.acknowledged()

    def require_all(self, node, device):
        """Fail unless a machine has every acknowledged write."""
        argv = ("python3", "-c", _READ, device, str(self.last))
        assert self.last > 0
        assert json.loads(self._machines.check(*argv, node=node)) == []
