"""Verification: what is asked, what is judged, what the user reads."""

import hashlib

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import failure
from ganeti.base.constants import versions
from ganeti.master import config
from ganeti.master.locking import Level
from ganeti.model import objects

MASTER = clusters.node_uuid(1)
N2 = clusters.node_uuid(2)
FILES = {
    f"/###-VIRTUAL-PATH-###,/var/lib/ganeti/{name}": "aa"
    for name in ("hmac.key", "cluster-domain-secret", "rapi.pem", "server.pem")
} | {"/###-VIRTUAL-PATH-###,/etc/hosts": "bb"}
OS = [["tiny", "/os/tiny", True, "", ["a"], [], [20], False]]


def report(uuid, now, **changes):
    """Return what a healthy node answers."""
    return {
        "version": [versions.PROTOCOL_VERSION, versions.RELEASE_VERSION],
        "time": [int(now), 0],
        "filelist": FILES,
        "client-cert": [None, f"DIGEST-{uuid[-1]}"],
        "nodelist": {},
        "node-net-test": {},
        "master-ip": True,
        "hypervisor": {"kvm": None, "fake": None},
        "hvparms": [],
        "instancelist": ["inst1.example.com"] if uuid == MASTER else [],
        "hvinfo": {"memory_free": 4096},
        "nodesetup": [],
        "oslist": OS,
        "bridges": [],
        "allowed-file-storage-paths": [],
        "file-storage-path": None,
        "shared-file-storage-path": None,
        "ssh-setup": [],
        **changes,
    }


def node_info(total, free):
    memory = {"memory_total": total, "memory_free": free, "memory_dom0": 0}
    return ["boot", [], [{**memory, "cpu_total": 8, "cpu_dom0": 0}]]


def ssconf_sums(engine, wrong):
    sums = {}
    if isinstance(wrong, dict):
        for key, value in config.ssconf_values(engine.snapshot).items():
            text = wrong.get(f"ssconf_{key}", f"{value}\n" if value else "")
            path = f"/###-VIRTUAL-PATH-###,/var/lib/ganeti/ssconf_{key}"
            sums[path] = hashlib.sha1(text.encode()).hexdigest()
    return sums


def healthy(**changes):
    """Return a cluster of two nodes in which verification finds nothing."""
    return clusters.snapshot(
        nodes=2,
        instances=1,
        candidate_certs={MASTER: "DIGEST-1", N2: "DIGEST-2"},
        beparams={"default": {}},
        ipolicy=POLICY,
        **changes,
    )


def engine_with(changes=None, start=None, late=None, **script):
    """Return an engine with nodes; ``late`` has ssconf files that change later."""
    start = start or healthy()

    def verify(uuid, args):
        wrong = (changes or {}).get(uuid, {})
        if isinstance(args[0].get("filelist"), list) and len(args[0]) == 1:
            return {"filelist": ssconf_sums(engine, wrong)}
        if not isinstance(wrong, dict):
            return wrong
        whole = report(uuid, engine.clock.now, **wrong)
        if whole["filelist"]:
            whole["filelist"] = whole["filelist"] | ssconf_sums(engine, late or wrong)
        return whole

    engine = Engine(
        start,
        {
            "node_verify": verify,
            "hooks_runner": [],
            "node_has_ip_address": lambda node, _args: node == MASTER,
            "node_info": node_info(16384, 16384),
            "all_instances_info": {},
            "store_status": {"revision": 1, "term": 1, "digest": ""},
            **script,
        },
    )
    return engine


POLICY = {
    **clusters.EXAMPLE["cluster"]["ipolicy"],
    "disk-templates": ["diskless"],
    "minmax": [
        {
            "min": {
                "memory-size": 1,
                "disk-size": 1,
                "disk-count": 0,
                "cpu-count": 1,
                "nic-count": 0,
                "spindle-use": 0,
            },
            "max": clusters.EXAMPLE["cluster"]["ipolicy"]["minmax"][0]["max"],
        }
    ],
}


def run(engine, **options):
    return engine.run(
        {"OP_ID": "OP_CLUSTER_VERIFY_GROUP", "group_name": "default", **options}
    )


def findings(engine):
    return [line for line in engine.callbacks.text().splitlines() if line[:4] == "  - "]


