"""LVM's tools over volume groups in memory; extents of 4 MiB, as LVM has by default.

They answer as LVM does in the lab, see test/data/storage/contract.txt.
"""

import json
import math

from ganeti.base.process import RunResult

EXTENT_MIB = 4
_DONE = 0, "", ""


def _refused(text):
    return 5, "", f"  {text}\n"


def _needs_group(act):
    """Refuse a command whose group is missing, or misses a disk."""

    def checked(self, words):
        group = words[words.index("--") + 1].partition("/")[0]
        if not self._units(group):
            return _refused(f'Volume group "{group}" not found')
        return self._refusal(group) or act(self, words)

    return checked


class Physical:
    """A physical volume; ``used``: extents of each volume on it."""

    def __init__(self, name, group, extents):
        self.name, self.group, self.extents = name, group, extents
        self.used = {}
        self.is_allocatable, self.is_missing = True, False

    @property
    def shown_name(self):
        return "[unknown]" if self.is_missing else self.name

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
        self.volumes, self.tags, self.origins, self.segments = [], {}, {}, {}
        self.inactive, self.lines = set(), []

    def is_open(self, volume):
        """Return whether something uses a volume."""
        return False

    def run_bounded(self, argv, **_limits):
        argv = tuple(argv)
        self.lines.append(" ".join(argv))
        code, stdout, stderr = getattr(self, f"_{argv[0]}")(list(argv[1:]))
        return RunResult(argv, code, None, stdout, stderr)

    def _refusal(self, group):
        """Return what most commands answer while a group misses a disk."""
        if any(unit.is_missing for unit in self._units(group)):
            return _refused(f"Cannot change VG {group} while PVs are missing.")
        return None

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
                    "pv_name": unit.shown_name,
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
            text = "  WARNING: Couldn't find device with uuid x.\n" if missing else ""
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

    def _lvs(self, words):
        groups = words[words.index("--") + 1 :] if "--" in words else ()
        if absent := [group for group in groups if not self._units(group)]:
            return _refused(f'Volume group "{absent[0]}" not found')
        rows = []
        for volume in sorted(self.volumes):
            group, name = volume.split("/")
            if groups and group not in groups:
                continue
            segments = self.segments[volume]
            is_partial = any(unit.is_missing for units in segments for unit in units)
            attributes = "-wi-" + ("-" if volume in self.inactive else "a")
            attributes += ("o" if self.is_open(volume) else "-") + "--"
            rows += [
                {
                    "vg_name": group,
                    "lv_name": name,
                    "lv_size": f"{self.size_of(volume)}.00",
                    "lv_attr": attributes + ("p-" if is_partial else "--"),
                    "devices": ",".join(f"{unit.shown_name}(0)" for unit in units),
                    "lv_tags": ",".join(self.tags.get(volume, ())),
                    "origin": self.origins.get(volume, ""),
                }
                for units in segments
            ]
        return self._report("lv", rows)

    def _allocate(self, volume, mib, units, stripes=1):
        left = math.ceil(mib / EXTENT_MIB / stripes)  # of each stripe
        chosen = [unit for unit in units if unit.is_allocatable]
        if stripes > 1:
            chosen = [unit for unit in chosen if unit.free >= left][:stripes]
            places, has_space = [chosen], len(chosen) == stripes
        else:
            places = [[unit] for unit in chosen]
            has_space = sum(unit.free for unit in chosen) >= left
        for segment in places if has_space else ():
            taken = min(left, *(unit.free for unit in segment))
            if taken:
                for unit in segment:
                    unit.used[volume] = unit.used.get(volume, 0) + taken
                self.segments.setdefault(volume, []).append(segment)
            left -= taken
        return has_space

    @_needs_group
    def _lvcreate(self, words):
        valued = {"--wipesignatures", "--zero", "--size", "--name", "--stripes"}
        options, rest = self._split(words, valued | {"--addtag", "--stripesize"})
        size = int(options["--size"][0].removesuffix("m"))
        (group, _, origin), named = rest[0].partition("/"), rest[1:]
        name = options["--name"][0]
        volume = f"{group}/{name}"
        if origin and f"{group}/{origin}" not in self.volumes:
            return _refused(f"Logical volume {origin} not found in {group}.")
        if volume in self.volumes:
            text = f'Logical Volume "{name}" already exists in volume group "{group}"'
            return _refused(text)
        units = [u for u in self._units(group) if not named or u.name in named]
        stripes = int(options.get("--stripes", ["1"])[0])
        if not self._allocate(volume, size, units, stripes):
            return _refused("Insufficient suitable allocatable extents")
        self.volumes.append(volume)
        self.tags[volume] = options.get("--addtag", [])
        if origin:
            self.origins[volume] = origin
        return _DONE

    def _lvremove(self, words):
        _options, volumes = self._split(words, set())
        done = _DONE
        for volume in volumes:
            if volume not in self.volumes:
                done = _refused(f'Failed to find logical volume "{volume}"')
            elif self.is_open(volume):
                done = _refused(f"Logical volume {volume} is used by another device.")
            else:
                self._remove(volume)
        return done

    def _snapshots(self, volume):
        group, _, name = volume.partition("/")
        return [
            other for other, origin in self.origins.items()
            if origin == name and other.startswith(f"{group}/")
        ]  # fmt: skip

    def _remove(self, volume):
        for gone in (volume, *self._snapshots(volume)):
            self.volumes.remove(gone)
            for values in (
                self.origins,
                self.segments,
                *(u.used for u in self.physical),
            ):
                values.pop(gone, None)

    @_needs_group
    def _lvextend(self, words):
        options, (volume, *named) = self._split(words, {"--size", "--stripes"})
        if volume not in self.volumes:
            return _refused(f"Logical volume {volume} not found.")
        if self._snapshots(volume):
            return _refused(
                "Snapshot origin volumes can be resized only while inactive"
            )
        more = int(options["--size"][0].removesuffix("m")) - self.size_of(volume)
        units = [u for u in self._units(volume.split("/")[0]) if u.name in named]
        known = {len(segment) for segment in self.segments[volume]}
        if "--stripes" not in options and len(known) > 1:
            return _refused("Please specify number of stripes (-i) and stripesize (-I)")
        stripes = int(options.get("--stripes", [*known])[0])
        before = [dict(unit.used) for unit in self.physical], [*self.segments[volume]]
        if not self._allocate(volume, more, units, stripes):
            return _refused("Insufficient free space")
        if "--test" in options:
            self.segments[volume] = before[1]
            for unit, used in zip(self.physical, before[0], strict=True):
                unit.used = used
        return _DONE

    @_needs_group
    def _lvrename(self, words):
        _options, (group, old, new) = self._split(words, set())
        if f"{group}/{new}" in self.volumes:
            return _refused(f'Logical volume "{new}" already exists')
        if f"{group}/{old}" not in self.volumes:
            return _refused(f'Existing logical volume "{old}" not found')
        for snapshot in self._snapshots(f"{group}/{old}"):
            self.origins[snapshot] = new
        self.volumes[self.volumes.index(f"{group}/{old}")] = f"{group}/{new}"
        used = (unit.used for unit in self.physical)
        for values in (self.tags, self.segments, self.origins, *used):
            if f"{group}/{old}" in values:
                values[f"{group}/{new}"] = values.pop(f"{group}/{old}")
        return _DONE

    def _lvchange(self, words):
        valued = {"--activate", "--addtag", "--deltag"}
        options, (volume,) = self._split(words, valued)
        if volume not in self.volumes:
            return _refused(f'Failed to find logical volume "{volume}"')
        if "--activate" in options:
            self.inactive.discard(volume)
        gone = options.get("--deltag", [])
        kept = [tag for tag in self.tags.get(volume, ()) if tag not in gone]
        self.tags[volume] = kept + options.get("--addtag", [])
        return _DONE

    def _pvchange(self, words):
        options, (name,) = self._split(words, {"--allocatable"})
        (unit,) = (unit for unit in self.physical if unit.name == name)
        if refused := self._refusal(unit.group):
            return refused
        unit.is_allocatable = options["--allocatable"] == ["y"]
        return _DONE

    def _vgreduce(self, words):
        options, (group,) = self._split(words, set())
        if not self._units(group):
            return _refused(f'Volume group "{group}" not found')
        lost = [unit for unit in self._units(group) if unit.is_missing]
        broken = {volume for unit in lost for volume in unit.used}
        if broken and "--force" not in options:
            return (
                5,
                "",
                "  WARNING: Partial LV needs to be repaired or removed.\n  There are still partial LVs, use --force\n",
            )
        if not lost:
            return 0, f'  Volume group "{group}" is already consistent.\n', ""
        for volume in broken:
            self._remove(volume)
        self.physical = [unit for unit in self.physical if unit not in lost]
        return 0, f"  Wrote out consistent volume group {group}.\n", ""
