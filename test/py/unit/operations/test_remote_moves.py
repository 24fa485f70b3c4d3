"""Exports to other clusters and imports from them, over fakes."""

import hashlib
import hmac
import pathlib

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.exporting import DONE, NAME, NODE1, Guest, engine
from fakes.jobs import FakeCallbacks, KeepingCallbacks
from fakes.rpc import failure
from ganeti.base import errors, pathutils
from ganeti.base.tls import x509
from ganeti.master.jqueue.effects import Canceled
from ganeti.operations.instance import common
from ganeti.operations.trust import domain_secret

KEY = "x509-1-aa"
PEM = x509.create_self_signed("node", validity_s=3600).certificate_pem.decode()
EXPIRED = x509.create_self_signed("node", validity_s=-60).certificate_pem.decode()
SECRET = domain_secret.DomainSecret(b"secret-of-both")
OTHER = domain_secret.DomainSecret(b"another-secret")
OWNER = clusters.instance_uuid(1)
RECEIVER = domain_secret.Receiver("192.0.2.9", 4711, "magic-1")
PREPARE = {"OP_ID": "OP_BACKUP_PREPARE", "instance_name": "inst1", "mode": "remote"}


def without_mark():
    """Return the signed name of a key of another instance, with its end cut off."""
    name, digest, salt = SECRET.signed_name(KEY, "another")
    return [name, digest, salt.partition(".")[0]]


@pytest.fixture
def root(tmp_path):
    """Return the root of a master with the domain secret."""
    path = pathlib.Path(pathutils.Paths(root=str(tmp_path)).data("x")).parent
    path.mkdir(parents=True)
    (path / "cluster-domain-secret").write_text("secret-of-both\n")
    return str(tmp_path)


@pytest.fixture
def made(root):
    """Return a function that makes an engine whose nodes make real certificates."""

    def make(template="plain", changes=None, **answers):
        answers = {"x509_cert_create": [KEY, PEM]} | answers
        return engine(template, changes, root=root, **answers)

    return make


def export(secret=SECRET, **changes):
    op = {
        "OP_ID": "OP_BACKUP_EXPORT",
        "instance_name": "inst1",
        "mode": "remote",
        "target_node": [secret.signed_receiver(0, RECEIVER)],
        "x509_key_name": secret.signed_name(KEY, OWNER),
        "destination_x509_ca": secret.signed_certificate(PEM),
    }
    return op | changes


def remote_import(secret=SECRET, **changes):
    op = {
        "OP_ID": "OP_INSTANCE_CREATE",
        "mode": "remote-import",
        "instance_name": "inst9.example.com",
        "source_instance_name": NAME,
        "source_handshake": secret.handshake(),
        "source_x509_ca": secret.signed_certificate(PEM),
        "source_shutdown_timeout": 30,
        "disk_template": "file",
        "disks": [{"size": 1024}],
        "nics": [],
        "os_type": "tiny+default",
        "hypervisor": "fake",
        "pnode": "node1.example.com",
        "start": False,
    }
    return op | changes


def importing(made, **answers):
    return made("file", {"admin_state": "down"}, **answers)


def announced(eng):
    return [
        payload for kind, payload in eng.callbacks.entries if kind == "remote-import"
    ]


def order(eng, *names):
    return [name for name, _node, _args in eng.rpc.calls if name in names]


# Preparation
def test_a_preparation_gives_signed_values_of_a_new_key(made):
    eng = made()
    result = eng.run(PREPARE)
    SECRET.check_handshake(result["handshake"], "x")
    assert SECRET.key_name(result["x509_key_name"], "x", OWNER) == KEY
    assert SECRET.certificate(result["x509_ca"], "x") == PEM
    assert [node for node, _args in eng.rpc.called("x509_cert_create")] == [NODE1]


def test_the_handshake_has_the_documented_code(made):
    """HMAC-SHA1 over salt, version and greeting, keyed with the secret."""
    version, digest, salt = made().run(PREPARE)["handshake"]
    text = f"{salt}0:Hi, I'm Ganeti".encode()
    assert version == 0
    assert digest == hmac.new(b"secret-of-both", text, hashlib.sha1).hexdigest()


