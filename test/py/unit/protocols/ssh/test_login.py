"""Logins at a real SSH server: host keys, credentials, commands, files."""

import os
import stat
import subprocess

import paramiko
import pytest

from fakes import ports
from fakes.ssh_server import Account, Server
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.protocols.ssh import client, host_keys, keys

CLUSTER = "cluster.example.com"


def pkey(folder, name):
    path = str(folder / name)
    keys.save(keys.generate("ed25519"), path)
    return path, paramiko.PKey.from_path(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def host_key(folder):
    return pkey(folder, "host")[1]


@pytest.fixture(scope="module")
def own_key(folder):
    return pkey(folder, "own")


@pytest.fixture(scope="module")
def other_key(folder):
    return pkey(folder, "other")


def public_line(key):
    return f"{key.get_name()} {key.get_base64()}"


@pytest.fixture
def known(tmp_path, host_key):
    """Return the cluster's file of host keys."""
    path = str(tmp_path / "known_hosts")
    host_keys.write_known_hosts(path, CLUSTER, [public_line(host_key)])
    return path


@pytest.fixture
def account(own_key):
    return Account(keys=[own_key[1]], password="sesame")


@pytest.fixture
def server(host_key, account):
    with Server(host_key, account) as actual:
        yield actual


def identity(own_key, **more):
    return client.Identity(
        **{"user": "root", "key_files": (own_key[0],), "alias": CLUSTER, **more}
    )


def connect(server, identity, **more):
    return client.Client("node2", server.port, identity, address="127.0.0.1", **more)


def test_the_clusters_host_key_is_accepted(server, own_key, known, account):
    with connect(server, identity(own_key, known_hosts=known)):
        assert account.logins == [("key", "root", True)]


@pytest.mark.parametrize("ask", [None, lambda *_words: True])
def test_another_key_under_the_clusters_alias_is_refused(
    server, own_key, other_key, known, account, ask
):
    host_keys.write_known_hosts(known, CLUSTER, [public_line(other_key[1])])
    known_identity = identity(own_key, known_hosts=known, ask_host_key=ask)
    if ask is not None:
        # A person may accept the machine, since it is not a member yet.
        connect(server, known_identity).close()
        return
    with pytest.raises(errors.SshError, match="node2: host key has changed"):
        connect(server, known_identity)
    assert account.logins == []


def test_an_unknown_host_key_is_refused_without_somebody_to_ask(
    server, own_key, tmp_path, account
):
    empty = str(tmp_path / "empty")
    for path in ("", empty):
        with pytest.raises(errors.SshError, match=f"not known for {CLUSTER}"):
            connect(server, identity(own_key, known_hosts=path))
    assert account.logins == []


def test_a_person_sees_the_fingerprint_and_decides(server, own_key, host_key, account):
    asked = []

    def refuse(*words):
        asked.append(words)
        return False

    with pytest.raises(errors.SshError, match="its host key was not accepted"):
        connect(server, identity(own_key, ask_host_key=refuse))
    assert asked == [("node2", "ssh-ed25519", client.fingerprint(host_key))]
    assert account.logins == []


def test_the_fingerprint_is_that_of_openssh(host_key):
    assert client.fingerprint(host_key) == host_key.fingerprint


def test_a_known_host_is_not_asked_about(server, own_key, host_key, known, tmp_path):
    def never(*words):
        raise AssertionError(words)

    connect(server, identity(own_key, known_hosts=known, ask_host_key=never)).close()
    personal = str(tmp_path / "personal")
    host_keys.write_known_hosts(personal, "node2", [public_line(host_key)])
    actual = identity(own_key, ask_host_key=never, personal_hosts=(personal,))
    connect(server, actual).close()


def test_a_changed_key_of_a_personal_host_is_refused_without_a_question(
    server, own_key, other_key, tmp_path, account
):
    personal = str(tmp_path / "personal")
    host_keys.write_known_hosts(personal, "node2", [public_line(other_key[1])])
    actual = identity(
        own_key, ask_host_key=lambda *_words: True, personal_hosts=(personal,)
    )
    with pytest.raises(
        errors.SshError, match="host key has changed, found ssh-ed25519"
    ):
        connect(server, actual)
    assert account.logins == []


def test_without_the_check_any_host_key_is_accepted(server, own_key, other_key, known):
    host_keys.write_known_hosts(known, CLUSTER, [public_line(other_key[1])])
    actual = identity(own_key, known_hosts=known, check_host_key=False)
    connect(server, actual).close()


def test_keys_come_before_the_password(server, own_key, other_key, account):
    def ask(account_name):
        asked.append(account_name)
        return "sesame"

    asked = []
    trusting = {"check_host_key": False, "ask_password": ask}
    missing = "/nonexistent/id_rsa"
    connect(
        server, identity(own_key, **trusting, key_files=(missing, own_key[0]))
    ).close()
    assert asked == []
    connect(server, identity(other_key, **trusting)).close()
    assert asked == [f"root@node2 (127.0.0.1 port {server.port})"]
    assert [login[0] for login in account.logins] == ["key", "key", "password"]


@pytest.mark.parametrize(
    ("password", "text"),
    [
        (None, "no key was accepted, tried"),
        ("guess", "no key was accepted, nor the password, tried"),
    ],
)
def test_a_refused_login_names_what_was_tried(server, other_key, password, text):
    actual = identity(
        other_key, check_host_key=False, ask_password=lambda _account: password
    )
    with pytest.raises(errors.SshError, match=text) as error:
        connect(server, actual)
    assert str(error.value).endswith(other_key[0])
    with pytest.raises(errors.SshError, match="tried none"):
        connect(server, identity(other_key, check_host_key=False, key_files=()))


def test_a_key_that_cannot_be_used_does_not_keep_from_others(
    server, own_key, other_key, tmp_path
):
    locked = str(tmp_path / "id_rsa")
    argv = ["ssh-keygen", "-q", "-t", "rsa", "-N", "secret", "-f", locked]
    subprocess.run(argv, check=True)
    files = {"check_host_key": False, "key_files": (locked, own_key[0])}
    connect(server, identity(own_key, **files)).close()
    files["key_files"] = (locked, other_key[0])
    with pytest.raises(errors.SshError) as error:
        connect(server, identity(own_key, **files))
    tried = (
        f"tried {other_key[0]}; {locked}: has a passphrase, which no daemon can enter"
    )
    assert str(error.value).endswith(tried)


def test_nobody_listens(own_key):
    port = ports.free()
    with pytest.raises(errors.SshError, match=f"port {port}.*cannot be reached"):
        client.Client("node2", port, identity(own_key), address="127.0.0.1")


@pytest.fixture
def shell(server, own_key):
    with connect(server, identity(own_key, check_host_key=False)) as actual:
        yield actual


def test_a_command_has_input_output_errors_and_a_code(shell, account):
    account.commands["cat 'a b'"] = lambda data: (3, data.upper(), b"no \xff")
    result = shell.run(["cat", "a b"], stdin="in\u00fcput")
    assert (result.code, result.stdout) == (3, "IN\u00fcPUT")
    assert result.stderr == "no \ufffd"
    assert result.argv == ("cat", "a b")
    assert not result.timed_out


def test_a_command_without_input_sees_its_end(shell, account):
    account.commands["cat"] = lambda data: (0, b"<%s>" % data, b"")
    result = shell.run(["cat"])
    assert (result.code, result.stdout) == (0, "<>")
    assert not result.failed


def test_variables_come_before_the_command(server, own_key, account):
    account.commands["env A=1 B=2 true"] = (0, b"", b"")
    trusting = identity(own_key, check_host_key=False)
    with connect(server, trusting, environment={"A": "1", "B": "2"}) as shell:
        assert shell.run(["true"]).code == 0


def test_a_silent_command_ends_at_its_limit(shell, account):
    account.commands["sleep"] = lambda _data: None
    result = shell.run(["sleep"], timeout_s=0.05)
    assert result.timed_out
    assert result.code is None
    assert result.failed


def test_a_lost_connection_is_named(shell, server, account):
    account.commands["reboot"] = lambda _data: server.drop()
    result = shell.run(["reboot"])
    assert result.code is None
    with pytest.raises(errors.SshError, match="connection lost while running true"):
        shell.run(["true"])
    shell.close()
    with pytest.raises(errors.SshError, match="the connection is closed"):
        shell.run(["true"])


def test_a_file_has_its_mode_and_replaces_the_old_one(shell, tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    before = os.umask(0)
    try:
        shell.put_file(str(path), "n\u00fcw", mode=0o640)
    finally:
        os.umask(before)
    assert path.read_text() == "n\u00fcw"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_in_no_directory_cannot_be_written(shell, tmp_path):
    with pytest.raises(errors.SshError, match=r"node2: .*/no/file cannot be written"):
        shell.put_file(str(tmp_path / "no" / "file"), b"", mode=0o600)


def test_the_clusters_identity_pins_its_host_keys(tmp_path):
    paths = Paths(hostname="node1")
    actual = client.cluster_identity(paths, CLUSTER)
    assert actual.user == "root"
    assert actual.alias == CLUSTER
    assert actual.known_hosts == "/var/lib/ganeti/known_hosts"
    assert actual.check_host_key
    assert actual.ask_host_key is None
    assert actual.key_files == (
        "/root/.ssh/id_rsa",
        "/root/.ssh/id_ecdsa",
        "/root/.ssh/id_ed25519",
    )


def write_nodes(path, nodes, shared=()):
    """Write a known_hosts file with keys of nodes."""
    host_keys.write_known_hosts(
        path,
        CLUSTER,
        [public_line(key) for key in shared],
        {name: [public_line(key) for key in some] for name, some in nodes.items()},
    )


def test_a_node_is_known_by_its_own_keys_only(server, own_key, host_key, known):
    other = paramiko.RSAKey.generate(1024)
    actual = identity(own_key, known_hosts=known)
    # Two of one type, as during a renewal, and another one that the server lacks.
    second = paramiko.PKey.from_path(own_key[0])
    for mine in ([host_key], [second, host_key], [other, host_key]):
        write_nodes(known, {"node1": [other], "node2": mine})
        connect(server, actual).close()


@pytest.mark.parametrize("shared", [False, True])
def test_a_node_with_the_key_of_another_one_is_refused(
    server, own_key, other_key, host_key, known, account, shared
):
    write_nodes(
        known,
        {"node1": [host_key], "node2": [other_key[1]]},
        [host_key] if shared else (),
    )
    with pytest.raises(errors.SshError) as error:
        connect(server, identity(own_key, known_hosts=known))
    text = str(error.value)
    assert text.startswith("node2: wanted one of its recorded SSH host keys (ssh-")
    assert client.fingerprint(other_key[1]) in text
    assert f"found ssh-ed25519 {client.fingerprint(host_key)}, which is that of" in text
    assert "that of node1: another machine" in text
    assert text.endswith("run gnt-node add --readd node2")
    assert account.logins == []


def test_a_node_without_own_keys_is_known_by_the_shared_ones_alone(
    server, own_key, other_key, host_key, known
):
    actual = identity(own_key, known_hosts=known)
    write_nodes(known, {"node1": [other_key[1]]}, [host_key])
    connect(server, actual).close()
    # A node that has the shared key still, but recorded, changes nothing for the rest.
    write_nodes(known, {"node1": [host_key]}, [host_key])
    connect(server, actual).close()
    write_nodes(known, {"node1": [host_key]}, [other_key[1]])
    with pytest.raises(errors.SshError, match="node2: host key has changed"):
        connect(server, actual)


def test_a_joining_machine_with_the_key_of_a_node_is_asked_about(
    server, own_key, host_key, known, account
):
    asked = []
    write_nodes(known, {"node1": [host_key]}, [host_key])
    actual = identity(
        own_key, known_hosts=known, ask_host_key=lambda *words: asked.append(words)
    )
    with pytest.raises(errors.SshError, match="was not accepted"):
        connect(server, actual)
    assert len(asked) == 1
    assert account.logins == []
    write_nodes(known, {"node2": [host_key]})
    connect(server, actual).close()
    assert len(asked) == 1


def test_pinned_keys_count_instead_of_the_file(
    server, own_key, other_key, host_key, known
):
    write_nodes(known, {"node2": [host_key]})
    actual = identity(own_key, known_hosts=known, pinned=(public_line(host_key),))
    with connect(server, actual) as shell:
        assert shell.host_key == client.key_line(host_key)
    actual = identity(own_key, known_hosts=known, pinned=(public_line(other_key[1]),))
    with pytest.raises(errors.SshError, match="wanted one of its recorded"):
        connect(server, actual)


@pytest.mark.parametrize("is_error", [False, True])
def test_endless_output_is_refused(shell, account, monkeypatch, is_error):
    monkeypatch.setattr(client, "MAX_OUTPUT", 1000)
    text = b"x" * 100_000
    account.commands["yes"] = (0, b"", text) if is_error else (0, text, b"")
    with pytest.raises(errors.SshError, match="longer than 1000 bytes"):
        shell.run(["yes"])
