"""Disks from their operations to the commands of LVM and DRBD, with results and errors.

The transcripts are in test/data/storage. Each run has empty tools of its own; its line
has steps with ``;`` between them. A step prints the commands that it runs, except those
that only look, then its result or error.
"""

import pathlib
import re

import msgspec
import pytest

from fakes import golden
from fakes import storage_contract as contract
from fakes.drbd_tools import FakeDrbd, FakeDrbd9
from fakes.nodes import CountedClock
from ganeti.base import errors, pathutils
from ganeti.model.objects.filled import DiskX
from ganeti.node import storage
from ganeti.node.calls.disks import blockdev as disks
from ganeti.node.storage import drbd_commands, mirrors, volumes

FOLDER = pathlib.Path(__file__).parents[4] / "data" / "storage"
RUNS = [
    (path, words)
    for path in sorted(FOLDER.glob("*.txt"))
    for words, _ in golden.runs(path)
]
LOOKS = ("lvs", "vgs", "pvs")
LOOKS += tuple(f"drbdsetup {verb}" for verb in ("show", "get-gi", "status"))
FLAGS = {"exclusive", "dryrun", "backingstore", "two_primaries", "pause"}
ADDRESSES = {"4": ("192.0.2.1", "192.0.2.2"), "6": ("2001:db8::1", "2001:db8::2")}


