"""Exports and imports over fakes: order of steps, what is left after failures."""

import pytest

from fakes.engine import Engine
from fakes.exporting import (
    DONE,
    NAME,
    NODE1,
    NODE2,
    NODE3,
    Guest,
    description,
    engine,
    small,
)
from fakes.jobs import FakeCallbacks, KeepingCallbacks
from fakes.rpc import failure
from ganeti.base import errors
from ganeti.master import hooksmaster
from ganeti.master.jqueue.effects import Canceled
from ganeti.operations.instance.create import create

EXPORT = {
    "OP_ID": "OP_BACKUP_EXPORT",
    "instance_name": "inst1",
    "target_node": "node2.example.com",
}
IMPORT = {
    "OP_ID": "OP_INSTANCE_CREATE",
    "mode": "import",
    "instance_name": "inst9.example.com",
    "src_path": "inst1.example.com",
    "disks": [],
    "nics": [],
    "start": False,
    "pnode": "node1.example.com",
}
PATH = f"/srv/ganeti/export/{NAME}"


def order(eng, *names):
    return [name for name, _node, _args in eng.rpc.calls if name in names]


STEPS = (
    "instance_shutdown",
    "blockdev_snapshot",
    "instance_start",
    "import_start",
    "export_start",
    "blockdev_remove",
    "finalize_export",
    "export_remove",
)


def test_a_guest_runs_again_while_its_snapshots_are_copied():
    eng = engine(**Guest().answers())
    assert eng.run(EXPORT) == (True, [True])
    assert order(eng, *STEPS) == list(STEPS)
    ((_, sent),) = eng.rpc.called("export_start")
    kind, (disk, index) = sent[-1]
    assert (kind, disk["logical_id"], index) == (
        "script",
        ["xenvg", "v1.disk0.snap"],
        0,
    )
    ((node, received),) = eng.rpc.called("import_start")
    assert node == NODE2
    assert list(received[-1]) == ["file", [f"{PATH}.new/disk0.dump"]]
    ((node, removed),) = eng.rpc.called("blockdev_remove")
    assert (node, removed[0]["logical_id"]) == (NODE1, ["xenvg", "v1.disk0.snap"])
    ((_, described),) = eng.rpc.called("finalize_export")
    assert described[0]["primary_node"] == "node1.example.com"
    # The older export on a third node is gone; the new one on the second stays.
    assert eng.rpc.called("export_remove") == [(NODE3, (NAME,))]


def test_a_running_guest_is_left_alone_with_noshutdown():
    eng = engine()
    eng.run(EXPORT | {"shutdown": False})
    assert order(eng, "instance_shutdown", "instance_start") == []
    assert len(eng.rpc.called("blockdev_snapshot")) == 1


NO_SCRIPT = failure("disk d1: provider shelf has no snapshots")


@pytest.mark.parametrize(
    ("runs", "changes"),
    [
        (False, {}),
        (False, {"shutdown": False}),
        (True, {"long_sleep": True}),
        (True, {"remove_instance": True}),
    ],
)
def test_a_stopped_volume_without_snapshots_is_read_itself(runs, changes):
    state = {"admin_state": "up" if runs else "down", "disks_active": runs}
    answers = Guest(runs=runs).answers() | {"blockdev_snapshot": NO_SCRIPT}
    answers |= {"blockdev_open": None, "blockdev_close": None}
    eng = engine("ext", state, **answers)
    eng.run(EXPORT | changes)
    ((_, sent),) = eng.rpc.called("export_start")
    assert sent[-1][1][0]["logical_id"] == ["shelf", "v1.disk0"]
    is_removed = "remove_instance" in changes
    assert len(eng.rpc.called("blockdev_remove")) == is_removed
    starts_again = ["instance_start"] if runs and not is_removed else []
    assert order(eng, "export_start", "instance_start") == [
        "export_start",
        *starts_again,
    ]


@pytest.mark.parametrize("changes", [{}, {"shutdown": False}])
def test_a_running_volume_without_snapshots_is_refused_with_the_way_on(changes):
    guest = Guest()
    eng = engine("ext", **guest.answers(), blockdev_snapshot=NO_SCRIPT)
    text = r"shelf has no.*stop it.*--long-sleep"
    with pytest.raises(errors.OpExecError, match=text):
        eng.run(EXPORT | changes)
    assert guest.runs
    assert not eng.rpc.called("export_start")


