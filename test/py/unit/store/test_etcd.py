"""The store in etcd, against real servers; see also the contract tests."""

import datetime as dt
import ipaddress
import pathlib
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fakes import cluster, patience
from fakes.etcd_servers import EtcdServers
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.decisions.quorum import Term
from ganeti.store import Document, choice, features, wire
from ganeti.store.backend import OutcomeUnknownError
from ganeti.store.etcd import (
    EtcdBackend,
    Gateway,
    TlsFiles,
    layout,
    messages,
    open_etcd,
    parse,
)
from ganeti.store.etcd.writer import Writer


@pytest.fixture
def opener(etcd):
    """Return a function that opens the store of this test as one of several nodes."""
    servers, opened = etcd.servers(), []

    def open_store(node="node1", **options):
        opened.append(open_etcd(servers, clock=SystemClock(), node=node, **options))
        return opened[-1]

    open_store.servers = servers
    yield open_store
    for item in opened:
        item.close()


@pytest.fixture
def gateway(opener):
    actual = Gateway(opener.servers)
    yield actual
    actual.close()


def document(key="1", data=b"{}", table="jobs"):
    return Document(table, key, data)


def jobs(store):
    return dict(store.scan("jobs"))


# Addresses
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("etcd://a", "etcd://a:2379/ganeti"),
        ("etcd://a:1,b.example.com:65535/x.y-z_1", None),
        ("etcd://[2001:db8::1]:2379,192.0.2.1", None),
    ],
)
def test_an_address_is_understood(text, expected):
    servers = parse(text)
    assert parse(str(servers)) == servers
    if expected is not None:
        assert str(servers) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://a:1",
        "etcd://",
        "etcd://a,",
        "etcd://a:0",
        "etcd://a:65536",
        "etcd://a:x",
        "etcd://a b",
        "etcd://a/",
        "etcd://a/x/y",
        "etcd://a/\n",
        "etcd://user:secret@a:1",
        "etcd://a:1,a:1",
        "etcd://" + ",".join(f"a{i}" for i in range(33)),
        "etcd://::1:2379",
    ],
)
def test_another_address_is_refused_with_one_error(text):
    with pytest.raises(errors.ConfigurationError, match="wanted etcd://"):
        parse(text)


def test_the_server_is_asked_over_tls_if_files_are_given():
    assert parse("etcd://a", TlsFiles("ca.pem")).url("a:1") == "https://a:1"
    assert parse("etcd://a").url("a:1") == "http://a:1"


# Large groups
def test_a_commit_of_many_rows_is_one_step(opener):
    db = opener()
    db.commit([document(str(i), b"old") for i in range(300)])
    db.commit(
        [document(str(i), None if i % 3 else b"%d" % i * 4000) for i in range(300)]
    )
    expected = {str(i): b"%d" % i * 4000 for i in range(0, 300, 3)}
    assert jobs(db) == expected
    db.close()
    again = opener()
    assert jobs(again) == expected
    assert [len(change.changes) for change in _follow(again, 2)] == [300, 300]


def _follow(store, count):
    news = store.follow(0)
    return [next(news) for _ in range(count)]


def test_a_large_commit_is_whole_before_its_rows_are_in_place(
    opener, gateway, monkeypatch
):
    db = opener()
    db.commit([document(str(i), b"old") for i in range(200)])

    def fail(_backend, operations):
        raise OutcomeUnknownError("cut off")

    carry_out = Writer._carry_out
    monkeypatch.setattr(
        Writer,
        "_carry_out",
        lambda self, ops: (
            carry_out(self, ops) if not self.guards.mark.staged else fail(self, ops)
        ),
    )
    db.commit([document(str(i), b"new" if i else None) for i in range(201)])
    wanted = {str(i): b"new" for i in range(1, 201)}
    stored = messages.get(layout.Keys(opener.servers.prefix).row("jobs", "7"))
    actual = gateway.fetch("kv/range", stored, messages.RangeAnswer)
    assert layout.unpack(actual.kvs[0].value) == b"old"
    assert jobs(db) == wanted
    assert db.read("jobs", "0") is None
    assert db.read("jobs", "7") == b"new"
    assert dict(db.scan("jobs", "19")) == {k: b"new" for k in wanted if k[:2] == "19"}
    # Nothing else is written before these rows, which would overwrite it.
    with pytest.raises(errors.StorageError, match="not written"):
        db.commit([document("7", b"newer")])
    monkeypatch.undo()
    # The next master puts them in their places.
    later = opener()
    assert jobs(later) == wanted
    actual = gateway.fetch("kv/range", stored, messages.RangeAnswer)
    assert layout.unpack(actual.kvs[0].value) == b"new"
    later.commit([document("7", b"newer")])
    assert later.read("jobs", "7") == b"newer"


