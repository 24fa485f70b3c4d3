"""Move of the master role: copies and terms are real, nodes and addresses are not."""

import errno
import json
import os

import pytest

from fakes import cluster
from fakes.candidates import Candidates
from fakes.patience import until
from fakes.processes import FakeRunner
from fakes.rpc import FakeRunner as FakeNodes
from fakes.rpc import failure
from fakes.vnode import know_own_name
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.bootstrap import failover
from ganeti.bootstrap.failover import FailoverOptions
from ganeti.decisions.quorum import term_of
from ganeti.master import config
from ganeti.master.config.config import HEADER_KEY
from ganeti.protocols import rpc, ssconf
from ganeti.protocols.rpc import Result
from ganeti.store import Document, numbers
from ganeti.store.copies import election as elections

NODES = (0, 1, 2)
OLD, NEW, THIRD = NODES


class Site:
    """Three nodes, all candidates; node 0 was the master, and node 1 takes over.

    ``votes`` is the master that each node names, ``addresses`` the answers of the
    master's address in order; the last one stays.
    """

    def __init__(self, folder):
        self.paths = Paths(str(folder / "node1.example.com"), "node1.example.com")
        os.makedirs(self.paths.data_dir)
        know_own_name(self.paths)
        self.copies = Candidates(folder, NODES)
        self.copies.copies[self.node(NEW)] = store.Replica(self.paths.store_db)
        self.name("node0.example.com")
        self.votes = {self.node(n): "node0.example.com" for n in NODES}
        self.is_serving = [False, True]
        self.addresses = [False, True]
        self.pings = []
        self.runners = []
        self.lines = []
        self.process = FakeRunner(daemon_util=(0, "", ""))
        self.script = {
            "master_node_name": self._vote,
            "write_ssconf_files": None,
            "node_deactivate_master_ip": None,
            "node_stop_master": None,
        }

    @staticmethod
    def node(number):
        return cluster.make_id("node", number)

    def name(self, master):
        ssconf.write(self.paths, {"master_node": f"{master}\n"})

    def _vote(self, node, _args):
        name = self.votes[node]
        return failure("no answer") if name is None else name

    def _store(self, procedure):
        def answer(node, args):
            # The term is a list after the way over the network.
            args = [term_of(a) if isinstance(a, (list, tuple)) else a for a in args]
            actual = self.copies.call(node, procedure, args)
            return Result(procedure, node, actual.payload, fail_msg=actual.fail_msg)

        return answer

    def runner(self, source, _paths, term):
        script = {
            name: self._store(name) for name in rpc.PROCEDURES if name[:6] == "store_"
        }
        made = FakeNodes(source, {**script, **self.script})
        made.term = term
        self.runners.append(made)
        return made

    def answer(self, answers):
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def ping(self, address, port, **options):
        assert address == self.snapshot().cluster.master_ip
        self.pings.append((port, options))
        return self.answer(self.addresses)

    def silence(self, *numbers):
        for number in numbers:
            self.votes[self.node(number)] = None
            self.copies.down.add(self.node(number))

    def run(self, **options):
        options = {"no_voting": False, **options}
        return failover.fail_over(
            self.paths,
            self.process,
            SystemClock(),
            FailoverOptions(**options),
            feedback=self.lines.append,
        )

    @property
    def starts(self):
        """Options of the master daemon, per start."""
        assert all(line == "daemon-util start-master" for line in self.process.lines)
        return [
            options["env"].get("EXTRA_MASTERD_ARGS", "")
            for _argv, options in self.process.commands
        ]

    def called(self, procedure):
        return [call for made in self.runners for call in made.called(procedure)]

    def limits(self, procedure):
        return set().union(*(made.limits.get(procedure, ()) for made in self.runners))

    def serial(self):
        """Return the serial of the configuration that this node holds."""
        follower = store.Follower(self.paths.store_db)
        try:
            return json.loads(follower.read("meta", HEADER_KEY))["serial_no"]
        finally:
            follower.close()

    def positions(self):
        actual = [self.copies[n].status() for n in NODES]
        return [(each["revision"], each["term"], each["owner"]) for each in actual]

    def snapshot(self):
        follower = store.Follower(self.paths.store_db)
        try:
            return follower.snapshot()
        finally:
            follower.close()


