"""OP_INSTANCE_MOVE over fakes: what is copied, recorded, and left after failures."""

import copy

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.exporting import COPYING, DONE
from fakes.jobs import FakeCallbacks
from fakes.rpc import failure
from ganeti.base import errors
from ganeti.master.jqueue.effects import Canceled
from ganeti.model import objects
from ganeti.operations.instance.move import disk_transfer

NODE1, NODE2 = clusters.node_uuid(1), clusters.node_uuid(2)
MOVE = {
    "OP_ID": "OP_INSTANCE_MOVE",
    "instance_name": "inst1",
    "target_node": "node2.example.com",
}


def small(template):
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["minmax"][0]["min"]["nic-count"] = 0
    policy["disk-templates"] = ["diskless", "file", "sharedfile"]
    disk = objects.Disk(
        dev_type=template,
        logical_id=("loop", "/srv/ganeti/file-storage/inst1.example.com/d1"),
        size=1024,
        uuid="d1",
        serial_no=1,
        iv_name="disk/0",
    )
    instance = clusters.instance(1, disks=["d1"])
    return clusters.snapshot(extra=[disk, instance], ipolicy=policy)


def engine(template="file", **answers):
    return Engine(small(template), {**COPYING, "instance_info": {}, **answers})


def instance_of(eng):
    return next(iter(eng.snapshot.instances.values()))


def set_up(eng, state="up"):
    with eng.config.edit("test") as edit:
        edit.update(instance_of(eng).replace(admin_state=state))


def names(eng):
    return [(name, node) for name, node, _args in eng.rpc.calls]


def test_disks_are_copied_and_the_instance_runs_at_the_target():
    eng = engine()
    set_up(eng)
    assert eng.run(MOVE) is None
    assert instance_of(eng).primary_node == NODE2
    ((_, started),) = eng.rpc.called("import_start")
    assert started[0]["magic"] == disk_transfer.magic(
        "x509-1-aa", instance_of(eng).name, 0
    )
    ((_, sent),) = eng.rpc.called("export_start")
    assert sent[1:3] == (eng.snapshot.nodes[NODE2].secondary_ip, 4711)
    assert eng.rpc.called("instance_start")[0][0] == NODE2
    order = [name for name, _ in names(eng)]
    assert order.index("instance_shutdown") < order.index("export_start")
    assert order.index("export_start") < order.index("blockdev_remove")
    assert [node for node, _ in eng.rpc.called("blockdev_remove")] == [NODE1]
    assert len(eng.rpc.called("impexp_cleanup")) == 2
    assert len(eng.rpc.called("x509_cert_remove")) == 2


def test_a_stopped_instance_is_not_started():
    eng = engine()
    set_up(eng, "down")
    eng.run(MOVE)
    assert not eng.rpc.called("instance_start")


def test_after_a_failure_only_the_new_disks_are_gone():
    broken = {"exit_status": 1, "error_message": "disk full", "recent_output": ["x"]}
    eng = engine(
        impexp_status=lambda node, _args: [
            broken | {"listen_port": 4711} if node == NODE1 else DONE
        ]
    )
    set_up(eng)
    with pytest.raises(errors.OpExecError, match=r"node1.*disk full \(x\)"):
        eng.run(MOVE)
    assert instance_of(eng).primary_node == NODE1
    assert [node for node, _ in eng.rpc.called("blockdev_remove")] == [NODE2]
    assert eng.rpc.called("instance_start")[0][0] == NODE1
    assert len(eng.rpc.called("impexp_cleanup")) == 2


class Interrupted(FakeCallbacks):
    """Keeps the states that are saved; has the job killed at a line of its log."""

    def __init__(self, words="", resumption=None):
        super().__init__()
        self.words = words
        self.resumption = resumption
        self.states = []

    def save_resumption(self, value):
        super().save_resumption(value)
        self.states.append(copy.deepcopy(value))

    def log(self, kind, payload):
        super().log(kind, payload)
        if self.words and self.words in payload:
            self.words = ""
            raise Canceled("killed")


ENDS = ("impexp_cleanup", "x509_cert_remove", "blockdev_remove", "instance_start")


def copying():
    """Return the state of a move whose programs run."""
    keeping = Interrupted()
    engine().run(MOVE, callbacks=keeping)
    return next(
        state for state in keeping.states if len(state["progress"]["started"]) > 1
    )


