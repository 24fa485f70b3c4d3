"""Each node ends with the SSH keys that it should have, and with no others.

The key files of all nodes are real, and so is the tool that changes them. Only the
connection to other nodes is replaced: it runs the tool on the files of the other node.
"""

import os

import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.tls import x509
from ganeti.node.calls import ssh_keys, verify
from ganeti.protocols import ssconf
from ganeti.protocols.ssh import authorized_keys, keys
from ganeti.tools.joining import ssh_update

MASTER, SECOND, THIRD = (f"node{number}.example" for number in (1, 2, 3))
NAMES = (MASTER, SECOND, THIRD)
UUIDS = {name: nodes.UUID.format(index) for index, name in enumerate(NAMES, 1)}
KIND = "ed25519"


class Cluster:
    """Three nodes; ``broken`` maps names of nodes to the number of logins that fail."""

    def __init__(self, directory):
        self.nodes = {name: nodes.make_node(directory, name) for name in NAMES}
        self.broken = {}
        self.changed = []
        for node in self.nodes.values():
            os.makedirs(node.paths.data_dir)
            os.makedirs(node.paths.lock_dir, exist_ok=True)
        first = self.nodes[MASTER].paths
        x509.write_cluster_certificate(first.server_pem)
        pem = files.read_file(first.server_pem)
        for name, node in self.nodes.items():
            files.write_file(node.paths.server_pem, pem, mode=0o400)
            authorized_keys.ensure_directory(node.paths.root_ssh_dir)
            keys.save(keys.generate(KIND, None, f"root@{name}"), self.key_path(name))
        self.write_ssconf(candidates=(MASTER, SECOND))

    def write_ssconf(self, *, candidates, online=NAMES):
        values = {
            "cluster_name": "cluster.example",
            "online_nodes": "\n".join(online),
            "master_candidates_certs": "\n".join(f"{UUIDS[n]}=AA" for n in candidates),
            "ssh_ports": "\n".join(f"{name}=22" for name in NAMES),
        }
        for node in self.nodes.values():
            ssconf.write(node.paths, values)

    def key_path(self, name):
        return keys.root_key_path(self.nodes[name].paths.root_ssh_dir, KIND)

    def line(self, name):
        """Return a node's own public key."""
        return keys.load(self.key_path(name)).public.strip()

    def authorize(self, name, *owners):
        path = f"{self.nodes[name].paths.root_ssh_dir}/authorized_keys"
        authorized_keys.add(path, [self.line(owner) for owner in owners])

    def record(self, name, *owners):
        known = {UUIDS[owner]: [self.line(owner)] for owner in owners}
        path = self.nodes[name].paths.data("ganeti_pub_keys")
        authorized_keys.update_node_keys(path, "override", known)

    def authorized(self, name):
        """Return the keys that may log in to a node."""
        path = f"{self.nodes[name].paths.root_ssh_dir}/authorized_keys"
        return {line for line in authorized_keys.read(path) if line}

    def known(self, name):
        """Return the node's list of public keys."""
        return authorized_keys.read_node_keys(
            self.nodes[name].paths.data("ganeti_pub_keys")
        )

    def run_tool(self, distribution, name, change, read=None):
        left = self.broken.get(name, 0)
        if left:
            self.broken[name] = left - 1
            raise errors.SshError(f"{name}: no route")
        self.changed.append(name)
        paths = self.nodes[name].paths
        message = {
            "cluster_name": distribution._cluster,
            "node_daemon_certificate": distribution._pem,
            **change,
        }
        for key, value in message.items():
            ssh_update._INPUT[key](value)
        ssh_update.update(paths, message, dry_run=False)
        return files.read_file(f"{paths.at('/root')}/{read}").decode() if read else ""

    def call(self, procedure, *args):
        return nodes.call(self.nodes[MASTER], procedure, *args)

    def add(self, name, *, candidate, potential=NAMES):
        uuid = UUIDS[name]
        flags = (candidate, True, True)
        return self.call("node_ssh_key_add", uuid, name, list(potential), *flags)

    def remove(self, name, *, readd=False, everything=True, clear_public=None):
        candidates = [UUIDS[MASTER], UUIDS[SECOND]]
        clear = everything if clear_public is None else clear_public
        flags = [everything] * 3 + [clear, readd]
        args = (UUIDS[name], name, candidates, list(NAMES), *flags)
        return self.call("node_ssh_key_remove", *args)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    made = Cluster(tmp_path)

    def run_tool(distribution, name, change, read=None):
        return made.run_tool(distribution, name, change, read)

    monkeypatch.setattr(ssh_keys.Distribution, "run_tool", run_tool)
    for name in (MASTER, SECOND):
        made.authorize(name, MASTER, SECOND)
        made.record(name, MASTER, SECOND)
    return made


