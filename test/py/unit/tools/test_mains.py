"""The main functions of small tools: exit status, output, and what each one calls."""

import io
import json
import logging
import os
import signal
import sys
import types

import pytest

from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.bootstrap.upgrade import node as upgrade
from ganeti.migration import cfgupgrade, lvmstrap
from ganeti.migration.ovf import main as ovf
from ganeti.migration.takeover import main as take_over
from ganeti.migration.takeover import node as takeover
from ganeti.tools import common, confd_client, ensure_dirs, import_export, mon_collector
from ganeti.tools.joining import (
    node_cleanup,
    post_upgrade,
    prepare_node_join,
    ssh_update,
    upgrade_node,
)
from ganeti.tools.oob import oob_common, oob_fence, oob_ipmi, oob_redfish, oob_ssh


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Return the paths of a node that the environment names."""
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "n1"))
    monkeypatch.setenv("GANETI_HOSTNAME", "n1")
    paths = common.own_paths()
    assert (paths.root, paths.hostname) == (str(tmp_path / "n1"), "n1")
    return paths


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs a tool: (exit status, output, errors)."""
    monkeypatch.setattr(logging, "basicConfig", lambda **_options: None)

    def run_main(main, *words, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["tool", *words])
        monkeypatch.setattr(
            sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(stdin))
        )
        status = main()
        return (status, *capsys.readouterr())

    return run_main


# Tools that read a message
@pytest.mark.parametrize(
    ("words", "expected"),
    [((), False), (("--dry-run",), True)],
)
def test_a_message_is_checked_and_applied_to_this_node(node, run, words, expected):
    calls = []

    def main():
        return common.run_with_message(
            "x", "About x.", {"a": common.is_text}, lambda *each: calls.append(each)
        )

    assert run(main, *words, stdin=b'{"a": "b"}') == (0, "", "")
    assert calls == [(node, {"a": "b"}, expected)]


@pytest.mark.parametrize(
    ("stdin", "text"),
    [
        (b"", "input: no JSON: "),
        (b"[]", "input: wanted an object, found something else"),
        (b'{"b": 1}', "input: key 'b' is unknown"),
        (b'{"a": ""}', "input: key 'a': wanted a text"),
        (b'{"a": 5}', "input: key 'a': wanted a text"),
        (b" " * 1001, "input: larger than 1000 bytes"),
    ],
)
def test_other_messages_are_refused(node, run, stdin, text, monkeypatch):
    monkeypatch.setattr(common, "MAX_MESSAGE_BYTES", 1000)

    def main():
        return common.run_with_message("x", "", {"a": common.is_text}, None)

    status, out, err = run(main, stdin=stdin)
    assert (status, out) == (1, "")
    assert err.startswith(f"x: {text}")
    assert err.count("\n") == 1


def test_the_largest_message_is_read(node, run, monkeypatch):
    monkeypatch.setattr(common, "MAX_MESSAGE_BYTES", 1000)
    stdin = b'{"a": "b"}'.ljust(1000)

    def main():
        known = {"a": common.is_text}
        return common.run_with_message("x", "", known, lambda *_: None)

    assert run(main, stdin=stdin) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "level"),
    [((), "WARNING"), (("-v",), "INFO"), (("-d",), "DEBUG"), (("-d", "-v"), "DEBUG")],
)
def test_options_set_the_level_of_the_log(monkeypatch, words, level):
    given = {}
    monkeypatch.setattr(logging, "basicConfig", lambda **options: given.update(options))
    options = common.parser("x", "").parse_args(words)
    common.start_log("x", options)
    assert given == {
        "level": getattr(logging, level),
        "format": "x: %(message)s",
        "stream": sys.stderr,
    }


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.OpPrereqError("bad", "wrong_input"), "x: bad\n"),
        (errors.GenericError(), "x: GenericError\n"),
        (OSError(28, "No space left"), "x: [Errno 28] No space left\n"),
    ],
)
def test_errors_are_one_line_and_exit_status_1(capsys, error, text):
    def work():
        raise error

    assert common.run("x", work) == 1
    assert capsys.readouterr() == ("", text)
    assert common.run("x", lambda: None) == 0


