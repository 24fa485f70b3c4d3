"""Keys, key files, accounts and host keys at their limits, with exact errors."""

import base64
import hashlib
import os
import pwd
import stat
import types

import paramiko
import pytest

from fakes import clusters
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.protocols.ssh import account, authorized_keys, client, host_keys, keys

ED = keys.generate("ed25519").public
PLAIN = " ".join(ED.split()[:2])
WRONG = "wrong_input"


@pytest.mark.parametrize(
    ("kind", "bits", "expected"),
    [
        ("rsa", None, 2048),
        ("rsa", 1024, 1024),
        ("rsa", 16384, 16384),
        ("ecdsa", None, 256),
        *(("ecdsa", bits, bits) for bits in (256, 384, 521)),
        ("ed25519", None, 256),
        ("ed25519", 7, 7),
    ],
)
def test_lengths_of_keys(kind, bits, expected):
    assert keys.check_type(kind, bits) == expected


@pytest.mark.parametrize(
    ("kind", "bits", "text"),
    [
        (
            "dsa",
            None,
            "SSH key type dsa: current OpenSSH refuses such keys, use rsa or ecdsa",
        ),
        ("x", 5, "SSH key type: wanted one of rsa, ecdsa, ed25519, found 'x'"),
        ("rsa", 1023, "SSH key type rsa: wanted at least 1024 bits, found 1023"),
        ("ecdsa", 255, "SSH key type ecdsa: wanted 256, 384 or 521 bits, found 255"),
    ],
)
def test_a_type_or_length_that_no_server_takes_is_named(kind, bits, text):
    with pytest.raises(errors.OpPrereqError) as caught:
        keys.check_type(kind, bits)
    assert caught.value.args == (text, WRONG)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("ssh-rsa AAAA", "rsa"),
        *((f"ecdsa-sha2-nistp{bits} A x", "ecdsa") for bits in (256, 384, 521)),
        pytest.param(ED, "ed25519", id="ed25519"),
    ],
)
def test_the_first_word_of_a_line_says_which_kind_of_key_it_is(line, kind):
    assert keys.kind_of(line) == kind


@pytest.mark.parametrize("line", ["", "  \n", "ssh-dss AAAA", "x" * 50])
def test_other_lines_are_no_keys(line):
    shown = line.split()[0][:40] if line.strip() else ""
    with pytest.raises(errors.OpPrereqError) as caught:
        keys.kind_of(line)
    assert caught.value.args == (
        f"SSH public key: wanted a key of type rsa, ecdsa, ed25519, found {shown!r}",
        WRONG,
    )


def test_a_key_of_another_node_is_written_again_with_our_comment():
    assert keys.one_public_key(ED, "ed25519", "root@n2") == f"{PLAIN} root@n2"
    assert keys.one_public_key(f"{PLAIN} evil words", "ed25519", "me") == f"{PLAIN} me"
    longest = f"{PLAIN} ".ljust(8192, "x")
    assert keys.one_public_key(longest, "ed25519", "me") == f"{PLAIN} me"
    for text in ("ssh-ed25519", "", ED + "\n", f"{PLAIN} \x1b[2J"):
        with pytest.raises(errors.OpPrereqError) as caught:
            keys.one_public_key(text, "ed25519", "me")
        shown = text.removesuffix("\n")[:80]
        assert caught.value.args == (
            f"SSH public key: wanted exactly one key of type ed25519, found {shown!r}",
            WRONG,
        )
    with pytest.raises(errors.OpPrereqError, match="exactly one key of type rsa"):
        keys.one_public_key(ED, "rsa", "me")


def test_lines_and_bodies():
    assert keys.check_line(f"  {PLAIN} \n") == PLAIN
    with pytest.raises(errors.OpPrereqError) as caught:
        keys.check_line(f"{PLAIN[:75]}\nssh-rsa " + "B" * 99)
    shown = f"{PLAIN[:75]}\nssh-rsa B"[:80]
    assert caught.value.args == (
        f"SSH public key: wanted one line, found {shown!r}",
        WRONG,
    )
    assert keys.body("ssh-rsa AAAA comment") == "AAAA"
    with pytest.raises(errors.OpPrereqError) as caught:
        keys.body("ssh-rsa")
    text = "SSH public key: wanted a type and a key, found one word"
    assert caught.value.args == (text, WRONG)


