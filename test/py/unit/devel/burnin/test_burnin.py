"""``burnin`` with a fake master: steps, their order, failures and the removal."""

import http.server
import io
import threading

import pytest

from fakes.luxi_master import SUCCESSFUL_OPCODES, FakeMaster
from ganeti.base import errors
from ganeti.commands.cli.context import ClientEffects
from ganeti.devel.burnin import main, settings, steps

NODES = ("n1.tst", "n2.tst", "n3.tst")
KNOWN_OS = [["tiny", True, ["default", "quiet"]], ["broken", False, []]]


class Cluster(FakeMaster):
    """A cluster whose instances come and go with the jobs."""

    def __init__(self):
        super().__init__()
        self.objects["node"] = [
            {
                "name": name,
                "offline": False,
                "drained": False,
                "vm_capable": True,
                "role": "M" if name == NODES[0] else "C",
            }
            for name in NODES
        ]
        self.objects["instance"] = []
        self.results |= SUCCESSFUL_OPCODES
        self.results["OP_INSTANCE_RENAME"] = lambda op: op.new_name
        self.results["OP_OS_DIAGNOSE"] = KNOWN_OS
        self.results["OP_INSTANCE_CREATE"] = self._create
        self.results["OP_INSTANCE_REMOVE"] = self._remove
        self.results["OP_BACKUP_EXPORT"] = self._export

    def _create(self, op):
        nodes = [node for node in (op.pnode or "n2.tst", op.snode) if node]
        row = {"name": op.instance_name, "pnode": nodes[0], "snodes": nodes[1:]}
        row["uuid"] = f"uuid of {op.instance_name}"
        self.objects["instance"].append(row)
        return nodes

    def _export(self, op):
        assert op.remove_instance
        self._remove(op)
        return True, [True]

    def _remove(self, op):
        rows = self.objects["instance"]
        rows[:] = [row for row in rows if row["name"] != op.instance_name]

    def ran(self):
        """Return the opcodes of all jobs but the question about OSes, one list per job."""
        words = [[o.op_id().removeprefix("OP_") for o in j] for j in self.jobs.values()]
        return [job for job in words if job != ["OS_DIAGNOSE"]]


class Done:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def stages(self):
        return [line for line in self.out.splitlines() if line.startswith("- ")]


def run(master, line):
    out, err = io.StringIO(), io.StringIO()
    effects = ClientEffects(
        environ={},
        connect=lambda *_: master,
        stdout=out,
        stderr=err,
        stdin=io.StringIO(),
        open_terminal=lambda: None,
        now=lambda: 1_700_000_000.0,
    )
    code = main.main(line.split(), effects=effects)
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture
def master():
    return Cluster()


@pytest.fixture(autouse=True)
def _confd(monkeypatch):
    monkeypatch.setattr(main, "client_of", lambda _paths: None)
    monkeypatch.setattr(main, "ask_confd", lambda *_: ["ping: answered"])


def test_every_step_of_mirrored_disks_in_the_documented_order(master):
    done = run(master, "-o tiny --rename spare.tst web.tst")
    assert (done.code, done.err) == (0, "")
    assert done.stages == [
        "- Checking the OS, the nodes and the names",
        "- Creating instances",
        "- Stopping and starting instances",
        "- Changing the memory of running instances",
        "- Replacing disks on the same nodes",
        "- Changing secondary nodes",
        "- Growing disks",
        "- Failing instances over",
        "- Migrating instances",
        "- Moving instances: left out, disks of template drbd are not copied",
        "- Exporting and importing instances",
        "- Reinstalling instances",
        "- Rebooting instances",
        "- Renaming instances to their own names",
        "- Asking confd",
        "- Adding and removing NICs",
        "- Activating and deactivating disks",
        "- Adding and removing disks",
        "- Renaming instances",
        "- Removing instances",
        "- All steps passed",
    ]
    assert master.objects["instance"] == []
    assert master.ran()[:6] == [
        ["INSTANCE_CREATE"],
        ["INSTANCE_SHUTDOWN", "INSTANCE_STARTUP"],
        ["INSTANCE_SET_PARAMS", "INSTANCE_SET_PARAMS"],
        ["INSTANCE_REPLACE_DISKS", "INSTANCE_REPLACE_DISKS"],
        ["INSTANCE_REPLACE_DISKS"],
        ["INSTANCE_GROW_DISK"],
    ]


