"""The sources of each collector, the settings in answers of confd, and the helper."""

import logging
import os
import pathlib

import pytest

from ganeti.base import errors
from ganeti.base.constants.protocols import mond
from ganeti.base.pathutils import Paths
from ganeti.daemons import mond_agent
from ganeti.node.collectors import collector_table as collectors
from ganeti.node.collectors import helper, pages
from ganeti.node.collectors.sources import Sources, minor_owners
from ganeti.protocols.confd import wire
from ganeti.protocols.confd.client import Result

TOP = pathlib.Path(__file__).parents[5]
BY_NAME = {item.name: item for item in collectors.COLLECTORS}
XL_LIST = """Name                ID   Mem VCPUs      State   Time(s)
Domain-0             0  1024     4     r-----    1000.0
web1                 3   512     1     -b----      42.5
"""
XL_UPTIME = """Name                                ID Uptime
web1                                 3 10:20:30
"""
DRBD = "version: 8.4.11 (api:1/proto:86-101)\nsrcversion: F73C670A7EC572DB9CF3E5B\n"
#: Numbers of confd's queries.
CONFIG, INSTANCES, DRBD_OF_NODE, DISKS, COLLECTORS = 10, 8, 7, 9, 11


class Confd:
    """Answers questions, and only those that it knows; keeps what was asked."""

    def __init__(self, **answers):
        self.answers, self.asked, self.limits = answers, [], set()

    def connect(self):
        return self

    def ask(self, kind, query, *, timeout_s):
        self.asked.append((kind, query))
        self.limits.add(timeout_s)
        answer = self.answers[f"of_{kind}" if not isinstance(query, str) else query]
        if isinstance(answer, Result):
            return answer
        if isinstance(answer, Exception):
            raise answer
        return Result(wire.Reply(1, 0, answer, 5), ("192.0.2.1",), is_complete=True)


REFUSED = Result(wire.Reply(1, 1, 0, 0), ("192.0.2.1",), is_complete=True)
SILENT = Result()


def sources(confd=None, *, tasks=None, name="", hypervisors=("kvm",)):
    """Return sources whose helper knows some tasks only."""
    asked = []

    def ask(task, text):
        asked.append((task, text))
        answer = tasks[task]
        if isinstance(answer, Exception):
            raise answer
        return answer

    made = Sources(
        Paths("", "node1.tst"),
        ask,
        (confd or Confd()).connect,
        lambda: name,
        lambda: hypervisors,
    )
    return made, asked


def test_the_collectors_have_their_names_and_categories():
    documented = [BY_NAME[name] for name in mond.DATA_COLLECTOR_NAMES]
    assert [(item.name, item.row.category, item.row.kind) for item in documented] == [
        ("cpu-avg-load", None, mond.Kind.PERFORMANCE),
        ("diskstats", "storage", mond.Kind.PERFORMANCE),
        ("drbd", "storage", mond.Kind.STATUS),
        ("inst-status-xen", "instance", mond.Kind.STATUS),
        ("lv", "storage", mond.Kind.PERFORMANCE),
        ("xen-cpu-avg-load", None, mond.Kind.PERFORMANCE),
    ]
    assert set(BY_NAME) == {*mond.DATA_COLLECTOR_NAMES, *mond.FURTHER_COLLECTOR_NAMES}
    with_samples = {item.name for item in BY_NAME.values() if item.code.sampler}
    assert with_samples == {"cpu-avg-load", "xen-cpu-avg-load"}
    assert with_samples == {row.name for row in mond.COLLECTORS if row.is_average}
    assert set(collectors._CODE) == set(BY_NAME), "code of a collector without a row"


def test_manual_pages_have_the_collectors_of_the_table():
    text = pages.expand("First.\n\n.. collectors:: ganeti-mond\n\nLast.\n")
    assert text.startswith("First.\n\n| **cpu-avg-load** (default): busy part of each")
    assert "\n| **lv** (storage): logical volumes, where LVM is installed" in text
    shared = "**inst-status-xen** (instance), **xen-cpu-avg-load** (default): where Xen"
    assert f"\n| {shared} is enabled\n" in text
    text = pages.expand(".. collectors:: mon-collector")
    assert text.startswith("diskstats\n   Counters of block devices.\ndrbd\n   State")
    assert "\nload-average\n   Load averages and the number of tasks, from" in text
    averages = "The averages of *cpu-avg-load* and *xen-cpu-avg-load* exist only inside"
    assert text.endswith(f"\n\n{averages} the daemon.")
    for name in ("ganeti-mond", "mon-collector"):
        page = (TOP / "man" / f"{name}.rst").read_text()
        assert f"\n.. collectors:: {name}\n" in page