def test_a_pair_has_two_files_with_modes_of_their_own(tmp_path):
    path = str(tmp_path / "id_ed25519")
    pair = keys.generate("ed25519")
    assert pair.private.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert pair.public == f"{' '.join(pair.public.split())}\n"
    keys.save(pair, path)
    modes = {name: stat.S_IMODE(os.stat(path + name).st_mode) for name in ("", ".pub")}
    assert modes == {"": 0o600, ".pub": 0o644}
    os.unlink(f"{path}.pub")
    with pytest.raises(errors.OpPrereqError) as caught:
        keys.load(path)
    assert caught.value.args == (
        f"SSH key {path}: cannot be read: No such file or directory",
        "environment_error",
    )


def test_paths_of_keys():
    assert keys.root_key_path("/root/.ssh", "rsa") == "/root/.ssh/id_rsa"
    path = keys.host_key_path("/etc/ssh", "ecdsa")
    assert path == "/etc/ssh/ssh_host_ecdsa_key"


# Key files
@pytest.mark.parametrize(
    ("line", "identity"),
    [
        ("ssh-rsa AAAA x", ("ssh-rsa", "AAAA")),
        ('no-pty,from="a b" ssh-ed25519 BBBB', ("ssh-ed25519", "BBBB")),
        ("ecdsa-sha2-nistp521 CCCC", ("ecdsa-sha2-nistp521", "CCCC")),
        ("# mine", None),
        ("ssh-rsa", None),
        ("", None),
        ("ssh-dss AAAA", None),
    ],
)
def test_a_line_is_known_by_type_and_body(line, identity):
    assert authorized_keys.identity(line) == identity


def test_a_file_of_keys_is_changed_under_the_lock_of_its_directory(
    tmp_path, monkeypatch
):
    path = str(tmp_path / "ssh" / "authorized_keys")
    assert authorized_keys.remove(path, [ED]) == 0
    assert not os.path.exists(os.path.dirname(path))
    locked = []
    flock = authorized_keys.fcntl.flock

    def note(descriptor, kind):
        locked.append((os.readlink(f"/proc/self/fd/{descriptor}"), kind))
        flock(descriptor, kind)

    monkeypatch.setattr(authorized_keys.fcntl, "flock", note)
    assert authorized_keys.add(path, [ED, ED]) == 1
    folder = os.path.dirname(path)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    before = os.stat(path).st_ino
    # Nothing to change: the file is not even written again.
    assert authorized_keys.add(path, [ED]) == 0
    assert authorized_keys.remove(path, ["ssh-rsa other", "no key"]) == 0
    assert os.stat(path).st_ino == before
    assert authorized_keys.remove(path, [ED]) == 1
    assert authorized_keys.read(path) == []
    assert locked == [(folder, authorized_keys.fcntl.LOCK_EX)] * 4
    with pytest.raises(errors.OpPrereqError, match="wanted one line"):
        authorized_keys.add(path, [f"ssh-rsa A\n{PLAIN}"])


def test_public_keys_of_nodes_are_read_line_by_line(tmp_path):
    text = "u1 ssh-rsa A x\n\n  u2 ssh-rsa B\nu1 ssh-rsa C\n"
    parsed = {"u1": ["ssh-rsa A x", "ssh-rsa C"], "u2": ["ssh-rsa B"]}
    assert authorized_keys.parse_node_keys(text) == parsed
    wanted = "u1 ssh-rsa A x\nu1 ssh-rsa C\nu2 ssh-rsa B\n"
    assert authorized_keys.format_node_keys(parsed) == wanted
    assert authorized_keys.read_node_keys(str(tmp_path / "none")) == {}
    with pytest.raises(errors.ParseError, match="line 3 has no key"):
        authorized_keys.parse_node_keys("u1 ssh-rsa A\n\nu2\n")
    with pytest.raises(errors.OpPrereqError, match="wanted one line"):
        authorized_keys.format_node_keys({"u1": ["ssh-rsa A\nu2 ssh-rsa B"]})