def test_a_healthy_group_is_clean_and_the_steps_are_the_documented_ones():
    engine = engine_with()
    assert run(engine) is True
    assert engine.callbacks.text().splitlines() == [
        "* Verifying group 'default'",
        "* Gathering data (2 nodes)",
        "* Gathering information about nodes (2 nodes)",
        "* Gathering disk information (2 nodes)",
        "* Verifying configuration file consistency",
        "* Verifying node status",
        "* Verifying instance status",
        "* Verifying orphan volumes",
        "* Verifying N+1 Memory redundancy",
        "* Assessing cluster hypervisor parameters",
        "* Other Notes",
        "  - NOTICE: 1 non-redundant instance(s) found.",
        "* Hooks Results",
    ]
    assert engine.locks.modes() == {
        Level.INSTANCE: (frozenset(["inst1.example.com"]), True),
        Level.NODEGROUP: (frozenset([clusters.GROUP]), True),
        Level.NODE: (frozenset([MASTER, N2]), True),
    }
    run(engine, skip_checks=["nplusone_mem", "hvparam_assessment"])
    assert "N+1" not in engine.callbacks.text()
    assert "Assessing" not in engine.callbacks.text()


def test_only_candidates_are_asked_whom_they_can_log_in_to():
    start = clusters.snapshot(nodes=1, extra=[clusters.node(2, master_candidate=False)])
    engine = engine_with(start=start)
    run(engine)
    asked = {
        node: args[0]["nodelist"]
        for node, args in engine.rpc.called("node_verify")
        if "nodelist" in args[0]
    }
    assert asked == {MASTER: {"node1.example.com": 22, "node2.example.com": 22}, N2: {}}


@pytest.mark.parametrize("has_key_check", [True, False])
def test_in_small_groups_candidates_log_in_to_all_others(has_key_check):
    """Unless Ganeti keeps the keys, only a login shows if the master's is authorised."""
    engine = engine_with(
        start=clusters.snapshot(nodes=4, modify_ssh_setup=has_key_check)
    )
    run(engine)
    asked = {
        engine.snapshot.nodes[node].name: set(args[0]["nodelist"])
        for node, args in engine.rpc.called("node_verify")
        if "nodelist" in args[0]
    }
    everybody = {node.name for node in engine.snapshot.nodes.values()}
    expected = {name: everybody - {name} for name in everybody}
    if not has_key_check:
        expected["node1.example.com"] = everybody
    assert asked == expected


def test_the_only_candidate_of_a_small_group_also_logs_in_to_itself():
    """The master logs in to one node of the group, in the job of its own group."""
    place = {"group": "g2"}
    extra = [
        clusters.group("far", "g2"),
        clusters.node(2, **place, master_candidate=False),
        clusters.node(3, **place),
    ]
    engine = engine_with(start=clusters.snapshot(nodes=1, extra=extra))
    run(engine, group_name="far")
    asked = {
        engine.snapshot.nodes[node].name: set(args[0]["nodelist"])
        for node, args in engine.rpc.called("node_verify")
        if "nodelist" in args[0]
    }
    everybody = {node.name for node in engine.snapshot.nodes.values()}
    assert asked == {"node2.example.com": set(), "node3.example.com": everybody}


def test_in_large_groups_candidates_take_turns_in_logging_in():
    engine = engine_with(start=clusters.snapshot(nodes=10))
    rounds = []
    for _round in range(3):
        run(engine)
        rounds.append(
            {
                engine.snapshot.nodes[node].name: set(args[0]["nodelist"])
                for node, args in engine.rpc.called("node_verify")
                if "nodelist" in args[0]
            }
        )
        with engine.config.edit("test") as edit:
            edit.update_cluster()
    everybody = {node.name for node in engine.snapshot.nodes.values()}
    for asked in rounds:
        assert asked.pop("node1.example.com") == everybody
        assert all(len(peers) == 3 for peers in asked.values())
        assert all(name not in peers for name, peers in asked.items())
        assert set().union(*asked.values()) == everybody
    for name in rounds[0]:
        assert set().union(*(asked[name] for asked in rounds)) == everybody - {name}


def test_all_documented_requests_are_sent_with_their_arguments():
    engine = engine_with()
    run(engine, verify_clutter=True)
    (asked, name, hvparams) = engine.rpc.called("node_verify")[0][1]
    assert name == "cluster1.example.com"
    assert set(hvparams) == {"kvm", "fake"}
    assert asked["nodelist"] == {"node2.example.com": 22}
    assert asked["node-net-test"][0] == ["node1.example.com", "192.0.2.1", "192.0.2.1"]
    assert asked["ssh-clutter"] is True
    assert "vglist" not in asked
    assert asked["file-storage-path"] == "/srv/ganeti/file-storage"
    assert asked["disk-files"][0] == "/srv/ganeti/file-storage"


