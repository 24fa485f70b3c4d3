"""Requests of commands to the master: one line, one opcode."""

import json

import pytest

from fakes import commands
from fakes.luxi_master import SUCCESSFUL_OPCODES, FakeMaster

SPECS = (
    "memory-size=128,cpu-count=1,disk-count=1,disk-size=1g,nic-count=1,spindle-use=1"
)
SPEC_VALUES = {
    "memory-size": 128,
    "cpu-count": 1,
    "disk-count": 1,
    "disk-size": 1024,
    "nic-count": 1,
    "spindle-use": 1,
}

#: Command line -> parameters of the opcode that it submits.
REQUESTS = {
    "gnt-instance add -t drbd -s 10g -n a:b -o deb+min -B memory=1g,vcpus=2 w1": {
        "disk_template": "drbd",
        "disks": [{"size": 10240}],
        "nics": [{}],
        "pnode": "a",
        "snode": "b",
        "os_type": "deb+min",
        "beparams": {"memory": "1g", "vcpus": "2"},
        "mode": "create",
        "start": True,
    },
    (
        "gnt-instance add -t plain --disk 1:size=2g,mode=ro --disk 0:adopt=lv1"
        " --net 0:mac=generate,link=br0 --net 1:ip=1.2.3.4 -H kvm:acpi=no,-x"
        " --no-start --tags a,b w1"
    ): {
        "disks": [{"adopt": "lv1", "size": 0}, {"size": 2048, "mode": "ro"}],
        "nics": [{"mac": "generate", "link": "br0"}, {"ip": "1.2.3.4"}],
        "hypervisor": "kvm",
        "hvparams": {"acpi": "no", "x": None},
        "start": False,
        "tags": ["a", "b"],
    },
    "gnt-instance add -t diskless --no-nics -I hail w1": {
        "disks": [],
        "nics": [],
        "iallocator": "hail",
    },
    "gnt-instance remove -f --ignore-failures w1": {
        "ignore_failures": True,
        "shutdown_timeout": 120,
    },
    "gnt-instance failover -f -n n2 w1": {"target_node": "n2"},
    "gnt-instance migrate -f --non-live --cleanup w1": {
        "mode": "non-live",
        "cleanup": True,
    },
    "gnt-instance rename --name-check w1 w2": {"new_name": "w2", "name_check": True},
    "gnt-instance grow-disk --absolute w1 0 20g": {
        "disk": 0,
        "amount": 20480,
        "absolute": True,
    },
    "gnt-instance activate-disks --ignore-size w1": {"ignore_size": True},
    "gnt-instance deactivate-disks -f w1": {"force": True},
    "gnt-instance recreate-disks --disk 1:size=5g -n a:b w1": {
        "disks": [(1, {"size": 5120})],
        "nodes": ["a", "b"],
    },
    "gnt-instance recreate-disks --disk 1 w1": {"disks": [(1, {})], "nodes": []},
    "gnt-instance reinstall -f -o deb w1": {"os_type": "deb"},
    "gnt-instance reboot -t soft w1": {"reboot_type": "soft"},
    "gnt-instance shutdown --timeout 5 --no-remember w1": {
        "timeout": 5,
        "no_remember": True,
    },
    "gnt-instance startup --paused -H acpi=no -B vcpus=2 w1": {
        "startup_paused": True,
        "hvparams": {"acpi": "no"},
        "beparams": {"vcpus": "2"},
    },
    "gnt-instance modify --disk add:size=1g --net 1:remove -B vcpus=default w1": {
        "disks": [["add", -1, {"size": 1024}]],
        "nics": [["remove", 1, {}]],
        "beparams": {"vcpus": "default"},
    },
    "gnt-instance modify --disk 0:mode=ro --net -1:add,ip=1.2.3.4 -f --online w1": {
        "disks": [["modify", 0, {"mode": "ro"}]],
        "nics": [["add", -1, {"ip": "1.2.3.4"}]],
        "offline": False,
        "force": True,
    },
    "gnt-instance modify -t drbd -n n2 -m 1g --no-hotplug w1": {
        "disk_template": "drbd",
        "remote_node": "n2",
        "runtime_mem": 1024,
        "hotplug": False,
    },
    "gnt-instance add-tags w1 a b": {
        "kind": "instance",
        "name": "w1",
        "tags": ["a", "b"],
    },
    "gnt-cluster remove-tags a": {"kind": "cluster", "name": None, "tags": ["a"]},
    "gnt-group add-tags g1 a": {"kind": "nodegroup"},
    "gnt-node remove-tags n1 a": {"kind": "node"},
    "gnt-node modify -C yes -D no --auto-promote --node-parameters ssh_port=23 n1": {
        "master_candidate": True,
        "drained": False,
        "auto_promote": True,
        "ndparams": {"ssh_port": "23"},
    },
    "gnt-node remove n1": {"node_name": "n1"},
    "gnt-node powercycle --yes -f n1": {"force": True},
    "gnt-group remove g1": {"group_name": "g1"},
    "gnt-group rename g1 g2": {"group_name": "g1", "new_name": "g2"},
    (
        "gnt-network add --network 192.0.2.0/24 --gateway 192.0.2.1 -m aa:00:01"
        " --add-reserved-ips 192.0.2.3,192.0.2.4 --network6 2001:db8::/64"
        " --gateway6 2001:db8::1 --no-conflicts-check --tags a,b lan"
    ): {
        "network_name": "lan",
        "network": "192.0.2.0/24",
        "gateway": "192.0.2.1",
        "mac_prefix": "aa:00:01",
        "add_reserved_ips": ["192.0.2.3", "192.0.2.4"],
        "network6": "2001:db8::/64",
        "gateway6": "2001:db8::1",
        "conflicts_check": False,
        "tags": ["a", "b"],
    },
    "gnt-network modify --gateway none --remove-reserved-ips 192.0.2.3 lan": {
        "gateway": "none",
        "remove_reserved_ips": ["192.0.2.3"],
    },
    "gnt-network modify --add-reserved-ips= --gateway6 none lan": {
        "add_reserved_ips": [],
        "gateway6": "none",
    },
    "gnt-network remove -f lan": {"network_name": "lan", "force": True},
    "gnt-network rename lan office": {"network_name": "lan", "new_name": "office"},
    "gnt-network add-tags lan a": {"kind": "network", "name": "lan", "tags": ["a"]},
    "gnt-network remove-tags lan a": {"kind": "network", "name": "lan"},
    "gnt-group assign-nodes -f g1 n1 n2": {"nodes": ["n1", "n2"], "force": True},
    (
        "gnt-group add --alloc-policy preferred --ipolicy-vcpu-ratio 3 -D drbd:metavg=x"
        f" --ipolicy-bounds-specs min:{SPECS}/max:{SPECS} g1"
    ): {
        "alloc_policy": "preferred",
        "diskparams": {"drbd": {"metavg": "x"}},
        "ipolicy": {
            "vcpu-ratio": 3.0,
            "minmax": [{"min": SPEC_VALUES, "max": SPEC_VALUES}],
        },
    },
    "gnt-group modify --ipolicy-disk-templates default g1": {
        "ipolicy": {"disk-templates": "default"}
    },
    (
        "gnt-cluster modify --enabled-hypervisors kvm,fake -H kvm:acpi=no -C 5"
        " --uid-pool 4000-4019,5000 --reserved-lvs= --vg-name= --compression-tools="
        " --data-collector-interval lv=2.5 --hypervisor-state kvm:mem_node=1"
        " --disk-state lvm/xenvg:total=2 --ipolicy-std-specs cpu-count=2"
    ): {
        "enabled_hypervisors": ["kvm", "fake"],
        "hvparams": {"kvm": {"acpi": "no"}},
        "candidate_pool_size": 5,
        "uid_pool": [(4000, 4019), (5000, 5000)],
        "reserved_lvs": [],
        "vg_name": "",
        "compression_tools": ["gzip", "gzip-fast", "gzip-slow"],
        "data_collector_interval": {"lv": 2_500_000},
        "hv_state": {"kvm": {"mem_node": "1"}},
        "disk_state": {"lvm": {"xenvg": {"total": "2"}}},
        "ipolicy": {"std": {"cpu-count": 2}},
    },
    "gnt-cluster redist-conf": {},
    "gnt-cluster redist-conf --yes-do-it": {},
    "gnt-cluster activate-master-ip": {"reason": []},
    "gnt-cluster deactivate-master-ip --yes": {"reason": []},
    "gnt-cluster rename -f new": {"name": "new"},
    "gnt-cluster repair-disk-sizes w1": {"instances": ["w1"]},
    "gnt-os modify -H kvm:acpi=no -O a=b --hidden yes deb": {
        "os_hvp": {"deb": {"kvm": {"acpi": "no"}}},
        "osparams": {"deb": {"a": "b"}},
        "hidden_os": [("add", "deb")],
    },
    "gnt-debug delay -n n1 --no-master -r 2 1.5": {
        "duration": 1.5,
        "on_master": False,
        "on_nodes": ["n1"],
        "repeat": 2,
    },
    "gnt-debug test-osparams --os-parameters-secret a=b": {
        "osparams_secret": {"a": "b"}
    },
}