def test_the_file_of_public_keys_is_private_and_its_directory_made(tmp_path):
    path = str(tmp_path / "lib" / "ganeti_pub_keys")
    authorized_keys.update_node_keys(path, "add", {"u1": [" ssh-rsa A "]})
    authorized_keys.update_node_keys(path, "add", {"u1": ["ssh-rsa A"]})
    authorized_keys.update_node_keys(path, "remove", {"u9": []})
    assert authorized_keys.read_node_keys(path) == {"u1": ["ssh-rsa A"]}
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with pytest.raises(errors.SshUpdateError) as caught:
        authorized_keys.update_node_keys(path, "bogus", {})
    assert caught.value.args == ("public keys: unknown action 'bogus'",)


def test_known_hosts_can_be_read_by_everybody(tmp_path):
    path = str(tmp_path / "known_hosts")
    host_keys.write_known_hosts(path, "c", [ED], {"n2": [ED], "n1": [ED]})
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644
    with open(path) as stream:
        rows = [line.split()[0] for line in stream]
    assert rows == ["c", "n1,c", "n2,c"]
    for name in ("n", "n.tst", "N-1_x"):
        host_keys.format_known_hosts("c", [], {name: [ED]})
    assert host_keys.format_known_hosts("c", [ED]) == f"c {PLAIN}\n"
    assert host_keys.differs(str(tmp_path / "none"), "")
    assert host_keys.differs(path, "other")
    with open(path) as stream:
        assert not host_keys.differs(path, stream.read())


def test_nodes_without_recorded_keys_share_those_of_the_cluster():
    start = clusters.snapshot(
        nodes=2, rsahostkeypub="AAAA", dsahostkeypub="", cluster_name="c.tst"
    )
    cluster = start.cluster
    nodes = list(start.nodes.values())
    assert host_keys.shared(cluster, nodes) == ["ssh-rsa AAAA"]
    both = cluster.replace(dsahostkeypub="BBBB")
    assert host_keys.shared(both, nodes) == ["ssh-rsa AAAA", "ssh-dss BBBB"]
    recorded = [node.replace(ssh_host_keys=(PLAIN,)) for node in nodes]
    assert host_keys.shared(cluster, [nodes[0], recorded[1]]) == ["ssh-rsa AAAA"]
    assert host_keys.shared(cluster, recorded) == []
    assert not host_keys.are_recorded(start)
    mixed = clusters.changed(start, recorded[1])
    assert host_keys.are_recorded(mixed)
    assert host_keys.known_hosts_text(mixed) == (
        f"c.tst ssh-rsa AAAA\n{recorded[1].name},c.tst {PLAIN}\n"
    )


def test_the_rsa_key_of_a_machine_is_found_among_its_keys():
    lines = [PLAIN, "ssh-rsa AAAA x", "ssh-rsa BBBB"]
    assert host_keys.rsa_body(lines) == "AAAA"
    assert host_keys.rsa_body([PLAIN]) == ""
    assert host_keys.one(ED, "ed25519") == PLAIN


def test_keys_that_are_not_used_yet_have_a_suffix(tmp_path):
    keys.save(keys.generate("ed25519"), f"{tmp_path}/ssh_host_ed25519_key.next")
    assert host_keys.own(str(tmp_path)) == ()
    (key,) = host_keys.own(str(tmp_path), ".next")
    assert key.startswith("ssh-ed25519 ")


# Accounts
def test_real_nodes_are_reached_as_root_and_need_no_variables():
    paths = Paths(root="", hostname="n1")
    assert account.login_user(paths) == "root"
    assert account.node_environment(paths, "n2") == {}
    assert account.path_on(paths, "n2", "/var/lib/x") == "/var/lib/x"
    host = account.console_host(paths, "n2", "192.0.2.2", 2222)
    assert (host.address, host.ssh_port, host.user) == ("192.0.2.2", 2222, "root")
    assert (host.tools_dir, host.environment) == (paths.tools_dir, {})


def test_virtual_nodes_are_reached_as_the_user_who_runs_them(tmp_path):
    paths = Paths(root=str(tmp_path / "n1"), hostname="n1")
    me = pwd.getpwuid(os.getuid()).pw_name
    assert account.login_user(paths) == me
    variables = {"GANETI_ROOTDIR": str(tmp_path / "n2"), "GANETI_HOSTNAME": "n2"}
    assert account.node_environment(paths, "n2") == variables
    host = account.console_host(paths, "n2", "a", 1)
    assert host.environment == variables
    assert host.run_dir == str(tmp_path / "n2/var/run/ganeti")
    assert account.path_on(paths, "n2", f"{paths.root}/x/y") == f"{tmp_path}/n2/x/y"
    assert account.path_on(paths, "n2", f"{paths.root}0/x") == f"{paths.root}0/x"