def test_lost_files_of_firmware_are_asked_for_and_named():
    guest = clusters.instance(1, hvparams={"firmware": "uefi"})
    lost = {"guest-files": {guest.name: ["firmware"], "other": ["tpm"]}}
    start = clusters.snapshot(
        nodes=2, extra=[guest], candidate_certs={MASTER: "DIGEST-1", N2: "DIGEST-2"}
    )
    engine = engine_with({MASTER: lost}, start=start)
    run(engine, error_codes=True)
    asked = engine.rpc.called("node_verify")[0][1][0]
    assert asked["guest-files"] == [guest.name]
    lines = [line for line in findings(engine) if "has lost the file" in line]
    assert len(lines) == 1
    assert f"{guest.name}:node node1.example.com has lost the file" in lines[0]


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ([], None),
        (["lzop"], "lzop"),
        # Names that were not asked for are ignored.
        (["gzip", "other", "lzop"], "gzip, lzop"),
    ],
)
def test_missing_programs_of_compression_tools_are_a_warning(answer, named):
    start = healthy(compression_tools=["gzip", "lzop"])
    engine = engine_with({N2: {"compression-tools": answer}}, start=start)
    assert run(engine, error_codes=True) is True
    assert asked_by(engine)["compression-tools"] == ["gzip", "lzop"]
    lines = [line for line in findings(engine) if "compression" in line]
    warning = (
        "  - WARNING:ENODESETUP:node:node2.example.com:no program for compression tools"
        f" {named}, so exports and moves of instances to or from this node cannot use"
        " these: install it, or set other tools with gnt-cluster modify"
        " --compression-tools"
    )
    assert lines == ([warning] if named else [])


def test_no_node_is_asked_for_compression_tools_if_there_are_none():
    engine = engine_with(start=healthy(compression_tools=[]))
    run(engine)
    assert "compression-tools" not in asked_by(engine)


def asked_by(engine):
    return engine.rpc.called("node_verify")[0][1][0]


def test_the_default_bridge_is_asked_for_without_any_nic():
    engine = engine_with(
        start=clusters.snapshot(
            nodes=2, nicparams={"default": {"mode": "bridged", "link": "br7"}}
        )
    )
    run(engine)
    assert engine.rpc.called("node_verify")[0][1][0]["bridges"] == ["br7"]
    routed = engine_with(
        start=clusters.snapshot(
            nodes=2, nicparams={"default": {"mode": "routed", "link": "100"}}
        )
    )
    run(routed)
    assert routed.rpc.called("node_verify")[0][1][0]["bridges"] == []


