"""All machines, and their record ``lab.json`` in the directory of the lab."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess

from lab import initramfs, network, product
from lab.machine import Machine
from lab.product import STORED, LabError, check

DIRECTORY = STORED / "machines"
_GUEST = pathlib.Path(__file__).parent / "guest"
#: Name and address of the cluster that tests make.
CLUSTER = "cluster.lab.test"
CLUSTER_ADDRESS = f"{network.NETWORK}.200"
#: Names of instances that tests make, with their addresses.
INSTANCES = {f"web{n}.lab.test": f"{network.NETWORK}.{100 + n}" for n in range(1, 20)}
#: A start under the emulator takes seconds; on a busy machine, minutes.
START_S = 300
#: Ends daemons, removes the group on the devices and all of a cluster.
_EMPTY = (
    "[ ! -e /var/lib/ganeti/server.pem ] || /usr/lib/ganeti/daemon-util stop-all;"
    " vgremove -q -f -y xenvg; wipefs -qaf {};"
    " rm -rf /var/lib/ganeti/* /etc/ganeti/* /srv/ganeti/*; sync -f /var/lib/ganeti"
)


class Lab:
    """The lab in one directory.

    Raises:
        LabError: there is none.
    """

    def __init__(self, directory=DIRECTORY):
        self.directory = pathlib.Path(directory).resolve()
        try:
            self.record = json.loads((self.directory / "lab.json").read_text())
        except FileNotFoundError as err:
            raise LabError(
                f"no lab in {self.directory}: tools/lab up makes one"
            ) from err
        self.machines = [self._machine(n) for n in range(1, self.record["count"] + 1)]

    def _machine(self, number):
        more = {key: self.record[key] for key in ("namespace", "memory_mib", "disks")}
        more["has_xen"] = self.record.get("xen", False)
        return Machine(self.directory / f"lab{number}", number, **more)

    def machine(self, name):
        """Return a machine by its name or number.

        Raises:
            LabError: there is no such machine.
        """
        for machine in self.machines:
            if name in {machine.name, machine.full_name, str(machine.number)}:
                return machine
        known = ", ".join(machine.name for machine in self.machines)
        raise LabError(f"no machine {name}; there are {known}")

    def _save(self):
        new = self.directory / "lab.json.new"
        new.write_text(json.dumps(self.record, indent=2) + "\n")
        new.rename(self.directory / "lab.json")

    def start(self, machines=None):
        """Power machines on and wait until they have started; they are in no use then."""
        chosen = self.machines if machines is None else machines
        for machine in chosen:
            machine.power_on()
        for machine in chosen:
            machine.wait_until_ready(START_S)
        for machine in chosen:
            if devices := self.record["used"].pop(machine.name, None):
                self.run(machine.name, "sh", "-c", _EMPTY.format(" ".join(devices)))
                self._save()

    def leave(self, name, devices):
        """Switch a machine off that was in use; its next start makes devices empty.

        Often nothing starts it again. Mirrors may still be active, and volumes open.
        """
        machine = self.machine(name)
        if machine.pid() is not None:
            # Daemons start with a machine that is a node.
            self.run(
                name, "sh", "-c", "rm -rf /var/lib/ganeti/*; sync -f /var/lib/ganeti"
            )
        self.record["used"][name] = list(devices)
        self.power(name, "off")
        self._save()

    def run(self, name, *argv, **more):
        """Run a command on a machine; return the finished process, with its output.

        Arguments arrive as they are; a shell of the machine splits nothing.
        """
        command = " ".join(quote(word) for word in argv)
        return _finished([*self.machine(name).ssh(), command], **more)

    def ask(self, name, *argv, **more):
        """Run a client here, for the master daemon of a machine; as `run` else.

        The interpreter needs seconds to load a client under the emulator.
        """
        env = {**os.environ, "FORCE_LUXI_SOCKET": self.machine(name).master_socket()}
        program = product.TOP / "build" / "bin" / argv[0]
        return _finished([program, *argv[1:]], env=env, **more)

    def cut(self, name, peer=None, direction="both"):
        """Cut a machine's network, to one peer or to all others."""
        number = self.machine(name).number
        other = None if peer is None else self.machine(peer).number
        self.record["cuts"].append([number, other, direction])
        self._save()
        network.apply_cuts(self.record["namespace"], self.record["cuts"])

    def join(self, name=None):
        """Undo the cuts of a machine, or all."""
        number = None if name is None else self.machine(name).number
        self.record["cuts"] = [
            cut for cut in self.record["cuts"] if number not in {None, cut[0], cut[1]}
        ]
        self._save()
        network.apply_cuts(self.record["namespace"], self.record["cuts"])

    def power(self, name, action):
        """Power a machine on or off, or off and on."""
        machine = self.machine(name)
        if action in {"off", "cycle"}:
            machine.power_off()
            # A new process has healthy disks.
            self._set_failed(machine, None, [])
        if action in {"on", "cycle"}:
            self.start([machine])

    def fail_disk(self, name, disk, kinds):
        """Let a disk of a machine return errors for ``read``, ``write`` or none."""
        machine = self.machine(name)
        if not 0 <= disk < machine.disks:
            raise LabError(f"{name} has disks 0 to {machine.disks - 1}, not {disk}")
        if kinds:
            machine.fail_disk(disk, reads="read" in kinds, writes="write" in kinds)
        else:
            machine.mend_disk(disk)
        self._set_failed(machine, disk, kinds)

    def _set_failed(self, machine, disk, kinds):
        left = [
            entry for entry in self.record["failed_disks"]
            if entry["machine"] != machine.name or disk not in {None, entry["disk"]}
        ]  # fmt: skip
        if kinds:
            left.append({"machine": machine.name, "disk": disk, "errors": list(kinds)})
        self.record["failed_disks"] = left
        self._save()

    def status(self):
        """Return what is up, cut and failed, as JSON values."""
        names = {machine.number: machine.name for machine in self.machines}
        return {
            "directory": str(self.directory),
            "namespace": self.record["namespace"],
            "machines": [
                {
                    "name": machine.name,
                    "address": machine.address,
                    "power": "off" if machine.pid() is None else "on",
                    "pid": machine.pid(),
                    "disks": [str(machine.image(d)) for d in range(machine.disks)],
                    "console": str(machine.console),
                }
                for machine in self.machines
            ],
            "cuts": [
                {"machine": names[a], "peer": names.get(b), "direction": direction}
                for a, b, direction in self.record["cuts"]
            ],
            "failed_disks": self.record["failed_disks"],
        }

    def down(self):
        """Power off all machines and delete everything that belongs to the lab."""
        for machine in self.machines:
            machine.remove()
        network.down(self.record["namespace"])
        shutil.rmtree(self.directory)


