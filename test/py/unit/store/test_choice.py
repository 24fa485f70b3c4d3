"""The record of the engine: what is written, read, and refused."""

import os
import stat

import pytest

from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.store import choice
from ganeti.store.etcd import Servers, TlsFiles, parse


@pytest.fixture
def paths(tmp_path):
    actual = Paths(root=str(tmp_path / "n1"), hostname="n1")
    os.makedirs(actual.data_dir)
    return actual


def record(paths, text):
    choice.write(paths, choice.prepare(parse(text)))


def test_without_a_record_the_store_is_the_file(paths):
    assert choice.read(paths) is None
    assert not choice.is_etcd(paths)
    assert choice.describe(paths) == "file"
    choice.require_file(paths, "store_apply")


def test_an_address_is_recorded_for_root_alone(paths):
    record(paths, "etcd://a,b:99/mine")
    assert choice.read(paths) == Servers(("a:2379", "b:99"), "mine")
    assert choice.describe(paths) == "etcd://a:2379,b:99/mine"
    assert stat.S_IMODE(os.stat(choice.path_of(paths)).st_mode) == 0o600
    with pytest.raises(errors.StorageError, match=r"store_apply: .* n1 is in etcd"):
        choice.require_file(paths, "store_apply")


def test_certificates_are_copied_beside_it(paths, tmp_path):
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"{name}\n")
    files = "&".join(f"{name}={tmp_path}/{name}" for name in ("ca", "cert", "key"))
    record(paths, f"etcd://a?{files}")
    own = [paths.data(name) for name in ("etcd-ca.pem", "etcd-client.pem")]
    assert choice.read(paths) == Servers(("a:2379",), tls=TlsFiles(*own))
    with open(own[1], encoding="utf-8") as stream:
        assert stream.read() == "cert\nkey\n"
    record(paths, f"etcd://a?ca={tmp_path}/ca")
    assert choice.read(paths).tls == TlsFiles(own[0])


def test_the_file_engine_is_recorded_too(paths):
    record(paths, "etcd://a")
    choice.write_file_engine(paths)
    assert choice.read(paths) is None
    assert not choice.is_etcd(paths)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"address": "nowhere"}', '{"address": "etcd://a", "tls": "x"}'],
)
def test_a_damaged_record_is_never_taken_for_the_file_engine(paths, text):
    with open(choice.path_of(paths), "w", encoding="utf-8") as stream:
        stream.write(text)
    for ask in (choice.read, choice.is_etcd, choice.describe):
        with pytest.raises(errors.ConfigurationError):
            ask(paths)


def test_a_missing_certificate_is_an_error(tmp_path):
    servers = parse(f"etcd://a?ca={tmp_path}/none")
    with pytest.raises(errors.ConfigurationError, match="none: No such file"):
        choice.prepare(servers)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("", "'' is no option"),
        ("ca=relative", "is no option"),
        ("password=/x", "is no option"),
        ("cert=/x", "need the option ca"),
        ("ca=/x&key=/x", "key needs the option cert"),
        ("ca=/x&ca=/y", "ca is given twice"),
    ],
)
def test_wrong_options_of_an_address_are_named(options, reason):
    with pytest.raises(errors.ConfigurationError, match=reason):
        parse(f"etcd://a/p?{options}")


def test_options_come_after_the_prefix():
    wanted = Servers(("a:2379",), "p", TlsFiles("/ca", "/cert", "/key"))
    assert parse("etcd://a/p?ca=/ca&cert=/cert&key=/key") == wanted