@pytest.mark.parametrize(
    ("hypervisors", "names"),
    [
        (["kvm"], {"kvm-inst-rss"}),
        (["xen-pvm"], {"inst-status-xen", "xen-cpu-avg-load"}),
        (["fake", "xen-hvm"], {"inst-status-xen", "xen-cpu-avg-load"}),
        (["fake"], set()),
    ],
)
def test_a_node_has_the_collectors_of_its_hypervisors(hypervisors, names):
    made, _asked = sources(hypervisors=hypervisors)
    of_hypervisors = {"kvm-inst-rss", "inst-status-xen", "xen-cpu-avg-load"}
    actual = {name for name in of_hypervisors if BY_NAME[name].code.is_applicable(made)}
    assert actual == names


def test_a_node_has_drbd_and_lvm_if_their_files_exist(tmp_path, monkeypatch):
    made, _asked = sources()
    proc = tmp_path / "drbd"
    monkeypatch.setattr(collectors, "PROC_DRBD", str(proc))
    assert not BY_NAME["drbd"].code.is_applicable(made)
    with pytest.raises(errors.OpExecError, match="does not exist: the module of DRBD"):
        BY_NAME["drbd"].code.collect(made)
    proc.write_text(DRBD)
    assert BY_NAME["drbd"].code.is_applicable(made)
    monkeypatch.setattr(collectors, "SAFE_PATH", str(tmp_path))
    assert not BY_NAME["lv"].code.is_applicable(made)
    (tmp_path / "lvs").touch(0o755)
    assert BY_NAME["lv"].code.is_applicable(made)


def test_drbd_devices_get_the_instances_of_this_node(tmp_path, monkeypatch):
    proc = tmp_path / "drbd"
    proc.write_text(
        f"{DRBD} 0: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----\n"
        "    ns:0 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0\n"
    )
    monkeypatch.setattr(collectors, "PROC_DRBD", str(proc))
    confd = Confd(**{"node1.tst": [["node1.tst", 0, "web1", "disk/0"]]})
    made, _asked = sources(confd)
    data = BY_NAME["drbd"].code.collect(made)
    assert [device["instance"] for device in data["deviceInfos"]] == ["web1"]
    assert confd.asked == [(DRBD_OF_NODE, "node1.tst")]
    assert confd.limits == {5.0}


def test_volumes_get_the_instances_of_this_node():
    fields = {
        **dict.fromkeys(("lv_uuid", "lv_attr", "lv_tags", "lv_modules", "vg_uuid"), ""),
        **dict.fromkeys(("segtype", "seg_tags", "seg_pe_ranges", "devices"), ""),
        **dict.fromkeys(("lv_major", "lv_minor", "lv_kernel_major"), "1"),
        **dict.fromkeys(("lv_kernel_minor", "lv_size", "seg_count"), "1"),
        **dict.fromkeys(("seg_start", "seg_start_pe", "seg_size"), ""),
        "vg_name": "xenvg",
    }
    rows = ",".join(
        str(fields | {"lv_name": name}).replace("'", '"') for name in ("a", "b", "c")
    )
    text = f'{{"report": [{{"seg": [{rows}]}}]}}'
    plain = {"dev_type": "plain", "logical_id": ["xenvg", "a"]}
    mirror = {
        "dev_type": "drbd",
        "children": [{"dev_type": "plain", "logical_id": ["xenvg", "b"]}],
    }
    confd = Confd(
        **{
            "node1.tst": [[{"name": "web1"}, "no record"], [{"name": "db"}]],
            "web1": [plain],
            "db": [mirror],
        }
    )
    made, asked = sources(confd, tasks={"volumes": text})
    data = BY_NAME["lv"].code.collect(made)
    owners = {row["name"]: row["instance"] for row in data}
    assert owners == {"a": "web1", "b": "db", "c": None}
    assert asked == [("volumes", "")]
    assert confd.asked == [(INSTANCES, "node1.tst"), (DISKS, "web1"), (DISKS, "db")]