#: (answer of node 2, expected line)
WRONG = [
    (failure("gone"), "ERROR:ENODERPC:node:{n}:while contacting node: gone"),
    (
        {"version": [1, "x"]},
        (
            "ERROR:ENODEVERSION:node:{n}:incompatible protocol versions: master"
            " 3010000,"
            " node 1"
        ),
    ),
    (
        {"version": [versions.PROTOCOL_VERSION, "2.0"]},
        (
            "WARNING:ENODEVERSION:node:{n}:software version mismatch: master 3.1.1,"
            " node"
            " 2.0"
        ),
    ),
    (
        {"time": [1_700_000_400, 0]},
        (
            "ERROR:ENODETIME:node:{n}:node time diverges by at least 400.0s from master"
            " node time"
        ),
    ),
    (
        {"nodelist": {"node1.example.com": "refused"}},
        (
            "ERROR:ENODESSH:node:{n}:ssh communication with node 'node1.example.com':"
            " refused"
        ),
    ),
    ({"ssh-setup": ["no key"]}, "ERROR:ENODESSH:node:{n}:no key"),
    (
        {"node-net-test": {"node1.example.com": "unreachable"}},
        (
            "ERROR:ENODENET:node:{n}:tcp communication with node 'node1.example.com':"
            " unreachable"
        ),
    ),
    (
        {"master-ip": False},
        "ERROR:ENODENET:node:{n}:the master address (IP: 192.0.2.100) is not reachable",
    ),
    (
        {"disk-files": {"/srv/ganeti/file-storage/x": 1}},
        (
            "ERROR:ENODEORPHANLV:node:{n}:disk file /srv/ganeti/file-storage/x belongs"
            " to no instance; if nobody needs it, remove it there: rm"
            " /srv/ganeti/file-storage/x"
        ),
    ),
    ({"bridges": ["br9"]}, "ERROR:ENODENET:node:{n}:missing bridges: br9"),
    (
        {"hypervisor": {"kvm": "no /dev/kvm"}},
        "ERROR:ENODEHV:node:{n}:hypervisor kvm verify failure: 'no /dev/kvm'",
    ),
    (
        {"hvparms": [["cluster", "kvm", "no kernel"]]},
        (
            "ERROR:ENODEHV:node:{n}:hypervisor kvm parameter verify failure (source"
            " cluster): no kernel"
        ),
    ),
    ({"nodesetup": ["no /sys"]}, "ERROR:ENODESETUP:node:{n}:node setup error: no /sys"),
    (
        {"oslist": []},
        (
            "ERROR:ENODEOS:node:{n}:OS tiny is on node node1.example.com but missing on"
            " node node2.example.com"
        ),
    ),
    (
        {"oslist": [["tiny", "/os/tiny", True, "", ["b"], [], [20], False]]},
        (
            "ERROR:ENODEOS:node:{n}:OS tiny: variants list differs from reference node"
            " node1.example.com: ['b'] vs. ['a']"
        ),
    ),
    (
        {"oslist": [["tiny", "/os/tiny", False, "broken", [], [], [], False]]},
        "ERROR:ENODEOS:node:{n}:invalid OS tiny (located at /os/tiny): broken",
    ),
    (
        {"client-cert": ["ERROR", "expired"]},
        (
            "ERROR:ECLUSTERCLIENTCERT:cluster:None:client certificate of node"
            " node2.example.com failed validation: expired"
        ),
    ),
    (
        {"client-cert": [None, "DIGEST-1"]},
        (
            "ERROR:ECLUSTERCLIENTCERT:cluster:None:nodes node1.example.com and"
            " node2.example.com have the same client certificate"
        ),
    ),
    (
        {"file-storage-path": "not writable"},
        (
            "ERROR:ENODEFILESTORAGEPATHUNUSABLE:node:{n}:the configured file storage"
            " path"
            " is unusable: not writable"
        ),
    ),
    (
        {"allowed-file-storage-paths": ["/etc"]},
        "ERROR:ENODEFILESTORAGEPATHS:node:{n}:found forbidden file storage path /etc",
    ),
    (
        {"instancelist": ["stray.example.com"]},
        (
            "ERROR:ENODEORPHANINSTANCE:node:{n}:instance stray.example.com should not"
            " exist"
        ),
    ),
    (
        {"instancelist": ["inst1.example.com"]},
        (
            "ERROR:EINSTANCEWRONGNODE:instance:inst1.example.com:instance should not"
            " run on node node2.example.com; if a migration was interrupted, run"
            " gnt-instance migrate --cleanup inst1.example.com"
        ),
    ),
    (
        {"filelist": None},
        "ERROR:ENODEFILECHECK:node:{n}:node did not return file checksum data",
    ),
    (
        {"filelist": FILES | {"/###-VIRTUAL-PATH-###,/etc/hosts": "cc"}},
        (
            "ERROR:ECLUSTERFILECHECK:cluster:None:file /etc/hosts"
            " found with 2 different checksums (variant 1 on node2.example.com)"
        ),
    ),
    (
        {"filelist": {}},
        (
            "ERROR:ECLUSTERFILECHECK:cluster:None:file /etc/hosts is"
            " missing from node(s) node2.example.com"
        ),
    ),
]


@pytest.mark.parametrize(("wrong", "line"), WRONG)
def test_each_thing_that_is_wrong_on_a_node_gives_its_finding(wrong, line):
    engine = engine_with({N2: wrong})
    result = run(engine, error_codes=True)
    wanted = "  - " + line.format(n="node2.example.com")
    assert wanted in findings(engine)
    assert result is ("WARNING" in line)


def test_the_address_of_the_cluster_on_another_node_is_an_error():
    engine = engine_with(node_has_ip_address=lambda uuid, _args: uuid == N2)
    assert run(engine, error_codes=True) is False
    lines = findings(engine)
    address = engine.snapshot.cluster.master_ip
    (line,) = [line for line in lines if "has the address" in line]
    assert f"node2.example.com:has the address {address}" in line
    asked = {node for node, _args in engine.rpc.called("node_has_ip_address")}
    assert asked == {MASTER, N2}