def keys_of(cluster, *names):
    return {cluster.line(name) for name in names}


def test_a_new_candidate_may_log_in_everywhere_and_knows_all_keys(cluster):
    cluster.record(MASTER, *NAMES)
    assert cluster.add(THIRD, candidate=True) == []
    for name in (MASTER, SECOND):
        assert cluster.authorized(name) == keys_of(cluster, *NAMES)
    # The third is no candidate in ssconf yet: only the others may log in to it, and it.
    assert cluster.authorized(THIRD) == keys_of(cluster, *NAMES)
    for name in (SECOND, THIRD):
        assert set(cluster.known(name)) == set(UUIDS.values())


def test_a_node_that_is_no_candidate_may_not_log_in(cluster):
    cluster.record(MASTER, *NAMES)
    assert cluster.add(THIRD, candidate=False) == []
    assert cluster.authorized(SECOND) == keys_of(cluster, MASTER, SECOND)
    assert cluster.authorized(THIRD) == keys_of(cluster, MASTER, SECOND)
    assert set(cluster.known(SECOND)) == set(UUIDS.values())


def test_keys_of_nodes_that_are_no_candidates_are_not_authorised(cluster):
    cluster.write_ssconf(candidates=(MASTER,))
    cluster.record(MASTER, *NAMES)
    assert cluster.add(THIRD, candidate=False) == []
    assert cluster.authorized(THIRD) == keys_of(cluster, MASTER)


def test_only_potential_candidates_get_the_public_key(cluster):
    cluster.record(MASTER, *NAMES)
    assert cluster.add(THIRD, candidate=False, potential=(MASTER, THIRD)) == []
    assert UUIDS[THIRD] not in cluster.known(SECOND)
    cluster.changed.clear()
    flags = (False, False, False)
    args = (UUIDS[THIRD], THIRD, list(NAMES), *flags)
    assert cluster.call("node_ssh_key_add", *args) == []
    assert (cluster.changed, UUIDS[THIRD] in cluster.known(SECOND)) == ([], False)


def test_a_key_recorded_under_the_name_moves_to_the_uuid(cluster):
    path = cluster.nodes[MASTER].paths.data("ganeti_pub_keys")
    authorized_keys.update_node_keys(path, "add", {THIRD: [cluster.line(THIRD)]})
    assert cluster.add(THIRD, candidate=True) == []
    assert set(cluster.known(MASTER)) == set(UUIDS.values())
    assert cluster.known(SECOND)[UUIDS[THIRD]] == [cluster.line(THIRD)]


def test_a_missing_key_is_read_from_its_node(cluster):
    assert cluster.add(THIRD, candidate=True) == []
    assert cluster.line(THIRD) in cluster.authorized(SECOND)
    assert cluster.known(MASTER)[UUIDS[THIRD]] == [cluster.line(THIRD)]


def test_a_key_that_cannot_be_read_is_an_error_that_names_the_node(cluster):
    cluster.broken[THIRD] = ssh_keys.TRIES
    with pytest.raises(errors.SshUpdateError, match=f"{THIRD}.*no route"):
        cluster.add(THIRD, candidate=True)
    assert cluster.authorized(SECOND) == keys_of(cluster, MASTER, SECOND)


def test_a_node_that_answers_late_is_tried_again_and_a_dead_one_reported(cluster):
    cluster.record(MASTER, *NAMES)
    cluster.broken = {SECOND: ssh_keys.TRIES - 1, THIRD: ssh_keys.TRIES}
    assert cluster.add(THIRD, candidate=True) == [[THIRD, f"{THIRD}: no route"]]
    assert cluster.broken == {SECOND: 0, THIRD: 0}
    assert cluster.line(THIRD) in cluster.authorized(SECOND)


def test_an_offline_node_is_left_alone(cluster):
    cluster.write_ssconf(candidates=(MASTER, SECOND), online=(MASTER, THIRD))
    cluster.record(MASTER, *NAMES)
    assert cluster.add(THIRD, candidate=True) == []
    assert SECOND not in cluster.changed


@pytest.fixture
def three(cluster):
    for name in NAMES:
        cluster.authorize(name, *NAMES)
        cluster.record(name, *NAMES)
    return cluster