# Host keys of a client
def test_fingerprints_are_those_of_openssh():
    body = base64.b64decode(PLAIN.split()[1])
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode().rstrip("=")
    assert client._described(PLAIN) == f"ssh-ed25519 SHA256:{digest}"


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("rsa-sha2-256", "ssh-rsa"),
        ("rsa-sha2-512", "ssh-rsa"),
        ("ssh-rsa", "ssh-rsa"),
        ("ssh-ed25519", "ssh-ed25519"),
    ],
)
def test_signatures_belong_to_keys(algorithm, kind):
    assert client._key_type(algorithm) == kind


class Options:
    def __init__(self, names):
        self.key_types = names


class Transport:
    """A connection that offers types of host keys."""

    banner_timeout = None

    def __init__(self, sock):
        self.sock = sock
        self.options = Options(["rsa-sha2-512", "ssh-ed25519", "ecdsa-sha2-nistp256"])
        self.closed = False

    def get_security_options(self):
        return self.options


def test_a_server_is_asked_for_the_type_of_its_recorded_key(tmp_path, monkeypatch):
    monkeypatch.setattr(client.paramiko, "Transport", Transport)
    identity = client.Identity("root", (), pinned=("ecdsa-sha2-nistp256 AAAA",))
    made = client._Trust("n2", identity).transport("socket")
    assert made.options.key_types == [
        "ecdsa-sha2-nistp256",
        "rsa-sha2-512",
        "ssh-ed25519",
    ]
    identity = client.Identity("root", (), pinned=("ssh-rsa AAAA",))
    made = client._Trust("n2", identity).transport("socket")
    assert made.options.key_types[0] == "rsa-sha2-512"


class Server:
    """The answers of a server to questions about its host keys, by type."""

    def __init__(self, monkeypatch, answers):
        self.answers, self.asked, self.made = answers, [], []
        monkeypatch.setattr(client.socket, "create_connection", self._connect)
        monkeypatch.setattr(client.paramiko, "Transport", self._transport)

    def _connect(self, address, timeout):
        self.asked.append((address, timeout))
        return "socket"

    def _transport(self, sock):
        assert sock == "socket"
        made = Transport(sock)
        made.start_client = lambda timeout: self._start(made, timeout)
        made.get_remote_server_key = lambda: self._key(made)
        made.close = lambda: setattr(made, "closed", True)
        self.made.append(made)
        return made

    def _start(self, made, timeout):
        assert (timeout, made.banner_timeout) == (10.0, 10.0)
        answer = self.answers[made.options.key_types[0]]
        if isinstance(answer, Exception):
            raise answer

    def _key(self, made):
        name = made.options.key_types[0]
        return types.SimpleNamespace(
            get_name=lambda: name, get_base64=lambda: self.answers[name]
        )


def test_a_server_presents_one_key_of_each_type(monkeypatch):
    server = Server(
        monkeypatch,
        {
            "rsa-sha2-512": paramiko.SSHException("no such type"),
            "ecdsa-sha2-nistp256": "EEEE",
            "ssh-ed25519": "DDDD",
        },
    )
    assert client.presented_keys("n2", "192.0.2.2", 22) == (
        "ecdsa-sha2-nistp256 EEEE",
        "ssh-ed25519 DDDD",
    )
    assert server.asked == [(("192.0.2.2", 22), 10.0)] * 3
    assert all(made.closed for made in server.made)
    offered = [made.options.key_types for made in server.made]
    assert offered == [["rsa-sha2-512"], ["ecdsa-sha2-nistp256"], ["ssh-ed25519"]]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (paramiko.SSHException("no match"), "no match"),
        (OSError("refused"), "cannot be reached: refused"),
        (EOFError("gone"), "cannot be reached: gone"),
    ],
)
def test_a_server_without_keys_is_an_error_with_its_address(monkeypatch, error, text):
    names = ("rsa-sha2-512", "ecdsa-sha2-nistp256", "ssh-ed25519")
    Server(monkeypatch, dict.fromkeys(names, error))
    with pytest.raises(errors.SshError) as caught:
        client.presented_keys("n2", "192.0.2.2", 22)
    assert caught.value.args == (f"n2 (192.0.2.2 port 22): {text}",)


