"""The table of what LVM and DRBD 8.4 answer to the commands of this suite.

test/data/storage/contract.txt has stories; each begins with a volume group xenvg of two
empty disks, and no mirrors. A line is a command as drivers of disks run it, a question of
their own to a tool (`LOOKS`), or with @ what happens to the node (a method of `Fakes`). Below it
are the exit code, unless it is 0, what drivers read of the output, and the words that they
look for in it. The fakes have to answer so in the unit tests, the kernel in the lab, where
RECORD_TRANSCRIPTS=1 writes what it answers.
"""

import pathlib
import re

from fakes.drbd_tools import FakeDrbd
from ganeti.base import errors
from ganeti.node.calls.disks import storage_units
from ganeti.node.storage import drbd_commands, drbd_device, lvm, volumes

PATH = pathlib.Path(__file__).parents[2] / "data" / "storage" / "contract.txt"
#: Sizes of the disks /dev/sda and /dev/sdb in MiB.
SIZES = (400, 200)
#: First words of commands -> texts that the drivers look for in what it prints.
_INTERPRETED = {
    "lvcreate": (volumes._TAKEN,),
    "vgreduce": (storage_units._WROTE, "--force"),
    "vgs": (storage_units._MISSING,),
    "drbdsetup pause-sync": ("already",),
    "drbdsetup resume-sync": ("already",),
    "drbdsetup primary": (drbd_device._TRANSIENT,),
    "drbdsetup secondary": (drbd_device._TRANSIENT,),
    "drbdsetup down": (drbd_device._TRANSIENT,),
}


def stories():
    """Return title -> lines of each story."""
    parts = re.split(r"^# ", PATH.read_text(), flags=re.MULTILINE)[1:]
    return {
        title: body.rstrip("\n").splitlines()
        for title, _, body in (part.partition("\n") for part in parts)
    }


def record(transcript):
    """Write stories with their answers."""
    parts = (
        "\n".join((f"# {title}", *lines, "")) for title, lines in transcript.items()
    )
    PATH.write_text("".join(parts))


def commands(lines):
    """Return the lines of a story that are no answers."""
    return [line for line in lines if not line.startswith(" ")]


def answered(node, lines):
    """Return a story with the answers of the tools of a node."""
    transcript = []
    for line in commands(lines):
        first, *words = line.split()
        if first.startswith("@"):
            getattr(node, first.removeprefix("@"))(*words)
            transcript.append(line)
            continue
        transcript += [
            line,
            *(f"  {answer}" for answer in _answers(node, first, words)),
        ]
    return transcript


def _answers(node, first, words):
    if first not in LOOKS:
        return _outcome(node.process.run_bounded((first, *words), **_BOUNDS))
    node.look()
    try:
        return list(LOOKS[first](node.process, *words))
    except errors.StorageError as err:
        return [f"error: {re.search('exited with code [0-9]+', str(err))[0]}"]


_BOUNDS = {"timeout_s": 60, "max_output": 1 << 20}


def _outcome(done):
    if done.code:
        yield f"exit {done.code}"
    line, text = " ".join(done.argv), done.stdout + done.stderr
    for first, patterns in _INTERPRETED.items():
        if line.startswith(first):
            matches = (re.search(each, text) for each in patterns)
            yield from (f"says: {match[0].lower()}" for match in matches if match)


def _volumes(process, *groups):
    yield from map(_volume, lvm.volumes(process, groups))


def _volume(one):
    flags = [
        name for name in ("inactive", "open", "partial") if getattr(one, f"is_{name}")
    ]
    tags = [f"tag {tag}" for tag in sorted(one.tags)]
    origin = [f"of {one.origin}"] if one.origin else []
    place = "+".join(one.devices)
    return " ".join(
        (f"{one.group}/{one.name}", one.size_text, place, *flags, *tags, *origin)
    )


def _find(process, key):
    volume = lvm.volume(process, *key.split("/"))
    yield "none" if volume is None else _volume(volume)


def _units(process):
    for unit in lvm.physical_volumes(process):
        names = ("usable", "missing", "empty")
        flags = [name for name in names if getattr(unit, f"is_{name}")]
        numbers = (unit.size_mib, unit.used_mib, unit.free_mib, unit.extent_mib)
        yield " ".join((unit.name, unit.group, *map(str, map(int, numbers)), *flags))


def _groups(process):
    for group in lvm.groups(process):
        yield f"{group.name} {group.size_mib:.0f} {group.free_mib:.0f}"


def _mirrors(process):
    for minor, mirror in drbd_commands.mirrors(process).items():
        flags = ["about-to-copy"] if mirror.is_about_to_sync else []
        states = (mirror.connection, mirror.role, mirror.disk, mirror.peer_disk)
        yield " ".join((str(minor), *states, *flags))


def _resources(process):
    for one in drbd_commands.resources(process).values():
        parts = (one.data, one.meta, one.local, one.remote)
        flags = ["two-primaries"] if one.two_primaries else []
        yield " ".join((one.name, *map(str, one.minors), *filter(None, parts), *flags))


def _generations(process, minor):
    yield f"{len(drbd_commands.generations(process, ('get-gi', minor)))} identifiers"


#: Words of the contract -> questions of the drivers.
LOOKS = {
    "volumes": _volumes, "find": _find, "units": _units, "groups": _groups,
    "mirrors": _mirrors, "resources": _resources, "generations": _generations,
}  # fmt: skip


class Fakes:
    """The tools in memory, with what happens to their node."""

    def __init__(self, proc):
        self.process = FakeDrbd(proc, xenvg=SIZES)
        self.process.meet(None)

    def look(self):
        """Let the kernel's text be the present one."""
        self.process.show()

    def lose(self, device):
        """Let a disk return errors."""
        (unit,) = (unit for unit in self.process.physical if unit.name == device)
        unit.is_missing = True

    def peer(self, state):
        """Let the other node connect, with data or not, or go."""
        self.process.meet(None if state == "goes" else "UpToDate")

    def until(self, words):
        """Wait for words of the kernel; here, everything happens at once."""