def test_a_node_that_leaves_loses_its_access_and_the_candidates_theirs(three):
    assert three.remove(THIRD) == []
    for name in (MASTER, SECOND):
        assert three.authorized(name) == keys_of(three, MASTER, SECOND)
        assert set(three.known(name)) == {UUIDS[MASTER], UUIDS[SECOND]}
    assert three.authorized(THIRD) == keys_of(three, THIRD)
    assert three.known(THIRD) == {}


def test_a_node_that_is_added_again_keeps_its_own_files(three):
    assert three.remove(THIRD, readd=True, clear_public=False) == []
    assert three.authorized(THIRD) == keys_of(three, *NAMES)
    assert THIRD not in three.changed
    assert three.authorized(SECOND) == keys_of(three, MASTER, SECOND)
    # It may have another key now, which is fetched.
    assert THIRD not in three.known(MASTER)


def test_a_node_that_is_added_again_and_never_a_candidate_has_no_list(three):
    assert three.remove(THIRD, readd=True) == []
    assert three.known(THIRD) == {}


def test_nothing_is_changed_that_was_not_requested(three):
    assert three.remove(THIRD, everything=False) == []
    assert three.changed == []
    assert three.authorized(MASTER) == keys_of(three, *NAMES)


def test_each_node_that_keeps_a_key_is_named(three):
    three.broken = {SECOND: ssh_keys.TRIES, THIRD: ssh_keys.TRIES}
    assert three.remove(THIRD) == [
        f"node {name}: SSH keys not updated: {name}: no route"
        for name in (SECOND, THIRD)
    ]


def renew(cluster, names=NAMES, kind=KIND):
    uuids = [UUIDS[name] for name in names]
    candidates = [UUIDS[MASTER], UUIDS[SECOND]]
    args = (uuids, list(names), candidates, [MASTER, SECOND], KIND, kind, 256)
    cluster.call("node_ssh_keys_renew", *args)


def test_renewed_keys_replace_the_old_ones_everywhere(three):
    old = keys_of(three, *NAMES)
    renew(three)
    assert not old & keys_of(three, *NAMES)
    for name in NAMES:
        assert three.authorized(name) == keys_of(three, MASTER, SECOND)
    for name in (MASTER, SECOND):
        assert three.known(name) == {UUIDS[n]: [three.line(n)] for n in NAMES}
    # The temporary pair of the master is gone.
    left = os.listdir(three.nodes[MASTER].paths.root_ssh_dir)
    assert [name for name in left if "ganeti-new" in name] == []


def test_a_node_that_cannot_be_renewed_keeps_its_old_access(three):
    old = three.line(SECOND)
    three.broken[SECOND] = 1
    with pytest.raises(errors.SshUpdateError, match=f"node {SECOND}: .*no route"):
        renew(three)
    assert three.line(SECOND) == old
    assert old in three.authorized(THIRD)
    assert three.line(MASTER) in three.authorized(SECOND)


def test_the_master_keeps_its_key_if_only_others_are_renewed(three):
    old = three.line(MASTER)
    renew(three, names=(SECOND,))
    assert three.line(MASTER) == old
    assert old in three.authorized(SECOND)


class Ended(BaseException):
    """The end of the node daemon of the master."""


class Steps:
    """Counts changes of files and calls of the tool; one of them is the last."""

    def __init__(self, monkeypatch):
        self.count, self.last = 0, None
        write = files.write_file

        def stepped(*args, **options):
            self.take()
            write(*args, **options)

        monkeypatch.setattr(files, "write_file", stepped)
        monkeypatch.setattr(os, "fsync", lambda _fd: None)

    def take(self):
        self.count += 1
        if self.count == self.last:
            raise Ended

    def end_at(self, number):
        self.count, self.last = 0, number


def test_an_end_at_any_step_can_be_repeated_and_leaves_no_key_authorised(
    three, monkeypatch
):
    steps = Steps(monkeypatch)
    renew(three)
    total = steps.count
    assert total > 15
    for number in range(1, total + 1):
        steps.end_at(number)
        with pytest.raises(Ended):
            renew(three)
        steps.end_at(None)
        for name in NAMES:
            assert three.line(MASTER) in three.authorized(name), number
        renew(three)
        for name in NAMES:
            assert three.authorized(name) == keys_of(three, MASTER, SECOND), number
        for name in (MASTER, SECOND):
            assert three.known(name) == {UUIDS[n]: [three.line(n)] for n in NAMES}