@pytest.fixture
def site(tmp_path, monkeypatch):
    actual = Site(tmp_path)
    monkeypatch.setattr(rpc, "NetworkRunner", actual.runner)
    monkeypatch.setattr(rpc, "node_port", lambda: 1811)
    actual.real_is_serving = failover.is_serving
    monkeypatch.setattr(
        failover, "is_serving", lambda *_a, **_k: actual.answer(actual.is_serving)
    )
    monkeypatch.setattr(failover.netutils, "tcp_ping", actual.ping)
    # Without the pauses; test_jobs.py has them.
    monkeypatch.setattr(
        failover,
        "wait_until",
        lambda condition, _clock, *, timeout_s: any(condition() for _ in range(3)),
    )
    master = store.open_master(
        actual.copies[OLD].path,
        replicate=actual.copies.replicate,
        clock=SystemClock(),
        node=actual.node(OLD),
    )
    master.commit(cluster.big(3, 1))
    master.commit([Document("jobs", "1", b"{}")])
    revision = master.snapshot().revision

    def is_complete(status):
        return status["revision"] >= revision and not status["archive"]

    until("copies", lambda: all(is_complete(actual.copies[n].status()) for n in NODES))
    actual.first = master.term
    actual.master = master
    yield actual
    master.close()
    actual.copies.close()


def test_the_role_moves_under_a_new_term_and_everybody_learns_it(site):
    assert site.run() is True
    assert site.snapshot().cluster.master_node == site.node(NEW)
    assert site.snapshot().cluster.serial_no > 1
    (values,) = {
        args[0]["master_node"] for _, args in site.called("write_ssconf_files")
    }
    assert values.strip() == "node1.example.com"
    assert ssconf.SimpleStore(site.paths).master_node() == "node1.example.com"
    assert len(site.called("write_ssconf_files")) == 2
    assert site.called("node_stop_master") == [(site.node(OLD), ())]
    ((where, _parameters),) = site.called("node_deactivate_master_ip")
    assert where == site.node(OLD)
    assert site.starts == [""]
    # Of the old master first, then of this one.
    assert site.pings == [
        (1811, {"timeout_s": 2.0, "live_port_needed": True}),
        (1811, {"timeout_s": 2.0}),
    ]
    owners = {site.copies[n].status()["owner"] for n in NODES}
    assert owners == {site.node(NEW)}
    assert not [line for line in site.lines if "Warning" in line]


def test_a_call_to_the_old_master_has_a_short_time_limit(site):
    site.run()
    for procedure in (
        "write_ssconf_files",
        "node_deactivate_master_ip",
        "node_stop_master",
        "master_node_name",
        "store_status",
        "store_promise",
    ):
        limits = site.limits(procedure) - {None} if "store" in procedure else None
        for limit in limits or site.limits(procedure):
            assert limit is not None, procedure
            assert limit <= 15, procedure


def test_a_newer_copy_elsewhere_is_taken(site):
    site.copies.down.add(site.node(NEW))
    site.master.commit([Document("jobs", "2", b"{}")])
    site.copies.down.clear()
    site.run()
    follower = store.Follower(site.paths.store_db)
    assert follower.read("jobs", "2") == b"{}"
    follower.close()


def test_silent_copies_that_may_be_newer_stop_a_failover(site):
    site.silence(OLD, THIRD)
    before = site.copies[NEW].status()
    with pytest.raises(errors.OpPrereqError, match="use --accept-loss"):
        site.run(no_voting=True)
    assert site.copies[NEW].status() == before
    assert site.starts == []


def test_the_administrators_word_goes_on_with_a_minority(site):
    site.silence(OLD, THIRD)
    assert site.run(no_voting=True, accept_loss=True) is True
    assert any("Warning: copies of the" in line for line in site.lines)
    silent = ",".join(sorted(site.node(number) for number in (OLD, THIRD)))
    assert site.starts == [f"--no-voting --yes-do-it --not-answering {silent}"]
    # Numbers that lost changes may have used are left out.
    assert site.snapshot().revision > 1_000_000
    assert site.serial() > 1_000_000
    follower = store.Follower(site.paths.store_db)
    assert int(follower.read("meta", "serial")) >= 10_000
    follower.close()


def test_without_a_vote_the_daemon_still_needs_a_majority_of_copies(site):
    # More than half of the nodes may be down, and no candidate: nothing is lost then.
    site.votes = dict.fromkeys(site.votes)
    assert site.run(no_voting=True) is True
    assert site.starts == ["--no-voting --require-majority --yes-do-it"]


def test_the_daemon_does_not_count_offline_nodes_that_the_command_did_not_ask(site):
    # Both others were marked offline when the certificates were renewed without them.
    for number in (OLD, THIRD):
        uuid = site.node(number)
        node = site.master.snapshot().nodes[uuid]
        changed = node.replace(offline=True, master_candidate=False)
        site.master.commit([cluster.Update("nodes", uuid, changed)])
    site.master.commit([Document("meta", "test", b"settles")])
    revision = site.master.snapshot().revision
    until("copy", lambda: site.copies[NEW].status()["revision"] >= revision)
    site.silence(OLD, THIRD)
    assert site.run() is True
    (start,) = site.starts
    assert start.startswith("--no-voting --require-majority --yes-do-it")


