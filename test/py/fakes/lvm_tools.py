"""LVM's tools over volume groups in memory; extents of 4 MiB, as LVM has by default."""

import json
import math

from ganeti.base.process import RunResult

EXTENT_MIB = 4


class Physical:
    """A physical volume; ``used``: extents of each volume on it."""

    def __init__(self, name, group, extents):
        self.name, self.group, self.extents = name, group, extents
        self.used = {}
        self.is_allocatable, self.is_missing = True, False

    @property
    def free(self):
        return self.extents - sum(self.used.values())


class FakeLvm:
    """Runs LVM's tools; refuses other programs. ``lines`` has what was run."""

    def __init__(self, **groups):
        """Make groups: name -> sizes of their physical volumes in MiB."""
        self.physical = [
            Physical(f"/dev/sd{chr(ord('a') + place)}", group, size // EXTENT_MIB)
            for place, (group, size) in enumerate(
                (group, size) for group, sizes in groups.items() for size in sizes
            )
        ]
        self.volumes, self.tags, self.origins = [], {}, {}
        self.inactive, self.lines = set(), []

    def run_bounded(self, argv, **_limits):
        argv = tuple(argv)
        self.lines.append(" ".join(argv))
        code, stdout, stderr = getattr(self, f"_{argv[0]}")(list(argv[1:]))
        return RunResult(argv, code, None, stdout, stderr)

    def _units(self, group):
        return [unit for unit in self.physical if unit.group == group]

    def size_of(self, volume):
        return EXTENT_MIB * sum(unit.used.get(volume, 0) for unit in self.physical)

    @staticmethod
    def _split(words, valued):
        """Return options with values, and the words after ``--``."""
        options, rest = {}, []
        while words:
            word = words.pop(0)
            if word == "--":
                return options, words
            if word in valued:
                options.setdefault(word, []).append(words.pop(0))
            elif word.startswith("-"):
                options[word] = [True]
            else:
                rest.append(word)
        return options, rest

    @staticmethod
    def _report(kind, rows):
        return 0, json.dumps({"report": [{kind: rows}]}), ""

    def _pvs(self, _words):
        return self._report(
            "pv",
            [
                {
                    "pv_name": "[unknown]" if unit.is_missing else unit.name,
                    "vg_name": unit.group,
                    "pv_size": f"{unit.extents * EXTENT_MIB}.00",
                    "pv_free": f"{unit.free * EXTENT_MIB}.00",
                    "pv_used": f"{(unit.extents - unit.free) * EXTENT_MIB}.00",
                    "pv_attr": "a--" if unit.is_allocatable else "u--",
                    "pv_missing": "missing" if unit.is_missing else "",
                    "pv_pe_alloc_count": str(unit.extents - unit.free),
                    "vg_extent_size": f"{EXTENT_MIB}.00" if unit.group else "",
                }
                for unit in self.physical
            ],
        )

    def _vgs(self, words):
        _options, named = self._split(words, {"--units", "--reportformat", "-o"})
        names = dict.fromkeys(unit.group for unit in self.physical)
        if named:
            missing = any(u.is_missing for u in self._units(named[0]))
            text = f"  WARNING: VG {named[0]} is missing PV x\n" if missing else ""
            return (
                (0, f"  {named[0]}\n", text) if named[0] in names else (5, "", "none")
            )
        return self._report(
            "vg",
            [
                {
                    "vg_name": name,
                    "vg_size": f"{EXTENT_MIB * sum(u.extents for u in units)}.00",
                    "vg_free": f"{EXTENT_MIB * sum(u.free for u in units)}.00",
                }
                for name in names
                for units in [self._units(name)]
            ],
        )

    def _lvs(self, _words):
        rows = []
        for volume in self.volumes:
            group, name = volume.split("/")
            units = [unit for unit in self._units(group) if volume in unit.used]
            partial = "p" if any(unit.is_missing for unit in units) else "-"
            active = "-" if volume in self.inactive else "a"
            rows.append(
                {
                    "vg_name": group,
                    "lv_name": name,
                    "lv_size": f"{self.size_of(volume)}.00",
                    "lv_attr": f"-wi-{active}---{partial}-",
                    "devices": ",".join(f"{unit.name}(0)" for unit in units),
                    "lv_tags": ",".join(self.tags.get(volume, ())),
                    "origin": self.origins.get(volume, ""),
                }
            )
        return self._report("lv", rows)

    def _allocate(self, volume, mib, units, stripes=1):
        wanted = math.ceil(mib / EXTENT_MIB)
        chosen = [unit for unit in units if not unit.is_missing]
        if stripes > 1:
            share = math.ceil(wanted / stripes)
            chosen = [unit for unit in chosen if unit.free >= share][:stripes]
            if len(chosen) < stripes:
                return False
            for unit in chosen:
                unit.used[volume] = unit.used.get(volume, 0) + share
            return True
        if sum(unit.free for unit in chosen) < wanted:
            return False
        for unit in chosen:
            taken = min(unit.free, wanted)
            if taken:
                unit.used[volume] = unit.used.get(volume, 0) + taken
            wanted -= taken
        return True

    def _lvcreate(self, words):
        valued = {"--wipesignatures", "--zero", "--size", "--name", "--stripes"}
        options, rest = self._split(words, valued | {"--addtag", "--stripesize"})
        size = int(options["--size"][0].removesuffix("m"))
        group, *named = rest
        if "--snapshot" in options:
            group, origin = rest[0].split("/")
            self.origins[f"{group}/{options['--name'][0]}"] = origin
            named = []
        volume = f"{group}/{options['--name'][0]}"
        if volume in self.volumes:
            name = options["--name"][0]
            text = (
                f'  Logical Volume "{name}" already exists in volume group "{group}"\n'
            )
            return 5, "", text
        units = self._units(group)
        if not units:
            return 5, "", f'  Volume group "{group}" not found\n'
        units = [unit for unit in units if not named or unit.name in named]
        units = [unit for unit in units if unit.is_allocatable]
        stripes = int(options.get("--stripes", ["1"])[0])
        if not self._allocate(volume, size, units, stripes):
            return 5, "", "  Insufficient suitable allocatable extents\n"
        self.volumes.append(volume)
        self.tags[volume] = options.get("--addtag", [])
        return 0, "", ""

    def _lvremove(self, words):
        _options, volumes = self._split(words, set())
        for volume in volumes:
            self._remove(volume)
        return 0, "", ""

    def _remove(self, volume):
        group, name = volume.split("/")
        snapshots = [
            other for other, origin in self.origins.items()
            if origin == name and other.startswith(f"{group}/")
        ]  # fmt: skip
        for gone in (volume, *snapshots):
            self.volumes.remove(gone)
            self.origins.pop(gone, None)
            for unit in self.physical:
                unit.used.pop(gone, None)

    def _lvextend(self, words):
        options, (volume, *named) = self._split(words, {"--size", "--stripes"})
        more = int(options["--size"][0].removesuffix("m")) - self.size_of(volume)
        units = [u for u in self._units(volume.split("/")[0]) if u.name in named]
        if "--test" in options:
            return 0, "", ""
        striped = sum(volume in unit.used for unit in self.physical)
        stripes = int(options.get("--stripes", [striped])[0])
        if not self._allocate(volume, more, units, stripes):
            return 5, "", "  Insufficient free space\n"
        return 0, "", ""

    def _lvrename(self, words):
        _options, (group, old, new) = self._split(words, set())
        if f"{group}/{new}" in self.volumes:
            return 5, "", f'  Logical volume "{new}" already exists\n'
        self.volumes[self.volumes.index(f"{group}/{old}")] = f"{group}/{new}"
        for unit in self.physical:
            if f"{group}/{old}" in unit.used:
                unit.used[f"{group}/{new}"] = unit.used.pop(f"{group}/{old}")
        self.tags[f"{group}/{new}"] = self.tags.pop(f"{group}/{old}", [])
        return 0, "", ""

    def _lvchange(self, words):
        valued = {"--activate", "--addtag", "--deltag"}
        options, (volume,) = self._split(words, valued)
        if "--activate" in options:
            self.inactive.discard(volume)
        gone = options.get("--deltag", [])
        kept = [tag for tag in self.tags.get(volume, ()) if tag not in gone]
        self.tags[volume] = kept + options.get("--addtag", [])
        return 0, "", ""

    def _pvchange(self, words):
        options, (name,) = self._split(words, {"--allocatable"})
        (unit,) = (unit for unit in self.physical if unit.name == name)
        unit.is_allocatable = options["--allocatable"] == ["y"]
        return 0, "", ""

    def _vgreduce(self, words):
        options, (group,) = self._split(words, set())
        lost = [unit for unit in self._units(group) if unit.is_missing]
        broken = {volume for unit in lost for volume in unit.used}
        if broken and "--force" not in options:
            return (
                5,
                "",
                "  WARNING: Partial LV needs to be repaired or removed.\n  There are still partial LVs, use --force\n",
            )
        for volume in broken:
            self.volumes.remove(volume)
            for unit in self.physical:
                unit.used.pop(volume, None)
        self.physical = [unit for unit in self.physical if unit not in lost]
        return 0, f"  Wrote out consistent volume group {group}.\n", ""