@pytest.mark.parametrize(
    ("words", "answers", "error"),
    [
        ("the master daemon was restarted", {}, Canceled),
        (
            "",
            {
                "blockdev_assemble": lambda node, _args: (
                    failure("no such device") if node == NODE2 else ["/dev/x", "", None]
                )
            },
            errors.OpExecError,
        ),
    ],
    ids=["killed", "inactive"],
)
def test_a_continued_move_ends_its_programs_before_the_disks_go(words, answers, error):
    """They outlive the master daemon and write to the new disks."""
    again = Interrupted(words, copying())
    eng = engine(**answers)
    set_up(eng)
    with pytest.raises(error):
        eng.run(MOVE, callbacks=again)
    order = [name for name, _ in names(eng) if name in ENDS]
    assert order == [ENDS[0]] * 2 + [ENDS[1]] * 2 + list(ENDS[2:])
    assert [node for node, _ in eng.rpc.called("blockdev_remove")] == [NODE2]
    assert eng.rpc.called("instance_start")[0][0] == NODE1
    assert again.resumption is None


def test_a_move_that_is_killed_while_it_fails_is_undone():
    broken = {"exit_status": 1, "listen_port": 4711}
    eng = engine(impexp_status=[broken])
    set_up(eng)
    with pytest.raises(Canceled):
        eng.run(MOVE, callbacks=Interrupted("removing the new disks"))
    assert [node for node, _ in eng.rpc.called("blockdev_remove")] == [NODE2]
    assert eng.rpc.called("instance_start")[0][0] == NODE1


@pytest.mark.parametrize("state", ["up", "down"])
@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("blockdev_shutdown", "its disks could not be shut down"),
        ("file_storage_dir_create", "cannot create directory"),
        ("blockdev_create", "cannot create disk/0"),
    ],
)
def test_a_failure_before_the_copy_starts_the_instance_again(step, words, state):
    eng = engine(**{step: failure("no")})
    set_up(eng, state)
    with pytest.raises(errors.OpExecError, match=words):
        eng.run(MOVE)
    assert not eng.rpc.called("export_start")
    assert instance_of(eng).primary_node == NODE1
    started = [node for node, _ in eng.rpc.called("instance_start")]
    assert started == ([NODE1] if state == "up" else [])
    assert instance_of(eng).disks_active or state == "down"


def test_a_move_that_is_killed_before_the_copy_starts_the_instance_again():
    eng = engine()
    set_up(eng)
    with pytest.raises(Canceled):
        eng.run(MOVE, callbacks=Interrupted("creating disks on target"))
    assert not eng.rpc.called("blockdev_create")
    assert eng.rpc.called("instance_start")[0][0] == NODE1


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("blockdev_create", "starting the instance again"),
        ("impexp_status", "removing the new disks"),
        ("impexp_status", "starting the instance again"),
    ],
)
def test_a_kill_while_a_failed_move_is_undone_starts_the_instance(step, words):
    eng = engine(**{step: failure("no")})
    set_up(eng)
    with pytest.raises(Canceled):
        eng.run(MOVE, callbacks=Interrupted(words))
    assert eng.rpc.called("instance_start")[0][0] == NODE1


def test_a_start_that_fails_as_well_does_not_hide_the_first_failure():
    eng = engine(blockdev_create=failure("no"), instance_start=failure("hung"))
    set_up(eng)
    with pytest.raises(errors.OpExecError, match="cannot create disk/0"):
        eng.run(MOVE)
    assert "could not be started" in eng.callbacks.text()


def test_an_import_that_never_listens_is_given_up():
    eng = engine(impexp_status=[None])
    with pytest.raises(errors.OpExecError, match="does not listen"):
        eng.run(MOVE)
    assert not eng.rpc.called("export_start")


def test_silent_source_needs_consistency_to_be_ignored():
    eng = engine(instance_shutdown=failure("timeout"))
    with pytest.raises(errors.OpExecError, match="could not be stopped"):
        eng.run(MOVE)
    assert not eng.rpc.called("blockdev_create")


@pytest.mark.parametrize(
    ("template", "changes", "text"),
    [
        ("sharedfile", {}, "cannot be copied"),
        ("file", {"target_node": "node1.example.com"}, "already"),
        ("file", {"compress": "7z"}, "compression tool: wanted one of none"),
    ],
)
def test_wrong_moves_are_refused(template, changes, text):
    eng = engine(template)
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(MOVE | changes)
    assert not eng.rpc.called("instance_shutdown")


def test_a_long_copy_reports_its_progress():
    looks = iter(range(1, 1000))

    def status(node, _args):
        if node == NODE1:
            return [DONE]
        done = 10.0 * next(looks)
        over = done >= 1024
        return [
            {
                "exit_status": 0 if over else None,
                "listen_port": 4711,
                "progress_mbytes": done,
                "progress_throughput": 5.0,
                "progress_eta": (1024 - done) / 5,
            }
        ]

    eng = engine(impexp_status=status)
    eng.run(MOVE)
    reported = [text for kind, text in eng.callbacks.entries if kind == "progress"]
    assert reported
    assert reported[0].startswith("copying disk/0: ")
    assert " of 1024 MiB, " in reported[0]
    assert "5.0 MiB/s" in reported[0]
    assert reported[0].endswith(" left")
    assert 5 < len(reported) < 40
    assert "* disk/0: " in eng.callbacks.text()