@pytest.fixture
def master():
    fake = FakeMaster()
    fake.results.update(SUCCESSFUL_OPCODES)
    fake.objects["instance"] = [{"name": "w1", "uuid": "u1", "tags": []}]
    fake.results["OP_INSTANCE_ACTIVATE_DISKS"] = [["n1", "disk/0", "/dev/x"]]
    fake.results["OP_INSTANCE_SET_PARAMS"] = [["be/vcpus", 4]]
    fake.results["OP_NODE_SET_PARAMS"] = [["offline", False]]
    fake.results["OP_INSTANCE_RENAME"] = "w2.tst"
    fake.values["cluster_name"] = "old.tst"
    fake.cluster = {"name": "old.tst"}
    return fake


def _offered(line):
    return commands.program(line.split()[0]).find(line.split()[1])


@pytest.mark.parametrize(
    ("line", "wanted"), REQUESTS.items(), ids=[line[:60] for line in REQUESTS]
)
def test_a_command_submits_its_opcode(master, line, wanted):
    if not _offered(line):
        return  # see doc/status.rst
    done = commands.run(line, master)
    assert (done.code, done.err) == (0, "")
    (ops,) = master.jobs.values()
    (op,) = ops
    assert op.op_id() in _offered(line).opcodes
    assert {name: getattr(op, name) for name in wanted} == wanted