def test_the_daemons_do_not_wait_again_for_a_node_that_did_not_answer(site):
    site.silence(OLD)
    assert site.run() is True
    words = f"--not-answering {site.node(OLD)}"
    assert site.starts == [words]
    [(_argv, options)] = site.process.commands
    assert options["env"]["EXTRA_MAINTD_ARGS"] == words


def test_a_normal_failover_leaves_out_no_numbers(site):
    site.run()
    assert site.snapshot().revision < 1_000
    assert site.serial() < 1_000


@pytest.mark.parametrize("silent", [(OLD, THIRD), (OLD, NEW, THIRD)], ids=len)
def test_half_of_the_nodes_is_not_enough(site, silent):
    for number in silent:
        site.votes[site.node(number)] = None
    with pytest.raises(errors.OpPrereqError, match=f"only {3 - len(silent)} of 3"):
        site.run()
    assert "node node0.example.com does not answer" in site.lines
    assert site.called("store_promise") == []


def test_one_silent_node_of_three_is_not_called_again(site):
    site.silence(OLD)
    assert site.run() is True
    assert site.called("node_stop_master") == []
    written = {node for node, _args in site.called("write_ssconf_files")}
    assert written == {site.node(THIRD)}
    assert "Warning: the old master node0.example.com does not answer" in site.lines
    warning = "Warning: node node0.example.com does not answer; its ssconf"
    assert any(line.startswith(warning) for line in site.lines)


def test_votes_without_a_majority_stop_no_failover(site):
    # Two failovers that ended half-way: nobody could become master again.
    names = ("node2.example.com", "node0.example.com", "node1.example.com")
    site.votes = dict(zip(map(site.node, (THIRD, OLD, NEW)), names, strict=True))
    assert site.run() is True
    assert site.snapshot().cluster.master_node == site.node(NEW)


def test_votes_for_another_master_stop_a_failover(site):
    site.votes = {site.node(n): "node2.example.com" for n in NODES}
    with pytest.raises(errors.OpPrereqError, match="most nodes name node2"):
        site.run()


def test_an_interrupted_failover_is_repeated(site):
    site.votes[site.node(THIRD)] = site.votes[site.node(NEW)] = "node1.example.com"
    site.name("node1.example.com")
    assert site.run() is True
    assert site.snapshot().cluster.master_node == site.node(NEW)


def test_a_failover_that_wrote_only_the_files_of_its_node_is_repeated(site):
    site.votes = {site.node(n): "node0.example.com" for n in NODES}
    site.votes[site.node(NEW)] = "node1.example.com"
    site.name("node1.example.com")
    assert site.run() is True
    assert site.snapshot().cluster.master_node == site.node(NEW)
    assert site.called("node_stop_master") != []


def test_a_failover_on_the_master_itself_is_refused(site):
    site.name("node1.example.com")
    site.votes = {site.node(n): "node1.example.com" for n in NODES}
    site.is_serving = [True]
    with pytest.raises(errors.OpPrereqError, match="is the master already"):
        site.run()
    # Without a daemon that answers, an earlier failover was cut after its records.
    site.is_serving = [False, True]
    assert site.run() is True


def test_only_candidates_become_master(site):
    site.master.commit(
        [
            cluster.Update(
                "nodes",
                site.node(NEW),
                site.master.snapshot()
                .nodes[site.node(NEW)]
                .replace(master_candidate=False),
            )
        ]
    )
    revision = site.master.snapshot().revision
    until("copy", lambda: site.copies[NEW].status()["revision"] >= revision)
    with pytest.raises(
        errors.OpPrereqError, match="is not a master candidate; the cand"
    ):
        site.run()


def test_a_node_without_a_copy_cannot_take_over(site):
    site.paths = Paths(site.paths.root, "stranger.example.com")
    with pytest.raises(errors.OpPrereqError, match=r"stranger.* is not a node of the"):
        site.run()
    os.unlink(site.paths.store_db)
    with pytest.raises(errors.OpPrereqError, match="cannot be used"):
        site.run()