AGENT = {"hvparams": {"use_guest_agent": True}}
FREEZE = ("guest_freeze", "blockdev_snapshot", "guest_thaw")


@pytest.mark.parametrize(
    ("answers", "calls", "text"),
    [
        ({}, FREEZE, None),
        ({"guest_thaw": False}, FREEZE, "took more than 60 s"),
        ({"guest_thaw": failure("gone")}, FREEZE, "could not be thawed"),
        ({"guest_freeze": failure("no agent")}, FREEZE[:2], "did not freeze it"),
        # The guest may be frozen.
        ({"guest_freeze": failure("late", is_lost=True)}, FREEZE, "did not freeze"),
    ],
)
def test_a_running_guest_is_frozen_for_its_snapshots(answers, calls, text):
    answers = {"guest_freeze": None, "guest_thaw": True} | answers
    eng = engine(changes=AGENT, **answers)
    eng.run(EXPORT | {"shutdown": False})
    assert order(eng, *FREEZE) == list(calls)
    lines = [str(entry) for entry in eng.callbacks.entries]
    warnings = [line for line in lines if "snapshots are" in line or "thawed" in line]
    assert all(text in line for line in warnings) if text else warnings == []
    assert bool(warnings) == bool(text)


def test_a_guest_is_thawed_after_a_failed_snapshot():
    eng = engine(
        changes=AGENT,
        guest_freeze=None,
        guest_thaw=True,
        blockdev_snapshot=failure("group is full"),
    )
    with pytest.raises(errors.OpExecError, match="group is full"):
        eng.run(EXPORT | {"shutdown": False})
    assert order(eng, *FREEZE) == list(FREEZE)


def test_a_stopped_guest_is_not_frozen():
    eng = engine(changes=AGENT, **Guest().answers())
    eng.run(EXPORT)
    assert order(eng, *FREEZE) == ["blockdev_snapshot"]


@pytest.mark.parametrize("template", ["plain", "file"])
def test_a_broken_copy_leaves_nothing_and_the_guest_runs(template):
    broken = {"exit_status": 1, "listen_port": 4711, "recent_output": []}
    words = {NODE1: "script exited with code 3", NODE2: "connection lost"}
    eng = engine(
        template,
        **Guest().answers(),
        impexp_status=lambda node, _args: (
            [broken | {"error_message": words[node]}]
            if eng.rpc.called("export_start")
            else [{"exit_status": None, "listen_port": 4711}]
        ),
    )
    both = r"node1.*: script exited with code 3; node node2.*: connection lost"
    with pytest.raises(errors.OpExecError, match=both):
        eng.run(EXPORT | {"long_sleep": True})
    assert eng.rpc.called("export_remove") == [(NODE2, (f"{NAME}.new",))]
    assert len(eng.rpc.called("instance_start")) == 1
    assert len(eng.rpc.called("blockdev_remove")) == (template == "plain")
    assert not eng.rpc.called("finalize_export")
    assert len(eng.rpc.called("impexp_cleanup")) == 2
    assert len(eng.rpc.called("x509_cert_remove")) == 2


def test_an_end_that_was_killed_is_named_as_silent():
    """Its status file says that it runs, until it is old enough."""
    lost = {"exit_status": 1, "listen_port": 4711, "error_message": "EPIPE"}
    alive = {"exit_status": None, "listen_port": 4711}
    eng = engine(
        **Guest().answers(),
        impexp_status=lambda node, _args: [lost if node == NODE1 else alive],
    )
    both = r"node1.*: EPIPE; node node2.*: has reported nothing within 10 s"
    with pytest.raises(errors.OpExecError, match=both):
        eng.run(EXPORT)


def test_words_of_nodes_have_a_limit():
    long = {
        "exit_status": 1,
        "error_message": "x" * 9000,
        "recent_output": ["y" * 9000],
    }
    eng = engine(**Guest().answers(), impexp_status=[long])
    with pytest.raises(errors.OpExecError, match="copying disk/0") as err:
        eng.run(EXPORT)
    assert len(str(err.value)) < 5000