def opcodes_of(master, word):
    every = [op for job in master.jobs.values() for op in job]
    return [
        op
        for op in every
        if op.op_id() == f"OP_INSTANCE_{word}" and getattr(op, "mode", "") != "import"
    ]


def test_an_instance_is_exported_to_another_node_and_imported_where_it_was(master):
    run(master, "-o tiny -t plain web.tst")
    step = next(j for j in master.jobs.values() if j[0].op_id() == "OP_BACKUP_EXPORT")
    export, back, removal = step
    assert (export.target_node, export.remove_instance) == ("n2.tst", True)
    assert (back.mode, back.src_node, back.pnode) == ("import", "n2.tst", "n1.tst")
    assert removal.op_id() == "OP_BACKUP_REMOVE"
    assert master.objects["instance"] == []


def test_options_become_parameters_of_the_instances(master):
    line = (
        "-o tiny+quiet -t plain --disk-size 2g,1g --disk-growth 0,64m --mem-size 512m"
    )
    line += " --vcpu-count 2 -H fake -O dhcp=no --no-name-check --no-nics"
    assert run(master, f"{line} --reason trial web.tst").code == 0
    [made] = opcodes_of(master, "CREATE")
    assert [disk["size"] for disk in made.disks] == [2048, 1024]
    assert (made.pnode, made.snode, made.nics) == ("n1.tst", None, [])
    assert made.beparams == {"minmem": 512, "maxmem": 512, "vcpus": 2}
    assert (made.hypervisor, made.osparams) == ("fake", {"dhcp": "no"})
    assert (made.ip_check, made.name_check) == (False, False)
    assert made.reason[0][1] == "trial"
    [grown] = opcodes_of(master, "GROW_DISK")
    assert (grown.disk, grown.amount) == (1, 64)
    [moved] = opcodes_of(master, "MOVE")
    assert moved.target_node == "n2.tst"
    assert not opcodes_of(master, "MIGRATE")


def test_instances_are_spread_over_the_nodes(master):
    run(master, "-o tiny -t drbd a.tst b.tst c.tst")
    pairs = [(op.pnode, op.snode) for op in opcodes_of(master, "CREATE")]
    assert pairs == [("n1.tst", "n2.tst"), ("n2.tst", "n3.tst"), ("n3.tst", "n1.tst")]
    new = [op.remote_node for op in opcodes_of(master, "REPLACE_DISKS")]
    assert [name for name in new if name] == ["n3.tst", "n1.tst", "n2.tst"]


def test_names_have_the_form_that_the_cluster_keeps(master):
    run(master, "-o tiny -t file Web.tst.")
    assert [op.instance_name for op in opcodes_of(master, "CREATE")] == ["web.tst"]
    assert master.objects["instance"] == []


def test_an_allocator_chooses_nodes_and_targets(master):
    run(master, "-o tiny -t sharedfile -I hail web.tst")
    [made] = opcodes_of(master, "CREATE")
    assert (made.iallocator, made.pnode) == ("hail", None)
    first = opcodes_of(master, "MIGRATE")[0]
    assert (first.iallocator, first.target_node) == ("hail", None)


@pytest.mark.parametrize("name", list(settings.LEFT_OUT))
def test_an_option_leaves_its_step_out_and_says_so(master, name):
    done = run(master, f"-o tiny --no-{name} web.tst")
    assert done.code == 0
    [title] = [step.title for step in steps.STEPS if step.option == name]
    assert f"- {title}: left out, --no-{name}" in done.stages


def test_diskless_instances_have_the_steps_without_disks(master):
    done = run(master, "-o tiny -t diskless web.tst")
    assert done.code == 0
    [made] = opcodes_of(master, "CREATE")
    assert made.disks == []
    words = {op.op_id() for job in master.jobs.values() for op in job}
    assert "OP_INSTANCE_MIGRATE" in words
    assert not words & {"OP_INSTANCE_GROW_DISK", "OP_INSTANCE_REINSTALL"}