def test_a_master_without_the_address_of_the_cluster_is_an_error():
    engine = engine_with(node_has_ip_address=lambda _uuid, _args: False)
    assert run(engine, error_codes=True) is False
    (line,) = [line for line in findings(engine) if "does not have the" in line]
    assert ":ENODENET:node:" in line
    assert "run 'gnt-cluster activate-master-ip'" in line


def test_a_secret_of_candidates_on_another_node_is_an_error():
    plain = clusters.node(2, master_candidate=False)
    start = clusters.snapshot(nodes=1, instances=1, extra=[plain])
    engine = engine_with(start=start)
    run(engine, error_codes=True)
    wanted = "file /var/lib/ganeti/rapi.pem is a secret of master candidates"
    assert any(wanted in line for line in findings(engine))
    secrets = ("rapi.pem", "cluster-domain-secret")
    without = {k: v for k, v in FILES.items() if not k.endswith(secrets)}
    engine = engine_with({N2: {"filelist": without}}, start=start)
    run(engine, error_codes=True)
    assert not any("rapi.pem" in line for line in findings(engine))


def test_lines_for_people_have_kind_and_name():
    engine = engine_with({N2: {"bridges": ["br9"], "client-cert": ["ERROR", "x"]}})
    assert run(engine) is False
    assert "  - ERROR: node node2.example.com: missing bridges: br9" in findings(engine)
    assert any(line.startswith("  - ERROR: cluster : ") for line in findings(engine))


def test_an_instance_that_is_down_has_a_finding_and_codes_can_be_ignored():
    engine = engine_with({MASTER: {"instancelist": []}})
    assert run(engine, error_codes=True) is False
    down = ":EINSTANCEDOWN:instance:inst1.example.com:"
    assert any(line.startswith(f"  - ERROR{down}") for line in findings(engine))
    assert run(engine, error_codes=True, ignore_errors=["EINSTANCEDOWN"]) is True
    assert any(line.startswith(f"  - WARNING{down}") for line in findings(engine))


def test_a_changed_value_of_the_simple_configuration_is_found():
    engine = engine_with({N2: {"ssconf_master_node": "node9\n"}})
    assert run(engine, error_codes=True) is False
    line = findings(engine)[0]
    assert line.startswith("  - ERROR:ECLUSTERFILECHECK:cluster:None:file ")
    assert line.endswith(
        "/ssconf_master_node differs from the configuration on node(s)"
        " node2.example.com"
    )


def test_a_value_that_no_node_gets_is_a_finding_and_not_a_failure(monkeypatch):
    monkeypatch.setattr("ganeti.protocols.ssconf.MAX_SIZE", 25)
    engine = engine_with()
    assert run(engine, error_codes=True) is False
    wanted = (
        "  - ERROR:ECLUSTERFILECHECK:cluster:None:no node gets it: ssconf key"
        " node_list: 36 bytes, wanted at most 25"
    )
    assert wanted in findings(engine)


def test_nodes_are_asked_again_only_for_files_that_they_have_not_written_yet():
    for late, calls in ((None, [1, 1]), ({"ssconf_master_node": "node9\n"}, [2, 2])):
        engine = engine_with(late=late)
        assert run(engine) is True
        asked = [node for node, _args in engine.rpc.called("node_verify")]
        assert [asked.count(node) for node in (MASTER, N2)] == calls
        assert len(engine.rpc.called("store_status")) == 1


def test_a_stale_configuration_copy_is_found():
    engine = engine_with(store_status={"revision": 0, "term": 1, "digest": ""})
    assert run(engine, error_codes=True) is False
    assert (
        "  - ERROR:ENODEFILECHECK:node:node2.example.com:configuration copy is at"
        " revision 0, the master's at 1" in findings(engine)
    )
    assert (
        "  - ERROR:ECLUSTERFILECHECK:cluster:None:only 1 of 2 master candidates have"
        " the newest changes" in "\n".join(findings(engine))
    )


def test_disks_are_judged_by_the_status_that_nodes_give():
    disk = objects.Disk(
        uuid="d1",
        dev_type="file",
        logical_id=("loop", "/srv/x"),
        size=1024,
        serial_no=1,
        nodes=(MASTER,),
        iv_name="disk/0",
    )
    start = clusters.snapshot(
        nodes=1,
        extra=[disk, clusters.instance(1, disks=["d1"])],
        candidate_certs={MASTER: "DIGEST-1"},
        ipolicy={**POLICY, "disk-templates": ["file"]},
    )
    good = {"ldisk_status": 1, "is_degraded": False}
    engine = engine_with(start=start, blockdev_getmirrorstatus_multi=[[True, good]])
    assert run(engine) is True
    for row, text in (
        ([False, "io error"], "couldn't retrieve status for disk/0"),
        ([True, None], "disk/0 on node1.example.com is missing"),
        ([True, {**good, "ldisk_status": 4}], "is faulty"),
    ):
        engine.rpc.script["blockdev_getmirrorstatus_multi"] = [row]
        assert run(engine) is False
        assert text in engine.callbacks.text()


