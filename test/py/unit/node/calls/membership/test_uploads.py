"""Files that the master may write, and those it may not."""

import grp
import os
import pwd
import stat

import pytest

from fakes import nodes
from ganeti.base import errors, pathutils
from ganeti.protocols.rpc import wire

USER = pwd.getpwuid(os.getuid()).pw_name
GROUP = grp.getgrgid(os.getgid()).gr_name


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path)
    os.makedirs(made.paths.data_dir)
    return made


def upload(node, path, content=b"data", mode=0o440, user=USER):
    name = pathutils.VIRTUAL_PREFIX + path if path.startswith("/") else path
    args = [name, wire.pack(content), mode, user, GROUP, 1.0, 2.0]
    return nodes.call(node, "upload_file", args)


def test_a_listed_file_is_written_with_mode_and_times(node):
    upload(node, "/var/lib/ganeti/rapi/users")
    path = node.paths.data("rapi/users")
    info = os.stat(path)
    assert stat.S_IMODE(info.st_mode) == 0o440
    assert info.st_mtime == 2.0
    nodes.call(
        node,
        "upload_file_single",
        pathutils.VIRTUAL_PREFIX + "/var/lib/ganeti/hmac.key",
        wire.pack("x" * 600),
        None,
        USER,
        GROUP,
        1.0,
        2.0,
    )
    with open(node.paths.hmac_key) as stream:
        assert stream.read() == "x" * 600


@pytest.mark.parametrize(
    "path",
    [
        "/var/lib/ganeti/server.pem",
        "/var/lib/ganeti/client.pem",
        "/etc/ganeti/file-storage-paths",
        "/etc/passwd",
        "/var/lib/ganeti/rapi/../server.pem",
        "/var/lib/ganeti/../../../etc/passwd",
        "hmac.key",
    ],
)
def test_other_files_are_refused(node, path):
    with pytest.raises(errors.GenericError):
        upload(node, path)


def write_list(node, *lines):
    os.makedirs(node.paths.conf_dir, exist_ok=True)
    with open(f"{node.paths.conf_dir}/shared-files", "w") as out:
        out.writelines(f"{line}\n" for line in lines)


def test_files_of_the_administrators_list_are_accepted(node):
    with pytest.raises(errors.GenericError, match="not on the list"):
        upload(node, "/etc/site/routes", mode=0o750)
    upload(node, "/etc/ganeti/shared-files", content=b"# ours\n\n/etc/site/routes\n")
    upload(node, "/etc/site/routes", mode=0o750)
    path = node.paths.at("/etc/site/routes")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o750


@pytest.mark.parametrize(
    "path",
    [
        "/var/lib/ganeti/server.pem",
        "/var/run/ganeti/x",
        "/etc/ganeti/file-storage-paths",
        "/etc/ganeti/restricted-commands/x",
        "/root/.ssh/authorized_keys",
        "/etc/ssh/ssh_host_rsa_key",
        "/etc/site/../passwd",
        "//etc/passwd",
        "/proc/sysrq-trigger",
    ],
)
def test_the_list_cannot_name_what_belongs_to_one_node(node, path):
    write_list(node, path)
    with pytest.raises(errors.GenericError, match="upload"):
        upload(node, path)


def test_password_files_of_the_configuration_directory_are_accepted(node):
    upload(node, "/etc/ganeti/vnc-web1")
    assert os.path.exists(node.paths.at("/etc/ganeti/vnc-web1"))
    with pytest.raises(errors.GenericError, match="not on the list"):
        upload(node, "/etc/ganeti/vnc-web1/x")


def test_unknown_users_are_refused(node):
    with pytest.raises(errors.GenericError, match="no-such-user"):
        upload(node, "/var/lib/ganeti/known_hosts", user="no-such-user")


@pytest.mark.skipif(os.geteuid() != 0, reason="changing owners needs root")
def test_files_of_daemons_have_the_group_that_reads_them_here(node):
    # The sender's machine has users that this one lacks.
    path = "/var/lib/ganeti/hmac.key"
    os.chown(node.paths.data_dir, 0, 64999)
    upload(node, path, user="gnt-confd")
    info = os.stat(node.paths.hmac_key)
    assert (info.st_uid, info.st_gid) == (0, 64999)