@pytest.mark.parametrize(
    ("check", "good", "bad", "wanted"),
    [
        (common.is_text, ["a"], ["", 1, None], "a text"),
        (common.is_bool, [True, False], [0, 1, "yes", None], "true or false"),
        (common.is_positive, [1, 7], [0, -1, True, "1", 1.5], "a positive number"),
        (common.is_text_map, [{}, {"a": "b"}], [[], {"a": 1}], "an object of texts"),
        (
            common.is_key_lists,
            [{}, {"a": []}, {"a": ["k"]}],
            [[], {"a": "k"}, {"a": [1]}],
            "an object of lists of keys",
        ),
        (
            common.is_key_triples,
            [[], [["a", "b", "c"]]],
            [{}, ["abc"], [["a", "b"]], [["a", "b", "c", "d"]], [["a", "b", 1]]],
            "a list of [type, private key, public key]",
        ),
    ],
)
def test_values_have_their_forms(check, good, bad, wanted):
    for value in good:
        assert check(value) is None
    for value in bad:
        with pytest.raises(ValueError) as caught:
            check(value)
        assert str(caught.value) == wanted


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("authorized_keys", ["replace", {}], "[one of add, remove, {uuid: [keys]}]"),
        ("authorized_keys", ["add"], "[one of add, remove, {uuid: [keys]}]"),
        ("authorized_keys", {}, "[one of add, remove, {uuid: [keys]}]"),
        ("authorized_keys", ["add", []], "an object of lists of keys"),
        (
            *("public_keys", ["move", {}]),
            ("[one of add, replace_or_add, remove, override, clear, {uuid: [keys]}]"),
        ),
        ("generate", ["rsa", 2048], "[key type, bits, file name suffix]"),
        ("generate", ["", 2048, "x"], "a text"),
        ("generate", ["rsa", 0, "x"], "a positive number"),
        ("generate", ["rsa", 2048, "a/b"], "a file name suffix without slashes"),
        ("generate", ["rsa", 2048, 5], "a file name suffix without slashes"),
        ("ssh_key_bits", 0, "a positive number"),
        ("ssh_key_type", "", "a text"),
        ("cluster_name", "", "a text"),
        ("node_daemon_certificate", 1, "a text"),
    ],
)
def test_changes_of_ssh_keys_have_their_forms(node, run, key, value, wanted):
    stdin = json.dumps({key: value}).encode()
    status, out, err = run(ssh_update.main, stdin=stdin)
    assert (status, out) == (1, "")
    assert err == f"ssh-update: input: key {key!r}: wanted {wanted}\n"


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_ssh_tools_apply_their_message(node, run, monkeypatch, words):
    calls = []
    monkeypatch.setattr(
        ssh_update, "update", lambda *a, **k: calls.append((ssh_update.NAME, a, k))
    )
    monkeypatch.setattr(
        prepare_node_join,
        "prepare",
        lambda paths, _process, *a, **k: calls.append(
            (prepare_node_join.NAME, (paths, *a), k)
        ),
    )
    message = {"cluster_name": "c", "ssh_key_bits": 5, "ssh_key_type": "rsa"}
    stdin = json.dumps(message).encode()
    for tool in (ssh_update, prepare_node_join):
        assert run(tool.main, *words, stdin=stdin) == (0, "", "")
    options = {"dry_run": bool(words)}
    assert calls == [
        (name, (node, message), options) for name in ("ssh-update", "prepare-node-join")
    ]


@pytest.mark.parametrize(
    ("tool", "runner", "message"),
    [
        (upgrade_node, upgrade, {"step": "a", "store": "b"}),
        (takeover, takeover, {"step": "a", "daemon_util": "/b"}),
    ],
)
def test_steps_print_their_report_as_json(
    node, run, monkeypatch, tool, runner, message
):
    calls = []

    def run_step(paths, _process, given, *_rest):
        calls.append((paths, given))
        return {"done": True}

    monkeypatch.setattr(runner, "run_step", run_step)
    stdin = json.dumps(message).encode()
    assert run(tool.main, stdin=stdin) == (0, '{"done":true}\n', "")
    assert calls == [(node, message)]
    assert run(tool.main, "--dry-run", stdin=stdin) == (0, "", "")
    assert len(calls) == 1
    name = runner.NAME
    for key in message:
        bad = json.dumps({**message, key: ""}).encode()
        text = f"{name}: input: key {key!r}: wanted a text\n"
        assert run(tool.main, stdin=bad) == (1, "", text)


