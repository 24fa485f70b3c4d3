"""The program that moves a disk's content: both ends, really connected, and its status."""

import json
import socket
import threading
import time

import pytest

from ganeti.base.tls import x509
from ganeti.tools import import_export
from ganeti.tools.channel import ChannelError
from ganeti.tools.import_export import MIB, TransferError, TransferStatus

MAGIC = "abcdef0123456789"
DATA = b"content of a disk\0" * 100_000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    directory = tmp_path_factory.mktemp("certificates")
    for name in ("import", "export", "stranger"):
        pair = x509.create_self_signed(name, validity_s=3600)
        (directory / f"{name}.key").write_bytes(pair.key_pem)
        (directory / f"{name}.cert").write_bytes(pair.certificate_pem)
    return directory


class End:
    """One of the two programs, in a thread."""

    def __init__(self, directory, certificates, mode, *words, peer=None):
        self.status_file = directory / f"{mode}.status"
        other = "export" if mode == "import" else "import"
        argv = [str(self.status_file), mode, *map(str, words)]
        argv += [f"--key={certificates}/{mode}.key", "--connect-timeout=50"]
        argv += [f"--cert={certificates}/{mode}.cert"]
        argv += [f"--ca={certificates}/{peer or other}.cert"]
        options = import_export.build_parser().parse_args(argv)
        import_export.check(options)
        self.error = None
        status = TransferStatus(str(self.status_file), options.expected_size)
        transfer = import_export.Transfer(options, status)

        def run():
            try:
                transfer.run()
            except (ChannelError, OSError) as err:
                self.error = str(err)
            status.update()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    @property
    def status(self):
        try:
            return json.loads(self.status_file.read_text())
        except FileNotFoundError:
            return {}

    def port(self):
        while not self.status.get("listen_port"):
            self.thread.join(0.005)
            assert self.thread.is_alive(), self.error
        return self.status["listen_port"]


@pytest.fixture
def move(tmp_path, certificates):
    """Run an import and an export; returns both once they have ended."""

    def run(importer, exporter, **options):
        receiver = End(tmp_path, certificates, "import", "--bind=127.0.0.1", *importer)
        where = ("--host=127.0.0.1", f"--port={receiver.port()}")
        sender = End(tmp_path, certificates, "export", *where, *exporter, **options)
        for end in (receiver, sender):
            end.thread.join(60)
            assert not end.thread.is_alive()
        return receiver, sender

    return run


@pytest.fixture
def disks(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(DATA)
    target.write_bytes(bytes(len(DATA)))
    return source, target


@pytest.mark.parametrize("tool", ["none", "gzip-fast"])
def test_the_content_arrives_and_is_counted(move, disks, tool):
    source, target = disks
    common = (f"--compress={tool}", f"--magic={MAGIC}", "--expected-size=2")
    ends = move((f"--file={target}", *common), (f"--file={source}", *common))
    assert [end.error for end in ends] == [None, None]
    assert target.read_bytes() == DATA
    for end in ends:
        assert end.status["progress_mbytes"] == pytest.approx(len(DATA) / 2**20)
        assert end.status["progress_percent"] == pytest.approx(85.8, abs=0.1)
        assert end.status["connected"] is True


def test_scripts_give_and_take_the_data(move, tmp_path):
    got = tmp_path / "got"
    ends = move(
        (f"--cmd-suffix=cat > {got}", "--compress=none"),
        ("--cmd-prefix=echo noise >&2; printf hello", "--compress=none"),
    )
    assert [end.error for end in ends] == [None, None]
    assert got.read_bytes() == b"hello"


@pytest.mark.parametrize("tool", ["none", "gzip-fast"])
def test_a_script_that_fails_fails_both_ends(move, disks, tool):
    receiver, sender = move(
        (f"--file={disks[1]}", f"--compress={tool}"),
        ("--cmd-prefix=echo no such thing >&2; exit 3", f"--compress={tool}"),
    )
    assert "exited with code 3" in sender.error
    assert receiver.error is not None
    assert receiver.status["exit_status"] is None


@pytest.mark.parametrize("tool", ["none", "gzip-fast"])
def test_other_magic_is_refused(move, disks, tool):
    source, target = disks
    receiver, sender = move(
        (f"--file={target}", f"--magic={MAGIC}", f"--compress={tool}"),
        (f"--file={source}", "--magic=something-else", f"--compress={tool}"),
    )
    assert "magic" in receiver.error
    assert sender.error is not None
    assert target.read_bytes() == bytes(len(DATA))


@pytest.mark.parametrize("tool", ["none", "gzip-fast"])
def test_a_full_disk_fails_both_ends(move, disks, tool):
    receiver, sender = move(
        ("--file=/dev/full", f"--compress={tool}"),
        (f"--file={disks[0]}", f"--compress={tool}"),
    )
    assert "No space left" in receiver.error
    assert sender.error is not None


def test_strangers_are_refused_and_the_peer_is_waited_for(
    tmp_path, certificates, disks
):
    """Port scanners find the port of a move between clusters."""
    source, target = disks
    words = ("--compress=none",)
    receiver = End(
        tmp_path, certificates, "import", "--bind=127.0.0.1", f"--file={target}", *words
    )
    where = ("--host=127.0.0.1", f"--port={receiver.port()}")
    socket.create_connection(("127.0.0.1", receiver.port())).close()
    stranger = End(
        tmp_path, certificates, "export", *where, "--cmd-prefix=true", peer="stranger"
    )
    stranger.thread.join(60)
    assert "TLS handshake" in stranger.error
    sender = End(tmp_path, certificates, "export", *where, f"--file={source}", *words)
    for end in (sender, receiver):
        end.thread.join(60)
        assert end.error is None
    assert target.read_bytes() == DATA
    assert "was refused" in " ".join(receiver.status["recent_output"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("export", "--cmd-prefix=true"), "needs --host"),
        (("import",), "either --file or a command"),
        (("import", "--file=x", "--compress=../x"), "wanted the name of a program"),
        (("import", "--file=x", "--magic=a b"), "--magic"),
    ],
)
def test_options_that_do_not_fit_are_refused(words, text):
    parser = import_export.build_parser()
    options = parser.parse_args(["s", *words, "--key=k", "--cert=c", "--ca=a"])
    with pytest.raises(TransferError, match=text):
        import_export.check(options)


