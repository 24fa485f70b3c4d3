"""The programs that the master runs on nodes over SSH."""

import io
import json
import os
import stat
import types

import pytest

from fakes.processes import FakeRunner
from ganeti.base import daemon_users, errors
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority, x509
from ganeti.bootstrap import crypto
from ganeti.node.storage import allowed
from ganeti.protocols.ssconf import SimpleStore
from ganeti.protocols.ssh import authorized_keys, keys
from ganeti.tools import common
from ganeti.tools.joining import (
    node_cleanup,
    node_daemon_setup,
    prepare_node_join,
    ssh_update,
)

CLUSTER = "cluster.vc.test"
UUID = "c0ffee00-1234-4abc-8def-0123456789ab"


@pytest.fixture(scope="module")
def server():
    return x509.create_self_signed()


@pytest.fixture
def paths(tmp_path):
    root = tmp_path / "node2"
    for name in ("var/lib/ganeti", "etc/ssh", "var/run/ganeti"):
        (root / name).mkdir(parents=True)
    return Paths(root=str(root), hostname="node2")


@pytest.fixture
def runner():
    return FakeRunner(daemon_util=FakeRunner.DONE)


def join_message(server, **more):
    host = keys.generate("ed25519")
    message = {
        "cluster_name": CLUSTER,
        "node_daemon_certificate": server.certificate_pem.decode(),
        "ssh_host_key": [["ed25519", host.private, host.public]],
        "authorized_keys": {"uuid1": [keys.generate("ed25519").public.strip()]},
        "ssh_key_type": "ecdsa",
        "ssh_key_bits": 256,
    }
    return message | more


def setup_message(server, **more):
    message = {
        "cluster_name": CLUSTER,
        "node_daemon_certificate": server.pem.decode(),
        "hmac_key": "k" * 40 + "\n",
        "ssconf": {"cluster_name": CLUSTER, "master_node": "node1"},
        "start_node_daemon": True,
        "node_name": "node2",
    }
    return message | more


def test_joining_installs_host_keys_a_root_key_and_the_candidates(
    paths, runner, server
):
    message = join_message(server)
    prepare_node_join.prepare(paths, runner, message, dry_run=False)
    host = keys.load(keys.host_key_path(paths.sshd_dir, "ed25519"))
    assert host.private == message["ssh_host_key"][0][1]
    root = keys.load(keys.root_key_path(paths.root_ssh_dir, "ecdsa"))
    assert root.kind == "ecdsa"
    lines = authorized_keys.read(crypto.authorized_keys_path(paths))
    assert lines == message["authorized_keys"]["uuid1"]
    assert runner.lines == ["daemon-util reload-ssh-keys"]


def test_joining_again_changes_nothing(paths, runner, server):
    message = join_message(server)
    prepare_node_join.prepare(paths, runner, message, dry_run=False)
    before = keys.load(keys.root_key_path(paths.root_ssh_dir, "ecdsa"))
    prepare_node_join.prepare(paths, runner, message, dry_run=False)
    assert keys.load(keys.root_key_path(paths.root_ssh_dir, "ecdsa")) == before
    assert len(runner.lines) == 1


def test_a_dry_run_writes_nothing(paths, runner, server):
    prepare_node_join.prepare(paths, runner, join_message(server), dry_run=True)
    node_daemon_setup.set_up(paths, runner, setup_message(server), dry_run=True)
    assert os.listdir(paths.sshd_dir) == []
    assert os.listdir(paths.data_dir) == []
    assert runner.lines == []


def test_a_node_of_another_cluster_is_refused(paths, runner, server):
    node_daemon_setup.set_up(paths, runner, setup_message(server), dry_run=False)
    with pytest.raises(errors.OpPrereqError, match=f"is in cluster {CLUSTER}.*other"):
        prepare_node_join.prepare(
            paths, runner, join_message(server, cluster_name="other"), dry_run=False
        )


def test_a_node_without_the_users_of_daemons_is_refused(
    paths, runner, server, monkeypatch
):
    monkeypatch.setattr(daemon_users, "obstacle", lambda _name, _paths: "no user")
    monkeypatch.setattr(prepare_node_join.Services, "has", lambda _self, _name: True)
    for work, message in (
        (prepare_node_join.prepare, join_message(server)),
        (node_daemon_setup.set_up, setup_message(server)),
    ):
        with pytest.raises(
            errors.OpPrereqError, match=r"confd would not start: no user"
        ):
            work(paths, runner, message, dry_run=False)
    assert (os.listdir(paths.data_dir), runner.lines) == ([], [])


