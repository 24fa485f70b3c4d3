"""DRBD's tools and the kernel's text over devices in memory, above `FakeLvm`'s volumes.

DRBD 8.4 answers as the kernel does in the lab, see test/data/storage/contract.txt; what
DRBD 9 answers is not proven, for its module is not Debian's. Copies take no time.
"""

import dataclasses
import json

from fakes.lvm_tools import FakeLvm
from ganeti.base.process import RunResult

HEAD = "version: 8.4.11 (api:1/proto:86-101)\nsrcversion: F73C670A7EC572DB9CF3E5B\n"


@dataclasses.dataclass
class Resource:
    """One resource with at most one device."""

    minor: int | None = None
    data: str = ""
    meta: str = ""
    state: str = ""
    is_primary: bool = False
    ends: tuple[str, str] = ("", "")
    connection: str = "StandAlone"
    is_paused: bool = False
    two_primaries: bool = False

    def take(self, options):
        """Take the options of a connection, and return the answer."""
        for word in options:
            if word.startswith("--allow-two-primaries="):
                self.two_primaries = word.endswith("=yes")
        return 0, "", ""

    @property
    def net(self):
        """Its section of what drbdsetup shows."""
        return "net {\nallow-two-primaries yes;\n}\n" * self.two_primaries


class FakeDrbd(FakeLvm):
    """Runs the tools of both; writes the kernel's text to a file.

    ``refusals``: first words of a command, or its verb -> answers before the usual ones.
    ``peer``: data of the node that each connection reaches; None: nobody answers.
    """

    LAYOUT, MORE = "v08", []

    def __init__(self, proc, **groups):
        super().__init__(**groups)
        self.proc, self.peer, self.refusals = proc, "UpToDate", {}
        self.resources, self.metadata = {}, {}
        self.limits = {}
        self.show()

    def run_bounded(self, argv, **limits):
        words = " ".join(argv)
        self.limits[argv[0]] = limits
        for first, answers in self.refusals.items():
            if (words.startswith(first) or f" {first} " in words) and answers:
                self.lines.append(words)
                code, stderr = answers.pop(0)
                return RunResult(tuple(argv), code, None, "", stderr)
        done = super().run_bounded(argv, **limits)
        self.show()
        return done

    def show(self):
        """Write the text of the kernel."""
        lines = [
            f" {resource.minor}: {self._state(resource)}\n"
            for resource in self.resources.values()
            if resource.minor is not None
        ]
        self.proc.write_text(HEAD + "".join(lines))

    def _state(self, resource):
        is_used = resource.data or resource.is_primary
        if not is_used and resource.connection == "StandAlone":
            return "cs:Unconfigured"
        role = "Primary" if resource.is_primary else "Secondary"
        peer = self._peer(resource)
        other = "Unknown" if peer is None else "Secondary"
        return (
            f"cs:{resource.connection} ro:{role}/{other}"
            f" ds:{resource.state or 'Diskless'}/{peer or 'DUnknown'} C r-----"
        )

    def _peer(self, resource):
        return self.peer if resource.connection == "Connected" else None

    def meet(self, peer):
        """Change the data of the other node; None if it is gone."""
        self.peer = peer
        for resource in self.resources.values():
            if resource.ends[1]:
                resource.connection = "WFConnection" if peer is None else "Connected"

    def _is_volume(self, device):
        return "/".join(device.split("/")[-2:]) in self.volumes

    def is_open(self, volume):
        """Return whether a device has the volume."""
        known = self.resources.values()
        used = [path for one in known for path in (one.data, one.meta)]
        return any(path.endswith(f"/{volume}") for path in used)

    # The programs
    def _lvcreate(self, words):
        done = super()._lvcreate(words)
        if not done[0]:
            # It begins with zeros.
            made = f"/{self.volumes[-1]}"
            for path in [path for path in self.metadata if path.endswith(made)]:
                del self.metadata[path]
        return done

    def _drbdmeta(self, words):
        force, _minor, version, device, place, verb, *more = words
        assert (force, version, place) == ("--force", self.LAYOUT, "0")
        if not self._is_volume(device):
            return 20, "", f"open({device}) failed: No such file or directory"
        if verb == "create-md":
            assert more == self.MORE
            self.metadata[device] = "Inconsistent"
        elif device not in self.metadata:
            return 1, "", "No valid meta data found"
        elif verb == "set-gi":
            assert more[0].endswith(":0:0:0:1:1")
            self.metadata[device] = "UpToDate"
        return 0, "", ""

    def _drbdsetup(self, words):
        verb, *rest = words
        options = [word for word in rest if word.startswith("--")]
        plain = [word for word in rest if not word.startswith("--")]
        try:
            return getattr(self, f"_do_{verb.replace('-', '_')}")(plain, options)
        except LookupError as err:
            return 10, "", f"Failure: (127) not known to the kernel: {err}"

    def _named(self, text):
        for name, resource in self.resources.items():
            if text in (name, str(resource.minor)) or resource.ends[1] == text:
                return resource
        raise LookupError(text)

    def _do_show(self, _plain, _options):
        texts = []
        for name, resource in self.resources.items():
            remote = here = volume = ""
            if resource.ends[1]:
                local, peer = (end.replace(":", " ", 1) for end in resource.ends)
                remote = f"  _remote_host {{\n    address {peer};\n  }}\n"
                here = f"    address {local};\n"
            if resource.minor is not None:
                volume = f"    volume 0 {{\n      device minor {resource.minor};\n"
                if resource.data:
                    volume += f'      disk "{resource.data}";\n'
                    volume += f'      meta-disk "{resource.meta}" [ 0 ];\n'
                volume += "    }\n"
            this = f"  _this_host {{\n{here}{volume}  }}\n"
            texts.append(f"resource {name} {{\n{resource.net}{remote}{this}}}\n")
        return 0, "".join(texts), ""

    def _do_new_resource(self, plain, _options):
        (name,) = plain
        self.resources.setdefault(name, Resource())
        return 0, "", ""

    def _do_new_minor(self, plain, _options):
        name, minor, _volume = plain
        self.resources[name].minor = int(minor)
        return 0, "", ""

    def _do_attach(self, plain, _options):
        minor, data, meta, _place = plain
        if not (self._is_volume(data) and self._is_volume(meta)):
            return 20, "", "can not open backing device"
        resource = self._named(minor)
        if resource.data:
            return 10, "", "Failure: (124) Device is attached to a disk"
        if meta not in self.metadata:
            return 10, "", "Failure: (119) No valid meta-data signature found."
        resource.data, resource.meta = data, meta
        resource.state = self.metadata[meta]
        return self._copied(resource)

    def _copied(self, resource):
        if resource.state == "Inconsistent" and self._peer(resource) == "UpToDate":
            resource.state = self.metadata[resource.meta] = "UpToDate"
        return 0, "", ""

    def _do_get_gi(self, plain, _options):
        if not self._named(plain[0]).data:
            return 1, "Device has no disk\n", ""
        return 0, f"5F0A1B2C3D4E5F60:{'0' * 16}:{'0' * 16}:{'0' * 16}:1:0:1:0:0:0\n", ""

    def _do_detach(self, plain, _options):
        resource = self._named(plain[0])
        if resource.data and resource.is_primary and self._peer(resource) != "UpToDate":
            return self._no_data()
        resource.data = resource.meta = resource.state = ""
        return 0, "", ""

    @staticmethod
    def _no_data():
        return 17, "", "State change failed: (-2) Need access to UpToDate data"

    def _do_primary(self, plain, options):
        resource = self._named(plain[0])
        if "--force=yes" in options:
            resource.state = self.metadata[resource.meta] = "UpToDate"
        if "UpToDate" not in (resource.state, self._peer(resource)):
            return self._no_data()
        resource.is_primary = True
        return 0, "", ""

    def _do_secondary(self, plain, _options):
        self._named(plain[0]).is_primary = False
        return 0, "", ""

    def _do_down(self, plain, _options):
        self.resources.pop(plain[0], None)
        return 0, "", ""

    def _do_connect(self, plain, options):
        name, local, remote = plain
        resource = self.resources[name]
        if resource.ends[1]:
            return 10, "", "Failure: (102) Local address(port) already in use."
        resource.take(options)
        resource.ends = local, remote
        resource.connection = "WFConnection" if self.peer is None else "Connected"
        return self._copied(resource)

    def _do_disconnect(self, plain, options):
        resource = self._named(plain[1])
        if resource.is_primary and not resource.data and "--force=yes" not in options:
            return self._no_data()
        resource.ends, resource.connection = ("", ""), "StandAlone"
        resource.two_primaries = False
        return 0, "", ""

    def _accept(self, plain, _options):
        self._named(plain[-1])
        return 0, "", ""

    def _do_net_options(self, plain, options):
        return self._named(plain[-1]).take(options)

    def _do_pause_sync(self, plain, _options):
        return self._set_paused(plain[0], is_paused=True)

    def _do_resume_sync(self, plain, _options):
        return self._set_paused(plain[0], is_paused=False)

    def _set_paused(self, minor, *, is_paused):
        resource = self._named(minor)
        if resource.is_paused == is_paused:
            return 10, "", f"Failure: (134) Sync-pause flag is already {is_paused}"
        resource.is_paused = is_paused
        return 0, "", ""

    _do_disk_options = _do_resize = _accept