def test_a_local_export_needs_no_preparation(made):
    eng = made()
    assert eng.run(PREPARE | {"mode": "local"}) is None
    assert not eng.rpc.called("x509_cert_create")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cluster-domain-secret: cannot be read.*--new-cluster-domain-secret"),
        ("\n", "wanted a secret of 8 to 1024 bytes, found 0"),
        ("x" * 2000, "cannot be read.*larger than"),
    ],
)
def test_a_cluster_without_a_usable_secret_says_so(made, root, content, text):
    path = pathlib.Path(pathutils.Paths(root=root).data("cluster-domain-secret"))
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(errors.OpPrereqError, match=text) as err:
        made().run(PREPARE)
    assert err.value.args[1] == "environment_error"


# Export
STEPS = (
    "instance_shutdown",
    "blockdev_snapshot",
    "instance_start",
    "export_start",
    "impexp_cleanup",
    "x509_cert_remove",
    "blockdev_remove",
)


def test_disks_are_sent_to_the_signed_receivers(made):
    eng = made(**Guest().answers())
    assert eng.run(export(compress="gzip")) == (True, [True])
    assert order(eng, *STEPS) == list(STEPS)
    ((node, args),) = eng.rpc.called("export_start")
    options, host, port, _instance, component, source = args
    assert (node, host, port, component) == (NODE1, "192.0.2.9", 4711, "disk0")
    assert options == {
        "key_name": KEY,
        "ca_pem": PEM,
        "compress": "gzip",
        "magic": "magic-1",
        "ipv6": False,
        "connect_timeout": 20,
        "connect_retries": 10,
        "request_key": "1-0-disk0",
    }
    assert source[1][0]["logical_id"] == ["xenvg", "v1.disk0.snap"]
    assert not eng.rpc.called("finalize_export")
    assert eng.rpc.called("x509_cert_remove") == [(NODE1, (KEY,))]


def test_a_removed_instance_is_not_started_again(made):
    eng = made(**Guest().answers())
    eng.run(export(remove_instance=True))
    assert not eng.snapshot.instances
    assert not eng.rpc.called("instance_start")


GIVEN_UP = {"target_node": [], "destination_x509_ca": None}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"target_node": "node2.example.com"}, "found the name of a node"),
        ({"x509_key_name": None}, "needs x509_key_name; prepare"),
        (
            {"x509_key_name": None, "destination_x509_ca": None},
            "needs x509_key_name and destination_x509_ca",
        ),
        ({"x509_key_name": [KEY, "0" * 40, "aa"]}, "name of the key: was not signed"),
        ({"x509_key_name": ["../x", "0" * 40, "aa"]}, "wanted the name of a key"),
        ({"x509_key_name": [KEY, 5, "aa"]}, "wanted a signature of 40 hex digits"),
        ({"x509_key_name": [KEY]}, "wanted a list of name, hmac and salt"),
        ({"destination_x509_ca": PEM}, "wanted a line X-Ganeti-Signature"),
        ({"destination_x509_ca": "x" * 20_000}, "wanted at most 16384 characters"),
        (
            {"destination_x509_ca": OTHER.signed_certificate(PEM)},
            "certificate of the other cluster: was not signed",
        ),
        (
            {"destination_x509_ca": SECRET.signed_certificate("junk")},
            "certificate of the other cluster: no certificate",
        ),
        (
            {"destination_x509_ca": SECRET.signed_certificate(EXPIRED)},
            "has expired; prepare the export again",
        ),
        (
            {"target_node": [SECRET.signed_receiver(n, RECEIVER) for n in (0, 1)]},
            "wanted a receiver for each of 1 disks, found 2",
        ),
        ({"target_node": [5]}, "wanted a list of host, port, magic, hmac and salt"),
        (
            {"target_node": [SECRET.signed_receiver(1, RECEIVER)]},
            "receiver of disk/0: was not signed",
        ),
        (
            {"target_node": [["192.0.2.10", *SECRET.signed_receiver(0, RECEIVER)[1:]]]},
            "receiver of disk/0: was not signed",
        ),
        (
            {"target_node": [["a.example", 1, "magic-1", "0" * 40, "aa"]]},
            "wanted an IP address",
        ),
        ({"target_node": [["::1", 0, "magic-1", "0" * 40, "aa"]]}, "wanted a port"),
        ({"target_node": [["::1", True, "magic-1", "0" * 40, "a"]]}, "wanted a port"),
        ({"target_node": [["::1", 1, "a b c d e", "0" * 40, "aa"]]}, "wanted a magic"),
        ({"compress": "7z"}, "compression tool: wanted one of none"),
        ({"shutdown": False, "remove_instance": True}, "must be stopped"),
        # Its client would take the success for that of the copy.
        ({"target_node": []}, "wanted a receiver for each of 1 disks, found 0"),
        (GIVEN_UP | {"remove_instance": True}, "needs destination_x509_ca"),
    ],
)
def test_wrong_remote_exports_are_refused_before_any_change(made, changes, text):
    eng = made()
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(export(**changes))
    assert order(eng, *STEPS) == []


