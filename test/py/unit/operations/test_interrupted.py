"""Operations cut off after each node call and each commit, as by kill -9.

After each cut the configuration is consistent, what nodes have beyond it is named in
the job's log, and the operation, or what the documentation says to run next, ends well.
"""

import contextlib
import copy
import json

import pytest

from fakes import clusters, schemas
from fakes.clocks import FakeClock
from fakes.engine import Engine, creation
from fakes.jobs import FakeCallbacks
from fakes.rpc import FakeRunner, failure
from fakes.simulation import Simulation
from ganeti.base import errors
from ganeti.base.constants.instance import OS_SCRIPT_RUNS
from ganeti.commands.instance import info
from ganeti.daemons.masterd.duties import leftover_disks
from ganeti.daemons.masterd.service import mark_creations
from ganeti.master import config
from ganeti.master.config import topology
from ganeti.master.jqueue.effects import Canceled
from ganeti.model.objects import Disk, Update
from ganeti.protocols.rpc import Result

NODE1, NODE2 = clusters.node_uuid(1), clusters.node_uuid(2)
NAME = "web1.example.com"


class Killed(BaseException):
    """The master daemon is gone."""


class Cutter:
    """Counts steps and ends the process after one of them."""

    def __init__(self, after=None):
        self.after = after
        self.steps = 0

    def step(self):
        self.steps += 1
        self.check()

    def check(self):
        """A process that has ended does nothing more, whatever is left to clean up."""
        if self.after is not None and self.steps >= self.after:
            raise Killed


class Master:
    """An engine over a world that outlives it."""

    def __init__(self, start, simulation, cutter):
        self.simulation, self.cutter = simulation, cutter
        self.engine = Engine(start, simulation.script())
        self._wrap(self.engine.rpc, "_ask")
        self._wrap(self.engine.store, "_take")

    def _wrap(self, owner, name):
        inner = getattr(owner, name)

        def cut(*args):
            self.cutter.check()
            answer = inner(*args)
            self.cutter.step()
            return answer

        setattr(owner, name, cut)

    def run(self, request):
        return self.engine.run(request)

    @property
    def snapshot(self):
        return self.engine.snapshot


def cluster(**changes):
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["minmax"][0]["min"]["nic-count"] = 0
    policy["disk-templates"] = ["diskless", "file", "sharedfile"]
    return clusters.snapshot(ipolicy=policy, **changes)


def create(template="sharedfile", **changes):
    return creation(disk_template=template, disks=[{"size": 1024}] * 2) | changes


def op(name, **changes):
    return {"OP_ID": f"OP_INSTANCE_{name}", "instance_name": NAME} | changes


def modify(**changes):
    return op("SET_PARAMS", **changes)


ADD_DISK = modify(disks=[["add", -1, {"size": 1024}]], hotplug=False)
REMOVE_DISK = modify(disks=[["remove", -1, {}]], hotplug=False)
REMOVE = op("REMOVE", shutdown_timeout=5, ignore_failures=False)
MIGRATE = op("MIGRATE", target_node="node2.example.com")
CLEAN_UP = op("MIGRATE", cleanup=True)
FAILOVER = op("FAILOVER", target_node="node2.example.com")
START = op("STARTUP")
STOP = op("SHUTDOWN", timeout=5)
RENAME = op("RENAME", new_name="web2.example.com", name_check=False, ip_check=False)
GROW = op("GROW_DISK", disk=0, amount=512)
CONVERT = modify(disk_template="file")
RECREATE = op("RECREATE_DISKS")
RECREATE_SECOND = op("RECREATE_DISKS", disks=[1])
REINSTALL = op("REINSTALL")

#: name: (steps before, the operation, what may be run afterwards; one must do).
CASES = {
    "create": ([], create(), [create(), START]),
    "create-file": ([], create("file"), [create("file"), START]),
    "remove": ([create()], REMOVE, [REMOVE, None]),
    "migrate": ([create()], MIGRATE, [CLEAN_UP]),
    "failover": ([create()], FAILOVER, [FAILOVER, START]),
    "start": ([create(start=False)], START, [START]),
    "stop": ([create()], STOP, [STOP]),
    "add-disk": ([create()], ADD_DISK, [ADD_DISK]),
    "remove-disk": ([create(start=False)], REMOVE_DISK, [REMOVE_DISK, None]),
    "rename": ([create(start=False)], RENAME, [RENAME, None]),
    "grow": ([create()], GROW, [GROW]),
    "convert": ([create(start=False)], CONVERT, [CONVERT, None]),
    "recreate": ([create(start=False)], RECREATE, [RECREATE, RECREATE_SECOND, None]),
    "reinstall": ([create(start=False)], REINSTALL, [REINSTALL]),
}


def prepared(before, **changes):
    """Return the state in which an operation begins."""
    simulation, start = Simulation(), cluster(**changes)
    for request in before:
        master = Master(start, simulation, Cutter())
        master.run(request)
        start = master.snapshot
    return start, simulation


def known_strays(case, simulation, start):
    """Let the disks of a case be lost before it begins; return their paths."""
    if case != "recreate":
        return set()
    simulation.files.clear()
    return recorded_paths(start)