def test_a_key_that_a_node_still_authorises_stays_in_the_list(three, monkeypatch):
    old = three.line(MASTER)
    withdraw = ssh_keys._withdraw

    def without_third(*args):
        three.broken[THIRD] = 3
        return withdraw(*args)

    with monkeypatch.context() as patch:
        patch.setattr(ssh_keys, "_withdraw", without_third)
        with pytest.raises(errors.SshUpdateError, match=f"node {THIRD}: .*no route"):
            renew(three)
    assert old in three.authorized(THIRD)
    renew(three)
    assert three.authorized(THIRD) == keys_of(three, MASTER, SECOND)


def check(cluster, name=SECOND, candidates=(MASTER, SECOND), potential=NAMES):
    rows = [[UUIDS[n], n, n in candidates, n in potential] for n in NAMES]
    return verify.check_set_up(cluster.nodes[name], rows)


def test_verification_accepts_the_files_of_a_healthy_cluster(cluster):
    cluster.record(SECOND, *NAMES)
    assert check(cluster) == []
    assert verify.check_clutter(cluster.nodes[SECOND]) == []


def test_verification_names_missing_and_surplus_keys(cluster):
    assert check(cluster) == [f"has no public key of node {THIRD}"]
    cluster.record(SECOND, *NAMES)
    text = f"has a public key of {THIRD}, which is not a potential candidate"
    assert check(cluster, potential=(MASTER, SECOND)) == [text]
    path = cluster.nodes[SECOND].paths.data("ganeti_pub_keys")
    authorized_keys.update_node_keys(path, "add", {"stranger": [cluster.line(THIRD)]})
    text = "has a public key of stranger, which is not a potential candidate"
    assert check(cluster) == [text]


def test_verification_names_wrong_authorisations(cluster):
    cluster.record(SECOND, *NAMES)
    assert check(cluster, candidates=NAMES) == [
        f"does not authorise the key of master candidate {THIRD}"
    ]
    cluster.authorize(SECOND, THIRD)
    assert check(cluster) == [
        f"authorises the key of node {THIRD}, which is not a candidate"
    ]
    # A node may authorise its own key.
    assert check(cluster, candidates=(MASTER, THIRD)) == []


def test_a_node_that_never_becomes_candidate_has_no_list_of_keys(cluster):
    surplus = ["has public keys of nodes, but can never be a master candidate"]
    assert check(cluster, potential=(MASTER, THIRD)) == surplus
    assert check(cluster, name=THIRD, potential=(MASTER, SECOND)) == []


def test_several_keys_of_one_node_are_clutter(cluster):
    path = cluster.nodes[SECOND].paths.data("ganeti_pub_keys")
    authorized_keys.update_node_keys(
        path, "add", {UUIDS[MASTER]: [cluster.line(THIRD)]}
    )
    more = keys.generate(KIND, None, f"root@{MASTER}").public.strip()
    path = f"{cluster.nodes[SECOND].paths.root_ssh_dir}/authorized_keys"
    authorized_keys.add(path, [more])
    assert verify.check_clutter(cluster.nodes[SECOND]) == [
        f"2 public keys are recorded for node {UUIDS[MASTER]}",
        f"2 keys of root@{MASTER} are authorised",
    ]


def test_a_node_that_keeps_no_keys_gets_those_of_candidates_to_authorise(cluster):
    path = f"{cluster.nodes[THIRD].paths.root_ssh_dir}/authorized_keys"
    before = cluster.known(MASTER)
    flags = (False, False, True)
    args = (UUIDS[THIRD], THIRD, [MASTER, SECOND], *flags)
    assert cluster.call("node_ssh_key_add", *args) == []
    assert cluster.authorized(THIRD) == keys_of(cluster, MASTER, SECOND)
    assert cluster.known(THIRD) == {}
    assert cluster.known(MASTER) == before
    assert cluster.changed == [THIRD]
    lines = {name: [cluster.line(name)] for name in (MASTER, SECOND)}
    assert verify.check_authorised(cluster.nodes[THIRD], lines) == []
    authorized_keys.remove(path, [cluster.line(SECOND)])
    assert verify.check_authorised(cluster.nodes[THIRD], lines) == [
        f"does not authorise the key of master candidate {SECOND}"
    ]


def test_the_master_shows_the_keys_of_candidates_that_it_has(cluster):
    keys = verify.candidate_keys(cluster.nodes[MASTER], [UUIDS[SECOND], "other"])
    assert keys == {UUIDS[SECOND]: [cluster.line(SECOND)]}