class Channel:
    """The channel of one command with prepared output."""

    def __init__(self, stdout=(), stderr=(), code=0, send_error=None):
        self.stdout, self.stderr, self.code = list(stdout), list(stderr), code
        self.exit_status = -1
        self.send_error = send_error
        self.steps = []

    def recv(self, size):
        assert size == 65536
        part = self.stdout.pop(0) if self.stdout else b""
        if isinstance(part, Exception):
            raise part
        return part

    def recv_stderr(self, size):
        assert size == 65536
        part = self.stderr.pop(0) if self.stderr else b""
        if isinstance(part, Exception):
            raise part
        return part

    def sendall(self, data):
        self.steps.append(("send", data))
        if self.send_error:
            raise self.send_error

    def shutdown_write(self):
        self.steps.append(("end of input",))

    def settimeout(self, seconds):
        self.steps.append(("limit", seconds))

    def exec_command(self, command):
        self.steps.append(("command", command))

    def recv_exit_status(self):
        return self.code

    def close(self):
        self.steps.append(("close",))


def shell_with(channel, environment=None):
    made = object.__new__(client.Client)
    made.host, made._environment = "n2", environment or {}
    asked = []

    def open_session(timeout):
        asked.append(timeout)
        return channel

    transport = types.SimpleNamespace(open_session=open_session)
    made._client = types.SimpleNamespace(get_transport=lambda: transport)
    made.asked = asked
    return made


def test_a_command_is_quoted_gets_its_input_and_the_end_of_it():
    channel = Channel([b"out", b"\xff"], [b"er", b"r"], 3)
    shell = shell_with(channel, {"A": "b c"})
    result = shell.run(["echo", "x y"], stdin="ä", timeout_s=7)
    assert channel.steps == [
        ("limit", 7),
        ("command", "env 'A=b c' echo 'x y'"),
        ("send", "ä".encode()),
        ("end of input",),
        ("close",),
    ]
    assert shell.asked == [10.0]
    assert (result.code, result.signal, result.timed_out) == (3, None, False)
    assert (result.stdout, result.stderr) == ("out\ufffd", "err")
    assert result.argv == ("echo", "x y")


def test_lines_are_passed_on_as_they_come():
    probed, lines = [], []
    shell = shell_with(Channel([b"one\ntw", b"o\n\xff\nrest"]))
    transport = shell._client.get_transport()
    transport.set_keepalive = probed.append
    result = shell.run(["x"], on_line=lines.append)
    assert (lines, probed) == (["one", "two", "\ufffd", "rest"], [15])
    assert result.stdout == "one\ntwo\n\ufffd\nrest"


def test_a_command_that_is_killed_has_no_code():
    assert shell_with(Channel(code=-1)).run(["x"]).code is None
    assert shell_with(Channel(code=0)).run(["x"]).code == 0


def test_silence_is_a_timeout():
    channel = Channel([b"part", TimeoutError()], [TimeoutError()])
    result = shell_with(channel).run(["x"], timeout_s=1)
    assert (result.timed_out, result.code, result.stdout) == (True, None, "part")
    assert channel.steps[-2:] == [("close",), ("close",)]


@pytest.mark.parametrize("which", ["stdout", "stderr"])
def test_output_of_the_largest_size_is_returned(monkeypatch, which):
    monkeypatch.setattr(client, "MAX_OUTPUT", 4)
    result = shell_with(Channel(**{which: [b"ab", b"cd"]})).run(["x"])
    assert getattr(result, which) == "abcd"
    with pytest.raises(errors.SshError, match="longer than 4 bytes"):
        shell_with(Channel(**{which: [b"ab", b"cde"]})).run(["x"])


def test_a_closed_connection_runs_nothing():
    shell = object.__new__(client.Client)
    shell.host, shell._environment = "n2", {}
    shell._client = types.SimpleNamespace(get_transport=lambda: None)
    for use in (lambda: shell.run(["x"]), lambda: shell.host_key):
        with pytest.raises(errors.SshError) as caught:
            use()
        assert caught.value.args == ("n2: the connection is closed",)