def test_a_sender_that_fails_leaves_nothing_and_the_guest_runs(made):
    broken = {"exit_status": 1, "error_message": "sending: connection lost"}
    eng = made(**Guest().answers(), impexp_status=[broken])
    with pytest.raises(errors.OpExecError, match=r"disk/0: node node1.*: sending: con"):
        eng.run(export())
    assert order(eng, *STEPS) == list(STEPS)
    assert eng.callbacks.resumption is None


def test_a_failure_before_the_copy_removes_the_key(made):
    eng = made(blockdev_snapshot=failure("no space"), **Guest().answers())
    with pytest.raises(errors.OpExecError, match="no space"):
        eng.run(export())
    assert eng.rpc.called("x509_cert_remove") == [(NODE1, (KEY,))]


class KilledAtOnce(FakeCallbacks):
    """Has the job killed at the first line of its log."""

    def log(self, kind, payload):
        super().log(kind, payload)
        if len(self.entries) == 1:
            raise Canceled("killed")


def test_a_remote_export_is_continued_after_each_step(made):
    keeping = KeepingCallbacks()
    made(instance_info={}).run(export(), callbacks=keeping)
    states = keeping.states
    assert len(states) >= 5
    for state in states:
        again = FakeCallbacks()
        again.resumption = state
        eng = made(instance_info={})
        assert eng.run(export(), callbacks=again) == (True, [True])
        assert len(eng.rpc.called("x509_cert_remove")) == 1
        assert len(eng.rpc.called("export_start")) == (not state["sending"]["started"])


def test_a_continued_remote_export_that_is_killed_at_once_leaves_nothing(made):
    """A client may ask for it while the job waits for its locks again."""
    keeping = KeepingCallbacks()
    guest = Guest().answers()
    made(**guest).run(export(), callbacks=keeping)
    (state,) = [
        state
        for state in keeping.states
        if state and state["sending"]["started"] and not state["sending"]["is_done"]
    ]
    eng = made(**(guest | Guest(runs=False).answers()))
    again = KilledAtOnce()
    again.resumption = state
    with pytest.raises(Canceled):
        eng.run(export(), callbacks=again)
    ends = ["impexp_cleanup", "x509_cert_remove", "blockdev_remove", "instance_start"]
    assert order(eng, *ends) == ends
    assert again.resumption is None


def test_a_compression_tool_that_the_node_lacks_is_refused_before_any_change(made):
    lacking = {"compression-tools": ["gzip"]}
    text = r"compression tool gzip: not found on node node1\.example\.com"
    eng = made(node_verify=lacking)
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(export(compress="gzip"))
    assert order(eng, *STEPS) == []
    eng = importing(made, node_verify=lacking)
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(remote_import(compress="gzip"))
    assert order(eng, "blockdev_create", "x509_cert_create") == []


def test_a_key_that_an_earlier_release_has_prepared_is_used(made):
    """The code covers the name alone; there may be such keys for a day."""
    salt = "0123456789abcdef"
    code = hmac.new(b"secret-of-both", f"{salt}{KEY}".encode(), hashlib.sha1)
    eng = made(**Guest().answers())
    eng.run(export(x509_key_name=[KEY, code.hexdigest(), salt]))
    assert eng.rpc.called("x509_cert_remove") == [(NODE1, (KEY,))]


def test_a_key_of_another_instance_is_not_used_for_an_export(made):
    """Its end would end the transfers of the other one."""
    eng = made(**Guest().answers())
    key = SECRET.signed_name(KEY, clusters.instance_uuid(2))
    with pytest.raises(errors.OpPrereqError, match="was prepared for another instance"):
        eng.run(export(x509_key_name=key))
    assert order(eng, *STEPS) == []


# Giving up


def test_an_export_without_receivers_removes_the_key_alone(made):
    eng = made()
    assert eng.run(export(**GIVEN_UP)) == (True, [])
    assert order(eng, *STEPS) == ["x509_cert_remove"]
    assert eng.rpc.called("x509_cert_remove") == [(NODE1, (KEY,))]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (None, "wanted x509_key_name, found none"),
        ([], "wanted x509_key_name, found none"),
        (OTHER.signed_name(KEY, OWNER), "name of the key: was not signed"),
        (SECRET.signed_name(KEY, "another"), "was prepared for another instance"),
        (without_mark(), "name of the key: was not signed"),
    ],
)
def test_a_key_that_was_not_prepared_here_is_not_removed(made, key, text):
    eng = made()
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(export(**GIVEN_UP, x509_key_name=key))
    assert order(eng, *STEPS) == []