REFUSED = [
    "gnt-instance add -t diskless -s 1g w1",
    "gnt-instance add -t plain w1",
    "gnt-instance add -t plain -s 1g --disk 0:size=1g w1",
    "gnt-instance add -t plain --disk 0:mode=ro w1",
    "gnt-instance add -t plain --disk x:size=1g w1",
    "gnt-instance add -t plain --disk 0:size=big w1",
    "gnt-instance add -t plain -s 1g --forthcoming --commit w1",
    "gnt-instance add -t plain -s 1g --no-nics --net 0:ip=1.2.3.4 w1",
    "gnt-instance modify w1",
    "gnt-instance modify --offline --online w1",
    "gnt-instance modify --disk add:mode=ro w1",
    "gnt-instance modify --disk 0:remove,size=1g w1",
    "gnt-instance modify --disk 0:mode=ro --disk 0:name=x w1",
    "gnt-instance modify -t plain --ext-params a=b w1",
    "gnt-instance migrate -f --non-live --migration-mode live w1",
    "gnt-instance failover -f -I hail -n n2 w1",
    "gnt-instance recreate-disks -I hail -n n2 w1",
    "gnt-instance grow-disk w1 x 1g",
    "gnt-instance grow-disk w1 0 large",
    "gnt-instance info",
    "gnt-instance info --all w1",
    "gnt-instance add-tags w1",
    "gnt-instance start --all w1",
    "gnt-instance start",
    "gnt-node modify n1",
    "gnt-cluster modify",
    "gnt-cluster modify --uid-pool x",
    "gnt-cluster modify --master-netmask x",
    "gnt-cluster modify --ipolicy-std-specs colour=3",
    "gnt-cluster modify --ipolicy-bounds-specs min:cpu-count=1/max:cpu-count=2",
    "gnt-cluster queue empty",
    "gnt-cluster watcher pause",
    "gnt-cluster watcher pause 3x",
    "gnt-cluster watcher pause ²h",
    "gnt-cluster watcher pause 99999999999999d",
    "gnt-cluster modify --data-collector-interval lv=inf",
    "gnt-cluster modify --data-collector-interval lv=1e305",
    "gnt-cluster modify --automation-limits moved-share=inf",
    f"gnt-cluster modify --automation-limits fenced-per-hour={'9' * 400}",
    "gnt-os modify deb",
    "gnt-job cancel",
    "gnt-job cancel --pending 3",
    "gnt-job cancel --kill 3",
    "gnt-job change-priority 3",
    "gnt-job watch x",
    "gnt-debug delay soon",
    "gnt-debug delay nan",
]