def test_a_mirror_is_judged_by_both_of_its_nodes():
    start = clusters.snapshot(
        nodes=2,
        extra=[
            clusters.drbd_disk("d1", 1, 2),
            clusters.instance(1, disks=["d1"], disks_active=True),
        ],
        ipolicy={**POLICY, "disk-templates": ["drbd"]},
    )
    kernel = {"connection": "SyncSource", "disk": "UpToDate"}
    status = {"dev_path": "/dev/drbd0", "is_degraded": True, "sync_percent": 41.2}

    def answer(node, _args):
        if node == MASTER:
            return [[True, {**status, "ldisk_status": 1, "mirror": kernel}]]
        other = {"connection": "SyncTarget", "disk": disk}
        return [[True, {**status, "ldisk_status": 2, "mirror": other}]]

    disk = "Inconsistent"
    engine = engine_with(start=start, blockdev_getmirrorstatus_multi=answer)
    run(engine, error_codes=True)
    where = "instance:inst1.example.com:disk/0: "
    (about,) = (line for line in findings(engine) if where in line)
    assert about == (
        f"  - WARNING:EINSTANCEFAULTYDISK:{where}is being copied from node"
        " node1.example.com to node node2.example.com, 41.2 % done"
    )
    disk = "Diskless"
    run(engine, error_codes=True)
    about = [line for line in findings(engine) if where in line]
    assert about[-1].startswith(f"  - ERROR:EINSTANCEFAULTYDISK:{where}diskless: node")
    assert about[-1].endswith(
        "run gnt-instance replace-disks -s --disks=0 inst1.example.com"
    )
    changed = {clusters.node_uuid(2): {"vglist": {"other": 1.0}}}
    engine = engine_with(changed, start, blockdev_getmirrorstatus_multi=answer)
    run(engine, error_codes=True)
    about = [line for line in findings(engine) if where in line]
    assert about[-1].endswith(
        "run gnt-instance replace-disks -n NODE inst1.example.com"
    )


def test_offline_nodes_are_skipped_and_instances_on_them_are_not_well():
    start = clusters.snapshot(
        nodes=1,
        extra=[
            clusters.node(2, offline=True, master_candidate=False),
            clusters.instance(4, primary=2),
        ],
        candidate_certs={MASTER: "DIGEST-1"},
        ipolicy=POLICY,
    )
    engine = engine_with({MASTER: {"instancelist": []}}, start=start)
    assert run(engine, verbose=True) is False
    text = engine.callbacks.text()
    assert "* Skipping offline node node2.example.com" in text
    assert "* Verifying node node1.example.com (master)" in text
    assert "lives on offline node node2.example.com" in text
    assert "  - NOTICE: 1 offline node(s) found." in text
    assert {node for node, _ in engine.rpc.called("node_verify")} == {MASTER}


def test_failing_hooks_count_as_errors():
    engine = engine_with(
        hooks_runner=lambda node, args: (
            [["cluster-verify-post.d/check", 1, "bad\nworse"]]
            if node == N2
            else failure("silent")
        )
    )
    assert run(engine, error_codes=True) is False
    lines = engine.callbacks.text().splitlines()
    at = lines.index(
        "  - ERROR:ENODEHOOKS:node:node2.example.com:script"
        " cluster-verify-post.d/check failed, output:"
    )
    assert lines[at + 1 : at + 3] == ["      bad", "      worse"]
    assert any("communication failure in hooks" in line for line in lines)
    env = engine.rpc.called("hooks_runner")[0][1][2]
    assert env["GANETI_NODE_TAGS_node1.example.com"] == ""


def test_simulated_errors_make_every_check_fail():
    engine = engine_with()
    assert run(engine, error_codes=True, debug_simulate_errors=True) is False
    codes = {line.split(":")[1] for line in findings(engine) if ":E" in line}
    assert {"ENODERPC", "ENODENET", "ENODESSH", "ENODETIME", "EINSTANCEDOWN"} <= codes