# Tools without a message
@pytest.mark.parametrize(
    ("words", "keeps"),
    [
        (("--yes-do-it",), True),
        (("--ya-rly",), True),
        (("--yes-do-it", "--no-backup"), False),
    ],
)
def test_a_node_is_cleaned_up_after_a_confirmation(
    node, run, monkeypatch, words, keeps
):
    calls = []

    def clean_up(paths, _process, *, keep_copies):
        calls.append((paths, keep_copies))

    monkeypatch.setattr(node_cleanup, "clean_up", clean_up)
    assert run(node_cleanup.main, *words) == (0, "", "")
    assert calls == [(node, keeps)]
    status, out, err = run(node_cleanup.main, "--no-backup")
    assert (status, out, len(calls)) == (1, "", 1)
    assert err == (
        "node-cleanup: removes all cluster files of this node; confirm with"
        " --yes-do-it\n"
    )


def test_directories_are_put_right_in_silence(node, run, monkeypatch):
    done = "owners and modes of directories and files are correct\n"
    for words, out in (((), ""), (("-d",), done), (("-v",), done), (("-f",), "")):
        assert run(ensure_dirs.main, *words) == (0, out, "")
    assert os.path.isdir(node.data_dir)

    def fail(_paths):
        raise OSError(30, "read only")

    monkeypatch.setattr(ensure_dirs, "run", fail)
    text = "ensure-dirs: [Errno 30] read only\n"
    assert run(ensure_dirs.main) == (1, "", text)


def test_after_an_upgrade_the_store_is_left_to_the_daemons(node, run):
    status, _out, err = run(post_upgrade.main, "3.0.2")
    assert (status, err) == (0, "")


class LogBegins(Exception):
    """Raised with the level, before a tool does anything."""


@pytest.mark.parametrize(
    ("words", "level"),
    [((), logging.WARNING), (("--verbose",), logging.INFO)],
)
@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (post_upgrade.main, ["3.0.2"]),
        (node_cleanup.main, []),
        (cfgupgrade.main, []),
        (lvmstrap.main, ["diskinfo"]),
        (ovf.main, ["import", "x.ovf"]),
        (take_over.main, []),
    ],
)
def test_options_choose_what_a_tool_logs(
    node, run, monkeypatch, main, arguments, words, level
):
    def begin(**options):
        raise LogBegins(options["level"])

    monkeypatch.setattr(logging, "basicConfig", begin)
    with pytest.raises(LogBegins, match=f"^{level}$"):
        run(main, *words, *arguments)


# import-export
TRANSFER = ("import", "--key=k", "--cert=c", "--ca=a", "--file=f")


class Transfer:
    """In the place of a real transfer."""

    error = None
    made = []

    def __init__(self, options, status):
        Transfer.made.append((options.mode, options.file))
        self.status = status

    def run(self):
        assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN)
        if Transfer.error is signal.SIGTERM:
            signal.raise_signal(signal.SIGTERM)
        elif Transfer.error:
            raise Transfer.error


@pytest.fixture
def transfer(monkeypatch):
    """Replace transfers; restore the signal and the mask afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    mask = os.umask(0o022)
    monkeypatch.setattr(import_export, "Transfer", Transfer)
    monkeypatch.setattr(Transfer, "made", [])
    yield Transfer
    signal.signal(signal.SIGTERM, before)
    os.umask(mask)


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (None, 0, None),
        (import_export.TransferError("no peer"), 1, "no peer"),
        (OSError(28, "full"), 1, "[Errno 28] full"),
        (signal.SIGTERM, 1, "terminated by a signal"),
    ],
)
def test_the_end_of_a_transfer_is_in_its_status_file(
    run, transfer, monkeypatch, tmp_path, error, status, text
):
    monkeypatch.setattr(transfer, "error", error)
    path = tmp_path / "status"
    assert run(import_export.main, str(path), *TRANSFER) == (status, "", "")
    shown = json.loads(path.read_text())
    assert (shown["exit_status"], shown["error_message"]) == (status, text)
    assert shown["recent_output"] == ([f"import-export: {text}"] if text else [])
    assert path.stat().st_mode & 0o777 == 0o600
    assert transfer.made == [("import", "f")]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_wrong_options_start_no_transfer(run, transfer, tmp_path):
    path = tmp_path / "status"
    words = (str(path), *TRANSFER, "--magic=a b")
    status, out, err = run(import_export.main, *words)
    assert (status, out, transfer.made) == (1, "", [])
    assert err.startswith("import-export: --magic: wanted letters")
    assert not path.exists()


def test_in_the_background_the_process_id_is_written(
    run, transfer, monkeypatch, tmp_path
):
    monkeypatch.setattr(transfer, "error", None)
    seen = []
    pid_file = tmp_path / "pid"
    monkeypatch.setattr(
        import_export, "_into_background", lambda: seen.append(pid_file.exists())
    )
    monkeypatch.setattr(
        transfer, "run", lambda _self: seen.append(int(pid_file.read_text()))
    )
    words = (str(tmp_path / "status"), *TRANSFER, f"--pid-file={pid_file}")
    assert run(import_export.main, *words) == (0, "", "")
    assert seen == [False, os.getpid()]
    assert not pid_file.exists()


# Out-of-band helpers
class Controller:
    """In the place of each helper's controller."""

    made = []

    def __init__(self, settings, *_effects):
        Controller.made.append(dict(settings))

    def execute(self, command):
        if command == "power-on":
            raise errors.OpExecError("refused")
        return {"powered": True} if command == "power-status" else None