def _finished(argv, *, stdin=None, timeout_s=600, **more):
    return subprocess.run(
        argv, text=True, capture_output=True, input=stdin, timeout=timeout_s,
        stdin=subprocess.DEVNULL if stdin is None else None, check=False, **more,
    )  # fmt: skip


def quote(word):
    """Return a word as a shell has to be given it."""
    return "'" + str(word).replace("'", "'\\''") + "'"


def up(
    directory=DIRECTORY,
    *,
    count=3,
    started=None,
    memory_mib=512,
    disks=2,
    disk_mib=24576,
    xen=False,
):
    """Make a lab and start its machines, with ``xen`` as its first domains; return it.

    With ``started``, only so many of the machines are on.

    Raises:
        LabError: there is one already, or something is missing.
    """
    directory = pathlib.Path(directory).resolve()
    if (directory / "lab.json").exists():
        raise LabError(f"there is a lab in {directory}: tools/lab down removes it")
    initramfs.make()
    product.install()
    directory.mkdir(parents=True, exist_ok=True)
    namespace = "lab-" + hashlib.sha256(str(directory).encode()).hexdigest()[:8]
    network.up(namespace, count)
    record = {
        "count": count, "namespace": namespace, "memory_mib": memory_mib,
        "disks": disks, "cuts": [], "failed_disks": [], "used": {}, "xen": xen,
    }  # fmt: skip
    (directory / "lab.json").write_text(json.dumps(record, indent=2) + "\n")
    lab = Lab(directory)
    _make_key(directory / "key")
    for machine in lab.machines:
        machine.make(disk_mib=disk_mib)
        _make_files(lab, machine)
    try:
        lab.start(lab.machines[:started])
    except LabError:
        lab.down()
        raise
    return lab


def _make_key(path):
    path.unlink(missing_ok=True)
    check("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "root@lab", "-f", path)


def _make_files(lab, machine):
    """Write the files that differ from this machine's."""
    files = machine.files
    hosts = ["127.0.0.1 localhost", f"{CLUSTER_ADDRESS} {CLUSTER} cluster"]
    hosts += [f"{m.address} {m.full_name} {m.name}" for m in lab.machines]
    hosts += [f"{addr} {name} {name.split('.')[0]}" for name, addr in INSTANCES.items()]
    key = (lab.directory / "key.pub").read_text()
    settings = (
        f"LAB_NAME={machine.full_name}\nLAB_ADDRESS={machine.address}\n"
        f"LAB_MAC={network.hardware_address(machine.number)}\n"
    )
    texts = {
        "etc/hostname": machine.full_name + "\n",
        "etc/hosts": "\n".join(hosts) + "\n",
        "etc/resolv.conf": "",
        "etc/lab/settings": settings,
        "etc/inittab": (_GUEST / "inittab").read_text(),
        "etc/lvm/lvmlocal.conf": (_GUEST / "lvmlocal.conf").read_text(),
        "etc/ssh/sshd_config": (_GUEST / "sshd_config").read_text(),
        "root/.ssh/authorized_keys": key,
        "root/.ssh/id_ed25519.pub": key,
        "root/.ssh/id_ed25519": (lab.directory / "key").read_text(),
        # This machine's may start more than a shell for one command needs.
        "root/.bashrc": "",
        "root/.profile": "",
        "root/.bash_profile": "",
        "var/lib/ganeti/.keep": "",
        "etc/ganeti/.keep": "",
        # The interpreter may be where only root can read it. Each daemon takes seconds to
        # load under the emulator, also one that no scenario asks.
        "etc/default/ganeti": 'CONFD_ARGS="--allow-root"\nRAPI_ARGS="--allow-root"\n'
        'DISABLED_DAEMONS="ganeti-mond ganeti-maintd"\n',
    }
    for name, text in texts.items():
        path = files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600 if ".ssh" in name or "lab/settings" in name else 0o644)
    (files / "root").chmod(0o700)
    (files / "root/.ssh").chmod(0o700)
    shutil.copy(_GUEST / "start", files / "etc/lab/start")
    for kind in ("rsa", "ecdsa", "ed25519"):
        path = files / f"etc/ssh/ssh_host_{kind}_key"
        path.unlink(missing_ok=True)
        check("ssh-keygen", "-q", "-t", kind, "-N", "", "-C", machine.name, "-f", path)
