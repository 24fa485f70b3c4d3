"""Configurations of other implementations of Ganeti 3, and mistakes in them."""

import copy
import json
import pathlib

_FILES = pathlib.Path(__file__).parents[2] / "data" / "config"
#: Made by Debian's Ganeti 3.0.2: two nodes, a network, two groups, a filter, three
#: instances.
DEBIAN = _FILES / "debian-3.0.2.json"
UNKNOWN = "00000000-0000-4000-8000-000000000000"


def debian():
    """Return the configuration that Debian's Ganeti 3.0.2 wrote."""
    return json.loads(DEBIAN.read_text())


def references(data):
    """Return a function for each reference; called with a copy, it breaks that one."""
    return list(_references(data))


def _references(data):
    yield lambda d: d["cluster"].update(master_node=UNKNOWN)
    for uuid in data["cluster"]["candidate_certs"]:
        yield lambda d, u=uuid: _rename(d["cluster"]["candidate_certs"], u)
    for uuid in data["nodes"]:
        yield lambda d, u=uuid: d["nodes"][u].update(group=UNKNOWN)
    for uuid, group in data["nodegroups"].items():
        for network in group["networks"]:
            yield lambda d, u=uuid, n=network: _rename(
                d["nodegroups"][u]["networks"], n
            )
    for uuid, disk in data["disks"].items():
        for place in range(len(disk["nodes"])):
            yield lambda d, u=uuid, p=place: _put(d["disks"][u]["nodes"], p)
        for place in (0, 1) if disk["dev_type"] == "drbd" else ():
            yield lambda d, u=uuid, p=place: _put(d["disks"][u]["logical_id"], p)
    for uuid, instance in data["instances"].items():
        yield lambda d, u=uuid: d["instances"][u].update(primary_node=UNKNOWN)
        for place in range(len(instance["disks"])):
            yield lambda d, u=uuid, p=place: _put(d["instances"][u]["disks"], p)
        for place, nic in enumerate(instance["nics"]):
            if nic.get("network"):
                yield lambda d, u=uuid, p=place: d["instances"][u]["nics"][p].update(
                    network=UNKNOWN
                )


def broken(data, change):
    """Return a copy of a configuration with a change."""
    actual = copy.deepcopy(data)
    change(actual)
    return actual


def _rename(mapping, key):
    mapping[UNKNOWN] = mapping.pop(key)


def _put(items, place):
    items[place] = UNKNOWN
