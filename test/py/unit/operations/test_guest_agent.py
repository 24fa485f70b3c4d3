"""The agent of a guest in operations: addresses in info, freezing for snapshots."""

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS, failure

AGENT = {"use_guest_agent": True}
RUNS = {"memory": 128, "vcpus": 1, "state": 0, "time": 1.0}


def engine(**script):
    hosts = [
        clusters.instance(1, hypervisor="kvm", hvparams=AGENT),
        clusters.instance(2, hypervisor="kvm"),
        clusters.instance(3, hypervisor="kvm", hvparams=AGENT),
    ]
    names = [host.name for host in hosts]
    script = {
        **SUCCESSFUL_ACTS,
        "all_instances_info": dict.fromkeys(names[:2], RUNS),
        "blockdev_find": None,
        "node_verify": {},
        **script,
    }
    return Engine(clusters.snapshot(instances=0, extra=hosts), script), names


def info(eng, **fields):
    return eng.run({"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": [], **fields})


def test_only_running_guests_with_a_channel_are_asked():
    eng, names = engine(guest_addresses={})
    answer = info(eng)
    ((_, args),) = eng.rpc.called("guest_addresses")
    assert args == ("kvm", [names[0]])
    assert all("guest_addresses" not in each for each in answer.values())
    info(eng, static=True)
    assert not eng.rpc.called("guest_addresses")


def test_the_word_of_a_node_is_checked():
    rows = [
        ["eth0", "aa:00:00:00:00:01", ["192.0.2.7/24", "evil"]],
        ["\x1b[2J", "", []],
        "x",
        [1, 2],
    ]
    name = "inst1.example.com"
    eng, _ = engine(guest_addresses={name: rows, "other": rows})
    answer = info(eng)
    assert answer[name]["guest_addresses"] == [
        {"name": "eth0", "mac": "aa:00:00:00:00:01", "addresses": ["192.0.2.7/24"]}
    ]
    eng, _ = engine(guest_addresses=failure())
    assert "guest_addresses" not in info(eng)[name]