HELPERS = {
    oob_ipmi: {"address": "a", "user": "u", "password": "p"},
    oob_redfish: {"address": "a", "user": "u", "password": "p"},
    oob_ssh: {name: "x" for name, value in oob_ssh.KEYS.items() if value is None},
}


@pytest.mark.parametrize("tool", HELPERS, ids=lambda tool: tool.__name__)
def test_helpers_read_their_own_file_and_print_json(node, run, monkeypatch, tool):
    monkeypatch.setattr(tool, "Controller", Controller)
    monkeypatch.setattr(Controller, "made", [])
    name = tool.__name__.rpartition(".")[2].replace("_", "-")
    os.makedirs(node.conf_dir)
    path = f"{node.conf_dir}/{name}.conf"
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as out:
        out.write("[n2]\n")
        out.writelines(f"{key} = {value}\n" for key, value in HELPERS[tool].items())
    assert run(tool.main, "power-status", "n2") == (0, '{"powered": true}\n', "")
    assert run(tool.main, "power-off", "n2") == (0, "", "")
    assert run(tool.main, "power-on", "n2") == (1, "", f"{name}: refused\n")
    for settings in Controller.made:
        given = {key: settings[key] for key in HELPERS[tool]}
        assert given == HELPERS[tool]
    status, _out, err = run(tool.main, "power-status", "n3")
    assert status == 1
    assert err.startswith(f"{name}: {path}: node n3: missing setting ")
    with pytest.raises(SystemExit):
        run(tool.main, "reboot", "n2")


@pytest.mark.parametrize(
    ("command", "seconds"),
    [("power-status", 8.5), ("power-on", 55.5), ("health", 55.5)],
)
def test_a_helper_ends_whatever_it_waits_for(monkeypatch, command, seconds):
    timers = []
    monkeypatch.setattr(signal, "setitimer", lambda *each: timers.append(each))
    before = signal.getsignal(signal.SIGALRM)
    try:
        with pytest.raises(errors.OpExecError, match="does not answer in time"):
            oob_common._in_time(command, lambda: signal.raise_signal(signal.SIGALRM))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert timers == [(signal.ITIMER_REAL, seconds), (signal.ITIMER_REAL, 0)]


def test_the_fence_helper_has_a_main_function():
    with pytest.raises(SystemExit) as caught:
        oob_fence.main(["--help"])
    assert caught.value.code == 0


# mon-collector
def collected(run, *words):
    status, out, err = run(lambda: mon_collector.main(list(words)))
    assert (status, err) == (0, "")
    return json.loads(out)


DISKS = "   8       0 sda 1 2 3 4 5 6 7 8 9 10 11\n"


def test_a_report_is_made_of_a_file(node, run, tmp_path):
    path = tmp_path / "diskstats"
    path.write_text(DISKS)
    report = collected(run, "diskstats", "-f", str(path))
    assert (report["name"], report["category"], report["kind"]) == (
        "diskstats",
        "storage",
        0,
    )
    assert [row["name"] for row in report["data"]] == ["sda"]