def test_a_node_with_another_certificate_is_refused(paths, runner, server):
    x509.write_cluster_certificate(paths.server_pem)
    for work, message in (
        (prepare_node_join.prepare, join_message(server)),
        (node_daemon_setup.set_up, setup_message(server)),
    ):
        with pytest.raises(errors.OpPrereqError, match="node-cleanup"):
            work(paths, runner, message, dry_run=False)


def test_a_host_key_of_another_type_than_announced_is_refused(paths, runner, server):
    pair = keys.generate("ed25519")
    message = join_message(server, ssh_host_key=[["ecdsa", pair.private, pair.public]])
    with pytest.raises(errors.OpPrereqError, match="of type ed25519"):
        prepare_node_join.prepare(paths, runner, message, dry_run=False)


def test_setting_up_a_node_daemon_writes_its_files_and_starts_it(paths, runner, server):
    node_daemon_setup.set_up(paths, runner, setup_message(server), dry_run=False)
    assert SimpleStore(paths).master_node() == "node1"
    assert stat.S_IMODE(os.stat(paths.server_pem).st_mode) == 0o440
    client = x509.load_certificate(paths.client_pem)
    assert "node2" in client.subject.rfc4514_string()
    assert x509.digest(x509.load_certificate(paths.server_pem)) == server.digest
    assert runner.lines[:2] == [
        "daemon-util stop-all",
        "daemon-util start ganeti-noded",
    ]


@pytest.mark.parametrize(
    ("uuid", "days", "is_kept"),
    [(UUID, 30, True), (None, 30, False), (UUID, 0.5, False)],
)
def test_a_node_keeps_a_certificate_that_is_as_good(paths, runner, uuid, days, is_kept):
    issuer = authority.create()

    def issued(uuid, days):
        return authority.issue_with_key(
            issuer, name="node2", uuid=uuid, serial=1, validity_s=int(days * 86400)
        ).pem.decode()

    cluster = x509.certificate_pem(issuer.certificate).decode()
    present, given = issued(uuid, days), issued(UUID, 1)
    with open(paths.client_pem, "w") as out:
        out.write(present)
    message = setup_message(
        issuer, node_daemon_certificate=cluster, node_certificate=given
    )
    node_daemon_setup.set_up(paths, runner, message, dry_run=False)
    with open(paths.client_pem) as text:
        assert text.read() == (present if is_kept else given)


def test_a_renewal_that_the_node_began_as_a_master_is_over(paths, runner, server):
    os.makedirs(paths.data_dir, exist_ok=True)
    crypto.write_renewal_note(paths, server.pem)
    node_daemon_setup.set_up(paths, runner, setup_message(server), dry_run=False)
    assert not crypto.has_renewal_note(paths)


def test_a_daemon_that_does_not_start_is_an_error_with_its_words(paths, server):
    runner = FakeRunner(
        daemon_util=lambda argv: (
            (1, "", "port taken") if argv[1] == "start" else (0, "", "")
        )
    )
    with pytest.raises(errors.OpExecError, match=r"start ganeti-noded.*port taken"):
        node_daemon_setup.set_up(paths, runner, setup_message(server), dry_run=False)


@pytest.mark.parametrize("key", ["hmac_key", "ssconf", "node_name"])
def test_a_message_that_is_not_whole_is_refused(paths, runner, server, key):
    message = setup_message(server)
    del message[key]
    with pytest.raises(errors.OpPrereqError, match=key):
        node_daemon_setup.set_up(paths, runner, message, dry_run=False)
    assert os.listdir(paths.data_dir) == []


def test_ssconf_of_another_cluster_is_refused(paths, runner, server):
    message = setup_message(server, ssconf={"cluster_name": "other"})
    with pytest.raises(errors.OpPrereqError, match="other"):
        node_daemon_setup.set_up(paths, runner, message, dry_run=False)


def test_ssh_update_changes_both_lists(paths):
    first, second = (keys.generate("ed25519").public.strip() for _ in range(2))
    message = {
        "cluster_name": CLUSTER,
        "authorized_keys": ["add", {"u1": [first], "u2": [second]}],
        "public_keys": ["override", {"u1": [first]}],
    }
    ssh_update.update(paths, message, dry_run=False)
    assert authorized_keys.read(crypto.authorized_keys_path(paths)) == [first, second]
    message = {
        "cluster_name": CLUSTER,
        "authorized_keys": ["remove", {"u1": [first]}],
        "public_keys": ["clear", {}],
    }
    ssh_update.update(paths, message, dry_run=False)
    assert authorized_keys.read(crypto.authorized_keys_path(paths)) == [second]
    assert authorized_keys.read_node_keys(paths.data(crypto.PUBLIC_KEYS)) == {}