def recorded_paths(snapshot):
    return {disk.logical_id[1] for disk in snapshot.disks.values()}


def is_named(path, log):
    directory = path.rpartition("/")[0]
    return path in log or ("renaming directory" in log and directory in log)


def check_invariants(snapshot, simulation, log, known):
    assert config.verify(snapshot) == []
    # A file without a record, and a record without its file, are named in the log.
    strays = (set(simulation.files) ^ recorded_paths(snapshot)) - known
    unnamed = [path for path in strays if not is_named(path, log)]
    assert not unnamed, f"{unnamed} is not in the log:\n{log}"


def run_next(snapshot, simulation, choices):
    """Run the first that is not refused; return the state after it."""
    refusals = []
    for request in choices:
        if request is None:
            return snapshot
        master = Master(snapshot, simulation, Cutter())
        try:
            master.run(request)
        except errors.GenericError as err:
            assert config.verify(master.snapshot) == []
            refusals.append(str(err))
            snapshot = master.snapshot
            continue
        return master.snapshot
    raise AssertionError(refusals)


@pytest.mark.parametrize("case", CASES)
def test_an_operation_can_be_cut_off_anywhere(case):
    before, request, choices = CASES[case]
    cut = 0
    while True:
        cut += 1
        start, simulation = prepared(before)
        known = known_strays(case, simulation, start)
        cutter = Cutter(cut)
        master = Master(start, simulation, cutter)
        try:
            master.run(request)
        except Killed:
            is_cut = True
        else:
            is_cut = False
        log = master.engine.callbacks.text()
        check_invariants(master.snapshot, simulation, log, known)
        if not is_cut:
            break
        after = run_next(master.snapshot, simulation, choices)
        assert config.verify(after) == []
        assert recorded_paths(after) <= set(simulation.files)
        assert_one_place(after, simulation)
    assert cut > 3


class CutCallbacks(FakeCallbacks):
    """Callbacks whose stored resumption is a point of a cut, too."""

    def __init__(self, cutter, resumption=None):
        super().__init__(resumption=resumption)
        self._cutter = cutter

    def save_resumption(self, value):
        super().save_resumption(value)
        self._cutter.step()


def run_until_cut(start, simulation, request, cut, resumption):
    """Run or resume an operation; return its master and whether it was cut off."""
    cutter = Cutter(cut)
    master = Master(start, simulation, cutter)
    callbacks = CutCallbacks(cutter, resumption)
    try:
        master.engine.run(request, callbacks=callbacks)
    except Killed:
        return master, True
    return master, False


def has_moved(snapshot, _simulation):
    return [each.primary_node for each in snapshot.instances.values()] == [NODE2]


def is_wiped(snapshot, simulation):
    """Return whether all disks have their recorded sizes and are wiped if wanted."""
    sizes = {disk.logical_id[1]: disk.size for disk in snapshot.disks.values()}
    wiped = {path: len(done) for path, done in simulation.wiped.items()}
    if not snapshot.cluster.prealloc_wipe_disks:
        wiped = sizes
    return len(snapshot.instances) == 1 and sizes == simulation.files == wiped


WITHOUT_OS = {"start": False, "os_type": None, "no_install": True}


def is_stopped(snapshot, simulation):
    (record,) = snapshot.instances.values()
    return record.admin_state == "down" and not simulation.runs_on(NAME)


def is_renamed(snapshot, simulation):
    names = {record.name for record in snapshot.instances.values()}
    return names == {"web2.example.com"} and has_its_files(snapshot, simulation)


def has_its_files(snapshot, simulation):
    return recorded_paths(snapshot) == set(simulation.files)


def is_removed(snapshot, simulation):
    return not (snapshot.instances or simulation.files or simulation.runs_on(NAME))


def runs_there(snapshot, simulation):
    return has_moved(snapshot, simulation) and simulation.runs_on(NAME) == {NODE2}


#: name: (steps before, the operation, whether it has had its effect).
RESUMED = {
    "failover": ([create()], FAILOVER, runs_there),
    "remove": ([create()], REMOVE, is_removed),
    "remove-file": ([create("file")], REMOVE, is_removed),
    "rename": ([create("file", **WITHOUT_OS)], RENAME, is_renamed),
    "stop": ([create()], STOP, is_stopped),
    "migrate": ([create()], MIGRATE, has_moved),
    "create": ([], create(), is_wiped),
    "grow": ([create()], GROW, is_wiped),
    "recreate": ([create(start=False)], RECREATE, is_wiped),
    "recreate-moved": (
        [create(start=False)],
        op("RECREATE_DISKS", nodes=["node2.example.com"]),
        lambda *state: has_moved(*state) and is_wiped(*state),
    ),
}


#: Disks that they have made are removed after a restart.
UNRECORDED = {"create"}