def test_a_snapshot_that_is_refused_leaves_the_guest_running():
    eng = engine(blockdev_snapshot=failure("no space"), **Guest().answers())
    with pytest.raises(errors.OpExecError, match=r"snapshot of disk/0.*no space"):
        eng.run(EXPORT)
    assert len(eng.rpc.called("instance_start")) == 1
    assert not eng.rpc.called("import_start")


@pytest.mark.parametrize(
    ("template", "advice"), [("plain", "lvremove"), ("ext", "provider shelf")]
)
def test_a_snapshot_that_stays_is_named_with_who_removes_it(template, advice):
    eng = engine(template, blockdev_remove=failure("busy"), **Guest().answers())
    log = FakeCallbacks()
    eng.run(EXPORT, callbacks=log)
    texts = [str(payload) for _kind, payload in log.entries]
    (line,) = [text for text in texts if "cannot remove the snapshot" in text]
    assert advice in line


def test_a_volume_that_the_node_refuses_to_replace_is_never_removed():
    """A disk of another instance may have the name of the snapshot."""
    eng = engine(blockdev_snapshot=failure("that volume exists"), **Guest().answers())
    with pytest.raises(errors.OpExecError, match="that volume exists"):
        eng.run(EXPORT)
    assert not eng.rpc.called("blockdev_remove")


def test_no_volume_is_removed_if_the_guest_could_not_be_stopped():
    eng = engine(instance_shutdown=failure("it hangs"))
    with pytest.raises(errors.OpExecError, match="it hangs"):
        eng.run(EXPORT)
    assert not eng.rpc.called("blockdev_remove")


def test_a_snapshot_whose_answer_was_lost_is_removed():
    eng = engine(
        blockdev_snapshot=failure("timed out", is_lost=True), **Guest().answers()
    )
    with pytest.raises(errors.OpExecError, match="timed out"):
        eng.run(EXPORT)
    assert len(eng.rpc.called("blockdev_remove")) == 1


def test_a_snapshot_that_a_busy_node_did_not_take_is_not_removed():
    busy = failure("too many calls", is_rejected=True)
    eng = engine(blockdev_snapshot=busy, **Guest().answers())
    with pytest.raises(errors.OpExecError, match="too many calls"):
        eng.run(EXPORT)
    assert not eng.rpc.called("blockdev_remove")


def test_a_failed_export_leaves_the_export_of_an_instance_of_such_a_name():
    """It is completed while the job runs."""
    looks = iter([[], [f"{NAME}.new"]])
    eng = engine(
        import_start=failure("is an export of another instance"),
        export_list=lambda node, _args: next(looks) if node == NODE2 else [],
        **Guest().answers(),
    )
    with pytest.raises(errors.OpExecError, match="another instance"):
        eng.run(EXPORT)
    assert not eng.rpc.called("export_remove")


@pytest.mark.parametrize(
    ("lists", "text"),
    [
        ({NODE1: failure("no such procedure")}, "cannot list.*no such procedure"),
        ({NODE2: failure("no such procedure")}, "cannot list.*no such procedure"),
        ({NODE2: [f"{NAME}.new"]}, r"wanted no export inst1.*\.new on node node2"),
    ],
)
def test_nodes_that_cannot_make_the_export_are_refused(lists, text):
    eng = engine(export_list=lambda node, _args: lists.get(node, []))
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(EXPORT)
    assert order(eng, *STEPS) == []


@pytest.mark.parametrize("template", ["plain", "file"])
def test_a_guest_that_runs_although_it_is_marked_down_is_stopped(template):
    guest = Guest()
    eng = engine(template, {"admin_state": "down"}, **guest.answers())
    eng.run(EXPORT | {"long_sleep": True})
    assert len(eng.rpc.called("instance_shutdown")) == 1
    assert not eng.rpc.called("instance_start")


def test_an_export_is_completed_if_its_primary_node_is_lost_after_the_copy():
    guest = Guest()
    answers = guest.answers()

    def info(_node, _args):
        if eng.rpc.called("export_start"):
            return failure("no answer")
        return {"memory": 512} if guest.runs else {}

    eng = engine("file", **answers | {"instance_info": info})
    with pytest.raises(errors.GenericError, match="no answer"):
        eng.run(EXPORT | {"long_sleep": True})
    assert len(eng.rpc.called("finalize_export")) == 1