def test_ssh_update_makes_a_new_pair_and_keeps_the_old_one(paths):
    old = crypto.ensure_root_key(paths, "ed25519", None)
    message = {"cluster_name": CLUSTER, "generate": ["ed25519", 256, ""]}
    ssh_update.update(paths, message, dry_run=False)
    assert keys.load(keys.root_key_path(paths.root_ssh_dir, "ed25519")) != old
    copies = [n for n in os.listdir(paths.root_ssh_dir) if ".backup-" in n]
    assert len(copies) == 2


def test_cleaning_up_removes_the_cluster_and_keeps_copies(paths, runner, server):
    node_daemon_setup.set_up(paths, runner, setup_message(server), dry_run=False)
    node_cleanup.clean_up(paths, runner, keep_copies=True)
    assert os.listdir(paths.data_dir) == []
    copies = os.listdir(os.path.join(paths.backup_dir, node_cleanup.BACKUP_DIR))
    assert any(name.startswith("server.pem") for name in copies)
    assert runner.lines[-1] == "daemon-util stop-all"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense", "no JSON"),
        ("[]", "wanted an object"),
        ('{"bogus": 1}', "'bogus' is unknown"),
        ('{"cluster_name": ""}', "'cluster_name': wanted a text"),
        ('{"start_node_daemon": 1}', "'start_node_daemon': wanted true or false"),
        ('{"ssconf": {"a": 1}}', "'ssconf': wanted an object of texts"),
    ],
)
def test_wrong_input_is_named(monkeypatch, text, problem):
    stdin = types.SimpleNamespace(buffer=io.BytesIO(text.encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(errors.ParseError, match=problem):
        common.read_message(node_daemon_setup._INPUT)


def test_an_error_becomes_one_line_and_exit_code_1(capsys):
    def fail():
        raise errors.OpPrereqError("no such thing", "wrong_input")

    assert common.run("tool", fail) == 1
    assert capsys.readouterr().err == "tool: no such thing\n"
    assert common.run("tool", lambda: None) == 0


def test_a_message_that_is_fine_is_returned(monkeypatch, server):
    message = setup_message(server)
    stdin = types.SimpleNamespace(buffer=io.BytesIO(json.dumps(message).encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert common.read_message(node_daemon_setup._INPUT) == message


BUILT_IN = "/srv/ganeti/file-storage"


def with_storage(server, **directories):
    message = setup_message(server)
    message["ssconf"] = message["ssconf"] | directories
    return message


def test_a_joining_node_allows_the_built_in_directories(paths, runner, server):
    message = with_storage(
        server,
        file_storage_dir=BUILT_IN,
        shared_file_storage_dir="/srv/ganeti/shared-file-storage",
    )
    node_daemon_setup.set_up(paths, runner, message, dry_run=False)
    assert allowed.load(paths) == [
        paths.at(BUILT_IN),
        paths.at("/srv/ganeti/shared-file-storage"),
    ]
    assert allowed.check_usable(paths, BUILT_IN) is None
    # A mount point: an empty directory would hide that nothing is mounted.
    assert not os.path.exists(paths.at("/srv/ganeti/shared-file-storage"))


def test_a_master_cannot_choose_directories_of_a_node(paths, runner, server):
    message = with_storage(server, file_storage_dir="/data/disks")
    node_daemon_setup.set_up(paths, runner, message, dry_run=False)
    assert allowed.load(paths) == []
    assert not os.path.exists(paths.at("/data"))


def test_the_list_of_an_administrator_is_kept(paths, runner, server):
    path = allowed.list_file(paths)
    os.makedirs(os.path.dirname(path))
    with open(path, "w") as out:
        out.write("/data\n")
    message = with_storage(server, file_storage_dir="/data/disks")
    node_daemon_setup.set_up(paths, runner, message, dry_run=False)
    with open(path) as src:
        assert src.read() == "/data\n"
    assert os.path.isdir(paths.at("/data/disks"))
    message = with_storage(server, file_storage_dir=BUILT_IN)
    node_daemon_setup.set_up(paths, runner, message, dry_run=False)
    assert not os.path.exists(paths.at(BUILT_IN))