HEAD9 = "version: 9.2.11 (api:2/proto:118-122)\nGIT-hash: d7212a2eaeda23f8cb71be36ba52a5163f4dc694\n"


_IN_9 = {"WFConnection": "Connecting"}


class FakeDrbd9(FakeDrbd):
    """The tools with DRBD 9; its kernel text has no devices, ``status`` has them."""

    LAYOUT, MORE = "v09", ["1"]

    def show(self):
        """Write the text of the kernel."""
        self.proc.write_text(HEAD9)

    def _named(self, text):
        if text in self.resources:
            return self.resources[text]
        return super()._named(text)

    def _do_status(self, plain, options):
        assert (plain, options) == (["all"], ["--json"])
        rows = [self._row(name, one) for name, one in self.resources.items()]
        return 0, json.dumps(rows), ""

    def _row(self, name, resource):
        peer = self._peer(resource)
        is_met = resource.connection == "Connected"
        link = {
            "peer-node-id": 1,
            "name": "node1",
            "connection-state": _IN_9.get(resource.connection, resource.connection),
            "congested": False,
            "peer-role": "Secondary" if is_met else "Unknown",
            "peer_devices": [
                {
                    "volume": 0,
                    "replication-state": "Established" if is_met else "Off",
                    "peer-disk-state": peer or "DUnknown",
                    "out-of-sync": 0,
                    "percent-in-sync": 100.00,
                }
            ],
        }
        device = {
            "volume": 0,
            "minor": resource.minor,
            "disk-state": resource.state or "Diskless",
        }
        return {
            "name": name,
            "node-id": 0,
            "role": "Primary" if resource.is_primary else "Secondary",
            "devices": [device] if resource.minor is not None else [],
            "connections": [link] if resource.ends[1] else [],
        }

    def _do_show(self, _plain, _options):
        texts = []
        for name, one in self.resources.items():
            volume = link = ""
            if one.minor is not None:
                volume = f"        volume 0 {{\n            device minor {one.minor};\n"
                if one.data:
                    volume += f'            disk "{one.data}";\n'
                    volume += f'            meta-disk "{one.meta}";\n'
                volume += "        }\n"
            if one.ends[1]:
                local, remote = (end.replace(":", " ", 1) for end in one.ends)
                link = (
                    "    connection {\n        _peer_node_id 1;\n        path {\n"
                    f"            _this_host {local};\n"
                    f"            _remote_host {remote};\n        }}\n"
                    f'net {{\n_name "node1";\n}}\n{one.net}    }}\n'
                )
            here = f"    _this_host {{\n        node-id 0;\n{volume}    }}\n"
            texts.append(f'resource "{name}" {{\n{here}{link}}}\n')
        return 0, "".join(texts), ""

    def _do_new_resource(self, plain, options):
        name, node_id = plain
        assert node_id == "0"
        assert "--auto-promote=no" in options
        return super()._do_new_resource([name], [])

    def _do_new_peer(self, plain, options):
        name, _peer = plain
        assert not self.resources[name].ends[1], "there is a peer already"
        return self.resources[name].take(options)

    def _do_new_path(self, plain, _options):
        name, _peer, local, remote = plain
        self.resources[name].ends = local, remote
        return 0, "", ""

    def _do_connect(self, plain, _options):
        name, _peer = plain
        assert self.resources[name].ends[1], "there is no path"
        resource = self.resources[name]
        resource.connection = "WFConnection" if self.peer is None else "Connected"
        return self._copied(resource)

    def _do_disconnect(self, plain, _options):
        name, _peer = plain
        self.resources[name].connection = "StandAlone"
        return 0, "", ""

    def _do_del_peer(self, plain, _options):
        name, _peer = plain
        self.resources[name].ends = ("", "")
        return 0, "", ""

    def _do_get_gi(self, plain, options):
        name, _peer, _volume = plain
        return super()._do_get_gi([name], options)

    def _accept_copy(self, plain, _options):
        name, peer, volume = plain
        assert (peer, volume) == ("1", "0")
        assert self.resources[name].ends[1], "there is no peer"
        return 0, "", ""

    def _do_net_options(self, plain, options):
        self._accept_copy([*plain, "0"], options)
        return self.resources[plain[0]].take(options)

    _do_peer_device_options = _do_pause_sync = _do_resume_sync = _accept_copy