def test_an_empty_group_is_skipped():
    engine = engine_with(
        start=clusters.snapshot(extra=[clusters.group("empty", "g-2")])
    )
    assert run(engine, group_name="empty") is True
    assert "* Empty node group, skipping verification" in engine.callbacks.text()


def test_the_whole_verification_is_one_job_for_the_configuration_and_one_per_group():
    engine = engine_with(start=clusters.snapshot(extra=[clusters.group("b", "g-2")]))
    result = engine.run({"OP_ID": "OP_CLUSTER_VERIFY", "error_codes": True})
    assert [ok for ok, _ in result["jobs"]] == [True] * 3
    ops = [job[0] for job in engine.callbacks.submitted]
    assert [op.op_id() for op in ops] == [
        "OP_CLUSTER_VERIFY_CONFIG",
        "OP_CLUSTER_VERIFY_GROUP",
        "OP_CLUSTER_VERIFY_GROUP",
    ]
    assert [op.depends for op in ops[1:]] == [[(-1, [])], [(-2, [])]]
    assert all(op.error_codes for op in ops)
    engine.run({"OP_ID": "OP_CLUSTER_VERIFY", "group_name": "b"})
    ((op,),) = engine.callbacks.submitted
    assert (op.group_name, op.depends) == ("b", None)


def test_the_configuration_is_verified_step_by_step(tmp_path):
    engine = Engine(root=str(tmp_path / "n1"))
    assert engine.run({"OP_ID": "OP_CLUSTER_VERIFY_CONFIG"}) is False
    text = engine.callbacks.text()
    assert [line for line in text.splitlines() if line[0] == "*"] == [
        "* Verifying cluster config",
        "* Verifying cluster certificate files",
        "* Verifying hypervisor parameters",
        "* Verifying all nodes belong to an existing group",
    ]
    assert "server.pem" in text
    assert all(shared for _, shared in engine.locks.modes().values())


def while_waiting(engine, change):
    """Change the configuration, and locks, when the group's instances are locked."""
    real, done = engine.locks.acquire, []

    def acquire(request, timeout_s=None):
        if request.level is Level.INSTANCE and not done:
            done.append(True)
            with engine.config.edit("other job") as edit:
                change(edit)
            names = {item.name for item in engine.snapshot.instances.values()}
            old = engine.locks.names(Level.INSTANCE)
            engine.locks.remove(Level.INSTANCE, sorted(old - names))
        return real(request, timeout_s)

    engine.locks.acquire = acquire


def remove(edit):
    for uuid in list(edit.snapshot.instances):
        edit.remove_instance(uuid)


def add(edit):
    (old,) = edit.snapshot.instances.values()
    edit.add_instance(
        old.replace(
            uuid="i9", name="new.example.com", nics=(), disks=(), network_port=None
        )
    )


@pytest.mark.parametrize("change", [remove, add])
def test_instances_that_come_or_go_while_it_waits_for_locks_are_left_out(change):
    changes = {MASTER: {"instancelist": []}} if change is remove else None
    current = {"revision": 1000, "term": 1, "digest": ""}
    engine = engine_with(changes, store_status=current)
    while_waiting(engine, change)
    assert run(engine) is True, engine.callbacks.text()
    assert (change is add) == ("left out new.example.com" in engine.callbacks.text())
    assert engine.locks.is_idle()


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("change", [remove, add])
def test_verify_disks_leaves_them_out_as_well(change, is_strict):
    engine = engine_with()
    while_waiting(engine, change)
    op = {"OP_ID": "OP_GROUP_VERIFY_DISKS", "group_name": "default"}
    assert engine.run({**op, "is_strict": is_strict}) == ({}, [], {})


def test_an_instance_whose_creation_did_not_finish_is_an_error():
    record = clusters.instance(1, creation="interrupted", admin_state="down")
    start = clusters.snapshot(nodes=2, extra=[record], ipolicy=POLICY)
    engine = engine_with({MASTER: {"instancelist": []}}, start=start, instance_info={})
    run(engine)
    assert (
        "  - ERROR: instance inst1.example.com: its installation did not finish; install it"
        " again with gnt-instance reinstall, or remove it" in findings(engine)
    )