def test_drbd_and_volumes_are_read_from_files(node, run, tmp_path):
    (tmp_path / "drbd").write_text(
        "version: 8.4.11 (api:1/proto:86-101)\nsrcversion: F73C670A7EC572DB9CF3E5B\n"
        " 0: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----\n"
        "    ns:0 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0\n"
    )
    (tmp_path / "pairing").write_text('[["n1", 0, "web1", "disk/0"]]')
    row = dict.fromkeys(mon_collector.block_devices._LVS_FIELDS, "")
    row |= {"lv_name": "v1", "vg_name": "xenvg"}
    (tmp_path / "lvs").write_text(json.dumps({"report": [{"seg": [row]}]}))
    disk = {"dev_type": "plain", "logical_id": ["xenvg", "v1"]}
    pairs = [[{"name": "web0"}, []], [{"name": "web1", "disks": ["d1"]}, [disk]]]
    (tmp_path / "instances").write_text(json.dumps(pairs))
    (tmp_path / "others").write_text(json.dumps([[{"name": "web1"}]]))
    names = {name: str(tmp_path / name) for name in os.listdir(tmp_path)}
    words = ("drbd", "-s", names["drbd"], "-p", names["pairing"])
    data = collected(run, *words)["data"]
    assert [row["instance"] for row in data["deviceInfos"]] == ["web1"]
    words = ("lv", "-f", names["lvs"], "-i", names["instances"])
    (volume,) = collected(run, *words)["data"]
    assert (volume["name"], volume["instance"]) == ("v1", "web1")
    words = ["lv", "-f", names["lvs"], "-i", names["others"]]
    status, _out, err = run(lambda: mon_collector.main(words))
    assert (status, "wanted a list of pairs" in err) == (1, True)


def test_a_collector_reads_no_more_of_its_file_than_it_can_need(node, run, tmp_path):
    path = tmp_path / "large"
    with open(path, "wb") as out:
        out.truncate(mon_collector.files.MAX_READ + 1)
    status, _out, err = run(lambda: mon_collector.main(["diskstats", "-f", str(path)]))
    assert (status, f"{path}: larger than " in err) == (1, True)


def test_a_collector_without_its_file_fails_in_one_line(node, run, tmp_path):
    path = tmp_path / "none\x1b"
    words = ["diskstats", "-f", str(path)]
    status, out, err = run(lambda: mon_collector.main(words))
    assert (status, out) == (1, "")
    assert err.startswith("mon-collector: diskstats: ")
    assert "\x1b" not in err
    (tmp_path / "bad").write_text("{")
    words = ["lv", "-f", str(tmp_path / "bad"), "-i", str(tmp_path / "bad")]
    status, _out, err = run(lambda: mon_collector.main(words))
    assert status == 1
    assert err.startswith(f"mon-collector: lv: {tmp_path}/bad: not JSON: ")


# confd-client
@pytest.mark.parametrize(
    ("kind", "text", "key"),
    [
        ("ping", None, None),
        ("node-role", "node1", "node1"),
        ("node-role", '{"a": 1}', {"a": 1}),
        ("node-of-instance-ip", "192.0.2.1", {"1": "192.0.2.1"}),
    ],
)
def test_keys_of_queries_have_the_form_of_their_query(kind, text, key):
    assert confd_client._key_of(kind, text) == key


def test_a_key_that_is_no_json_is_refused():
    with pytest.raises(errors.ConfdClientError, match=r"^{a: not JSON: "):
        confd_client._key_of("ping", "{a")


class Asked:
    """In the place of a confd client: a reply for each query."""

    def __init__(self, replies):
        self.replies, self.calls = replies, []

    def ask(self, kind, key, *, timeout_s):
        self.calls.append((kind, key, timeout_s))
        return self.replies(kind)


def replied(answer, status=0, serial=7, **more):
    reply = confd_client.wire.Reply(1, status, answer, serial)
    return confd_client.Result(reply, ("192.0.2.1", "192.0.2.2"), **more)


def asked(run, monkeypatch, replies, *words):
    client = Asked(replies)
    monkeypatch.setattr(confd_client, "_client", lambda *_: client)
    return client, run(lambda: confd_client.main(list(words)))


