"""Roles, membership, certificates and the cluster's address."""

import os

import pytest

from fakes import nodes
from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.filesystem import files, pidfile
from ganeti.base.pathutils import VIRTUAL_PREFIX as VIRTUAL
from ganeti.base.tls import authority, x509
from ganeti.node.calls import LastAnswer

PARAMS = {
    "uuid": "u",
    "ip": "127.0.0.99",
    "netmask": 32,
    "netdev": "lo",
    "ip_family": 2,
}


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path)
    os.makedirs(made.paths.data_dir)
    nodes.call(
        made,
        "write_ssconf_files",
        {"master_node": "other.example", "cluster_name": "c1"},
    )
    return made


def fill(node, *names):
    for name in names:
        path = node.paths.data(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as stream:
            stream.write(name)


def test_a_demoted_node_keeps_no_copy_and_no_secret(node):
    secrets = ("cluster-domain-secret", "rapi.pem", "rapi/users")
    copies = ("config.data", "store.db", "store.db-wal", "store.db.lost-1")
    # Left by daemons that were killed while they wrote.
    unfinished = (".rapi.pem.x1.new", ".server-key.pem.y2.new", "rapi/.users.z3.new")
    fill(node, "server.pem", ".server.pem.x.new", *copies, *secrets, *unfinished)
    nodes.call(node, "node_demote_from_mc")
    left = [
        name
        for top, _, names in os.walk(node.paths.root)
        for name in names
        if name.startswith(("config.data", "store.db", "cluster-domain", "rapi", "us"))
        or name.endswith(".new")
    ]
    assert left == [".server.pem.x.new"]
    assert os.path.exists(node.paths.server_pem)


#: Files of a candidate that renewals, upgrades and conversions copy to the backups.
BACKED_UP = ("store.db", "config.data", "server-key.pem", "cluster-domain-secret")


def backups(node, *names):
    """Make two backups of each file; return the names in the directory of backups."""
    fill(node, *names)
    for name in names * 2:
        files.backup_file(node.paths.data(name), node.paths.backup_dir)
    return sorted(os.listdir(node.paths.backup_dir))


def test_a_demoted_node_keeps_no_backup_of_secrets(node):
    backups(node, *BACKED_UP, "rapi/users", "rapi.pem")
    for other in ("dpkg.status.0", "store.db.mine", "server-key.pem"):
        with open(os.path.join(node.paths.backup_dir, other), "w"):
            pass
    nodes.call(node, "node_demote_from_mc")
    assert sorted(os.listdir(node.paths.backup_dir)) == [
        "dpkg.status.0",
        "server-key.pem",
        "store.db.mine",
    ]


def test_a_demoted_node_keeps_backups_of_its_own_files(node):
    own = backups(node, "client.pem", "server.pem", "hmac.key")
    assert len(own) == 6
    nodes.call(node, "node_demote_from_mc")
    assert sorted(os.listdir(node.paths.backup_dir)) == own


def test_a_node_that_leaves_keeps_no_backup_of_keys(node):
    backups(node, *BACKED_UP, "client.pem", "server.pem", "hmac.key")
    nodes.call(node, "node_leave_cluster", False)
    assert os.listdir(node.paths.backup_dir) == []


def test_a_master_is_not_demoted_nor_purged(node):
    fill(node, "store.db")
    with pidfile.PidFile(node.paths.pid_file("ganeti-masterd")):
        for call in ("node_demote_from_mc", "store_purge"):
            with pytest.raises(errors.OpPrereqError, match="master daemon runs"):
                nodes.call(node, call)
    nodes.call(node, "write_ssconf_files", {"master_node": node.paths.hostname})
    with pytest.raises(errors.OpPrereqError, match="is the master"):
        nodes.call(node, "node_demote_from_mc")
    assert os.path.exists(node.paths.store_db)


def test_leaving_wipes_secrets_and_ends_the_daemon(node):
    fill(
        node, "server.pem", "client.pem", "hmac.key", "term", "store.db", "queue/serial"
    )
    nodes.call(node, "x509_cert_create", 3600)
    os.makedirs(node.paths.root_ssh_dir)
    key = f"{node.paths.root_ssh_dir}/id_rsa"
    for path in (key, f"{key}.pub", f"{node.paths.root_ssh_dir}/authorized_keys"):
        with open(path, "w") as stream:
            stream.write("ssh-rsa AAAAown me\n")
    with open(f"{node.paths.root_ssh_dir}/authorized_keys", "a") as stream:
        stream.write("ssh-rsa AAAAfriend you\n")
    answer = nodes.call(node, "node_leave_cluster", True)
    assert answer == LastAnswer("Shutdown scheduled")
    assert os.listdir(node.paths.data_dir) == []
    assert not os.path.exists(f"{node.paths.run_dir}/crypto")
    with open(f"{node.paths.root_ssh_dir}/authorized_keys") as stream:
        assert stream.read() == "ssh-rsa AAAAfriend you\n"
    assert not os.path.exists(key)


def test_leaving_without_ssh_leaves_keys_alone(node):
    os.makedirs(node.paths.root_ssh_dir)
    key = f"{node.paths.root_ssh_dir}/id_rsa"
    with open(key, "w") as stream:
        stream.write("key")
    nodes.call(node, "node_leave_cluster", False)
    assert os.path.exists(key)


def test_crypto_tokens_are_digests(node):
    digest = x509.write_cluster_certificate(node.paths.server_pem)
    with pytest.raises(errors.X509CertError, match=r"client\.pem"):
        nodes.call(node, "node_crypto_tokens", [["ssl", "get", None]])
    options = {"cert_file": node.paths.virtualize(node.paths.server_pem)}
    assert nodes.call(node, "node_crypto_tokens", [["ssl", "get", options]]) == [
        ("ssl", digest)
    ]
    ((kind, made),) = nodes.call(
        node, "node_crypto_tokens", [["ssl", "create", {"serial_no": 7}]]
    )
    assert kind == "ssl"
    assert x509.load_certificate(node.paths.client_pem).serial_number == 7
    assert nodes.call(node, "node_crypto_tokens", [["ssl", "get", {}]]) == [
        ("ssl", made)
    ]


@pytest.fixture
def issuer(node):
    made = authority.create()
    authority.write(
        made, server_pem=node.paths.server_pem, key_path=node.paths.server_key_pem
    )
    os.unlink(node.paths.server_key_pem)
    return made


def issued(issuer, request_, **more):
    key = authority.requested_key(request_)
    made = authority.issue(issuer, key, name="n1", uuid=None, serial=5, **more)
    return {"certificate": x509.certificate_pem(made).decode()}


def test_a_certificate_is_requested_and_installed(node, issuer):
    ((_kind, request_),) = nodes.call(
        node, "node_crypto_tokens", [["ssl", "request", {}]]
    )
    assert not os.path.exists(node.paths.client_pem)
    options = issued(issuer, request_)
    ((_kind, digest),) = nodes.call(
        node, "node_crypto_tokens", [["ssl", "install", options]]
    )
    pair = x509.load(node.paths.client_pem)
    assert pair.digest == digest
    assert pair.key.public_key() == pair.certificate.public_key()
    assert not os.path.exists(f"{node.paths.client_pem}.key")
    with pytest.raises(errors.X509CertError, match=r"client\.pem\.key"):
        nodes.call(node, "node_crypto_tokens", [["ssl", "install", options]])


def test_a_certificate_of_another_key_or_authority_is_not_installed(node, issuer):
    ((_kind, first),) = nodes.call(node, "node_crypto_tokens", [["ssl", "request", {}]])
    ((_kind, second),) = nodes.call(
        node, "node_crypto_tokens", [["ssl", "request", {}]]
    )
    with pytest.raises(errors.X509CertError, match="not of the key"):
        nodes.call(
            node, "node_crypto_tokens", [["ssl", "install", issued(issuer, first)]]
        )
    foreign = issued(authority.create(), second)
    with pytest.raises(errors.X509CertError, match=r"not signed by .*server\.pem"):
        nodes.call(node, "node_crypto_tokens", [["ssl", "install", foreign]])
    assert not os.path.exists(node.paths.client_pem)


@pytest.mark.parametrize(
    "request_",
    [
        ["dsa", "get", {}],
        ["ssl", "drop", {}],
        ["ssl", "get", {"cert_file": f"{VIRTUAL}/etc/passwd"}],
        *(
            ["ssl", action, {"cert_file": f"{VIRTUAL}/var/lib/ganeti/server.pem"}]
            for action in ("create", "install")
        ),
    ],
)
def test_wrong_token_requests_are_refused(node, request_):
    with pytest.raises(errors.ProgrammerError):
        nodes.call(node, "node_crypto_tokens", [request_])


def test_transfer_certificates_come_and_go(node):
    name, pem = nodes.call(node, "x509_cert_create", 3600)
    directory = f"{node.paths.run_dir}/crypto/{name}"
    assert sorted(os.listdir(directory)) == ["cert", "key"]
    assert os.stat(f"{directory}/key").st_mode & 0o777 == 0o400
    assert pem.startswith("-----BEGIN CERTIFICATE")
    nodes.call(node, "x509_cert_remove", name)
    assert not os.path.exists(directory)
    for wrong in (name, "..", "../../lib/ganeti"):
        with pytest.raises(errors.X509CertError):
            nodes.call(node, "x509_cert_remove", wrong)


def with_runner(node, **answers):
    runner = FakeRunner(**answers)
    import dataclasses

    return dataclasses.replace(node, process=runner), runner


def test_the_address_is_raised_between_its_hooks(node):
    done = FakeRunner.DONE
    actual, runner = with_runner(node, pre=done, master_ip_setup=done, post=done)
    for phase in ("pre", "post"):
        top = f"{node.paths.hooks_dir}/master-ip-turnup-{phase}.d"
        os.makedirs(top)
        with open(f"{top}/{phase}", "w") as stream:
            stream.write("#!/bin/sh\n")
        os.chmod(f"{top}/{phase}", 0o755)
    nodes.call(actual, "node_activate_master_ip", PARAMS, False)
    assert runner.lines == ["pre", "master-ip-setup start", "post"]
    assert runner.commands[1][1]["env"] == {
        "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
        "MASTER_NETDEV": "lo",
        "MASTER_IP": "127.0.0.99",
        "MASTER_NETMASK": "32",
        "CLUSTER_IP_VERSION": "4",
    }
    env = runner.commands[0][1]["env"]
    assert env["GANETI_OP_CODE"] == "OP_CLUSTER_IP_TURNUP"
    assert env["GANETI_CLUSTER"] == "c1"
    assert env["GANETI_MASTER_IP"] == "127.0.0.99"
    assert "GANETI_POST_MASTER_IP" not in env
    env = runner.commands[2][1]["env"]
    assert env["GANETI_POST_MASTER_IP"] == env["GANETI_MASTER_IP"] == "127.0.0.99"
    assert env["GANETI_POST_CLUSTER_IP_VERSION"] == "4"


def test_a_failing_hook_stops_the_change(node):
    top = f"{node.paths.hooks_dir}/master-ip-turndown-pre.d"
    os.makedirs(top)
    with open(f"{top}/no", "w") as stream:
        stream.write("#!/bin/sh\n")
    os.chmod(f"{top}/no", 0o755)
    actual, runner = with_runner(node, no=(1, "not now", ""))
    with pytest.raises(errors.OpExecError, match="not now"):
        nodes.call(actual, "node_deactivate_master_ip", PARAMS, True)
    assert runner.lines == ["no"]


def test_the_external_script_is_the_administrators(node):
    actual, runner = with_runner(node, master_ip_setup=(1, "", "address in use"))
    with pytest.raises(errors.OpExecError, match="address in use"):
        nodes.call(actual, "node_activate_master_ip", PARAMS, True)
    assert runner.commands[0][0][0] == f"{node.paths.conf_dir}/scripts/master-ip-setup"


def test_master_daemons_are_started_and_stopped(node):
    actual, runner = with_runner(node, daemon_util=FakeRunner.DONE)
    nodes.call(actual, "node_start_master_daemons", True)
    nodes.call(actual, "node_stop_master")
    assert runner.lines == ["daemon-util start-master", "daemon-util stop-master"]
    env = runner.commands[0][1]["env"]
    assert env["EXTRA_MASTERD_ARGS"] == "--no-voting --yes-do-it"
    assert env["GANETI_ROOTDIR"] == node.paths.root


def test_only_the_helper_daemon_is_controlled(node):
    actual, runner = with_runner(node, daemon_util=(1, "", ""))
    with pytest.raises(errors.OpPrereqError, match="ganeti-noded"):
        nodes.call(actual, "node_ensure_daemon", "ganeti-noded", False)
    assert nodes.call(actual, "node_ensure_daemon", "ganeti-kvmd", True) is False
    assert runner.lines == ["daemon-util check-and-start ganeti-kvmd"]


def test_store_copies_are_reached(node):
    assert nodes.call(node, "store_status")["revision"] == 0