@pytest.mark.parametrize("line", REFUSED)
def test_options_that_do_not_fit_are_refused_before_anything_is_sent(master, line):
    if not _offered(line):
        return
    done = commands.run(line, master)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Failure: prerequisites not met for this operation:\n")
    assert not master.jobs


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "gnt-cluster modify --ipolicy-std-specs memory=3",
            "standard specs: unknown memory; there are cpu-count, disk-count, ",
        ),
        (
            "gnt-cluster modify --ipolicy-bounds-specs min:cpus=1/max:cpus=2",
            "min specs: unknown cpus; there are cpu-count, disk-count, ",
        ),
        (
            "gnt-cluster modify -N lnk=br0",
            "NIC parameter lnk: unknown; there are link, mode, vlan; did you mean link?",
        ),
        (
            "gnt-instance add -t plain --disk 0:sze=1g,mode=rw w1",
            "disk 0: no size given, only mode, sze",
        ),
        (
            "gnt-instance add -t plain --disk 5:size=1g w1",
            "disk 5: wanted also disks with lower indices, found no disk 0",
        ),
        (
            "gnt-instance add -t plain --disk 999999999999:size=1g w1",
            "disk 999999999999: wanted an index from 0 to 15",
        ),
        (
            "gnt-instance add -t diskless --net 999999999999:ip=pool w1",
            "NIC 999999999999: wanted an index from 0 to 7",
        ),
        (
            "gnt-instance modify --disk add:sze=1g w1",
            "disk add: no size given, only sze",
        ),
    ],
)
def test_misspelt_parameters_are_named_in_the_refusal(master, line, text):
    done = commands.run(line, master)
    assert done.code == 1
    assert text in done.err
    assert not master.jobs


def test_results_of_changes_are_shown(master):
    done = commands.run("gnt-instance modify -B vcpus=4 w1", master)
    assert done.out.startswith("Modified instance w1\n - be/vcpus -> 4\nPlease don't")
    done = commands.run("gnt-node modify -O no -f heron", master)
    assert done.out == "Modified node heron\n - offline -> False\n"
    done = commands.run("gnt-instance activate-disks w1", master)
    assert done.out == "n1:disk/0:/dev/x\n"
    done = commands.run("gnt-instance rename w1 w2", master)
    assert done.out == "Instance 'w1' renamed to 'w2.tst'\n"


@pytest.mark.parametrize(
    ("option", "kept"),
    [("--online", "not marked offline"), ("--offline", "offline already")],
)
def test_a_state_that_an_instance_has_already_is_reported(master, option, kept):
    master.results["OP_INSTANCE_SET_PARAMS"] = []
    done = commands.run(f"gnt-instance modify {option} w1", master)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"Instance w1 is {kept}, its state is kept\n"


def test_a_new_state_of_an_instance_is_shown_as_change_alone(master):
    master.results["OP_INSTANCE_SET_PARAMS"] = [["admin_state", "down"]]
    done = commands.run("gnt-instance modify --online w1", master)
    assert done.out.startswith("Modified instance w1\n - admin_state -> down\n")
    assert done.err == ""


@pytest.mark.parametrize("option", ["--online", "--offline"])
def test_a_dry_run_says_nothing_about_a_state(master, option):
    master.results["OP_INSTANCE_SET_PARAMS"] = []
    done = commands.run(f"gnt-instance modify {option} --dry-run w1", master)
    assert (done.code, done.err) == (0, "")


def test_tags_come_from_files_too(master, tmp_path):
    source = tmp_path / "tags"
    source.write_text("b\n\nc\n")
    commands.run(f"gnt-instance add-tags --from {source} w1 a", master)
    assert master.jobs[1][0].tags == ["a", "b", "c"]
    commands.run("gnt-instance add-tags --from - w1", master, stdin="x\ny\n")
    assert master.jobs[2][0].tags == ["x", "y"]
    done = commands.run("gnt-instance add-tags --from /nonexistent w1", master)
    assert done.code == 1


def test_tags_are_listed_sorted(master):
    assert commands.run("gnt-cluster list-tags", master).out == "a\nb\n"
    assert json.loads(commands.run("gnt-node list-tags --json n", master).out) == [
        "a",
        "b",
    ]