@pytest.mark.parametrize("wipes", [False, True])
@pytest.mark.parametrize("again", [None, 1, 2, 3])
@pytest.mark.parametrize("case", RESUMED)
def test_an_operation_that_can_be_resumed_ends_as_if_not_cut_off(case, again, wipes):
    before, request, has_succeeded = RESUMED[case]
    cut, is_cut, resumed = 0, True, 0
    while is_cut:
        cut += 1
        start, simulation = prepared(before, prealloc_wipe_disks=wipes)
        if case.startswith("recreate"):
            simulation.files.clear()
            simulation.wiped.clear()
        files = dict(simulation.files)
        master, is_cut = run_until_cut(start, simulation, request, cut, None)
        resumption = master.engine.callbacks.resumption
        if resumption is None:
            # Nobody wipes what a job has made that ends here.
            assert simulation.files == files or case in UNRECORDED
            continue
        resumed += 1
        # The next master daemon may be killed as well, the third one is not.
        for number in (again, None) if again else (None,):
            master, _ = run_until_cut(
                master.snapshot, simulation, request, number, resumption
            )
            resumption = master.engine.callbacks.resumption
        assert has_succeeded(master.snapshot, simulation)
        assert_one_place(master.snapshot, simulation)
        assert config.verify(master.snapshot) == []
    assert resumed > 3 or (case in UNRECORDED and not wipes)


@pytest.mark.parametrize("template", ["file", "sharedfile"])
def test_a_wiping_creation_gives_way_to_a_repeated_request(template):
    start, simulation = prepared([], prealloc_wipe_disks=True)
    request = create(template, request_key="k1")
    cut, resumption = 0, None
    while resumption is None:
        cut += 1
        start, simulation = prepared([], prealloc_wipe_disks=True)
        left, _is_cut = run_until_cut(start, simulation, request, cut, None)
        resumption = left.engine.callbacks.resumption
    half_wiped = set(simulation.files)
    assert half_wiped
    # The resumed job waits for its locks when a client repeats the request.
    winner, _is_cut = run_until_cut(left.snapshot, simulation, request, None, None)
    resumed = Master(winner.snapshot, simulation, Cutter())
    callbacks = CutCallbacks(Cutter(), resumption)
    nodes = resumed.engine.run(request, callbacks=callbacks)
    assert nodes == ["node1.example.com"]
    assert [each.name for each in resumed.snapshot.instances.values()] == [NAME]
    assert has_its_files(resumed.snapshot, simulation)
    assert half_wiped.isdisjoint(simulation.files)
    assert "cannot remove" not in str(callbacks.entries)
    assert callbacks.resumption is None


def test_a_wiping_creation_ends_when_its_node_was_removed():
    request = create(pnode="node2.example.com")
    cut, resumption = 0, None
    while resumption is None:
        cut += 1
        start, simulation = prepared([], prealloc_wipe_disks=True)
        left, _is_cut = run_until_cut(start, simulation, request, cut, None)
        resumption = left.engine.callbacks.resumption
    again = Master(left.snapshot, simulation, Cutter())
    with again.engine.config.edit("2/0") as edit:
        topology.remove_node(edit, NODE2)
    with pytest.raises(errors.OpPrereqError, match=f"{NODE2}' not known"):
        again.engine.run(request, callbacks=FakeCallbacks(resumption=resumption))
    assert not again.snapshot.instances


def cut_in(procedure, before, request):
    """Return a master that was killed while a node did something, and its state."""
    start, simulation = prepared(before)
    master = Master(start, simulation, Cutter())

    def kill(_node, _args):
        master.cutter.after = master.cutter.steps

    master.engine.rpc.script[procedure] = kill
    with pytest.raises(Killed):
        master.run(request)
    return master, master.engine.callbacks.resumption


def test_a_rename_does_not_run_a_script_beside_itself():
    cut, resumption = cut_in("instance_run_rename", [create(start=False)], RENAME)
    again = Master(cut.snapshot, cut.simulation, Cutter())
    with pytest.raises(errors.OpExecError) as caught:
        again.engine.run(RENAME, callbacks=FakeCallbacks(resumption=resumption))
    assert "gnt-instance rename web2.example.com web2.example.com" in str(caught.value)
    assert not again.engine.rpc.called("instance_run_rename")
    assert is_renamed(again.snapshot, cut.simulation)


AGAIN = RENAME | {"instance_name": "web2.example.com"}


def only(snapshot):
    (record,) = snapshot.instances.values()
    return record


def test_an_instance_whose_rename_script_was_cut_off_is_unfinished():
    cut, resumption = cut_in("instance_run_rename", [create(start=False)], RENAME)
    assert not only(cut.snapshot).is_unfinished
    again = Master(cut.snapshot, cut.simulation, Cutter())
    mark_creations(again.engine.config)
    with pytest.raises(errors.OpExecError):
        again.engine.run(RENAME, callbacks=FakeCallbacks(resumption=resumption))
    assert only(again.snapshot).is_half_renamed
    start = START | {"instance_name": "web2.example.com"}
    text = "rename script .* with gnt-instance rename web2.example.com web2.example.com"
    with pytest.raises(errors.OpPrereqError, match=text):
        again.run(start)
    # As the messages say.
    again.run(AGAIN)
    assert not only(again.snapshot).creation
    again.run(start)