def test_jobs_of_all_instances_are_submitted_before_the_first_wait(master):
    order = []
    call = master.call

    def recorded(method, args):
        if method in ("SubmitJob", "WaitForJobChange"):
            order.append(method)
        return call(method, args)

    master.call = recorded
    done = run(master, "-o tiny -t file -p a.tst b.tst")
    assert done.code == 0
    # The first pair is the question about the OS.
    assert order[2:6] == ["SubmitJob", "SubmitJob", *["WaitForJobChange"] * 2]


def test_a_failed_step_ends_the_run_and_the_instances_go(master):
    master.results["OP_INSTANCE_REBOOT"] = errors.OpExecError("no power")
    done = run(master, "-o tiny -t file a.tst b.tst")
    assert done.code == 1
    assert done.err.startswith("burnin: rebooting instances: job ")
    assert done.err.endswith("no power\n")
    assert done.stages[-1] == "- Removing instances"
    assert not opcodes_of(master, "RENAME")
    assert master.objects["instance"] == []


def test_failed_jobs_of_other_instances_are_awaited_with_parallel(master):
    master.results["OP_INSTANCE_REBOOT"] = errors.OpExecError("no power")
    done = run(master, "-o tiny -t file -p a.tst b.tst")
    assert done.code == 1
    part = done.out.split("- Rebooting instances\n")[1]
    assert part.startswith("  * instance a.tst\n  * instance b.tst\n")


def test_instances_stay_on_request(master):
    done = run(master, "-o tiny -t file -K web.tst")
    assert (done.code, done.stages[-2]) == (0, "- Keeping instances: web.tst")
    assert [row["name"] for row in master.objects["instance"]] == ["web.tst"]


def test_an_instance_of_somebody_else_is_never_removed(master):
    master.objects["instance"] = [{"name": "web.tst", "pnode": "n1.tst", "snodes": []}]
    done = run(master, "-o tiny web")
    assert done.code == 1
    assert done.err == "burnin: instance web.tst: exists; give names that are free\n"
    assert not master.ran()


def test_an_instance_created_by_somebody_else_at_that_time_stays(master):
    def refused(_op):
        master.objects["instance"] = [
            {"name": "web.tst", "pnode": "n1.tst", "snodes": []}
        ]
        return errors.OpPrereqError("instance web.tst: exists", "already_exists")

    master.results["OP_INSTANCE_CREATE"] = refused
    done = run(master, "-o tiny web.tst")
    assert done.code == 1
    assert "creating instances: job 2: instance web.tst: exists" in done.err
    assert master.ran() == [["INSTANCE_CREATE"]]
    assert len(master.objects["instance"]) == 1


def test_names_that_somebody_else_takes_during_the_run_do_not_matter(master):
    others = [
        {"name": f"{n}.other.tst", "uuid": n, "pnode": "n1.tst", "snodes": []}
        for n in ("web", "spare")
    ]

    def taken(_op):
        [own] = [row for row in master.objects["instance"] if row not in others]
        own["name"] = "spare"
        master.objects["instance"] = [own, *others]
        return errors.OpExecError("no power")

    master.results["OP_INSTANCE_RENAME"] = taken
    done = run(master, "-o tiny -t file --rename spare --no-renamesame web")
    assert done.code == 1
    assert [op.instance_name for op in opcodes_of(master, "REMOVE")] == ["spare"]
    assert master.objects["instance"] == others


def test_what_a_failed_creation_leaves_is_removed(master):
    def failed(op):
        master._create(op)
        return errors.OpExecError("the create script failed")

    master.results["OP_INSTANCE_CREATE"] = failed
    done = run(master, "-o tiny web.tst")
    assert done.code == 1
    assert master.ran() == [["INSTANCE_CREATE"], ["INSTANCE_REMOVE"]]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("-o tiny -n n1.tst -I hail web", "-n and -I exclude each other"),
        ("-o tiny --rename x a b", "--rename wants one instance, found 2"),
        ("-o tiny a a", "instance a is given twice"),
        ("-o tiny --disk-size 1g,1g web", "wanted 2 values, one per --disk-size"),
        ("-o tiny --disk-size 0 web", "wanted sizes above 0"),
        ("-o tiny --disk-size big web", "wanted a size"),
        ("-o tiny --minmem-size 512 web", "wanted a smallest size from 1 to 256 MiB"),
        ("-o tiny --reboot-types warm web", "wanted some of hard, soft, full"),
        ("-o tiny --vcpu-count 0 web", "--vcpu-count: wanted 1 or more, found 0"),
        ("-o tiny -t blockdev web", "invalid choice: 'blockdev'"),
        ("-o tiny -O a=1,a=2 web", "duplicate key"),
        ("web", "-o/--os"),
    ],
)
def test_wrong_options_are_refused_with_code_2(master, capsys, line, text):
    with pytest.raises(SystemExit) as ended:
        run(master, line)
    assert ended.value.code == 2
    assert text in capsys.readouterr().err
    assert not master.calls


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("-o gone web", "OS gone: wanted one that is valid on all nodes: tiny"),
        ("-o broken web", "OS broken: wanted one that is valid"),
        ("-o tiny+big web", "wanted a variant of default, quiet, found big"),
        (
            "-o tiny -n n2.tst web",
            "template drbd: wanted 2 usable nodes or more, found 1",
        ),
    ],
)
def test_a_cluster_that_lacks_something_is_left_as_it_is(master, line, text):
    done = run(master, line)
    assert (done.code, text in done.err) == (1, True), done.err
    assert not master.ran()