class Disk:
    """A disk, its tools, and the steps of a run."""

    def __init__(self, folder, kind, *, port="11000", family="4", **params):
        proc = folder / "drbd"
        tools = FakeDrbd9 if kind == "drbd9" else FakeDrbd
        self.tools = tools(proc, xenvg=[400, 200], other=[100])
        self.folder, self.proc, self.clock = folder, proc, CountedClock()
        parts = tuple(
            DiskX(dev_type="plain", logical_id=("xenvg", name), size=size, uuid=name,
                  serial_no=1, params=params)
            for name, size in (("a.data", 64), ("a.meta", 128))
        )  # fmt: skip
        record = parts[0]
        if kind in ("drbd", "drbd9"):
            port = None if port == "none" else int(port)
            here, there = ADDRESSES[family]
            record = DiskX(
                dev_type="drbd", logical_id=("n1", "n2", port, 0, 3, "5ec2e7"), size=64,
                uuid="u1", iv_name="disk/0", serial_no=1, children=parts, params=params,
                dynamic_params={"local-minor": 0, "remote-minor": 3, "port": port,
                                "local-ip": here, "remote-ip": there},
            )  # fmt: skip
        self.device = storage.device(pathutils.Paths(), record, self.tools)
        getattr(self.device, "drbd", self.device).clock = self.clock

    def do_refuse(self, command, code, *text):
        """Let the next run of a command fail."""
        answers = self.tools.refusals.setdefault(command.replace("_", " "), [])
        answers.append((int(code), " ".join(text)))

    def do_peer(self, state):
        """Change the data of the other node."""
        self.tools.peer = None if state == "none" else state
        for resource in self.tools.resources.values():
            if resource.ends[1]:
                resource.connection = "Connected" if self.tools.peer else "WFConnection"

    def do_state(self, words):
        """Change the connection, or the data of this node."""
        (resource,) = self.tools.resources.values()
        key, _, value = words.partition("=")
        setattr(resource, key, value)

    def do_later(self, waits, now, then):
        """Change the connection, and again after some waits of the disk."""
        (resource,) = self.tools.resources.values()
        resource.connection = now
        left = int(waits)
        wait = self.clock.wait

        def counted(*args):
            nonlocal left
            left -= 1
            if left == 0:
                resource.connection = then
            self.tools.show()
            return wait(*args)

        self.clock.wait = counted

    def do_away(self):
        """Let the master say that the other node cannot be asked."""
        self._again({"peer-is-away": True})

    def do_again(self):
        """Let another call use the disk."""
        self._again({})

    def _again(self, values):
        record = self.device.disk.replace(
            dynamic_params=self.device.disk.dynamic_params | values
        )
        self.device = storage.device(pathutils.Paths(), record, self.tools)
        getattr(self.device, "drbd", self.device).clock = self.clock

    def do_seconds(self):
        """Print how long the disk has waited."""
        return round(self.clock.now - 1000.0, 1)

    def do_active(self, name, state):
        """Deactivate a volume, or take its device file away."""
        if state == "no":
            self.tools.inactive.add(f"xenvg/{name}")
        else:
            (self.folder / "xenvg" / name).unlink()

    def do_volumes(self):
        """Print the volumes with their sizes and tags."""
        return {
            name: (self.tools.size_of(name), self.tools.tags.get(name, []))
            for name in self.tools.volumes
        }

    def act(self, verb, *words):
        """Do one step."""
        if hasattr(self, f"do_{verb}"):
            return getattr(self, f"do_{verb}")(*words)
        owner = self.device if hasattr(self.device, verb) else self.device.drbd
        member = getattr(owner, verb)
        if not callable(member):
            return member
        options, values = {}, []
        for word in words:
            if word.lstrip("-") in FLAGS | {"secondary"}:
                name = word.lstrip("-").replace("secondary", "is_primary")
                options[name] = not word.startswith("-") and word != "secondary"
            elif word == "none":
                values.append(None)
            elif "/" in word:
                values.append(tuple(word.split("/")))
            else:
                values.append(int(word) if word.lstrip("-").isdigit() else word)
        return member(*values, **options)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Give the function that runs the steps of a line."""
    monkeypatch.setattr(drbd_commands, "PROC", str(tmp_path / "drbd"))
    monkeypatch.setattr(volumes, "DEVICES", str(tmp_path))
    monkeypatch.setattr(
        mirrors.MirrorDisk, "new_generation", staticmethod(lambda: "5F0A1B2C3D4E5F60")
    )

    def run_steps(words):
        first, *steps = " ".join(words).split(" ; ")
        kind, *values = first.split()
        disk = Disk(tmp_path, kind, **dict(value.split("=", 1) for value in values))
        lvcreate = disk.tools._lvcreate

        def with_device(words):
            done = lvcreate(words)
            for name in disk.tools.volumes:
                path = tmp_path / name
                path.parent.mkdir(exist_ok=True)
                path.touch()
            return done

        disk.tools._lvcreate = with_device
        for step in steps:
            print(f"{step}:")
            disk.tools.lines.clear()
            disk.tools.limits.clear()
            try:
                disk.tools.show()
                result = disk.act(*step.split())
            except errors.GenericError as err:
                result = f"{type(err).__name__}: {err}"
            for line in disk.tools.lines:
                if not line.startswith(LOOKS):
                    print(f"  {line}".replace(str(tmp_path), "/dev"))
            if result is not None:
                print(f"  -> {result}".replace(str(tmp_path), "/dev"))
        return 0

    return run_steps


@pytest.mark.parametrize(
    ("path", "words"), RUNS, ids=[f"{path.stem}: {words}"[:70] for path, words in RUNS]
)
def test_a_disk_runs_the_commands_of_its_transcript(path, words, run):
    golden.check(path, words, run)


def test_each_tool_has_a_time_limit_and_an_environment_of_its_own(tmp_path, run):
    disk = Disk(tmp_path, "drbd")
    volume = disk.device.data
    (tmp_path / "xenvg").mkdir()
    for name in ("a.data", "a.meta"):
        (tmp_path / "xenvg" / name).touch()
    disk.device.create(64)
    disk.device.assemble()
    path = "/sbin:/bin:/usr/sbin:/usr/bin"
    plain = {"PATH": path, "LC_ALL": "C"}
    of_lvm = plain | {"LVM_SUPPRESS_FD_WARNINGS": "1"}
    actual = {
        name: (each["timeout_s"], each["max_output"], each["env"])
        for name, each in disk.tools.limits.items()
    }
    large, largest = 16 * 1024**2, 32 * 1024**2
    assert actual == {
        "drbdmeta": (50.0, large, plain),
        "drbdsetup": (50.0, large, plain),
        "lvcreate": (600.0, largest, of_lvm),
        "lvs": (50.0, largest, of_lvm),
    }
    looks = [line for line in disk.tools.lines if line.startswith(("lvs", "pvs"))]
    common = "--reportformat json --units m --nosuffix -o"
    fields = "vg_name,lv_name,lv_size,lv_attr,devices,lv_tags,origin"
    assert set(looks) == {
        f"lvs {common} {fields} --select vg_name=xenvg && lv_name=a.data",
        f"lvs {common} {fields} --select vg_name=xenvg && lv_name=a.meta",
    }
    assert volume.exists()


@pytest.mark.parametrize("is_conversion", [True, False], ids=["conversion", "new"])
def test_a_text_that_cannot_be_kept_undoes_what_was_made_alone(
    tmp_path, run, monkeypatch, is_conversion
):
    disk = Disk(tmp_path, "drbd")
    (tmp_path / "xenvg").mkdir()
    for name in ("a.data", "a.meta"):
        (tmp_path / "xenvg" / name).touch()
    if is_conversion:
        disk.device.data.create(64)
    present = list(disk.tools.volumes)
    disk.do_refuse("lvchange" if is_conversion else "lvcreate", 5, "cannot get lock")
    monkeypatch.setattr(disks, "_device", lambda _node, _disk: disk.device)
    with pytest.raises(errors.BlockDeviceError, match=r"a\.data.*cannot get lock"):
        disks.blockdev_create(
            *(None, disk.device.disk, 64, "web1"),
            on_primary=True, info="text", exclusive_storage=False,
        )  # fmt: skip
    assert disk.tools.volumes == present


def test_a_mirror_needs_two_volumes_and_a_minor_of_this_node(tmp_path):
    disk = Disk(tmp_path, "drbd").device.disk
    for changes, text in (
        ({"children": disk.children[:1]}, "data and a metadata volume, found 1 child"),
        ({"dynamic_params": None}, "this node is none of its two nodes"),
        ({"dynamic_params": {"local-minor": -1}}, "this node is none of its two nodes"),
        ({"dynamic_params": {"local-minor": "0"}}, "none of its two nodes"),
    ):
        record = msgspec.structs.replace(disk, **changes)
        with pytest.raises(errors.BlockDeviceError, match=re.escape(text)):
            mirrors.MirrorDisk(pathutils.Paths(), record, FakeDrbd(tmp_path / "drbd"))


# The answers of the tools keep the contract, which has all that disks run with DRBD 8.4.

STORIES = contract.stories()
TRANSCRIPTS = ("volumes.txt", "mirrors.txt")
TOOLS = ("lv", "pv", "vg", "drbd")


@pytest.mark.parametrize("title", STORIES)
def test_the_fakes_keep_the_contract(title, tmp_path, monkeypatch):
    monkeypatch.setattr(drbd_commands, "PROC", str(tmp_path / "drbd"))
    node = contract.Fakes(tmp_path / "drbd")
    assert contract.answered(node, STORIES[title]) == STORIES[title]


def uses(lines):
    """Return the commands with each of their options."""
    for line in lines:
        program, *words = line.split()
        if program.startswith(TOOLS):
            verbs = words[:1] if program == "drbdsetup" else words[5:6]
            verb = verbs if program.startswith("drbd") else []
            options = re.findall(r" (--[a-z0-9-]+)", line)
            yield from ((program, *verb, option) for option in (*options, ""))


def test_the_contract_has_each_command_and_option_of_the_transcripts():
    run = [
        line.strip()
        for name in TRANSCRIPTS
        for _words, output in golden.runs(contract.PATH.parent / name)
        for line in output.splitlines()
    ]
    stated = {use for lines in STORIES.values() for use in uses(lines)}
    assert set(uses(run)) <= stated