def test_what_a_node_sends_another_node_accepts(node, tmp_path):
    other = nodes.make_node(tmp_path, "node2.example")
    with open(node.paths.data("known_hosts"), "w") as stream:
        stream.write("c1 ssh-rsa AAAA\n")
    nodes.call(
        other, "upload_file", wire.upload(node.paths.data("known_hosts"), node.paths)
    )
    with open(other.paths.data("known_hosts")) as stream:
        assert stream.read() == "c1 ssh-rsa AAAA\n"


def test_hosts_entries_come_and_go(node):
    hosts = node.paths.at("/etc/hosts")
    with open(hosts, "w") as stream:
        stream.write("127.0.0.1 localhost # keep\n127.0.0.9\tn2.tst n2 alias\n")
    for ip in ("127.0.0.2", "127.0.0.3"):
        nodes.call(node, "etc_hosts_modify", "add", "n1.tst", ip)
    with open(hosts) as stream:
        assert stream.read() == (
            "127.0.0.1 localhost # keep\n127.0.0.9\tn2.tst n2 alias\n"
            "127.0.0.3\tn1.tst n1 # added by Ganeti\n"
        )
    assert nodes.call(node, "etc_hosts_modify", "remove", "n1.tst", None)
    nodes.call(node, "etc_hosts_modify", "remove", "n2.tst", None)
    with open(hosts) as stream:
        assert stream.read() == (
            "127.0.0.1 localhost # keep\n127.0.0.9\tn2.tst n2 alias\n"
        )


@pytest.mark.parametrize(
    "args",
    [
        ("add", "n1", None),
        ("add", "n1", "x"),
        ("remove", "n1", "127.0.0.1"),
        ("x", "n1", None),
    ],
)
def test_wrong_hosts_calls_are_refused(node, args):
    with pytest.raises(errors.GenericError):
        nodes.call(node, "etc_hosts_modify", *args)


def test_ssconf_is_written(node):
    nodes.call(node, "write_ssconf_files", {"master_node": "n1.tst\n"})
    assert nodes.call(node, "master_node_name") == "n1.tst"


@pytest.mark.parametrize(
    ("wanted", "mode"), [(None, 0o600), (0o640, 0o640), (0o4755, 0o755)]
)
def test_the_mode_does_not_depend_on_the_umask(node, wanted, mode):
    before = os.umask(0)
    try:
        upload(node, "/var/lib/ganeti/hmac.key", mode=wanted)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(node.paths.hmac_key).st_mode) == mode


def test_other_bytes_of_the_hosts_file_stay(node):
    hosts = node.paths.at("/etc/hosts")
    with open(hosts, "wb") as stream:
        stream.write(b"192.0.2.7 printer # K\xfcche\n")
    nodes.call(node, "etc_hosts_modify", "add", "n1.tst", "192.0.2.1")
    nodes.call(node, "etc_hosts_modify", "remove", "n1.tst", None)
    with open(hosts, "rb") as stream:
        assert stream.read() == b"192.0.2.7 printer # K\xfcche\n"


def test_a_missing_hosts_file_is_made_with_its_directory(node):
    hosts = node.paths.at("/etc/hosts")
    assert not os.path.exists(hosts)
    nodes.call(node, "etc_hosts_modify", "add", "n1.tst", "127.0.0.2")
    with open(hosts) as stream:
        assert stream.read() == "127.0.0.2\tn1.tst n1 # added by Ganeti\n"
    assert stat.S_IMODE(os.stat(hosts).st_mode) == 0o644


def test_the_hosts_file_keeps_its_mode(node):
    hosts = node.paths.at("/etc/hosts")
    os.makedirs(os.path.dirname(hosts), exist_ok=True)
    with open(hosts, "w"):
        os.chmod(hosts, 0o640)
    nodes.call(node, "etc_hosts_modify", "add", "n1.tst", "127.0.0.2")
    assert stat.S_IMODE(os.stat(hosts).st_mode) == 0o640