class Killing(FakeCallbacks):
    """Has the job killed at a line of its log."""

    def __init__(self, words):
        super().__init__()
        self.words = words

    def log(self, kind, payload):
        super().log(kind, payload)
        if self.words and self.words in payload:
            self.words = ""
            raise Canceled("killed")


@pytest.mark.parametrize(
    "words", ["removing the snapshots", "starting instance", "completing the export"]
)
def test_an_export_that_is_killed_after_the_copy_leaves_nothing(words):
    eng = engine(**Guest().answers())
    with pytest.raises(Canceled):
        eng.run(EXPORT, callbacks=Killing(words))
    assert eng.rpc.called("blockdev_remove")
    assert eng.rpc.called("export_remove") == [(NODE2, (f"{NAME}.new",))]
    assert len(eng.rpc.called("instance_start")) == 1
    assert eng.callbacks.resumption is None


def test_a_continued_export_that_is_killed_at_once_leaves_nothing():
    """A client may ask for it while the job waits for its locks again."""
    keeping = KeepingCallbacks()
    guest = Guest().answers()
    engine(**guest).run(EXPORT, callbacks=keeping)
    state = next(
        each for each in keeping.states if len(each["progress"]["started"]) > 1
    )
    eng = engine(**(guest | Guest(runs=False).answers()))
    again = Killing("the master daemon was restarted")
    again.resumption = state
    with pytest.raises(Canceled):
        eng.run(EXPORT, callbacks=again)
    ended = ["impexp_cleanup"] * 2 + ["x509_cert_remove"] * 2
    ends = ("impexp_cleanup", "x509_cert_remove", *STEPS)
    assert order(eng, *ends) == [
        *ended,
        *("blockdev_remove", "export_remove", "instance_start"),
    ]
    assert again.resumption is None


def test_an_export_that_cannot_be_completed_leaves_nothing():
    eng = engine(finalize_export=failure("no space left"), **Guest().answers())
    with pytest.raises(errors.OpExecError, match="no space left"):
        eng.run(EXPORT)
    assert eng.rpc.called("export_remove") == [(NODE2, (f"{NAME}.new",))]


def test_a_removed_instance_is_not_started_again_and_its_export_is_complete():
    eng = engine(**Guest().answers())
    eng.run(EXPORT | {"remove_instance": True})
    assert not eng.rpc.called("instance_start")
    assert not eng.snapshot.instances
    steps = order(eng, "finalize_export", "blockdev_remove")
    # The snapshot, then the disk.
    assert steps == ["blockdev_remove", "finalize_export", "blockdev_remove"]


@pytest.mark.parametrize("template", ["plain", "file"])
def test_an_export_is_continued_after_each_step_that_was_made_durable(template):
    """The master daemon ends after each save; the next one ends the export."""

    def made():
        return engine(template, instance_info={})

    op, keeping = EXPORT | {"long_sleep": True}, KeepingCallbacks()
    made().run(op, callbacks=keeping)
    assert len(keeping.states) > 5
    for state in keeping.states:
        again = FakeCallbacks()
        again.resumption = state
        eng = made()
        assert eng.run(op, callbacks=again) == (True, [True])
        assert len(eng.rpc.called("finalize_export")) == 1
        left = eng.rpc.called("blockdev_remove")
        assert len(left) == (template == "plain")


@pytest.mark.parametrize(
    ("template", "changes", "text"),
    [
        ("file", {}, "no snapshots.*--long-sleep"),
        ("file", {"shutdown": False}, "leave out --noshutdown"),
        ("plain", {"compress": "7z"}, "compression tool: wanted one of none"),
        ("plain", {"zero_free_space": True}, "needs an image for the helper machine"),
        ("plain", {"shutdown": False, "remove_instance": True}, "must be stopped"),
        ("plain", {"target_node": [["h", 1, "m", "a", "b"]]}, "wanted the name of a"),
        ("plain", {"target_node": "nowhere"}, "not known"),
    ],
)
def test_wrong_exports_are_refused_before_any_change(template, changes, text):
    eng = engine(template)
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(EXPORT | changes)
    assert order(eng, *STEPS) == []