def test_a_half_renamed_instance_is_started_by_force():
    cut, _resumption = cut_in("instance_run_rename", [create(start=False)], RENAME)
    again = Master(cut.snapshot, cut.simulation, Cutter())
    mark_creations(again.engine.config)
    again.run(START | {"instance_name": "web2.example.com", "force": True})
    assert "the guest may have its former name" in again.engine.callbacks.text()
    assert not only(again.snapshot).creation


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (failure("exit code 1"), ""),
        (failure("timeout", is_lost=True), "rename-interrupted"),
    ],
)
def test_a_rename_script_whose_answer_is_lost_may_still_run(answer, expected):
    start, simulation = prepared([create(start=False)])
    master = Master(start, simulation, Cutter())
    master.engine.rpc.script["instance_run_rename"] = answer
    master.run(RENAME)
    assert "the OS rename script failed" in master.engine.callbacks.text()
    assert only(master.snapshot).creation == expected


@pytest.mark.parametrize(
    ("request_", "procedure"),
    [(REINSTALL, "instance_os_add"), (RENAME, "instance_run_rename")],
)
def test_disks_that_an_earlier_script_writes_to_stay_active(request_, procedure):
    start, simulation = prepared([create(start=False)])
    master = Master(start, simulation, Cutter())
    mark = {
        "instance_os_add": "interrupted",
        "instance_run_rename": "rename-interrupted",
    }
    with master.engine.config.edit("test") as edit:
        edit.update(only(master.snapshot).replace(creation=mark[procedure]))
    master.engine.rpc.script[procedure] = failure("a script still runs")
    with contextlib.suppress(errors.OpExecError):
        master.run(request_)
    assert only(master.snapshot).creation == mark[procedure]
    assert not master.engine.rpc.called("blockdev_shutdown")
    # When it has ended.
    master.engine.rpc.script[procedure] = None
    master.run(request_ | {"instance_name": only(master.snapshot).name})
    assert only(master.snapshot).creation == ""
    assert master.engine.rpc.called("blockdev_shutdown")


def test_a_rename_does_not_finish_an_installation():
    start, simulation = prepared([create(start=False)])
    master = Master(start, simulation, Cutter())
    with master.engine.config.edit("test") as edit:
        edit.update(only(master.snapshot).replace(creation="interrupted"))
    master.run(RENAME)
    assert only(master.snapshot).creation == "interrupted"


class KilledCallbacks(FakeCallbacks):
    """A client kills the job at one of its log lines."""

    def __init__(self, line, resumption=None):
        super().__init__(resumption=resumption)
        self.line = line

    def log(self, kind, payload):
        super().log(kind, payload)
        if len(self.entries) == self.line:
            self.is_canceled = True
            self.kill()
            raise Canceled("killed on request")


def test_the_new_part_of_a_disk_is_wiped_although_the_job_is_killed():
    line, was_killed = 0, True
    while was_killed:
        line += 1
        start, simulation = prepared([create()], prealloc_wipe_disks=True)
        master, callbacks = Master(start, simulation, Cutter()), KilledCallbacks(line)
        was_killed = False
        try:
            master.engine.run(GROW, callbacks=callbacks)
        except Canceled:
            was_killed = True
        assert is_wiped(master.snapshot, simulation)
    assert line > 2


def test_a_growth_that_is_killed_before_it_continues_is_wiped():
    cut, is_cut, resumed = 0, True, 0
    while is_cut:
        cut += 1
        start, simulation = prepared([create()], prealloc_wipe_disks=True)
        master, is_cut = run_until_cut(start, simulation, GROW, cut, None)
        resumption = master.engine.callbacks.resumption
        if resumption is None or not is_cut:
            continue
        resumed += 1
        again = Master(master.snapshot, simulation, Cutter())
        with pytest.raises(Canceled):
            again.engine.run(GROW, callbacks=KilledCallbacks(1, resumption))
        assert is_wiped(again.snapshot, simulation)
    assert resumed > 3


def test_a_part_that_the_guest_may_use_already_is_not_wiped_again():
    before = [create()]
    start, simulation = prepared(before, prealloc_wipe_disks=True)
    master = Master(start, simulation, Cutter())

    def kill(_node, _args):
        master.cutter.after = master.cutter.steps

    master.engine.rpc.script["resize_disk"] = kill
    with pytest.raises(Killed):
        master.run(GROW)
    again = Master(master.snapshot, simulation, Cutter())
    left = FakeCallbacks(resumption=master.engine.callbacks.resumption)
    again.engine.run(GROW, callbacks=left)
    assert again.engine.rpc.called("resize_disk")
    assert not again.engine.rpc.called("blockdev_wipe")


def test_a_wipe_that_fails_names_what_it_left():
    start, simulation = prepared([create()], prealloc_wipe_disks=True)
    master = Master(start, simulation, Cutter())
    master.engine.rpc.script["blockdev_wipe"] = failure("I/O error")
    with pytest.raises(errors.OpExecError, match="cannot wipe"):
        master.run(GROW)
    text = f"disk 0 of instance {NAME} may have data of others from 1024 MiB on"
    assert text in master.engine.callbacks.text()


FALLBACK = MIGRATE | {"allow_failover": True}
ALWAYS_FAILS_OVER = [create(), modify(beparams={"always_failover": True})]