@pytest.mark.parametrize(
    "answer", [REFUSED, SILENT, errors.ConfdClientError("x"), OSError("y"), [[]], "no"]
)
def test_owners_are_unknown_while_confd_is_silent(answer):
    made, _asked = sources(Confd(**{"node1.tst": answer}))
    assert made.volume_owners() == {}
    assert made.minor_owners() == {}


@pytest.mark.parametrize("answer", [REFUSED, SILENT, [[]], [[], [], []], "two"])
def test_instances_need_two_lists(answer):
    made, _asked = sources(Confd(**{"node1.tst": answer}))
    with pytest.raises(errors.ConfdClientError, match="confd"):
        made.instances()


def test_rows_about_minors_that_are_malformed_are_left_out():
    rows = [["n", 3, "web1"], ["n", "4", "x"], ["n", 5], "row", ["n", 6, 7, "more"]]
    assert minor_owners(rows) == {3: "web1", 6: "7"}
    assert minor_owners({"a": 1}) == {}


def test_domains_of_xen_get_their_state_and_uptime():
    confd = Confd(
        **{"node1.tst": [[{"name": "web1", "admin_state": "up"}], [{"name": "db"}]]}
    )
    made, asked = sources(confd, tasks={"domains": XL_LIST, "uptimes": XL_UPTIME})
    data = BY_NAME["inst-status-xen"].code.collect(made)
    assert [row["name"] for row in data["instances"]] == ["web1"]
    assert asked == [("domains", ""), ("uptimes", "")]