def with_free(mib, **changes):
    """Return an engine whose target has so much space for exports."""
    report = {"type": "file", "name": "x", "storage_free": mib, "storage_size": 9999}
    facts = ["boot", [report], [{"memory_free": 4096, "hv_version": "7.2"}]]
    return engine(changes=changes, node_info=facts, **Guest().answers())


def test_a_target_without_space_for_the_disks_is_refused():
    eng = with_free(1023, os="")
    text = r"have 1024 MiB, but /srv/ganeti/export on node node2.* has 1023 MiB free"
    with pytest.raises(errors.OpPrereqError, match=text) as err:
        eng.run(EXPORT)
    assert err.value.args[1] == "insufficient_resources"
    assert order(eng, *STEPS) == []
    with_free(1024, os="").run(EXPORT)


def test_an_os_may_write_less_than_its_disks_have():
    eng = with_free(100)
    assert eng.run(EXPORT) == (True, [True])
    texts = [str(payload) for _kind, payload in eng.callbacks.entries]
    assert any("has 100 MiB free" in text for text in texts)


LACKING = {"compression-tools": ["gzip"]}


@pytest.mark.parametrize("place", ["node1", "node2"])
def test_a_compression_tool_that_a_node_lacks_is_refused_before_any_change(place):
    """The guest would be stopped, and disks be made, before a program noticed it."""

    def verify(node, args):
        assert args[0] == {"compression-tools": ["gzip"]}
        wanted = {"node1": NODE1, "node2": NODE2}[place]
        return LACKING if node == wanted else {"compression-tools": []}

    text = rf"compression tool gzip: not found on node {place}\.example\.com; install"
    eng = engine(node_verify=verify)
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(EXPORT | {"compress": "gzip"})
    assert order(eng, *STEPS) == []
    eng = importing(**ONE | {"node_verify": verify})
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(IMPORT | {"compress": "gzip"})
    assert order(eng, *STEPS, "blockdev_create") == []


@pytest.mark.parametrize("answer", [{}, {"compression-tools": 5}, failure("busy")])
def test_a_node_that_does_not_say_what_it_lacks_may_have_the_tool(answer):
    eng = engine(node_verify=answer, **Guest().answers())
    assert eng.run(EXPORT | {"compress": "gzip"}) == (True, [True])


def test_an_offline_target_is_refused():
    eng = engine()
    with eng.config.edit("test") as edit:
        edit.update(eng.snapshot.nodes[NODE2].replace(offline=True))
    with pytest.raises(errors.OpPrereqError, match=r"node2.* is marked offline"):
        eng.run(EXPORT)


# Removal of exports
def test_exports_are_removed_from_all_nodes_by_their_name():
    eng = engine()
    eng.run({"OP_ID": "OP_BACKUP_REMOVE", "instance_name": NAME})
    assert eng.rpc.called("export_remove") == [(NODE2, (NAME,)), (NODE3, (NAME,))]
    with pytest.raises(errors.OpPrereqError, match="export gone: not found on any"):
        eng.run({"OP_ID": "OP_BACKUP_REMOVE", "instance_name": "gone"})


# Imports
def importing(**answers):
    return engine("file", {"admin_state": "down"}, **answers)


ONE = {"export_list": lambda node, _args: [NAME] if node == NODE2 else []}


def created(eng):
    return next(
        item
        for item in eng.snapshot.instances.values()
        if item.name.startswith("inst9")
    )


def test_an_import_has_the_values_of_the_export_and_fills_the_disks():
    eng = importing(**ONE)
    assert eng.run(IMPORT) == ["node1.example.com"]
    made = created(eng)
    assert (made.os, made.admin_state, made.creation) == ("tiny+default", "down", "")
    (disk,) = eng.snapshot.instance_disks(made)
    assert (disk.size, disk.dev_type) == (1024, "file")
    ((node, sent),) = eng.rpc.called("export_start")
    assert (node, list(sent[-1])) == (NODE2, ["file", [f"{PATH}/disk0.dump"]])
    ((node, received),) = eng.rpc.called("import_start")
    assert node == NODE1
    assert received[-1][0] == "script"
    ((_, renamed),) = eng.rpc.called("instance_run_rename")
    assert renamed[1] == NAME
    assert not eng.rpc.called("instance_start")
    assert not eng.rpc.called("instance_os_add")