@pytest.mark.parametrize("request_", [FAILOVER, FALLBACK])
def test_a_failover_is_not_continued_to_a_node_that_lacks_data(request_, monkeypatch):
    cut, resumption = cut_in("instance_shutdown", ALWAYS_FAILS_OVER, request_)
    monkeypatch.setattr(
        "ganeti.operations.instance.disks.mirror_states.require_complete",
        refuse_to_move,
    )
    again = Master(cut.snapshot, cut.simulation, Cutter())
    with pytest.raises(errors.OpPrereqError, match="lacks data"):
        again.engine.run(request_, callbacks=FakeCallbacks(resumption=resumption))
    assert not has_moved(again.snapshot, cut.simulation)


@pytest.mark.parametrize("request_", [FAILOVER, FALLBACK])
def test_a_failover_is_continued_while_its_disks_are_shut_down(request_, monkeypatch):
    # At the target they may be inactive already: its data cannot be checked.
    cut, resumption = cut_in("blockdev_shutdown", ALWAYS_FAILS_OVER, request_)
    monkeypatch.setattr(
        "ganeti.operations.instance.disks.mirror_states.require_complete",
        refuse_to_move,
    )
    for _number in range(2):
        again = Master(cut.snapshot, cut.simulation, Cutter())
        callbacks = FakeCallbacks(resumption=resumption)
        again.engine.rpc.script["blockdev_shutdown"] = failure("no")
        with pytest.raises(errors.OpExecError, match="could not be shut down"):
            again.engine.run(request_, callbacks=callbacks)
        resumption = callbacks.resumption
    again = Master(cut.snapshot, cut.simulation, Cutter())
    again.engine.run(request_, callbacks=FakeCallbacks(resumption=resumption))
    assert runs_there(again.snapshot, cut.simulation)


def refuse_to_move(*_args, **_more):
    raise errors.OpPrereqError("lacks data", "wrong_state")


@pytest.mark.parametrize("present", [1028, 1536, 2048])
def test_a_growth_does_not_wipe_what_the_guest_may_use(present):
    # LVM rounds sizes up, and an earlier growth may have failed without its record.
    start, simulation = prepared([create()], prealloc_wipe_disks=True)
    master = Master(start, simulation, Cutter())
    path = start.disks[record_of(master).disks[0]].logical_id[1]
    simulation.files[path] = present
    simulation.wiped.clear()
    master.run(GROW)
    assert simulation.wiped.get(path, set()) == set(range(present, 1536))
    assert master.snapshot.disks[record_of(master).disks[0]].size == 1536


def test_a_failover_instead_of_a_migration_is_continued():
    cut, resumption = cut_in("instance_shutdown", ALWAYS_FAILS_OVER, FALLBACK)
    again = Master(cut.snapshot, cut.simulation, Cutter())
    again.engine.run(FALLBACK, callbacks=FakeCallbacks(resumption=resumption))
    assert runs_there(again.snapshot, cut.simulation)


def test_an_instance_that_was_being_reinstalled_is_not_started():
    cut, resumption = cut_in("instance_os_add", [create(start=False)], REINSTALL)
    assert resumption is None
    assert record_of(cut).creation == "installing"
    cut.cutter.after = None
    mark_creations(cut.engine.config)
    again = Master(cut.snapshot, cut.simulation, Cutter())
    with pytest.raises(errors.OpPrereqError, match="gnt-instance reinstall"):
        again.run(START)
    again.run(REINSTALL)
    assert record_of(again).creation == ""
    again.run(START)


@pytest.mark.parametrize("before", ["", "interrupted"])
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_reinstallation_whose_script_failed_leaves_the_mark_as_it_was(
    before, is_lost
):
    start, simulation = prepared([create(start=False)])
    (record,) = start.instances.values()
    start = start.apply(
        [Update("instances", record.uuid, record.replace(creation=before))]
    )
    master = Master(start, simulation, Cutter())
    answer = failure("gone", is_lost=is_lost)
    master.engine.rpc.script["instance_os_add"] = answer
    with pytest.raises(errors.OpExecError, match="could not be reinstalled"):
        master.run(REINSTALL)
    assert record_of(master).creation == ("interrupted" if is_lost else before)


@pytest.mark.parametrize(
    ("text", "is_recorded"),
    [
        (f"instance web1: {OS_SCRIPT_RUNS} on this node", False),
        ("the script failed with exit code 1", True),
    ],
)
def test_an_os_whose_script_was_refused_is_not_recorded(text, is_recorded):
    start, simulation = prepared([create(start=False)])
    master = Master(start, simulation, Cutter())
    before = record_of(master).os
    master.engine.rpc.script["instance_os_add"] = failure(text)
    with pytest.raises(errors.OpExecError, match=text):
        master.run(REINSTALL | {"os_type": "other", "osparams": {"motd": "new"}})
    assert record_of(master).os == ("other" if is_recorded else before)
    assert record_of(master).osparams == ({"motd": "new"} if is_recorded else {})


def test_an_instance_that_was_being_rebooted_is_up():
    reboot = op("REBOOT", reboot_type="full")
    cut, _ = cut_in("instance_start", [create(start=False)], reboot)
    assert record_of(cut).admin_state == "up"