def test_samples_of_domains_and_processors_are_those_of_the_node(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 10 0 10 80 0 0 0 0 0 0\n")
    monkeypatch.setattr(collectors, "PROC_STAT", str(stat))
    made, asked = sources(tasks={"domains": XL_LIST})
    for name in ("cpu-avg-load", "xen-cpu-avg-load"):
        sampler = BY_NAME[name].code.sampler()
        before = sampler.data()
        sampler.add(made)
        sampler.add(made)
        assert sampler.data() is not before
    assert asked == [("domains", "")] * 2
    assert collectors.PROC_DISKSTATS == "/proc/diskstats"


def test_the_diagnosis_is_that_of_the_named_command():
    collect = BY_NAME["diagnose"].code.collect
    made, asked = sources(tasks={})
    healthy = collect(made)
    assert asked == []
    made, asked = sources(
        name="check",
        tasks={"diagnose": '{"status": "live-repair", "details": {"a": 1}}'},
    )
    faulty = collect(made)
    assert faulty["status"] == "live-repair"
    assert asked == [("diagnose", "check")]
    made, _asked = sources(
        name="check", tasks={"diagnose": errors.OpExecError("not here")}
    )
    failed = collect(made)
    assert failed["status"] == healthy["status"]
    assert "not here" in str(failed)


def test_load_averages_are_those_of_the_kernel(tmp_path, monkeypatch):
    assert collectors.PROC_LOADAVG == "/proc/loadavg"
    text = tmp_path / "loadavg"
    text.write_text("0.52 0.25 0.1 3/417 99\n")
    monkeypatch.setattr(collectors, "PROC_LOADAVG", str(text))
    made, asked = sources(hypervisors=())
    assert BY_NAME["load-average"].code.is_applicable(made)
    assert BY_NAME["load-average"].code.collect(made) == {
        "load1": 0.52,
        "load5": 0.25,
        "load15": 0.1,
        "running": 3,
        "tasks": 417,
    }
    assert asked == []


def test_guests_are_counted_by_the_helper():
    made, asked = sources(tasks={"guests": {"web1": 7}})
    assert BY_NAME["kvm-inst-rss"].code.collect(made) == {"web1": 7}
    assert asked == [("guests", "")]


# Settings
ROWS = {"drbd": {"active": False}, "lv": {"active": True, "interval": 10_000_000}}


DEATH, TEMPLATES = "/cluster/node_death", "/cluster/enabled_disk_templates"


def follower(collectors_answer, config_answer, death=None, templates=None):
    pointer = "/cluster/diagnose_data_collector_filename"
    confd = Confd(**{f"of_{COLLECTORS}": collectors_answer, pointer: config_answer})
    refused = REFUSED if death is None else None
    confd.answers |= {DEATH: refused or death, TEMPLATES: templates or REFUSED}
    return mond_agent.Follower(confd.connect), confd, pointer


def test_settings_are_those_of_the_cluster(caplog):
    caplog.set_level(logging.INFO)
    made, confd, pointer = follower(ROWS, "check")
    assert made.refresh() is True
    assert made.refresh() is True
    assert made.present == mond_agent.Settings(
        frozenset({"drbd"}), {"lv": 10.0}, "check"
    )
    assert confd.asked[:2] == [(COLLECTORS, None), (CONFIG, pointer)]
    assert confd.limits == {5.0}
    assert caplog.messages == [
        "settings are those of the cluster",
        "diagnose command: check",
    ]


@pytest.mark.parametrize(
    ("death", "templates", "kinds"),
    [
        (True, ["drbd", "gluster", "sharedfile"], ("sharedfile", "gluster")),
        (True, ["gluster"], ("gluster",)),
        (True, ["drbd"], ()),
        (False, ["sharedfile"], ()),
        (None, ["sharedfile"], ()),
        (1, ["sharedfile"], ()),
        ("yes", ["sharedfile"], ()),
        (True, None, ()),
        (True, 7, ()),
    ],
)
def test_shared_storage_gets_heartbeats_where_deaths_are_handled(
    caplog, death, templates, kinds
):
    caplog.set_level(logging.INFO)
    made, _confd, _pointer = follower(ROWS, "check", death, templates)
    made.refresh()
    made.refresh()
    assert made.present.heartbeats == kinds
    shown = [f"heartbeats on shared storage: {', '.join(kinds)}"] if kinds else []
    assert caplog.messages[2:] == shown


def test_an_older_master_has_no_diagnose_command():
    made, _confd, _pointer = follower(ROWS, REFUSED)
    assert made.refresh() is True
    assert made.present.diagnose == ""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (SILENT, "no answer of confd"),
        (REFUSED, "confd: error 0"),
        (OSError("no key"), "no key"),
        (errors.ConfdClientError("odd"), "odd"),
    ],
)
def test_settings_stay_without_an_answer(caplog, answer, reason):
    caplog.set_level(logging.INFO)
    made, confd, _pointer = follower(ROWS, "check")
    made.refresh()
    before = made.present
    confd.answers[f"of_{COLLECTORS}"] = answer
    assert made.refresh() is False
    assert made.refresh() is False
    assert made.present is before
    assert caplog.messages[2:] == [f"settings stay as they were: {reason}"]


@pytest.mark.parametrize(
    ("micros", "seconds"),
    [
        (1, 0.5),
        (500_000, 0.5),
        (600_000, 0.6),
        (86_400_000_000, 86400.0),
        (86_400_000_001, 86400.0),
        (0, 5.0),
        (-1, 5.0),
        ("7", 5.0),
    ],
)
def test_intervals_are_limited(micros, seconds):
    made = mond_agent.parse({"lv": {"interval": micros}, "x": 5}, None)
    assert made.interval_s("lv") == seconds
    assert made.diagnose == ""
    assert mond_agent.parse([], 5) == mond_agent.Settings()


# Tasks of the helper
def test_the_memory_of_a_guest_is_that_of_its_own_process(tmp_path, monkeypatch):
    paths = Paths(str(tmp_path), "node1.tst")
    assert helper.run_task(paths, "guests") == {}
    folder = f"{paths.run_dir}/kvm-hypervisor/pid"
    os.makedirs(folder)
    proc = {
        "/proc/41/cmdline": b"kvm\0-name\0web1\0",
        "/proc/41/statm": b"900 700 3\n",
        "/proc/42/cmdline": b"other\0-name\0web1\0",
        "/proc/42/statm": b"900 701 3\n",
    }
    for name, pid in (("web1", "41\n"), ("db", "42\n"), ("gone", "43"), ("bad", "x")):
        with open(f"{folder}/{name}", "w") as out:
            out.write(pid)
    read = helper.files.read_start

    def read_start(path, size):
        if not path.startswith("/proc/"):
            return read(path, size)
        if path in proc:
            return proc[path]
        raise FileNotFoundError(path)

    monkeypatch.setattr(helper.files, "read_start", read_start)
    assert helper.run_task(paths, "guests") == {"web1": 700}