def test_hooks_of_an_import_get_the_files_of_the_export_as_a_list(monkeypatch):
    seen = []
    monkeypatch.setattr(
        create.InstanceCreate,
        "execute",
        lambda unit: seen.append(unit.hooks_env()) or [],
    )
    importing(**ONE).run(IMPORT)
    (variables,) = map(hooksmaster.pre_variables, seen)
    assert variables["GANETI_SRC_IMAGES"] == f"['{PATH}/disk0.dump']"


def test_a_failed_import_leaves_no_instance_and_no_disk():
    broken = DONE | {"exit_status": 1, "error_message": "tar: unexpected end"}
    eng = importing(impexp_status=[broken], **ONE)
    with pytest.raises(errors.OpExecError, match="tar: unexpected end"):
        eng.run(IMPORT)
    assert [item.name for item in eng.snapshot.instances.values()] == [NAME]
    assert [node for node, _ in eng.rpc.called("blockdev_remove")] == [NODE1]


def import_states():
    """Return an engine, and each state that an import saves with its snapshot."""
    eng = importing(**ONE)
    keeping = KeepingCallbacks(eng)
    eng.run(IMPORT, callbacks=keeping)
    return eng, keeping.kept


def test_an_import_is_continued_after_each_step_that_was_made_durable():
    eng, saved = import_states()
    assert len(saved) > 5
    for state, snapshot in saved:
        again = FakeCallbacks()
        again.resumption = state
        next_master = Engine(snapshot, eng.rpc.script)
        assert next_master.run(IMPORT, callbacks=again) == ["node1.example.com"]
        assert created(next_master).creation == ""
        assert len(next_master.rpc.called("blockdev_create")) == 0


ENDS = ("impexp_cleanup", "x509_cert_remove", "blockdev_shutdown", "blockdev_remove")


def test_a_continued_import_ends_its_programs_before_it_removes_the_disks():
    """They outlive the master daemon and write to the disks."""
    eng, saved = import_states()
    for state, start in saved:
        again = FakeCallbacks()
        again.resumption = state
        script = eng.rpc.script | {"blockdev_assemble": failure("no such device")}
        other = Engine(start, script)
        with pytest.raises(errors.OpExecError, match="was removed again"):
            other.run(IMPORT, callbacks=again)
        progress = state["filling"]
        programs = len(progress["started"]) + len(progress["ended"])
        ended = [ENDS[0]] * programs + [ENDS[1]] * len(progress["certificates"])
        # The activation that failed is undone before.
        steps = ["blockdev_shutdown", *ended, "blockdev_shutdown", "blockdev_remove"]
        assert order(other, *ENDS) == steps


def test_a_continued_import_that_is_killed_at_once_leaves_nothing():
    eng, saved = import_states()
    state, start = next(
        pair for pair in saved if len(pair[0]["filling"]["started"]) > 1
    )
    again = Killing("the master daemon was restarted")
    again.resumption = state
    other = Engine(start, eng.rpc.script)
    with pytest.raises(Canceled):
        other.run(IMPORT, callbacks=again)
    ended = [ENDS[0]] * 2 + [ENDS[1]] * 2
    assert order(other, *ENDS) == [*ended, "blockdev_shutdown", "blockdev_remove"]
    assert [item.name for item in other.snapshot.instances.values()] == [NAME]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"src_path": "gone"}, "wanted one export gone, found it on no node"),
        ({"src_path": "/srv/x/y"}, "name the node with the export /srv/x/y"),
        ({"disks": [{"size": 1, "adopt": "x"}]}, "none can be adopted"),
        ({"compress": "7z"}, "compression tool: wanted one of none"),
        (
            {"disks": [{"size": 8}], "ignore_ipolicy": True},
            "disk/0: wanted at least 1024 MiB for the exported disk, found 8 MiB",
        ),
        ({"instance_name": NAME}, "already exists"),
    ],
)
def test_wrong_imports_are_refused_before_any_change(changes, text):
    eng = importing(**ONE)
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(IMPORT | changes)
    assert not eng.rpc.called("blockdev_create")