def assert_one_place(snapshot, simulation):
    """A guest runs at most once, and where its record says."""
    for instance in snapshot.instances.values():
        places = simulation.runs_on(instance.name)
        assert places <= {instance.primary_node}
        assert instance.name not in simulation.waiting


def restarted(master, *, has_ended=lambda _job: True):
    """Return what sweeps disks in a master daemon that starts after a cut."""
    master.cutter.after = None
    again = config.Config(master.engine.store, FakeClock())
    runner = FakeRunner(again.snapshot, master.simulation.script())
    return leftover_disks.LeftoverDisks(
        again.disk_notes, again.snapshot, runner, FakeClock(), has_ended=has_ended
    )


@pytest.mark.parametrize("case", ["create", "create-file", "add-disk", "convert"])
def test_disks_that_were_being_made_are_removed_after_a_restart(case):
    before, request, _choices = CASES[case]
    cut = swept = 0
    is_cut = True
    while is_cut:
        cut += 1
        start, simulation = prepared(before)
        master = Master(start, simulation, Cutter(cut))
        try:
            master.run(request)
        except Killed:
            swept += bool(set(simulation.files) - recorded_paths(master.snapshot))
        else:
            is_cut = False
        assert restarted(master).sweep()
        recorded = recorded_paths(master.snapshot)
        assert set(simulation.files) == recorded
        assert simulation.directories == {path.rpartition("/")[0] for path in recorded}
        assert not [key for _table, key in present(master) if key.startswith("disks/")]
    assert swept


PRIVATE = {"osparams_private": {"user": "a"}, "os_name": "tiny"}
ADD_NIC, ADD_BOTH = (
    modify(nics=[["add", -1, {"mac": "aa:00:00:12:34:56"}]]),
    modify(
        disks=[["add", -1, {"size": 1024}]],
        nics=[["add", -1, {"mac": "aa:00:00:12:34:56"}]],
    ),
)
READ_ONLY = modify(disks=[["modify", 0, {"mode": "ro"}]])
SAME_NIC = modify(nics=[["modify", 0, {"mac": "aa:00:00:12:34:56"}]])
#: name: (steps before, the change).
DEVICES = {
    "add-disk": ([create("file")], modify(disks=[["add", -1, {"size": 1024}]])),
    "add-disk-cold": (
        [create("file", start=False)],
        modify(disks=[["add", 0, {"size": 1024}]]),
    ),
    "add-nic": ([create("file")], ADD_NIC),
    "add-both": ([create("file")], ADD_BOTH),
    "add-private": ([create("file")], ADD_BOTH | PRIVATE),
    "remove-disk": ([create("file")], modify(disks=[["remove", 0, {}]])),
    "change-nic": (
        [create("file"), ADD_NIC],
        modify(
            nics=[["modify", 0, {"mac": "aa:00:00:65:43:21"}]],
            disks=[["add", -1, {"size": 1024}]],
        ),
    ),
    # The record has the same devices before and after these.
    "change-disk": ([create("file")], READ_ONLY),
    "change-more": ([create("file")], READ_ONLY | {"beparams": {"vcpus": 2}}),
    "same-nic": ([create("file"), ADD_NIC], SAME_NIC | {"beparams": {"vcpus": 2}}),
    "same-nic-private": ([create("file"), ADD_NIC], SAME_NIC | PRIVATE),
}


def devices_of(snapshot, simulation):
    """Return the devices that the record has, if the guest runs."""
    (record,) = snapshot.instances.values()
    if not simulation.runs_on(NAME):
        return {}
    paths = {uuid: snapshot.disks[uuid].logical_id[1] for uuid in record.disks}
    return paths | {nic.uuid: nic.mac for nic in record.nics}


def recorded(snapshot):
    (record,) = snapshot.instances.values()
    modes = [snapshot.disks[uuid].mode for uuid in record.disks]
    others = record.beparams, record.osparams_private
    return modes, [nic.mac for nic in record.nics], others


@pytest.mark.parametrize("wipes", [False, True])
@pytest.mark.parametrize("again", [None, 1, 2, 3])
@pytest.mark.parametrize("case", DEVICES)
def test_a_change_of_devices_is_completed_or_undone(case, again, wipes):
    before, request = DEVICES[case]
    ends, outcomes, cut, is_cut = [], set(), 0, True
    while is_cut:
        cut += 1
        start, simulation = prepared(before, prealloc_wipe_disks=wipes)
        master, is_cut = run_until_cut(start, simulation, request, cut, None)
        resumption = master.engine.callbacks.resumption
        for number in ((again, None) if again else (None,)) if is_cut else ():
            if resumption is None:
                break
            with contextlib.suppress(errors.OpExecError):
                master, is_cut_again = run_until_cut(
                    master.snapshot, simulation, request, number, resumption
                )
                if not is_cut_again:
                    assert recorded(master.snapshot) != recorded(start), cut
        assert restarted(master).sweep()
        snapshot = master.snapshot
        assert config.verify(snapshot) == []
        assert simulation.devices == devices_of(snapshot, simulation), cut
        assert set(simulation.files) == recorded_paths(snapshot), cut
        outcomes.add(str(recorded(snapshot)))
        ends = [recorded(start), recorded(snapshot)]
        # The command succeeds when it is repeated.
        if snapshot.instances == start.instances:
            done, _ = run_until_cut(snapshot, simulation, request, None, None)
            assert recorded(done.snapshot) != ends[0]
    # As before, or as wanted, and nothing in between.
    assert outcomes == {str(end) for end in ends}