def test_search_tags(master):
    master.results["OP_TAGS_SEARCH"] = [["/instances/w", "own"], ["/cluster", "own"]]
    done = commands.run("gnt-cluster search-tags ^own", master)
    assert (done.code, done.out) == (0, "/cluster own\n/instances/w own\n")
    master.results["OP_TAGS_SEARCH"] = []
    assert commands.run("gnt-cluster search-tags x", master).code == 1


def test_queue_and_watcher(master):
    def out(line):
        return commands.run(f"gnt-cluster {line}", master).out

    assert out("queue drain") == ""
    assert out("queue info") == "The drain flag is set\n"
    assert out("queue undrain") == ""
    assert out("queue info") == "The drain flag is unset\n"
    paused = "The watcher is paused until Tue Nov 14 22:43:20 2023.\n"
    assert out("watcher pause 30m") == paused
    assert out("watcher info") == paused
    assert out("watcher continue") == "The watcher is no longer paused.\n"
    assert out("watcher info") == "The watcher is not paused.\n"


def test_job_archive(master):
    commands.run("gnt-debug delay 0", master)
    done = commands.run("gnt-job archive 1 8", master)
    assert (done.code, done.err) == (1, "Failed to archive job with ID '8'\n")
    done = commands.run("gnt-job autoarchive 1d", master)
    assert done.out == "Archived 3 jobs, 0 unchecked left\n"
    assert master.calls[-1] == ("AutoArchiveJobs", [86400, 89])
    commands.run("gnt-job autoarchive all", master)
    assert master.calls[-1] == ("AutoArchiveJobs", [-1, 89])


def test_filters(master):
    done = commands.run(
        [
            "gnt-filter",
            "add",
            "--priority=3",
            "--predicates",
            '[["jobid", [">", "id", 4]]]',
            "--action",
            "RATE_LIMIT 2",
            "--reason",
            "slow",
        ],
        master,
    )
    assert done.out == "new-uuid\n"
    method, args = master.calls[-1]
    assert method == "ReplaceFilter"
    assert args[:4] == [None, 3, [["jobid", [">", "id", 4]]], ["RATE_LIMIT", 2]]
    assert [entry[0] for entry in args[4]] == ["gnt:user", "gnt:client:gnt-filter"]


def test_batch_create_checks_its_file(master, tmp_path):
    source = tmp_path / "batch.json"
    source.write_text('[{"instance_name": "b1", "flavour": "sweet"}]')
    if not _offered("gnt-instance batch-create"):
        return
    done = commands.run(f"gnt-instance batch-create {source}", master)
    assert done.code == 1
    assert "entry 0: unknown parameters flavour" in done.err


@pytest.mark.parametrize("command", ["info", "delete", "list"])
def test_a_filter_rule_that_is_not_there_is_named(command):
    done = commands.run(f"gnt-filter {command} no-such-rule", FakeMaster())
    assert (done.code, done.out) == (1, "")
    assert "there is no job filter no-such-rule" in done.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["replace", "rule"], "wanted a UUID, found 'rule'"),
        (["add", "--predicates", '{"a": 1}'], "wanted predicates as a list"),
    ],
)
def test_wrong_filter_rules_are_refused_before_the_master_is_asked(words, text):
    master = FakeMaster()
    done = commands.run(["gnt-filter", *words], master)
    assert (done.code, done.out, master.calls) == (1, "", [])
    assert f"wrong_input, error details:\njob filter: {text}" in done.err


def test_an_offline_instance_goes_online(master):
    assert commands.run("gnt-instance modify --online w1", master).code == 0
    _, args = next(call for call in master.calls if call[0].startswith("Submit"))
    assert args[0][0]["offline"] is False


def test_variants_of_a_system_that_one_node_lacks_are_those_of_the_others(master):
    def copy(variants, ok=True):
        return [["/srv/os/deb", ok, "", variants, [], [20], False]]

    systems = {
        "n1-uuid": copy(["min", "full", "big"]),
        "n2-uuid": copy(["big", "min"]),
        "n3-uuid": [],
        "n4-uuid": copy([], ok=False),
    }
    names = [[f"n{k}-uuid", f"n{k}"] for k in range(1, 5)]
    master.objects["node"] = [{"uuid": uuid, "name": name} for uuid, name in names]
    master.results["OP_OS_DIAGNOSE"] = [["deb", False, [], systems, False, False]]
    done = commands.run("gnt-os diagnose", master)
    assert done.code == 1
    head = ["OS: deb [global status: partial valid]", "  Variants: [big, min]"]
    assert done.out.splitlines()[:2] == head