def test_two_exports_are_named_to_choose_from():
    eng = importing()
    with pytest.raises(errors.OpPrereqError, match=r"on node2.*, node3.*--src-node"):
        eng.run(IMPORT)
    eng.run(IMPORT | {"src_node": "node3.example.com"})
    assert eng.rpc.called("export_start")[0][0] == NODE3


def test_an_export_that_changes_meanwhile_is_not_imported():
    texts = iter([description(small("file")), "[export]\nversion = 0\n"])
    eng = importing(export_info=lambda _node, _args: next(texts), **ONE)
    with pytest.raises(errors.OpPrereqError, match="was replaced while the job waited"):
        eng.run(IMPORT)
    assert not eng.rpc.called("blockdev_create")


def test_a_forged_description_is_refused_with_its_place():
    text = description(small("file")).replace("disk0.dump", "../../x")
    eng = importing(export_info=text, **ONE)
    with pytest.raises(
        errors.OpPrereqError, match=rf"{PATH} on node node2.*config.ini.*disk0_dump"
    ):
        eng.run(IMPORT)


def exported_with(*lines):
    """Return a description with further lines, each after the one it begins with."""
    text = description(small("file", admin_state="down"))
    for after, line in lines:
        assert after in text
        text = text.replace(after, f"{after}{line}\n", 1)
    return text


def test_an_export_that_is_replaced_during_the_copy_is_not_imported():
    """Its disks would be of two times."""

    def text(_node, _args):
        newer = bool(eng.rpc.called("export_start"))
        return description(small("file")).replace(
            "timestamp = 1", f"timestamp = {2 if newer else 1}"
        )

    eng = importing(**ONE | {"export_info": text})
    with pytest.raises(errors.OpExecError, match="replaced while it was copied"):
        eng.run(IMPORT)
    assert [item.name for item in eng.snapshot.instances.values()] == [NAME]


def test_a_busy_node_does_not_spoil_an_import_that_is_complete():
    """Its refusal says nothing about the export."""

    def text(_node, _args):
        if eng.rpc.called("export_start"):
            return failure("too many calls", is_rejected=True)
        return description(small("file"))

    eng = importing(**ONE | {"export_info": text})
    eng.run(IMPORT)
    assert created(eng).creation == ""
    assert "again: node node2.example.com: too many calls" in eng.callbacks.text()


def test_parameters_for_another_hypervisor_are_used():
    eng = importing(**ONE)
    with eng.config.edit("test") as edit:
        cluster = edit.snapshot.cluster
        edit.update(cluster.replace(enabled_hypervisors=("kvm", "fake", "xen-pvm")))
    request = {"hypervisor": "xen-pvm", "hvparams": {"kernel_args": "quiet"}}
    eng.run(IMPORT | request)
    assert created(eng).hvparams == {"kernel_args": "quiet"}


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([("tags = ", "a<b>")], "tag 'a<b>' is too long or has"),
        ([("tags = ", " ".join(f"t{n}" for n in range(4097)))], "at most 4096 tags"),
        ([("[os]\n", "os-image = etc/shadow")], "os-image: wanted an absolute path"),
    ],
)
def test_values_of_an_export_are_checked_like_those_of_a_request(lines, text):
    eng = importing(**ONE | {"export_info": exported_with(*lines)})
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(IMPORT)
    assert not eng.rpc.called("blockdev_create")


@pytest.mark.parametrize(
    ("requested", "limits"),
    [
        ({}, (1024, 1024)),
        ({"maxmem": 512, "minmem": 512}, (512, 512)),
        ({"minmem": 512}, (1024, 512)),
        ({"maxmem": 2048}, (2048, 1024)),
        ({"memory": 256}, (256, 256)),
    ],
)
def test_limits_of_the_request_win_over_the_one_memory_of_an_old_export(
    requested, limits
):
    text = exported_with(("[backend]\n", "memory = 1024"))
    eng = importing(**ONE | {"export_info": text})
    eng.run(IMPORT | {"beparams": requested, "ignore_ipolicy": True})
    own = created(eng).beparams
    assert (own["maxmem"], own["minmem"]) == limits