def present(master):
    documents = master.engine.store.documents.items()
    return [place for place, data in documents if data is not None]


def cut_before_the_records():
    """Return a master that was killed when it had made the first disk."""
    start, simulation = prepared([])
    cut = 0
    while not simulation.files:
        cut += 1
        start, simulation = prepared([])
        master = Master(start, simulation, Cutter(cut))
        with contextlib.suppress(Killed):
            master.run(create("file"))
    return master


def test_disks_of_a_job_that_goes_on_are_left_alone():
    master = cut_before_the_records()
    files = dict(master.simulation.files)
    assert not restarted(master, has_ended=lambda _job: False).sweep()
    assert master.simulation.files == files


def test_disks_on_a_silent_node_are_tried_again():
    master = cut_before_the_records()
    script = master.simulation.do_blockdev_remove
    master.simulation.do_blockdev_remove = lambda *_args: failure("no answer")
    assert not restarted(master).sweep()
    assert master.simulation.files
    master.simulation.do_blockdev_remove = script
    assert restarted(master).sweep()
    assert not master.simulation.files


def test_a_disk_that_cannot_be_removed_after_its_record_is_removed_later():
    before, request = DEVICES["remove-disk"]
    start, simulation = prepared(before)
    master = Master(start, simulation, Cutter())
    script = simulation.do_blockdev_remove
    busy = failure("held open")
    master.engine.rpc.script["blockdev_remove"] = lambda *_args: busy
    master.run(request)
    assert set(simulation.files) > recorded_paths(master.snapshot)
    again = restarted(master)
    again._rpc.script["blockdev_remove"] = script
    assert again.sweep()
    assert set(simulation.files) == recorded_paths(master.snapshot)


def test_a_disk_at_the_place_of_a_recorded_one_stays():
    master = cut_before_the_records()
    [path] = master.simulation.files
    disk = Disk(
        uuid="other", dev_type="file", logical_id=("loop", path), size=1, serial_no=1
    )
    owner = clusters.instance(9, disks=(disk.uuid,))
    again = restarted(master)
    master.engine.store.commit(
        [Update("disks", disk.uuid, disk), Update("instances", owner.uuid, owner)]
    )
    assert again.sweep()
    assert list(master.simulation.files) == [path]


def lost(procedure):
    return Result(procedure, "n", fail_msg="the connection broke", is_lost=True)


def test_disks_of_a_failed_creation_on_a_node_that_went_away_are_removed_later():
    start, simulation = prepared([])
    master = Master(start, simulation, Cutter())
    script = master.engine.rpc.script

    def lose(node, args):
        # The node makes the disk, and cannot be reached any more.
        simulation.do_blockdev_create(node, args)
        script["blockdev_remove"] = lambda *_args: failure("no answer")
        return lost("blockdev_create")

    script["blockdev_create"] = lose
    with pytest.raises(errors.OpExecError, match="the connection broke"):
        master.run(create("file"))
    assert len(simulation.files) == 1
    assert master.engine.config.disk_notes.news.is_set()
    assert restarted(master).sweep()
    assert not simulation.files


def interrupted_in_the_script(**changes):
    """Cut a creation off when the OS script has been called, and start a new master."""
    simulation = Simulation()
    master = Master(cluster(), simulation, Cutter())

    def killed(*_args):
        raise Killed

    master.engine.rpc.script["instance_os_add"] = killed
    with pytest.raises(Killed):
        master.run(create(**changes))
    (record,) = master.snapshot.instances.values()
    assert record.creation == "installing"
    assert not record.is_unfinished
    again = Master(master.snapshot, simulation, Cutter())
    mark_creations(again.engine.config)
    return again


def record_of(master):
    (record,) = master.snapshot.instances.values()
    return record