def test_a_drained_queue_accepts_jobs_again(site):
    site.master.commit([Document("meta", "drain", b"1")])
    site.run()
    assert "The job queue was drained; it accepts jobs again" in site.lines
    follower = store.Follower(site.paths.store_db)
    assert follower.read("meta", "drain") is None
    follower.close()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("node_stop_master", "cannot stop the master daemons"),
        ("node_deactivate_master_ip", "cannot deactivate the master's address"),
        ("write_ssconf_files", "cannot record the master"),
    ],
)
def test_a_step_that_fails_on_the_old_master_is_a_warning(site, name, text):
    site.script[name] = lambda node, _args: (
        failure("no space") if node == site.node(OLD) else None
    )
    assert site.run() is True
    assert any(text in line and "no space" in line for line in site.lines)


def names_of_others(site):
    return [args[0]["master_node"] for _, args in site.called("write_ssconf_files")]


def test_a_list_that_is_too_long_stops_no_failover(site, monkeypatch):
    """Above about 9,400 instances there was no master any more."""
    monkeypatch.setattr("ganeti.protocols.ssconf.MAX_SIZE", 40)
    site.master.commit(cluster.big(3, 9))
    revision = site.master.snapshot().revision
    until("copy", lambda: site.copies[NEW].status()["revision"] >= revision)
    assert site.run() is True
    assert site.snapshot().cluster.master_node == site.node(NEW)
    assert names_of_others(site) == ["node1.example.com"] * 2
    assert not [line for line in site.lines if "Warning" in line]


def test_a_node_that_cannot_record_itself_does_not_become_the_master(site, monkeypatch):
    def fail(path, *_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr("ganeti.protocols.ssconf.files.write_file", fail)
    with pytest.raises(errors.OpPrereqError, match="since it cannot record that"):
        site.run()
    assert site.snapshot().cluster.master_node == site.node(OLD)
    assert (names_of_others(site), site.starts) == ([], [])
    # The cause is gone: the command is repeated.
    monkeypatch.undo()
    assert site.snapshot().cluster.master_node == site.node(OLD)


def test_a_node_that_could_not_start_the_daemon_does_not_become_the_master(site):
    os.unlink(site.paths.at("/etc/hosts"))
    with pytest.raises(errors.OpPrereqError, match="its own name does not resolve"):
        site.run()
    assert site.called("store_promise") == []


def test_a_master_that_too_few_nodes_can_record_changes_nothing(site):
    site.script["write_ssconf_files"] = failure("no space")
    with pytest.raises(errors.OpExecError, match="only 1 of 3 nodes can record"):
        site.run()
    assert site.snapshot().cluster.master_node == site.node(OLD)
    assert ssconf.SimpleStore(site.paths).master_node() == "node0.example.com"
    assert names_of_others(site)[2:] == ["node0.example.com"] * 2
    # Who knows that the others are down needs no vote; and a repetition works.
    assert site.run(no_voting=True) is True


def test_a_store_that_does_not_record_the_master_leaves_the_old_names(
    site, monkeypatch
):
    def fail(*_args):
        raise errors.StorageError("no majority")

    monkeypatch.setattr(failover, "_recording", fail)
    with pytest.raises(errors.OpExecError, match="no majority"):
        site.run()
    assert ssconf.SimpleStore(site.paths).master_node() == "node0.example.com"
    assert names_of_others(site)[2:] == ["node0.example.com"] * 2


def test_a_master_that_does_not_start_is_an_error(site):
    site.process = FakeRunner(daemon_util=(1, "", "no certificate"))
    with pytest.raises(errors.OpExecError, match=r"start-master .* no certificate"):
        site.run()


@pytest.mark.parametrize(
    ("serving", "addresses", "text"),
    [
        ([False], [False, True], "the master daemon does not answer"),
        ([False, True], [True], "still answers; continuing"),
        ([False, True], [False], "does not answer"),
    ],
)
def test_what_does_not_follow_makes_the_result_unclean(site, serving, addresses, text):
    site.name("node0.example.com")
    site.is_serving, site.addresses = serving, addresses
    assert site.run() is False
    assert any(line.startswith("Warning") and text in line for line in site.lines)


def test_a_plan_names_the_steps_and_changes_nothing(site):
    before = site.positions()
    steps = failover.plan(site.paths, FailoverOptions(), feedback=site.lines.append)
    assert len(steps) == 8
    assert steps[2].startswith("have the ssconf files of the online nodes name node1")
    assert "if node0.example.com answers" in steps[5]
    assert site.positions() == before
    site.silence(OLD, THIRD)
    with pytest.raises(errors.OpPrereqError, match="only 1 of 3"):
        failover.plan(site.paths, FailoverOptions(), feedback=site.lines.append)


class Master:
    """A master daemon that answers a query, or does not."""

    def __init__(self, error=None):
        self.error = error
        self.calls = []
        self.options = None

    def of_node(self, paths, **options):
        self.options = (paths, options)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def call(self, method, args):
        self.calls.append((method, args))
        if self.error:
            raise self.error


@pytest.mark.parametrize("error", [None, errors.GenericError("no master")])
def test_a_daemon_serves_if_it_answers_a_query_in_time(site, monkeypatch, error):
    master = Master(error)
    monkeypatch.setattr(failover.luxi.Client, "of_node", master.of_node)
    assert site.real_is_serving(site.paths, timeout_s=4.0) is (error is None)
    limits = {"connect_timeout_s": 4.0, "timeout_s": 4.0, "retries": 0}
    assert master.options == (site.paths, limits)
    assert master.calls == [("QueryConfigValues", [["master_node"]])]


class Numbers:
    """The store and the configuration, of which numbers are left out."""

    def __init__(self, last_job):
        self.left_out = []
        self.committed = []
        self._last_job = last_job

    def leave_out(self, number):
        self.left_out.append(number)

    def read(self, table, key):
        assert (table, key) == ("meta", failover.LAST_JOB)
        return self._last_job

    def commit(self, changes):
        self.committed += changes


@pytest.mark.parametrize(
    ("known", "expected"), [(None, b"30"), (b"7", b"30"), (b"31", b"31")]
)
def test_numbers_of_a_replaced_copy_are_left_out(known, expected):
    higher, opened = config.HigherNumbers(), Numbers(known)
    higher.note(numbers.Numbers(10, 20, 30))
    cfg = Numbers(None)
    failover._leave_out(cfg, opened, higher)
    assert (opened.left_out, cfg.left_out) == ([10], [20])
    assert opened.committed == [Document("meta", failover.LAST_JOB, expected)]
    with pytest.raises(
        errors.StorageError, match="another history with higher numbers"
    ):
        higher.note(numbers.Numbers(11, 20, 30))


def test_without_replaced_copies_no_number_is_left_out():
    opened = Numbers(None)
    failover._leave_out(opened, opened, config.HigherNumbers())
    assert (opened.left_out, opened.committed) == ([], [])


def test_questions_about_copies_have_a_short_time_limit_and_no_term(site):
    nodes = {site.node(OLD): None}
    with elections.asking(site.paths) as ask:
        snapshot = site.snapshot()
        for name in ("store_status", "store_changes", "store_dump", "store_scan"):
            site.script[name] = failure("no")
            site.runners[-1].script[name] = failure("no")
            ask(snapshot, list(nodes), rpc.Request(rpc.PROCEDURES[name], ()))
        runner = site.runners[-1]
        assert runner._snapshot() is snapshot
    assert runner.term is None
    assert runner.limits == {
        "store_status": {10.0},
        "store_changes": {300},
        "store_dump": {300},
        "store_scan": {300},
    }


def test_an_election_that_is_lost_can_be_repeated(site, monkeypatch):
    def lose(_self, **_options):
        raise errors.TermError("node2 was faster")

    monkeypatch.setattr(failover.election.Elector, "elect", lose)
    with pytest.raises(errors.OpExecError) as caught:
        site.run()
    assert caught.value.args == (
        "node2 was faster. This command can be repeated, on this node or another one",
    )
    assert site.starts == []


def test_a_master_that_no_majority_records_is_an_error(site, monkeypatch):
    def fail(*_args):
        raise errors.StorageError("no majority")

    monkeypatch.setattr(failover, "_leave_out", fail)
    with pytest.raises(errors.OpExecError) as caught:
        site.run()
    assert caught.value.args[0].startswith(
        "the new master was not recorded by a majority of the candidates: no majority."
    )
    assert site.starts == []


def test_offline_nodes_need_not_answer_unless_they_are_asked_for(site):
    third = site.node(THIRD)
    record = site.master.snapshot().nodes[third]
    site.master.commit([cluster.Update("nodes", third, record.replace(offline=True))])
    revision = site.master.snapshot().revision
    until("copy", lambda: site.copies[NEW].status()["revision"] >= revision)
    site.votes[third] = site.votes[site.node(OLD)] = None
    # One of two, or one of three: both are too few, and the text counts them.
    with pytest.raises(errors.OpPrereqError, match="only 1 of 2 nodes answer"):
        site.run()
    assert site.lines == ["node node0.example.com does not answer"]
    with pytest.raises(errors.OpPrereqError, match="only 1 of 3 nodes answer"):
        site.run(ignore_offline_nodes=False)
    assert site.lines[1:] == [
        "node node0.example.com does not answer",
        "node node2.example.com does not answer",
    ]