def test_unusable_nodes_are_left_out_unless_they_are_named(master):
    master.objects["node"][1]["offline"] = True
    done = run(master, "-o tiny -t file web.tst")
    assert "  * left out: n2.tst" in done.out
    assert opcodes_of(master, "MOVE")[0].target_node == "n3.tst"
    done = run(master, "-o tiny -t file -n n1.tst,n2.tst web.tst")
    assert done.err.startswith("burnin: node n2.tst: wanted one that is online")


class _Answers:
    """A client of confd that answers from a table."""

    def __init__(self, **answers):
        self.answers = answers

    def ask(self, kind, key=None):
        from ganeti.base.constants.protocols import confd
        from ganeti.protocols.confd import Result, wire

        answer = {
            confd.CONFD_REQ_PING: 1,
            confd.CONFD_REQ_CLUSTER_MASTER: self.answers["master"],
            confd.CONFD_REQ_NODE_ROLE_BYNAME: self.answers["role"],
            confd.CONFD_REQ_NODE_INSTANCES: self.answers["instances"],
        }[kind]
        return Result(wire.Reply(1, 0, answer, 1))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"master": "n2.tst"}, "confd: master: wanted 'n1.tst', found 'n2.tst'"),
        ({"role": 4}, "confd: role of node n1.tst: wanted 0, found 4"),
        ({"instances": [[], []]}, "confd: node n1.tst: instance web.tst is missing"),
        ({"instances": "odd"}, "confd: node n1.tst: instance web.tst is missing"),
    ],
)
def test_answers_of_confd_are_compared(monkeypatch, change, text):
    monkeypatch.undo()
    good = {"master": "n1.tst", "role": 0, "instances": [[{"name": "web.tst"}], []]}
    primaries = {"web.tst": "n1.tst"}
    assert len(main.ask_confd(_Answers(**good), "n1.tst", primaries)) == 4
    with pytest.raises(main.ProbeError, match=text.replace("[", r"\[")):
        main.ask_confd(_Answers(**{**good, **change}), "n1.tst", primaries)


class _Page(http.server.BaseHTTPRequestHandler):
    answers = []

    def do_GET(self):
        text = self.answers.pop(0)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_args):
        pass


def test_a_guest_is_asked_until_it_answers_its_name():
    server = http.server.HTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    pauses = []
    try:
        _Page.answers = ["starting\n", "127.0.0.1\nmore"]
        port = server.server_port
        main.ask_guest("127.0.0.1", 60, port=port, pause=pauses.append)
        assert len(pauses) == 1
        _Page.answers = ["other"]
        times = iter([0.0, 0.0, 5.0])
        with pytest.raises(main.ProbeError, match="within 1 seconds, found other"):
            main.ask_guest("127.0.0.1", 1, port=port, now=lambda: next(times))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_guests_are_asked_after_each_step_that_leaves_them_running(master, monkeypatch):
    asked = []
    monkeypatch.setattr(
        main, "ask_guest", lambda name, wait: asked.append((name, wait))
    )
    run(master, "-o tiny -t file -C --net-timeout 7 web.tst")
    assert set(asked) == {("web.tst", 7)}
    assert len(asked) == len(master.ran()) - 1