@pytest.mark.parametrize("start", [True, False])
def test_a_creation_cut_off_in_its_os_script_is_unfinished(start):
    master = interrupted_in_the_script(start=start)
    assert record_of(master).is_unfinished
    query = {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": [NAME], "static": True}
    answer = master.run(query)
    assert answer[NAME]["unfinished"] is True
    shown = json.loads(json.dumps([info.instance_json(answer[NAME])]))
    assert schemas.problems("gnt-instance-info", shown) == []
    exported = config.export_config(master.snapshot, config.Header())
    (row,) = exported["instances"].values()
    assert "creation" not in row
    master.run(REMOVE)
    assert not master.snapshot.instances


def test_an_unfinished_instance_is_not_started_by_chance():
    """Its script may still run, and would write to the disks of a running guest."""
    master = interrupted_in_the_script()
    with pytest.raises(errors.OpPrereqError, match="reinstall, remove it, or start it"):
        master.run(START)
    assert record_of(master).is_unfinished
    assert not master.engine.rpc.called("instance_start")


@pytest.mark.parametrize("request_", [REINSTALL, START | {"force": True}])
def test_a_reinstallation_or_a_forced_start_ends_the_mark(request_):
    master = interrupted_in_the_script()
    master.run(request_)
    assert not record_of(master).creation
    log = master.engine.callbacks.text()
    assert ("its installation did not finish" in log) is ("force" in request_)


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize(
    ("answer", "mark"),
    [
        (None, ""),
        (failure("bad disk"), ""),
        (failure("gone", is_lost=True), "interrupted"),
    ],
)
def test_only_a_lost_answer_leaves_the_creation_unfinished(start, answer, mark):
    master = Master(cluster(), Simulation(), Cutter())
    if answer is not None:
        master.engine.rpc.script["instance_os_add"] = answer
        with pytest.raises(errors.OpExecError):
            master.run(create(start=start))
    else:
        master.run(create(start=start))
    assert record_of(master).creation == mark


def test_instances_without_an_installation_have_no_mark():
    master = Master(cluster(), Simulation(), Cutter())
    seen = []
    take = master.engine.store._take

    def watch(*args):
        answer = take(*args)
        seen.extend(item.creation for item in master.snapshot.instances.values())
        return answer

    master.engine.store._take = watch
    master.run(create(no_install=True, os_type=None))
    assert set(seen) == {""}


def test_directories_on_a_node_that_went_away_are_removed_later():
    start, simulation = prepared([])
    master = Master(start, simulation, Cutter())

    def lose(node, args):
        simulation.do_file_storage_dir_create(node, args)
        return lost("file_storage_dir_create")

    master.engine.rpc.script["file_storage_dir_create"] = lose
    with pytest.raises(errors.OpExecError, match="the connection broke"):
        master.run(create("file"))
    again = restarted(master)
    script = simulation.do_file_storage_dir_remove
    again._rpc.script["file_storage_dir_remove"] = lambda *_args: failure("refused")
    assert not again.sweep()
    again._rpc.script["file_storage_dir_remove"] = script
    assert again.sweep()
    assert not simulation.directories


class FailingStore:
    """Ends one commit of a master with an error, and refuses all later ones.

    ``after`` is what the next master daemon finds: with or without that commit.
    """

    def __init__(self, master, number, error, *, is_durable=False, is_closed=False):
        self.store = master.engine.store
        self.count, self.number, self.error = 0, number, error
        self.is_durable, self.is_closed = is_durable, is_closed
        self._take, self.store._take = self.store._take, self.take
        self.after = None

    @property
    def has_failed(self):
        return self.count >= self.number

    def take(self, changes, snapshot):
        self.count += 1
        if self.count == self.number:
            before = self.store._snapshot, dict(self.store.documents)
            if self.is_durable:
                self._take(changes, snapshot)
            self.after = self.store._snapshot, self.store.documents
            self.store._snapshot, self.store.documents = before
            raise self.error
        if self.count > self.number and self.is_closed:
            raise errors.StorageError("store: closed, nothing can be written")
        self._take(changes, snapshot)

    def restart(self):
        self.store._take = self._take
        self.store._snapshot, self.store.documents = self.after


UNKNOWN = [
    errors.CommitUnknownError("store: closed; may be durable"),
    errors.TermError("term 1 is over"),
]
MAKING = ["create", "create-file", "add-disk", "convert"]


@pytest.mark.parametrize("wipes", [False, True])
@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("error", UNKNOWN, ids=lambda err: type(err).__name__)
@pytest.mark.parametrize("case", MAKING)
def test_nothing_is_removed_while_the_outcome_of_a_commit_is_unknown(
    case, error, is_durable, wipes
):
    before, request, _choices = CASES[case]
    number, kept = 0, 0
    while True:
        number += 1
        start, simulation = prepared(before, prealloc_wipe_disks=wipes)
        master = Master(start, simulation, Cutter())
        failing = FailingStore(
            master, number, error, is_durable=is_durable, is_closed=True
        )
        with contextlib.suppress(errors.GenericError):
            master.run(request)
        if not failing.has_failed:
            break
        sweeper = leftover_disks.LeftoverDisks(
            master.engine.config.disk_notes,
            master.engine.config.snapshot,
            master.engine.rpc,
            FakeClock(),
            has_ended=lambda _job: True,
        )
        # Neither at once, nor by this daemon later.
        with contextlib.suppress(errors.GenericError):
            sweeper.sweep()
        failing.restart()
        recorded = recorded_paths(master.snapshot)
        assert recorded <= set(simulation.files), number
        kept += bool(recorded - recorded_paths(start))
        assert restarted(master).sweep()
        assert set(simulation.files) - recorded == set(), number
    assert number > 2
    assert kept or not is_durable


@pytest.mark.parametrize("case", MAKING)
def test_new_disks_are_removed_when_a_commit_is_refused(case):
    before, request, _choices = CASES[case]
    number = 0
    while True:
        number += 1
        start, simulation = prepared(before)
        master = Master(start, simulation, Cutter())
        failing = FailingStore(master, number, errors.StorageError("store: refused"))
        with contextlib.suppress(errors.StorageError):
            master.run(request)
        if not failing.has_failed:
            break
        if recorded_paths(master.snapshot) == recorded_paths(start):
            assert set(simulation.files) == recorded_paths(start), number
    assert number > 2