def test_a_key_that_is_gone_is_an_error_with_its_node(made):
    eng = made(x509_cert_remove=failure("transfer certificate: not found"))
    with pytest.raises(errors.OpExecError, match=r"node1.*certificate: not found"):
        eng.run(export(**GIVEN_UP))


# Import
def test_the_job_log_says_where_the_disks_are_received(made):
    eng = importing(made)
    eng.run(remote_import(compress="gzip"))
    ((node, args),) = eng.rpc.called("import_start")
    options, _instance, component, target = args
    assert (node, component, target[0]) == (NODE1, "disk0", "script")
    assert options["connect_timeout"] == 180 + 30
    assert (options["ca_pem"], options["compress"]) == (PEM, "gzip")
    (where,) = announced(eng)
    assert SECRET.certificate(where["x509_ca"], "x") == PEM
    (receiver,) = SECRET.receivers(where["disks"], 1, "x")
    address = eng.snapshot.nodes[NODE1].primary_ip
    assert receiver == domain_secret.Receiver(address, 4711, options["magic"])
    (instance,) = [i for i in eng.snapshot.instances.values() if i.name != NAME]
    assert (instance.name, instance.creation) == ("inst9.example.com", "")
    ((_, renamed),) = eng.rpc.called("instance_run_rename")
    assert renamed[1] == NAME
    assert eng.rpc.called("x509_cert_remove") == [(NODE1, (KEY,))]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"source_handshake": None}, "needs source_handshake, the results"),
        ({"source_x509_ca": None}, "needs source_x509_ca"),
        ({"source_instance_name": None}, "needs source_instance_name"),
        ({"source_handshake": OTHER.handshake()}, "handshake.*: was not signed with"),
        ({"source_handshake": [1, "0" * 40, "aa"]}, "wanted version 0, found 1"),
        ({"source_handshake": [0, "0" * 40]}, "wanted a list of version, hmac and"),
        ({"source_x509_ca": OTHER.signed_certificate(PEM)}, "was not signed with"),
        ({"disks": [{"adopt": "x"}]}, "none can be adopted"),
        ({"disks": []}, "wanted the disks to receive"),
        ({"compress": "7z"}, "compression tool: wanted one of none"),
        ({"pnode": "nowhere"}, "not known"),
    ],
)
def test_wrong_remote_imports_are_refused_before_any_change(made, changes, text):
    eng = importing(made)
    with pytest.raises(errors.OpPrereqError, match=text) as err:
        eng.run(remote_import(**changes))
    assert "secret-of-both" not in str(err.value)
    assert order(eng, "blockdev_create", "x509_cert_create", "import_start") == []


def test_content_that_does_not_arrive_leaves_no_instance(made):
    broken = {"exit_status": 1, "listen_port": 1, "error_message": "did not connect"}

    def status(_node, _args):
        return [broken if announced(eng) else {"listen_port": 1, "exit_status": None}]

    eng = importing(made, impexp_status=status)
    with pytest.raises(errors.OpExecError, match=r"disk/0: node node1.*did not conn"):
        eng.run(remote_import())
    assert [i.name for i in eng.snapshot.instances.values()] == [NAME]
    assert len(eng.rpc.called("blockdev_remove")) == 1
    assert len(eng.rpc.called("x509_cert_remove")) == 1
    assert eng.callbacks.resumption is None


def test_a_remote_import_is_continued_after_each_step(made, root):
    eng = importing(made)
    keeping = KeepingCallbacks(eng)
    eng.run(remote_import(), callbacks=keeping)
    assert len(keeping.kept) >= 4
    for state, start in keeping.kept:
        again = FakeCallbacks()
        again.resumption = state
        other = Engine(start, eng.rpc.script, root=root)
        other.run(remote_import(), callbacks=again)
        progress = state["receiving"]
        is_known = progress["is_announced"]
        assert len(announced(other)) == (not is_known)
        assert len(other.rpc.called("import_start")) == (not progress["started"])
        removed = len(other.rpc.called("x509_cert_remove"))
        assert removed == 1 + (bool(progress["key"]) and not progress["started"])