def test_a_commit_that_was_staged_in_part_leaves_nothing(opener, monkeypatch):
    db = opener()
    move = Writer._move

    def fail(_self, _mark, _operations, _group):
        raise errors.StorageError("no room")

    monkeypatch.setattr(Writer, "_move", fail)
    with pytest.raises(errors.StorageError, match="no room"):
        db.commit([document(str(i)) for i in range(500)])
    monkeypatch.setattr(Writer, "_move", move)
    patience.until("changes are accepted", lambda: not db.exposure())
    db.commit([document("other")])
    assert jobs(db) == {"other": b"{}"}


def test_a_value_that_is_too_large_fails_alone(opener):
    db = opener()
    big = bytes(range(256)) * 5000
    with pytest.raises(errors.StorageError, match="jobs 1 has 1280000 bytes, at most"):
        db.commit([document(data=big)])
    assert db.commit([document("2")]) == 1


@pytest.mark.parametrize("data", [b"", b"x", b"x" * 5000, bytes(range(256)) * 50])
def test_values_come_back_as_they_were(opener, data):
    assert layout.unpack(layout.pack(data)) == data
    db = opener()
    db.commit([document(data=data)])
    assert db.read("jobs", "1") == data


@pytest.mark.parametrize(
    "value", [b"", b"q", b"znonsense", layout.pack(b"x" * 5000)[:9]]
)
def test_a_damaged_value_is_an_error(value):
    with pytest.raises(errors.ConfigurationError, match="damaged"):
        layout.unpack(value)


# One master
def test_a_second_node_is_refused_while_the_first_has_the_lease(opener):
    db = opener("node1")
    db.commit([document()])
    with pytest.raises(errors.TermError, match="node1 is master, and its lease"):
        opener("node2")
    assert db.commit([document("2")]) == 2
    db.close()
    taken = opener("node2")
    assert taken.term == Term(2, "node2")
    assert jobs(taken) == {"1": b"{}", "2": b"{}"}


def test_a_master_that_was_killed_may_start_again_at_once(opener):
    old, new = opener(), opener()
    assert (old.term.number, new.term.number) == (1, 2)
    with pytest.raises(errors.TermError, match="term 1:node1 is over: now is term 2"):
        old.commit([document()])
    assert old.is_over()
    assert not new.is_over()
    new.commit([document("new")])
    assert jobs(new) == {"new": b"{}"}


def test_a_master_without_lease_writes_nothing_and_ends(opener, gateway):
    deposed = threading.Event()
    db = opener(on_deposed=deposed.set, ttl_s=60)
    db.commit([document()])
    _revoke(db, gateway)
    # Before it notices: the servers refuse.
    with pytest.raises(errors.TermError, match="its lease has ended"):
        db.commit([document("2")])
    assert deposed.is_set()
    assert list(jobs(opener("node2"))) == ["1"]


def _revoke(db, gateway):
    number = db._backend._lease.number
    gateway.call("lease/revoke", {"ID": number}, messages.TxnAnswer)


def test_a_master_notices_that_its_lease_is_over(opener, gateway):
    deposed = threading.Event()
    db = opener(on_deposed=deposed.set, ttl_s=2)
    _revoke(db, gateway)
    assert deposed.wait(patience.PATIENCE_S)
    with pytest.raises(errors.TermError, match="lease is over"):
        db.commit([document()])


def test_a_lease_is_prolonged(opener):
    db = opener(ttl_s=6)
    until = db._backend._lease._until
    patience.until("prolonged", lambda: db._backend._lease._until > until + 1.5)
    assert db.commit([document()]) == 1
    assert not db.is_over()


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        (Term(1, "node2"), "term 1 is over: this node has seen term 1 of node1"),
        (Term(1, "node1"), "term 1:node1 has been used"),
        (Term(0, "node2"), "term 0 is over"),
    ],
)
def test_terms_only_grow(opener, term, reason):
    opener("node1").close()
    backend = EtcdBackend(opener.servers, clock=SystemClock())
    with pytest.raises(errors.TermError, match=reason):
        backend.open(lambda _promised: term)
    assert opener("node3").term == Term(2, "node3")