# Out of band
def with_helpers(answers, *, changes=None, **node2):
    """Verify a group whose second node is offline and switched off, as recorded."""
    ndparams = {**clusters.EXAMPLE["cluster"]["ndparams"], "oob_program": "/sbin/oob"}
    flags = {"offline": True, "master_candidate": False, "powered": False} | node2
    start = clusters.snapshot(
        nodes=1,
        instances=1,
        candidate_certs={MASTER: "DIGEST-1"},
        beparams={"default": {}},
        ipolicy=POLICY,
        ndparams=ndparams,
        extra=[clusters.node(2, **flags)],
    )
    engine = engine_with(
        {MASTER: {"oob-paths": [None], **(changes or {})}}, start, run_oob_many=answers
    )
    run(engine, error_codes=True)
    return engine


def oob_findings(engine):
    return [line for line in findings(engine) if "ENODEOOBPATH" in line]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([True, {"powered": False}], []),
        ([True, {}], []),
        (
            [True, {"powered": True}],
            [
                (
                    "  - ERROR:ENODEOOBPATH:node:node2.example.com:recorded power state"
                    " (off) does not match actual power state (on)"
                )
            ],
        ),
        (
            [False, "OOB program execution failed (dead)"],
            [
                (
                    "  - WARNING:ENODEOOBPATH:node:node2.example.com:power state cannot"
                    " be determined: OOB program execution failed (dead)"
                )
            ],
        ),
    ],
)
def test_the_recorded_power_state_is_compared_with_the_real_one(answer, expected):
    engine = with_helpers([[True, {"powered": True}], answer])
    assert oob_findings(engine) == expected
    ((_, args),) = engine.rpc.called("run_oob_many")
    helpers = [["/sbin/oob", f"node{n}.example.com"] for n in (1, 2)]
    assert args == (helpers, "power-status", 10, 0.0)


def test_nodes_that_opted_out_are_not_asked_for_their_power():
    engine = with_helpers(
        [[True, {"powered": True}]], ndparams={"oob_program": "!"}, offline=True
    )
    ((_, args),) = engine.rpc.called("run_oob_many")
    assert args[0] == [["/sbin/oob", "node1.example.com"]]


def test_a_node_that_is_recorded_as_off_is_not_asked():
    engine = with_helpers(
        [[True, {"powered": True}], [True, {"powered": False}]], offline=False
    )
    assert {node for node, _ in engine.rpc.called("node_verify")} == {MASTER}


def test_helpers_of_all_nodes_must_be_usable_on_each_candidate():
    problem = "OOB program /opt/other does not exist"
    engine = with_helpers(
        [[True, {"powered": True}], [True, {"powered": False}]],
        changes={"oob-paths": [problem, None]},
        ndparams={"oob_program": "/opt/other"},
    )
    asked = engine.rpc.called("node_verify")[0][1][0]
    assert asked["oob-paths"] == ["/opt/other", "/sbin/oob"]
    assert oob_findings(engine) == [
        f"  - ERROR:ENODEOOBPATH:node:node1.example.com:{problem}"
    ]


@pytest.mark.parametrize("template", ["sharedfile", "diskless"])
@pytest.mark.parametrize(("memory", "warned"), [(6200, [1, 2]), (5900, [])])
def test_nodes_whose_instances_have_no_other_place_are_warned_of(
    template, memory, warned
):
    disks = [
        objects.Disk(
            uuid=f"d{n}", dev_type="sharedfile", logical_id=("loop", f"/x/d{n}"),
            size=8, nodes=(), serial_no=1, iv_name="disk/0",
        )
        for n in (1, 2)
    ]  # fmt: skip
    if template == "diskless":
        disks = []
    guests = [
        clusters.instance(
            n,
            primary=n,
            beparams={"maxmem": memory, "minmem": memory},
            disks=[disk.uuid for disk in disks[n - 1 : n]],
        )
        for n in (1, 2)
    ]
    running = {clusters.node_uuid(n): {guests[n - 1].name} for n in (1, 2)}
    start = healthy(extra=[*disks, *guests])
    engine = engine_with(
        start=start,
        blockdev_getmirrorstatus_multi=lambda _node, args: [
            [True, None] for _ in args[0]
        ],
        node_info=node_info(16384, 16384 - memory),
        all_instances_info=lambda node, _args: {
            name: {"memory": memory, "vcpus": 1, "state": 0, "time": 1.0}
            for name in running[node]
        },
    )
    run(engine)
    assert [line for line in findings(engine) if "should this node fail" in line] == [
        f"  - WARNING: node node{n}.example.com: should this node fail, not all of its"
        " instances have a place on the others of its group; see hcheck and"
        " gnt-cluster capacity"
        for n in warned
    ]