def test_a_continued_remote_import_ends_receivers_before_it_removes_disks(made, root):
    """They outlive the master daemon and write to the disks."""
    eng = importing(made)
    keeping = KeepingCallbacks(eng)
    eng.run(remote_import(), callbacks=keeping)
    assert len(keeping.kept) >= 4
    for state, start in keeping.kept:
        again = FakeCallbacks()
        again.resumption = state
        script = eng.rpc.script | {"blockdev_assemble": failure("no such device")}
        other = Engine(start, script, root=root)
        with pytest.raises(errors.OpExecError, match="was removed again"):
            other.run(remote_import(), callbacks=again)
        progress = state["receiving"]
        ends = ["impexp_cleanup"] * len(progress["started"])
        ends += ["x509_cert_remove"] * bool(progress["key"])
        assert order(other, "blockdev_remove", *ends) == [*ends, "blockdev_remove"]


# Silence of nodes
def test_a_node_daemon_that_is_restarted_does_not_end_a_copy(made):
    """It is silent for a while; the program on the node goes on."""
    answers = iter([failure("no answer", is_silent=True)] * 10)
    eng = made(**Guest().answers(), impexp_status=lambda *_: next(answers, [DONE]))
    eng.run(export())
    texts = [str(payload) for _kind, payload in eng.callbacks.entries]
    assert len([text for text in texts if "does not answer" in text]) == 1


def test_a_node_that_stays_silent_ends_the_copy(made):
    eng = made(**Guest().answers(), impexp_status=failure("no answer", is_silent=True))
    begun = eng.clock.monotonic()
    with pytest.raises(errors.OpExecError, match=r"no news of the transfer for 60 s"):
        eng.run(export())
    taken = eng.clock.monotonic() - begun
    assert taken == pytest.approx(common.SILENCE_S, abs=3)
    assert len(eng.rpc.called("x509_cert_remove")) == 1


def test_a_node_that_refuses_to_say_ends_the_copy_at_once(made):
    eng = made(**Guest().answers(), impexp_status=failure("transfer: not found"))
    with pytest.raises(errors.OpExecError, match="not found"):
        eng.run(export())
    assert len(eng.rpc.called("impexp_status")) == 1


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize(
    ("call", "name"),
    [("export_start", "export-disk0-bb"), ("import_start", "import-disk0-aa")],
)
def test_a_start_is_repeated_while_the_node_does_not_answer(made, call, name, is_lost):
    """The node starts one program for all calls with one key."""
    silent = [failure("no answer", is_silent=True, is_lost=is_lost)] * 5
    answers = iter(silent)
    script = {call: lambda *_: next(answers, name)}
    if call == "export_start":
        eng = made(**Guest().answers() | script)
        eng.run(export())
    else:
        eng = importing(made, **script)
        eng.run(remote_import())
    calls = eng.rpc.called(call)
    assert len(calls) == 6
    assert {args[0]["request_key"] for _node, args in calls} == {"1-0-disk0"}
    texts = [str(payload) for _kind, payload in eng.callbacks.entries]
    assert len([text for text in texts if "it is asked again for 60 s" in text]) == 1


def test_a_start_is_not_repeated_without_end_nor_after_a_refusal(made):
    answer = failure("no answer", is_silent=True)
    eng = made(**Guest().answers(), export_start=answer)
    begun = eng.clock.monotonic()
    with pytest.raises(errors.OpExecError, match=r"node1.*: no answer"):
        eng.run(export())
    assert eng.clock.monotonic() - begun == pytest.approx(60, abs=3)
    eng = made(**Guest().answers(), export_start=failure("no such key"))
    with pytest.raises(errors.OpExecError, match="no such key"):
        eng.run(export())
    assert len(eng.rpc.called("export_start")) == 1


def test_a_receiver_ends_when_its_job_is_killed_and_leaves_nothing(made):
    """It waits for a sender that does not come."""

    class Killing(FakeCallbacks):
        must_die = False

        def log(self, kind, payload):
            super().log(kind, payload)
            if kind == "remote-import":
                self.must_die = True
                self.kill()

        def on_kill(self, call):
            self.kill = call

        def check_canceled(self):
            if self.must_die:
                raise Canceled("killed on request")

    waiting = {"exit_status": None, "listen_port": 4711}
    eng = importing(made, impexp_status=[waiting])
    begun = eng.clock.monotonic()
    with pytest.raises(Canceled):
        eng.run(remote_import(), callbacks=Killing())
    assert eng.clock.monotonic() - begun < 5
    assert [i.name for i in eng.snapshot.instances.values()] == [NAME]
    for call in ("blockdev_remove", "impexp_cleanup", "x509_cert_remove"):
        assert len(eng.rpc.called(call)) == 1