@pytest.mark.parametrize(
    ("reply", "words", "expected"),
    [
        (replied({"a": 1}), (), (0, '{"a": 1}\n', "")),
        (
            replied([], is_inconsistent=True),
            (),
            (1, "[]\n", "confd-client: the servers disagree\n"),
        ),
        (
            replied(0, status=1),
            (),
            (1, "", "confd-client: master: the cluster knows no such object\n"),
        ),
        (
            replied(1, status=1),
            (),
            (
                *(1, ""),
                ("confd-client: master: internal error of the daemon, see its log\n"),
            ),
        ),
        (
            replied(2, status=1),
            (),
            (
                *(1, ""),
                ("confd-client: master: missing or unsuitable key of the query\n"),
            ),
        ),
        (
            replied(True, status=1),
            (),
            (1, "", "confd-client: master: error true\n"),
        ),
        (
            replied("odd", status=2),
            ("-v",),
            (
                *(1, ""),
                ('answered: 192.0.2.1, 192.0.2.2\nconfd-client: master: error "odd"\n'),
            ),
        ),
        (
            confd_client.Result(),
            ("-d", "-t", "2.5"),
            (
                *(1, ""),
                (
                    "answered: none\nconfd-client: no answer within 2.5 seconds: is"
                    " ganeti-confd running there, and is the key the same?\n"
                ),
            ),
        ),
    ],
)
def test_one_query_prints_its_answer(run, monkeypatch, reply, words, expected):
    client, actual = asked(run, monkeypatch, lambda _kind: reply, *words, "master")
    assert actual == expected
    assert client.calls == [(3, None, 2.5 if "-t" in words else 10.0)]


def test_without_a_query_everything_is_asked_and_measured(run, monkeypatch):
    answers = {0: "ok", 1: 2, 3: "node1", 4: ["a"], 5: ["b"], 6: ["c"] * 101, 2: []}
    client, (status, out, err) = asked(
        run, monkeypatch, lambda kind: replied(answers[kind]), "-r", "2"
    )
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[:5] == [
        'ping: ok, serial 7: "ok"',
        'master: ok, serial 7: "node1"',
        'master fields: ok, serial 7: "node1"',
        "node role of the master: ok, serial 7: 2",
        'node addresses: ok, serial 7: ["a"]',
    ]
    assert [line.partition(":")[0] for line in lines[5:]] == [
        "candidate addresses",
        "instance addresses",
        "nodes of the instances",
        "ping",
        "master fields",
    ]
    assert all(line.endswith("ms per query, 2 queries") for line in lines[-2:])
    fields = {"3": [0, 1, 2]}
    assert [(kind, key) for kind, key, _ in client.calls] == [
        *((0, None), (3, None), (3, fields), (1, "node1")),
        *((4, None), (5, None), (6, None), (2, {"2": ["c"] * 100})),
        *((0, None), (0, None), (3, fields), (3, fields)),
    ]


def test_errors_in_the_tour_are_shown_and_nothing_is_measured(run, monkeypatch):
    client, (status, out, _err) = asked(
        run, monkeypatch, lambda _kind: replied(1, status=1), "-r", "0"
    )
    assert status == 0
    assert out.splitlines()[1] == "master: error, serial 7: 1"
    assert len(out.splitlines()) == 7
    assert client.calls[3][:2] == (1, None)


@pytest.mark.parametrize(
    ("words", "key", "peers", "port"),
    [
        ((), b"secret\n", ["192.0.2.1"], 1814),
        (("--hmac=k", "-p", "5"), b"k", ["192.0.2.1"], 5),
        (("-a", "127.0.0.1", "-a", "127.0.0.2"), b"secret\n", None, 1814),
    ],
)
def test_a_client_has_the_key_and_the_servers(
    node, monkeypatch, words, key, peers, port
):
    os.makedirs(node.data_dir)
    with open(node.hmac_key, "w") as out:
        out.write("secret\n")
    with open(node.data("ssconf_master_candidates_ips"), "w") as out:
        out.write("192.0.2.1\n")
    made = []
    monkeypatch.setattr(
        confd_client, "ConfdClient", lambda *a, **k: made.append((a, k))
    )
    monkeypatch.setattr(
        confd_client.netutils, "service_port", lambda _name, default, _kind: default
    )
    options = confd_client.build_parser().parse_args(words)
    confd_client._client(options, Paths(node.root, node.hostname))
    ((given_key, given_peers), given) = made[0]
    assert given_key == key
    assert given_peers == (peers or ["127.0.0.1", "127.0.0.2"])
    assert given["port"] == port
    assert given["magic"] == b"plj0"
    options = confd_client.build_parser().parse_args([*words, "--sha256"])
    confd_client._client(options, Paths(node.root, node.hostname))
    assert made[1][1]["magic"] == b"plj1"