def test_of_two_that_begin_at_the_same_time_one_is_master(opener):
    outcomes = []
    barrier = threading.Barrier(4)

    def work(node):
        barrier.wait()
        try:
            outcomes.append(opener(node).term)
        except errors.TermError as err:
            outcomes.append(str(err))

    threads = [threading.Thread(target=work, args=(f"node{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [item for item in outcomes if isinstance(item, Term)], outcomes
    assert len([item for item in outcomes if isinstance(item, Term)]) == 1, outcomes


# Outcomes
def test_a_write_without_an_answer_is_acknowledged_if_it_was_done(opener, monkeypatch):
    db = opener()
    _cut_next(monkeypatch, is_done=True)
    assert db.commit([document()]) == 1
    assert jobs(db) == {"1": b"{}"}
    assert db.commit([document("2")]) == 2


def test_a_write_without_an_answer_fails_if_it_was_not_done(opener, monkeypatch):
    db = opener()
    late = _cut_next(monkeypatch, is_done=False)
    with pytest.raises(errors.StorageError, match="not written: cut off"):
        db.commit([document()])
    patience.until("changes are accepted", lambda: not db.exposure())
    # It arrives after all: it must not be carried out now.
    assert not Gateway(opener.servers).transact(late[0]).succeeded
    assert jobs(db) == {}
    assert db.commit([document("2")]) == 1


def _cut_next(monkeypatch, *, is_done):
    """Have the next transaction end without an answer; return a list that gets it."""
    transact, cut = Gateway.transact, []

    def once(self, body):
        if cut:
            return transact(self, body)
        cut.append(body)
        if is_done:
            transact(self, body)
        raise OutcomeUnknownError("cut off")

    monkeypatch.setattr(Gateway, "transact", once)
    return cut


def test_a_write_that_is_sent_twice_counts_once(opener, monkeypatch):
    db = opener()
    transact = Gateway.transact

    def twice(self, body):
        transact(self, body)
        return transact(self, body)

    monkeypatch.setattr(Gateway, "transact", twice)
    assert [db.commit([document(str(i))]) for i in range(3)] == [1, 2, 3]
    assert len(_follow(db, 3)) == 3


def test_the_change_log_ends_where_the_servers_forgot(opener, gateway):
    db = opener()
    for number in range(3):
        db.commit([document(str(number))])
    at = db._backend._writer.guards.end_at
    gateway.call("kv/compaction", {"revision": at}, messages.TxnAnswer)
    db.commit([document("last")])
    assert db._backend.changes_since(0, None) is None
    assert [g.revision for g in db._backend.changes_since(3, None)] == [4]
    db.close()
    with pytest.raises(errors.StorageError, match="start from a snapshot"):
        next(opener().follow(1))


def test_another_history_is_recognised(opener):
    db = opener()
    db.commit([document()])
    digest = db._backend.end()[1]
    db.commit([document("2"), document("gone", None)])
    groups = db._backend.changes_since(1, digest)
    assert [row[1:] for row in wire.rows_of(groups[0])] == [
        ("2", b"{}"),
        ("gone", None),
    ]
    assert db._backend.changes_since(2, groups[0].digest) == []
    assert db._backend.changes_since(1, bytes(16)) is None


# Stored data
def test_a_whole_copy_has_all_but_the_archive(opener):
    db = opener()
    db.commit(cluster.updates(cluster.example_data()))
    db.commit(
        [
            document("5"),
            document("5/1", b"log", "joblogs"),
            document("4/1", b"log of an archived job", "joblogs"),
            document("4", b"{}", "archive"),
        ]
    )
    copy = wire.decode_copy(wire.encode_copy(db._backend.dump()))
    assert (copy.revision, copy.term, copy.written) == (2, 1, 1)
    assert copy.cluster() == db.snapshot().cluster.uuid
    rows = {(table, key) for table, key, _data in copy.rows}
    assert ("jobs", "5") in rows
    assert ("joblogs", "5/1") in rows
    assert not rows & {("joblogs", "4/1"), ("archive", "4")}


def test_the_archive_is_read_in_pages(opener):
    db = opener()
    db.commit([document(f"{i:03}", b"x" * 100, "archive") for i in range(20)])
    revision, page, rows = db._backend.archive.page("archive/004", 500)
    assert (revision, page.after, page.upto) == (1, "004", "009")
    assert [key for _table, key, _data in rows] == [f"{i:03}" for i in range(5, 10)]
    assert db.read("archive", "019") == b"x" * 100
    assert len(list(db.scan("archive"))) == 20


def test_a_store_that_needs_a_newer_release_is_refused_before_a_term_begins(opener):
    db = opener()
    db.commit([features.encode({"from-the-future"})])
    db.close()
    with pytest.raises(errors.ConfigurationError, match="from-the-future"):
        opener()
    assert (
        Term(1, "node1") == EtcdBackend(opener.servers, clock=SystemClock()).promised()
    )


@pytest.mark.parametrize("key", ["end", "term"])
def test_a_damaged_store_is_refused_with_one_error(opener, gateway, key):
    opener().close()
    where = f"{opener.servers.prefix}/{key}".encode()
    gateway.transact(messages.transaction([], [messages.put(where, b"\xffnonsense")]))
    with pytest.raises(errors.ConfigurationError, match="damaged"):
        opener()


# Servers that fail
@pytest.fixture(scope="module")
def three(tmp_path_factory):
    servers = EtcdServers(tmp_path_factory.mktemp("three"), 3)
    try:
        yield servers.start()
    finally:
        servers.close()


def test_one_lost_server_loses_nothing(three):
    """Each time it is the one that has answered last, and is asked first."""
    db = open_etcd(three.servers(), clock=SystemClock(), node="node1")
    gateway = db._backend._gateway
    try:
        number = gateway._preferred
        three.kill(number)
        db.commit([document("killed")])
        assert gateway._preferred != number
        three.start(number)
        number = gateway._preferred
        three.pause(number)
        db.commit([document("frozen")])
        assert gateway._preferred != number
        three.resume(number)
        assert len(jobs(db)) == 2
        assert not db.is_over()
    finally:
        db.close()


def test_without_a_majority_nothing_is_acknowledged_and_the_master_ends(three):
    servers, deposed = three.servers(), threading.Event()
    db = open_etcd(
        servers, clock=SystemClock(), node="node1", on_deposed=deposed.set, ttl_s=2
    )
    answers = []
    try:
        three.kill(0)
        three.kill(1)
        db.commit_soon([document()], lambda _revision, error: answers.append(error))
        assert deposed.wait(patience.PATIENCE_S)
        assert None not in answers
        three.start(0, 1)
        taken = patience.until("lease ends", lambda: _open(servers, "node2"))
        with pytest.raises((errors.TermError, errors.StorageError)):
            db.commit([document("2")])
        assert "2" not in jobs(taken)
        taken.close()
    finally:
        db.close()
    assert len(answers) == 1


def _open(servers, node):
    try:
        return open_etcd(servers, clock=SystemClock(), node=node)
    except errors.TermError:
        return None


def test_servers_that_are_not_there_are_named(tmp_path):
    servers = EtcdServers(tmp_path).servers()
    with pytest.raises(
        errors.StorageError, match=f"127.0.0.1:.*{servers.prefix}.*error"
    ):
        open_etcd(servers, clock=SystemClock(), node="node1")


# TLS
@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    files = _issue(folder, "good")
    servers = EtcdServers(folder, tls=files)
    try:
        yield servers.start(), files, _issue(folder, "stranger")
    finally:
        servers.close()


def test_a_client_certificate_is_used(secure):
    servers, files, _stranger = secure
    tls = TlsFiles(*map(str, files))
    db = open_etcd(servers.servers(tls=tls), clock=SystemClock(), node="node1")
    assert db.commit([document()]) == 1
    db.close()


def test_certificates_of_a_recorded_address_are_used(secure, tmp_path):
    servers, (authority, certificate, key), _stranger = secure
    paths = Paths(root=str(tmp_path / "n1"), hostname="n1")
    pathlib.Path(paths.data_dir).mkdir(parents=True)
    address = f"{servers.servers()}?ca={authority}&cert={certificate}&key={key}"
    choice.write(paths, choice.prepare(parse(address)))
    recorded = choice.read(paths)
    assert str(certificate) not in str(recorded.tls)
    db = open_etcd(recorded, clock=SystemClock(), node="node1")
    assert db.commit([document()]) == 1
    db.close()


def test_without_the_right_certificates_nothing_is_done(secure):
    servers, (authority, certificate, key), (other, stranger, strange_key) = secure
    for tls in (
        TlsFiles(str(authority)),
        TlsFiles(str(other), str(certificate), str(key)),
        TlsFiles(str(authority), str(stranger), str(strange_key)),
        None,
    ):
        with pytest.raises(errors.StorageError):
            open_etcd(servers.servers(tls=tls), clock=SystemClock(), node="node1")


def _issue(folder, name):
    """Make an authority and a certificate of 127.0.0.1; return their files."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} {kind}")])
        for kind in ("authority", "server")
    ]
    now = dt.datetime.now(dt.UTC)
    paths = [folder / f"{name}.{kind}.pem" for kind in ("ca", "cert", "key")]
    for number, path in enumerate(paths[:2]):
        builder = (
            x509.CertificateBuilder()
            .subject_name(names[number])
            .issuer_name(names[0])
            .public_key(keys[number].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(not number, None), critical=True)
        )
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = builder.add_extension(
            x509.SubjectAlternativeName([address]), critical=False
        )
        signed = builder.sign(keys[0], hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    paths[2].write_bytes(
        keys[1].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths
