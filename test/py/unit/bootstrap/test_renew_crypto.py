"""Replacement of shared files: order of the steps, who gets what, what a failure leaves."""

import contextlib
import dataclasses
import glob
import json
import os
import re
import shutil
import stat
from unittest import mock

import pytest

from fakes import cluster
from fakes.candidates import Candidates
from fakes.patience import until
from fakes.processes import FakeRunner as FakePrograms
from fakes.rpc import FakeRunner
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import RunResult
from ganeti.base.tls import authority, x509
from ganeti.bootstrap import crypto, lost_master, renew_crypto
from ganeti.bootstrap.renew_crypto import RenewOptions
from ganeti.decisions.quorum import term_of
from ganeti.master import config
from ganeti.model.objects import Update
from ganeti.protocols import rpc, ssconf
from ganeti.protocols.rpc import Result

NAMES = [f"node{n}.example.com" for n in range(4)]
MASTER, SECOND, THIRD, PLAIN = NAMES
CANDIDATES = (0, 1, 2)


class Shell:
    """An SSH connection to a node whose files are beside those of the master."""

    def __init__(self, site, name, port, identity, *, address, environment):
        if name in site.unreachable:
            raise errors.SshError(f"{name}: no route")
        self.site, self.name = site, name
        site.logins.append((name, port, address, identity.check_host_key, environment))

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return None

    def run(self, argv, *, timeout_s):
        assert timeout_s > 60
        code = self.site.daemons(self.name, argv)
        return RunResult(tuple(argv), code, None, "", "broken\n")

    def put_file(self, path, data, *, mode):
        name = os.path.basename(path)
        if (self.name, name) in self.site.full:
            raise errors.SshError(f"{self.name}: disk full")
        assert path.startswith(f"{self.site.folder}/{self.name}/")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        files.write_file(path, data, mode=mode)
        self.site.events.append((self.name, name))


class Site:
    """A master with three other nodes, of which two are candidates.

    ``events`` are (node, verb or file) in order; ``broken`` are those that fail.
    """

    def __init__(self, folder):
        self.folder = folder
        self.paths = Paths(str(folder / MASTER), MASTER)
        for path in (self.paths.data_dir, self.paths.lock_dir):
            os.makedirs(path)
        self.events, self.logins, self.lines = [], [], []
        self.broken, self.full, self.unreachable = set(), set(), set()
        self.process = FakePrograms(
            daemon_util=lambda argv: (self.daemons(MASTER, argv), "", "broken\n")
        )
        self.copies = Candidates(folder, CANDIDATES)
        self.copies.copies[self.copies.node(0)] = store.Replica(self.paths.store_db)
        self._fill()
        crypto.write_cluster_files(self.paths, "cluster.example.com")
        crypto.write_node_certificate(self.paths, self.copies.node(0), 1000.0)

    def _fill(self):
        master = store.open_master(
            self.paths.store_db,
            replicate=self.copies.replicate,
            clock=SystemClock(),
            node=self.copies.node(0),
        )
        self.term = master.term
        with contextlib.closing(master):
            master.commit(cluster.big(4, 0))
            ssconf.write(self.paths, config.ssconf_values(master.snapshot()))
            revision = master.snapshot().revision
            until("copies", lambda: all(map(self._is_complete, [revision] * 3, "012")))

    def _is_complete(self, revision, number):
        status = self.copies[int(number)].status()
        return status["revision"] >= revision and not status["archive"]

    def daemons(self, node, argv):
        assert argv[0] == self.paths.daemon_util
        event = (node, " ".join(argv[1:]))
        self.events.append(event)
        return int(event in self.broken)

    def runner(self, source, _paths, _term):
        def answer(procedure):
            def call(node, args):
                # The term is a list after the way over the network.
                args = [term_of(a) if isinstance(a, (list, tuple)) else a for a in args]
                actual = self.copies.call(node, procedure, args)
                return Result(procedure, node, actual.payload, actual.fail_msg)

            return call

        return FakeRunner(
            source, {name: answer(name) for name in rpc.PROCEDURES if "store_" in name}
        )

    def renew(self, **options):
        return renew_crypto.renew(
            self.paths,
            self.process,
            SystemClock(),
            RenewOptions(**options),
            feedback=self.lines.append,
        )

    def at(self, node, name):
        return f"{self.folder}/{node}/var/lib/ganeti/{name}"

    def read(self, node, name):
        return files.read_file(self.at(node, name))

    def content(self):
        return {
            path: files.read_file(path)
            for path in glob.glob(f"{self.paths.data_dir}/*.pem")
        }

    def started(self):
        return [node for node, verb in self.events if verb == "start-all"]

    def snapshot(self):
        with contextlib.closing(store.Follower(self.paths.store_db)) as follower:
            return follower.snapshot()


@pytest.fixture
def site(tmp_path, monkeypatch):
    actual = Site(tmp_path)
    monkeypatch.setattr(rpc, "NetworkRunner", actual.runner)
    monkeypatch.setattr(
        renew_crypto.client,
        "Client",
        lambda *args, **options: Shell(actual, *args, **options),
    )
    yield actual
    actual.copies.close()


def test_all_daemons_are_stopped_before_a_file_changes_and_the_master_starts_last(site):
    assert site.renew(contents={"hmac.key": b"new\n"}) == []
    assert site.events == [
        (MASTER, "stop-master"),
        *((name, "stop-all") for name in (SECOND, THIRD, PLAIN, MASTER)),
        *((name, "hmac.key") for name in (SECOND, THIRD, PLAIN)),
        *((name, f"{v}-all") for name in NAMES[1:] for v in ("stop", "start")),
        (MASTER, "start ganeti-noded"),
        (MASTER, "start-all"),
    ]
    assert {site.read(name, "hmac.key") for name in NAMES} == {b"new\n"}
    assert site.snapshot().term == site.term.number
    (kept,) = glob.glob(f"{site.paths.backup_dir}/hmac.key.backup-*")
    assert files.read_file(kept) != b"new\n"


def test_nodes_are_reached_at_their_addresses_and_host_keys_are_checked(site):
    site.renew(contents={})
    addresses = {f"node{n}.example.com": f"192.0.2.{n}" for n in range(4)}
    assert [row[0] for row in site.logins] == NAMES[1:]
    for name, port, address, is_checked, environment in site.logins:
        assert (port, address, is_checked) == (22, addresses[name], True)
        assert name in environment.values()
    site.renew(contents={}, check_host_keys=False)
    assert not any(row[3] for row in site.logins[3:])


def test_every_node_gets_a_certificate_of_the_new_authority(site):
    old = site.content()
    assert site.renew(cluster_certificate=True) == []
    issuer = crypto.load_authority(site.paths)
    assert site.read(MASTER, "server.pem") != old[site.paths.server_pem]
    for number, name in enumerate(NAMES):
        certificate = x509.load_certificate(site.at(name, "client.pem"))
        assert authority.names_of(certificate) == (
            cluster.make_id("node", number),
            name,
        )
        certificate.verify_directly_issued_by(issuer.certificate)
        assert site.read(name, "server.pem") == site.read(MASTER, "server.pem")
        mode = os.stat(site.at(name, "client.pem")).st_mode
        assert stat.S_IMODE(mode) == 0o440
    for path, data in old.items():
        if os.path.basename(path) in ("server.pem", "server-key.pem", "client.pem"):
            pattern = f"{site.paths.backup_dir}/{os.path.basename(path)}.backup-*"
            assert [files.read_file(kept) for kept in glob.glob(pattern)] == [data]


def test_secrets_of_candidates_stay_on_candidates(site):
    site.renew(cluster_certificate=True, contents={"cluster-domain-secret": b"new\n"})
    for name in ("server-key.pem", "cluster-domain-secret"):
        holders = {node for node in NAMES if os.path.exists(site.at(node, name))}
        assert holders == {MASTER, SECOND, THIRD}
        for node in holders:
            assert site.read(node, name) == site.read(MASTER, name)
            assert not os.stat(site.at(node, name)).st_mode & 0o007
    assert stat.S_IMODE(os.stat(site.at(SECOND, "server-key.pem")).st_mode) == 0o600


def test_the_masters_certificate_is_recorded_before_the_master_starts(site):
    recorded = []
    programs = site.process.answers["daemon-util"]

    def note(argv):
        if argv[1] == "start-all":
            recorded.append(site.snapshot())
        return programs(argv)

    site.process.answers["daemon-util"] = note
    site.renew(cluster_certificate=True)
    digest = x509.digest(x509.load_certificate(site.paths.client_pem))
    (snapshot,) = recorded
    assert snapshot.cluster.candidate_certs == {site.copies.node(0): digest}
    assert snapshot.term > site.term.number
    revisions = sorted(site.copies[n].status()["revision"] for n in CANDIDATES)
    assert revisions[1] == snapshot.revision
    for name in NAMES:
        listed = site.read(name, "ssconf_master_candidates_certs").decode()
        assert listed == f"{site.copies.node(0)}={digest}\n"


def test_an_unreachable_node_is_found_before_anything_stops(site):
    before = site.content()
    site.unreachable = {PLAIN}
    with pytest.raises(errors.SshError, match=f"no route.*--offline yes {PLAIN}"):
        site.renew(cluster_certificate=True)
    assert (site.events, site.content()) == ([], before)


def without_master(site):
    """Go on at the second candidate."""
    store_db = site.paths.store_db
    site.paths = Paths(str(site.folder / SECOND), SECOND)
    shutil.copytree(os.path.dirname(store_db), site.paths.data_dir)
    os.makedirs(site.paths.lock_dir)
    site.process.answers["daemon-util"] = lambda argv: (
        site.daemons(SECOND, argv),
        "",
        "broken\n",
    )
    site.copies.copies[site.copies.node(1)].close()
    site.copies.copies[site.copies.node(1)] = store.Replica(site.paths.store_db)
    site.copies.down = {site.copies.node(0)}
    site.unreachable = {MASTER}
    return site


def test_without_a_master_another_candidate_is_recorded(site):
    before = site.content()
    without_master(site)
    site.unreachable |= {PLAIN}
    options = {"cluster_certificate": True, "without_master": True}
    assert site.renew(**options) == [f"node {PLAIN}: {PLAIN}: no route"]
    digest = x509.digest(x509.load_certificate(site.paths.client_pem))
    assert site.snapshot().cluster.candidate_certs == {site.copies.node(1): digest}
    assert site.snapshot().term > site.term.number
    listed = site.read(THIRD, "ssconf_master_candidates_certs").decode()
    assert listed == f"{site.copies.node(1)}={digest}\n"
    for path, data in before.items():
        assert files.read_file(path) == data  # the lost master's
    assert not [event for event in site.events if event[0] in {MASTER, PLAIN}]
    # It can be repeated, when this node has its new certificate already.
    assert len(site.renew(**options)) == 1


def test_without_a_master_a_minority_changes_nothing(site):
    before = site.content()
    without_master(site)
    site.unreachable = {MASTER, THIRD}
    with pytest.raises(errors.OpPrereqError, match="1 of 3 master candidates"):
        site.renew(cluster_certificate=True, without_master=True)
    assert site.events == []
    assert sorted(site.content().values()) == sorted(before.values())
    assert not os.path.exists(site.paths.data("renewing-certificates"))


def end(site):
    """End the certificate of the master."""
    issuer = crypto.load_authority(site.paths)
    pair = authority.issue_with_key(
        issuer, name=MASTER, uuid=site.copies.node(0), serial=2, validity_s=-60
    )
    os.unlink(site.paths.client_pem)
    files.write_file(site.paths.client_pem, pair.pem, mode=0o440)


def test_with_ended_certificates_an_unreachable_node_is_left_out(site):
    end(site)
    site.unreachable = {PLAIN}
    failed = [f"node {PLAIN}: {PLAIN}: no route"]
    assert site.renew(cluster_certificate=True) == failed
    assert site.started() == [SECOND, THIRD, MASTER]
    assert not renew_crypto.needs_restart(site.paths)


def test_an_interrupted_renewal_is_not_taken_for_a_complete_one(site, monkeypatch):
    end(site)
    assert renew_crypto.needs_restart(site.paths)

    def fail(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(renew_crypto, "_send_certificates", fail)
        with pytest.raises(errors.OpExecError, match="run the same command again"):
            site.renew(cluster_certificate=True)
    assert renew_crypto.needs_restart(site.paths)
    site.unreachable = {PLAIN}
    assert len(site.renew(cluster_certificate=True)) == 1
    assert not renew_crypto.needs_restart(site.paths)


def test_a_node_that_the_configuration_has_offline_is_not_contacted(site):
    master = store.open_master(
        site.paths.store_db,
        replicate=site.copies.replicate,
        clock=SystemClock(),
        node=site.copies.node(0),
    )
    with contextlib.closing(master):
        lost = master.snapshot().nodes[site.copies.node(3)]
        master.commit([Update("nodes", lost.uuid, lost.replace(offline=True))])
    assert PLAIN in ssconf.SimpleStore(site.paths).online_nodes()
    site.unreachable = {PLAIN}
    assert site.renew(contents={"hmac.key": b"new"}) == []
    assert site.started() == [SECOND, THIRD, MASTER]


def test_a_running_master_is_not_left_out(site):
    without_master(site).unreachable = set()
    before = site.content()
    with pytest.raises(errors.OpPrereqError, match=f"ganeti-masterd runs on {MASTER}"):
        site.renew(cluster_certificate=True, without_master=True)
    assert site.events == [(MASTER, "check ganeti-masterd")]
    assert site.content() == before
    site.broken.add((MASTER, "check ganeti-masterd"))
    assert site.renew(cluster_certificate=True, without_master=True) == []
    assert {event for event in site.events if event[0] == MASTER} == {
        (MASTER, "check ganeti-masterd")
    }


def test_only_a_candidate_can_act_without_a_master(site):
    without_master(site)
    shutil.copytree(site.folder / SECOND, site.folder / PLAIN)
    site.paths = Paths(str(site.folder / PLAIN), PLAIN)
    with pytest.raises(errors.OpPrereqError, match="is not a master candidate"):
        site.renew(cluster_certificate=True, without_master=True)
    assert site.events == []


def test_a_watcher_that_runs_stops_it_before_anything_is_stopped(site, monkeypatch):
    monkeypatch.setattr(renew_crypto, "_WATCHER_S", 0.0)
    with (
        files.locked(f"{site.paths.lock_dir}/ganeti-watcher.lock", timeout_s=1.0),
        pytest.raises(errors.GenericError, match=re.escape("ganeti-watcher.lock")),
    ):
        site.renew(cluster_certificate=True)
    assert site.events == []


@pytest.mark.parametrize(
    "event", [(MASTER, "stop-master"), (SECOND, "stop-all"), (MASTER, "stop-all")]
)
def test_daemons_that_do_not_stop_leave_a_cluster_that_runs(site, event):
    before = site.content()
    site.broken = {event}
    with pytest.raises(errors.OpExecError, match=r"nothing was changed: .*broken"):
        site.renew(cluster_certificate=True)
    assert site.content() == before
    assert site.events[-2:] == [(MASTER, "start ganeti-noded"), (MASTER, "start-all")]
    started = {*site.started()}
    # A node that refuses to stop is not started a second time.
    assert started == {*NAMES} - {event[0]} | {MASTER}


def test_a_node_without_the_files_is_named_and_the_others_go_on(site):
    site.full = {(SECOND, "server.pem"), (THIRD, "client.pem")}
    site.broken = {(PLAIN, "start-all")}
    assert site.renew(cluster_certificate=True) == [
        f"node {SECOND}: {SECOND}: disk full",
        f"node {THIRD}: {THIRD}: disk full",
        f"node {PLAIN}: node {PLAIN}: daemon-util start-all exited with code 1: broken",
    ]
    # Without the authority, its certificate is useless.
    assert (SECOND, "client.pem") not in site.events
    assert (PLAIN, "client.pem") in site.events
    assert {*site.started()} == {*NAMES}


@pytest.mark.parametrize(
    ("error", "text"),
    [(OSError(28, "full"), ".*full"), (KeyboardInterrupt(), "KeyboardInterrupt")],
)
def test_an_interruption_leaves_the_daemons_stopped_and_says_how_to_go_on(
    site, monkeypatch, error, text
):
    def interrupt(*_args, **_options):
        raise error

    monkeypatch.setattr(renew_crypto, "_copy", interrupt)
    with pytest.raises(
        errors.OpExecError,
        match=rf"daemons are stopped \({text}\): run the same command",
    ):
        site.renew(cluster_certificate=True)
    assert site.started() == []


def test_an_interrupted_run_can_be_repeated(site):
    site.broken = {(MASTER, "start ganeti-noded")}
    with pytest.raises(errors.OpExecError, match="broken"):
        site.renew(cluster_certificate=True)
    site.broken = set()
    assert site.renew(cluster_certificate=True) == []
    digest = x509.digest(x509.load_certificate(site.paths.client_pem))
    assert site.snapshot().cluster.candidate_certs == {site.copies.node(0): digest}


def test_without_a_majority_the_master_is_not_started(site):
    site.copies.down = {site.copies.node(1), site.copies.node(2)}
    with pytest.raises(
        errors.OpExecError, match=r"master daemon is not started.*run the same command"
    ):
        site.renew(cluster_certificate=True)
    assert (MASTER, "start-all") not in site.events
    assert {SECOND, THIRD, PLAIN} == {*site.started()}


def test_the_planned_steps_name_the_files_and_nodes(site):
    options = RenewOptions(contents={"hmac.key": b"x"})
    short = renew_crypto.steps(site.paths, options)
    whole = renew_crypto.steps(
        site.paths, dataclasses.replace(options, cluster_certificate=True)
    )
    others = ", ".join(NAMES[1:])
    assert short == [
        f"log in to {others} as root over SSH",
        "block the watcher",
        f"stop all daemons on {others}, {MASTER}",
        f"write {site.paths.hmac_key}",
        f"copy these files to {others}",
        f"start all daemons on {others}, {MASTER}",
    ]
    assert whole[3] == f"write {site.paths.server_pem}, {site.paths.hmac_key}"
    assert whole[4] == "issue new certificates for all nodes"
    assert whole[-1] == f"start the master daemons on {MASTER}"
    assert site.events == site.logins == []


def test_a_single_node_needs_no_login(site):
    ssconf.write(site.paths, {"online_nodes": f"{MASTER}\n"})
    plan = renew_crypto.steps(site.paths, RenewOptions(contents={"hmac.key": b"x"}))
    assert plan[0] == "block the watcher"
    assert not any("copy" in step for step in plan)


def test_a_pem_file_of_the_administrator_has_a_certificate_and_its_key(tmp_path):
    path = str(tmp_path / "own.pem")
    pair = x509.create_self_signed()
    files.write_file(path, pair.certificate_pem, mode=0o600)
    assert renew_crypto.read_pem(path, with_key=False) == pair.certificate_pem
    with pytest.raises(errors.OpPrereqError, match=re.escape("own.pem")) as caught:
        renew_crypto.read_pem(path)
    assert caught.value.args[1] == "wrong_input"
    files.write_file(path, pair.pem, mode=0o600)
    assert renew_crypto.read_pem(path) == pair.pem
    with pytest.raises(errors.OpPrereqError, match="missing"):
        renew_crypto.read_pem(f"{path}.missing")


def test_a_secret_of_the_administrator_ends_with_one_newline(tmp_path):
    path = str(tmp_path / "secret")
    files.write_file(path, b"word \n\n", mode=0o600)
    assert renew_crypto.read_secret(path) == b"word\n"
    files.write_file(path, b" \n", mode=0o600)
    with pytest.raises(errors.OpPrereqError, match="is empty"):
        renew_crypto.read_secret(path)
    with pytest.raises(errors.OpPrereqError, match=r"cannot read .*gone"):
        renew_crypto.read_secret(f"{path}/../gone")


def test_daemons_are_stopped_only_if_the_present_certificates_are_of_no_use(site):
    assert not renew_crypto.needs_restart(site.paths)
    issuer = crypto.load_authority(site.paths)
    pair = authority.issue_with_key(
        issuer, name=MASTER, uuid=site.copies.node(0), serial=1, validity_s=-1
    )
    files.write_file(site.paths.client_pem, pair.pem, mode=0o440)
    assert renew_crypto.needs_restart(site.paths)
    crypto.write_node_certificate(site.paths, site.copies.node(0), 1000.0)
    assert not renew_crypto.needs_restart(site.paths)
    os.unlink(site.paths.server_key_pem)
    assert renew_crypto.needs_restart(site.paths)


def test_daemons_are_stopped_if_all_nodes_share_one_certificate(site):
    shared = x509.create_self_signed()
    files.write_file(site.paths.server_pem, shared.pem, mode=0o440)
    assert renew_crypto.needs_restart(site.paths)


def test_a_master_that_nodes_refuse_renews_over_ssh(site):
    """It is a candidate that became the master when another one renewed these files."""
    used = {
        site.copies.node(0): x509.digest(x509.load_certificate(site.paths.client_pem))
    }
    for certs, is_needed in ((used, False), ({site.copies.node(0): "AA"}, True)):
        with (
            contextlib.closing(
                store.open_master(
                    site.paths.store_db,
                    replicate=site.copies.replicate,
                    clock=SystemClock(),
                    node=site.copies.node(0),
                )
            ) as master,
            config.Config(master, SystemClock()).edit("test") as edit,
        ):
            edit.update_cluster(candidate_certs=certs)
        assert renew_crypto.needs_restart(site.paths) is is_needed
    # Nodes that are lost, too, cannot be marked offline by it.
    site.unreachable = {PLAIN}
    assert site.renew(cluster_certificate=True) == [f"node {PLAIN}: {PLAIN}: no route"]
    assert not renew_crypto.needs_restart(site.paths)


# Candidates that are lost for good
def voters(site):
    with contextlib.closing(store.Follower(site.paths.store_db)) as follower:
        return json.loads(follower.read("meta", "voters"))


def give_up(site, *names):
    return site.renew(cluster_certificate=True, without_master=True, given_up=names)


@pytest.mark.parametrize("is_ended", [False, True])
def test_candidates_lost_for_good_are_given_up_by_name(site, is_ended):
    if is_ended:
        end(site)
    before = without_master(site).snapshot()
    site.copies.down |= {site.copies.node(2)}
    site.unreachable |= {THIRD}
    third = site.copies.node(2)
    assert give_up(site, MASTER, third) == [f"node {THIRD}: {THIRD}: no route"]
    own, after = site.copies.node(1), site.snapshot()
    digest = x509.digest(x509.load_certificate(site.paths.client_pem))
    assert after.cluster.candidate_certs == {own: digest}
    assert after.cluster.master_node == own
    for number in (0, 2):
        node = after.nodes[site.copies.node(number)]
        assert (node.offline, node.master_candidate) == (True, False)
    # They count no more, and the numbers that they may have used are left out.
    assert voters(site) == {"now": [own], "before": []}
    assert after.revision > before.revision + 100_000
    listed = site.read(PLAIN, "ssconf_master_candidates_certs").decode()
    assert listed == f"{own}={digest}\n"
    assert give_up(site, MASTER, THIRD) == []


def test_a_node_that_is_killed_while_it_gives_up_others_can_do_it_again(site):
    """It dies after the group that marks them, before the one that settles the set."""
    without_master(site)
    site.copies.down |= {site.copies.node(2)}
    site.unreachable |= {THIRD}
    killed = mock.patch.object(
        lost_master, "Document", side_effect=KeyboardInterrupt("killed")
    )
    with killed, pytest.raises(errors.OpExecError, match="killed"):
        give_up(site, MASTER, THIRD)
    assert site.snapshot().nodes[site.copies.node(0)].offline
    assert voters(site)["before"]
    give_up(site, MASTER, THIRD)
    assert voters(site) == {"now": [site.copies.node(1)], "before": []}


def test_a_silent_candidate_that_is_not_named_is_not_given_up(site):
    before = site.content()
    without_master(site)
    site.unreachable = {MASTER, THIRD}
    with pytest.raises(errors.OpPrereqError, match=f"changes may be on {THIRD} alone"):
        give_up(site, MASTER)
    assert site.events == []
    assert sorted(site.content().values()) == sorted(before.values())


def test_a_candidate_that_gets_lost_on_the_way_is_not_given_up(site):
    without_master(site)
    # It answers over SSH, and its node daemon does not.
    site.copies.down |= {site.copies.node(2)}
    with pytest.raises(errors.OpExecError, match=r"name them with --lost-candidates"):
        site.renew(cluster_certificate=True, without_master=True)
    assert site.snapshot().nodes[site.copies.node(0)].master_candidate
    paths, own = site.paths, site.copies.node(1)
    lost = frozenset({site.copies.node(0)})
    with (
        pytest.raises(errors.StorageError, match=f"not heard: .*{THIRD}"),
        lost_master.recording(paths, SystemClock(), own, lost, "test"),
    ):
        pass
    assert site.snapshot().nodes[site.copies.node(0)].master_candidate


def test_nothing_is_given_up_without_need(site):
    without_master(site)
    with pytest.raises(errors.OpPrereqError, match="nothing has to be given up"):
        give_up(site, MASTER)
    assert site.events == []


def test_a_node_that_answers_is_not_given_up(site):
    without_master(site).unreachable = set()
    site.broken.add((MASTER, "check ganeti-masterd"))
    with pytest.raises(errors.OpPrereqError, match=f"{MASTER} answers over SSH"):
        give_up(site, MASTER)
    assert site.events == [(MASTER, "check ganeti-masterd")]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (SECOND, "is this node"),
        (PLAIN, "is not a master candidate"),
        ("other.example.com", "unknown node"),
    ],
)
def test_only_other_candidates_can_be_given_up(site, name, problem):
    without_master(site)
    with pytest.raises(errors.OpPrereqError, match=f"{name}: {problem}"):
        give_up(site, name)
    assert site.events == site.logins == []


def test_the_plan_names_those_that_are_given_up(site):
    options = RenewOptions(True, without_master=True, given_up=(MASTER,))
    assert f"mark {MASTER} offline, without asking for its copy" in renew_crypto.steps(
        without_master(site).paths, options
    )


def test_a_candidate_that_is_behind_takes_the_newest_copy(site):
    without_master(site)
    with contextlib.closing(
        store.open_master(
            site.at(MASTER, "store.db"),
            replicate=lambda nodes, request: site.copies.replicate(
                [n for n in nodes if n == site.copies.node(2)], request
            ),
            clock=SystemClock(),
            node=site.copies.node(0),
        )
    ) as master:
        for number in range(3):
            master.commit([store.Document("meta", "test", b"%d" % number)])
    assert site.renew(cluster_certificate=True, without_master=True) == []
    with contextlib.closing(store.Follower(site.paths.store_db)) as follower:
        assert follower.read("meta", "test") == b"2"


def test_the_leadership_in_etcd_is_had_before_a_daemon_stops(site, monkeypatch):
    @contextlib.contextmanager
    def holding(*_args):
        site.events.append("leads")
        yield None
        site.events.append("ends")

    with monkeypatch.context() as patched:
        patched.setattr(renew_crypto.store_access, "holding", holding)
        site.renew(contents={"hmac.key": b"new"})
    assert site.events[0] == "leads"
    assert site.events[-2:] == [(MASTER, "start-all"), "ends"]
    site.events.clear()

    def refuse(*_args):
        raise errors.StorageError("no majority of the servers")

    monkeypatch.setattr(renew_crypto.store_access, "holding", refuse)
    with pytest.raises(errors.OpExecError, match="nothing was changed: no majority"):
        site.renew(contents={"hmac.key": b"newer"})
    assert site.events == []


# The note of an interrupted renewal
def interrupt(site, monkeypatch, name="_send_certificates"):
    def fail(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(renew_crypto, name, fail)
        with pytest.raises(errors.OpExecError):
            site.renew(cluster_certificate=True)


@pytest.mark.parametrize("is_old", [False, True])
def test_a_note_is_outdated_when_others_have_renewed(site, monkeypatch, is_old):
    old = site.content()[site.paths.server_pem]
    interrupt(site, monkeypatch)
    if is_old:
        # Killed before the first file was replaced.
        os.unlink(site.paths.server_pem)
        files.write_file(site.paths.server_pem, old, mode=0o440)
    assert crypto.has_renewal_note(site.paths)
    os.unlink(site.paths.server_pem)
    new = authority.create()
    files.write_file(site.paths.server_pem, new.certificate_pem, mode=0o440)
    assert not crypto.has_renewal_note(site.paths)


def test_a_note_of_an_earlier_release_counts(site):
    files.write_file(site.paths.data("renewing-certificates"), b"", mode=0o600)
    assert crypto.has_renewal_note(site.paths)
    crypto.remove_renewal_note(site.paths)
    assert not crypto.has_renewal_note(site.paths)