@pytest.mark.parametrize("mode", ["import", "export"])
def test_a_compression_tool_that_is_missing_is_named_before_the_copy(
    tmp_path, certificates, mode
):
    where = ("--host=127.0.0.1", "--port=1") if mode == "export" else ()
    words = ("--file=/dev/null", "--compress=lzop-of-nobody", *where)
    with pytest.raises(
        TransferError, match=r"lzop-of-nobody: not found on this node.*install"
    ):
        End(tmp_path, certificates, mode, *words)


# The status file of a transfer: its fields, its estimates, and when it is written.


class Clock:
    """In the place of the time."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: 5000.0 + self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def read(tmp_path):
    return lambda: json.loads((tmp_path / "status").read_text())


@pytest.fixture
def status_of(tmp_path):
    return lambda expected=None: TransferStatus(str(tmp_path / "status"), expected)


def test_a_new_status_has_all_fields(clock, status_of, read, tmp_path):
    status_of().update()
    assert read() == {
        "listen_port": None,
        "connected": False,
        "exit_status": None,
        "error_message": None,
        "progress_mbytes": 0.0,
        "progress_throughput": None,
        "progress_percent": None,
        "progress_eta": None,
        "recent_output": [],
        "mtime": 6000.0,
    }
    assert [path.name for path in tmp_path.iterdir()] == ["status"]


def test_the_last_20_lines_of_output_are_kept(clock, status_of, read):
    status = status_of()
    for number in range(25):
        status.note(f"line {number}")
    status.update(connected=True, listen_port=4711)
    assert read()["recent_output"] == [f"line {number}" for number in range(5, 25)]
    assert (read()["connected"], read()["listen_port"]) == (True, 4711)


def test_bytes_are_counted_and_written_twice_a_second(clock, status_of, read):
    status = status_of(10)
    status.update()
    clock.now += 0.25
    status.count(MIB)
    assert read()["progress_mbytes"] == 0.0
    clock.now += 0.25
    status.count(MIB)
    shown = read()
    assert shown["progress_mbytes"] == 2.0
    assert shown["progress_throughput"] == 4.0
    assert shown["progress_percent"] == 20.0
    assert shown["progress_eta"] == 2.0


def test_the_throughput_is_that_of_the_last_30_seconds(clock, status_of, read):
    status = status_of(1000)
    status.update()
    for _second in range(10):
        clock.now += 1.0
        status.count(10 * MIB)
    assert read()["progress_throughput"] == 10.0
    for _second in range(30):
        clock.now += 1.0
        status.count(2 * MIB)
    shown = read()
    assert (shown["progress_mbytes"], shown["progress_throughput"]) == (160.0, 2.0)
    assert shown["progress_eta"] == 420.0


def test_more_than_expected_is_one_hundred_percent(clock, status_of, read):
    status = status_of(2)
    status.update()
    clock.now += 1.0
    status.count(3 * MIB)
    shown = read()
    assert (shown["progress_percent"], shown["progress_eta"]) == (100.0, 0.0)


def test_a_stalled_transfer_has_no_estimate(clock, status_of, read):
    status = status_of(2)
    status.update()
    clock.now += 1.0
    status.update()
    shown = read()
    assert (shown["progress_throughput"], shown["progress_eta"]) == (0.0, None)
    assert shown["progress_percent"] == 0.0


def test_the_interval_fits_what_readers_expect():
    assert import_export.INTERVAL_S <= 1.0