def test_unknown_parameters_of_an_export_give_one_warning():
    many = "".join(f"x{n:04} = 1\n" for n in range(5000))
    text = exported_with(("[hypervisor]\n", many), ("[backend]\n", "z = 1"))
    eng = importing(**ONE | {"export_info": text})
    eng.run(IMPORT)
    warnings = [
        line for line in eng.callbacks.text().splitlines() if "left out" in line
    ]
    assert len(warnings) == 2
    assert max(map(len, warnings)) < 600
    assert "x0000" in warnings[0]
    assert "4990 more" in warnings[0]


EVIL = (
    "kvm_extra = -netdev tap,script=/tmp/x",
    "kvm_path = /tmp/x",
    "cdrom_image_path = /dev/sda",
    "kernel_path = /etc/shadow",
    "shared_directories = etc=/etc",
    "usb_devices = host:1234:5678",
    "security_model = pool",
)


def changed_hvparams(*lines):
    names = [line.partition(" = ")[0] for line in lines]
    kept = [
        line
        for line in description(small("file", admin_state="down")).splitlines()
        if line.partition(" = ")[0] not in names
    ]
    return "\n".join(kept).replace("[hypervisor]", "\n".join(["[hypervisor]", *lines]))


def test_nothing_of_a_node_is_given_to_a_guest_because_an_export_says_so():
    text = changed_hvparams(*EVIL, "kernel_args = quiet")
    eng = importing(**ONE | {"export_info": text})
    given = {"cdrom_image_path": "/srv/rescue.iso"}
    eng.run(IMPORT | {"hypervisor": "kvm", "hvparams": given})
    made = created(eng)
    names = {line.partition(" = ")[0] for line in EVIL}
    assert {n: v for n, v in made.hvparams.items() if n in names} == given
    assert made.hvparams["kernel_args"] == "quiet"
    listed = (
        "'kernel_path', 'kvm_extra', 'kvm_path', 'security_model',"
        " 'shared_directories', 'usb_devices'"
    )
    assert (
        f"give them with -H if you trust the export: {listed}" in eng.callbacks.text()
    )


def test_an_export_alone_does_not_make_an_instance_root_of_its_node():
    text = description(small("file", admin_state="down"))
    assert "\nhypervisor = kvm\n" in text
    text = text.replace("\nhypervisor = kvm\n", "\nhypervisor = chroot\n")
    eng = importing(**ONE | {"export_info": text})
    with pytest.raises(errors.OpPrereqError, match="give it with -H if you trust"):
        eng.run(IMPORT)


def test_values_of_the_cluster_and_empty_ones_are_imported():
    text = changed_hvparams("kvm_path = /usr/bin/kvm", "kernel_path = ")
    eng = importing(**ONE | {"export_info": text})
    eng.run(IMPORT)
    made = created(eng).hvparams
    assert (made["kvm_path"], made["kernel_path"]) == ("/usr/bin/kvm", "")
    assert "left out" not in eng.callbacks.text()


def test_an_imported_instance_is_not_started_while_its_rename_script_may_run():
    lost = failure("timed out", is_lost=True)
    eng = importing(instance_run_rename=lost, instance_start=None, **ONE)
    with pytest.raises(errors.OpExecError, match=r"rename script.*timed out"):
        eng.run(IMPORT | {"start": True})
    assert not eng.rpc.called("instance_start")
    assert created(eng).is_unfinished


def test_a_rename_script_that_fails_is_a_warning():
    eng = importing(instance_run_rename=failure("exit 1"), instance_start=None, **ONE)
    eng.run(IMPORT | {"start": True})
    assert "exit 1" in eng.callbacks.text()
    assert len(eng.rpc.called("instance_start")) == 1


@pytest.mark.parametrize("runs", [True, False])
def test_an_instance_without_disks_is_exported(runs):
    eng = engine(changes={"disks": ()}, **Guest(runs).answers())
    assert eng.run({**EXPORT, "shutdown": False}) == (True, [])
    assert order(eng, *STEPS)[-2:] == ["finalize_export", "export_remove"]
    assert "export_start" not in order(eng, *STEPS)
    prepare = {"OP_ID": "OP_BACKUP_PREPARE", "instance_name": "inst1", "mode": "local"}
    assert eng.run(prepare) is None