class Tool:
    """In the place of real processes; keeps the commands with their limits."""

    def __init__(self, monkeypatch, result):
        self.ran = []

        def run_bounded(_runner, argv, **limits):
            self.ran.append((tuple(argv), limits))
            return result

        monkeypatch.setattr(helper.SystemRunner, "run_bounded", run_bounded)


class Ended:
    """The end of a process."""

    def __init__(self, code=0, stdout="out", stderr=""):
        self.failed, self.stdout, self.stderr = bool(code), stdout, stderr
        self.reason = f"exited with code {code}"


@pytest.mark.parametrize(
    ("task", "command"),
    [("domains", ("xl", "list")), ("uptimes", ("xl", "uptime"))],
)
def test_commands_of_the_helper_have_limits(monkeypatch, task, command):
    tool = Tool(monkeypatch, Ended())
    assert helper.run_task(Paths(), task) == "out"
    assert tool.ran == [(command, {"timeout_s": 40.0, "max_output": 8 << 20})]
    Tool(monkeypatch, Ended(3, stderr="z" * 600))
    text = f"^xl exited with code 3: {'z' * 500}$"
    with pytest.raises(errors.OpExecError, match=text):
        helper.run_task(Paths(), task)


def test_volumes_are_listed_in_bytes_with_their_segments(monkeypatch):
    tool = Tool(monkeypatch, Ended())
    helper.run_task(Paths(), "volumes")
    ((command, _limits),) = tool.ran
    assert command[:8] == (
        *("lvs", "--reportformat", "json", "--units", "b", "--nosuffix", "--segments"),
        "-o",
    )
    assert command[8] == (
        "lv_uuid,lv_name,lv_attr,lv_major,lv_minor,lv_kernel_major,lv_kernel_minor"
        ",lv_size,seg_count,lv_tags,lv_modules,vg_uuid,vg_name,segtype,seg_start"
        ",seg_start_pe,seg_size,seg_tags,seg_pe_ranges,devices"
    )


def test_only_diagnose_commands_of_this_node_run(tmp_path, monkeypatch):
    paths = Paths(str(tmp_path), "node1.tst")
    folder = f"{paths.conf_dir}/node-diagnose-commands"
    os.makedirs(folder)
    for name, mode in (("check", 0o755), ("open", 0o777), ("plain", 0o644)):
        with open(f"{folder}/{name}", "w") as out:
            out.write("#!/bin/sh\n")
        os.chmod(f"{folder}/{name}", mode)
    tool = Tool(monkeypatch, Ended(stdout="{}"))
    assert helper.run_task(paths, "diagnose", "check") == "{}"
    limits = {"timeout_s": 60.0, "max_output": 16384}
    assert tool.ran == [((f"{folder}/check",), limits)]
    for name in ("open", "plain", "none", "../check", ".", "..", "a\0b", "a/b"):
        with pytest.raises(errors.OpExecError) as caught:
            helper.run_task(paths, "diagnose", name)
        assert str(caught.value).startswith(
            f"diagnose command {name!r} is not allowed on this node: "
        )
    Tool(monkeypatch, Ended(4))
    text = "^diagnose command check exited with code 4$"
    with pytest.raises(errors.OpExecError, match=text):
        helper.run_task(paths, "diagnose", "check")


def test_the_key_of_confd_is_given_as_it_is(tmp_path):
    paths = Paths(str(tmp_path), "node1.tst")
    os.makedirs(paths.data_dir)
    with open(paths.hmac_key, "wb") as out:
        out.write(b"k\xe9y\n")
    assert helper.run_task(paths, "key") == "k\xe9y\n"


def test_tasks_of_the_helper_are_a_fixed_list():
    with pytest.raises(KeyError):
        helper.run_task(Paths(), "shell", "id")
