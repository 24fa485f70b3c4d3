"""Options of move-instance."""

import pytest

from ganeti.migration.move_instance import settings


@pytest.fixture
def files(tmp_path):
    (tmp_path / "ca.pem").write_text("PEM")
    (tmp_path / "password").write_text("top secret\n")
    return tmp_path


@pytest.fixture
def parse(files):
    """Return a function that parses options, the needed ones before them."""

    def run(*words, clusters=("one.example.com", "two.example.com"), names=("web1",)):
        parser = settings.build_parser()
        needed = (f"--src-ca-file={files}/ca.pem",)
        argv = [*needed, *words, *clusters, *names]
        return settings.parse(parser, parser.parse_args(argv))

    return run


def test_the_destination_takes_over_what_is_given_of_the_source(parse, files):
    wanted = parse("--src-username=joe", f"--src-password-file={files}/password")
    assert wanted.source.password == "top secret"
    assert (wanted.source.port, wanted.destination.port) == (5080, 5080)
    assert wanted.destination == settings.Cluster(
        "two.example.com", 5080, f"{files}/ca.pem", "joe", "top secret"
    )
    assert "secret" not in repr(wanted)


def test_all_options_have_an_effect(parse):
    wanted = parse(
        "--src-rapi-port=1000",
        "--dest-rapi-port=2000",
        "--dest-instance-name=WEB2.example.com",
        "--dest-disk-template=drbd",
        "--compress=gzip",
        "--parallel=3",
        "--opportunistic-tries=2",
        "--opportunistic-delay=7",
        "--keep-source-instance",
        "-I",
        "hail",
        "-B",
        "memory=512",
        "-H",
        "kvm:boot_order=network",
        "-O",
        "dhcp=yes",
        "--net=0:mac=generate",
        "--net=2:link=br1",
        "-d",
        "-v",
        clusters=("one", "one"),
    )
    assert (wanted.source.port, wanted.destination.port) == (1000, 2000)
    assert wanted.target == settings.Target(
        name="web2.example.com",
        template="drbd",
        iallocator="hail",
        beparams={"memory": "512"},
        hypervisor="kvm",
        hvparams={"boot_order": "network"},
        osparams={"dhcp": "yes"},
        nics={0: {"mac": "generate"}, 2: {"link": "br1"}},
    )
    assert (wanted.compress, wanted.parallel) == ("gzip", 3)
    assert (wanted.tries, wanted.delay_s, wanted.keeps) == (2, 7, True)
    assert (wanted.verbose, wanted.debug) == (True, True)
    nodes = parse("--dest-primary-node=n1", "--dest-secondary-node=n2").target
    assert (nodes.primary, nodes.secondary) == ("n1", "n2")


@pytest.mark.parametrize(
    ("words", "more", "text"),
    [
        ((), {"names": ("a", "A")}, "instance a is given twice"),
        ((), {"names": ("a b",)}, "a b"),
        (("--dest-instance-name=c",), {"names": ("a", "b")}, "wants one instance"),
        (("--dest-primary-node=c",), {"names": ("a", "b")}, "wants one instance"),
        ((), {"clusters": ("x", "x")}, "needs another name"),
        (("--dest-instance-name=web1",), {"clusters": ("x", "x")}, "needs another"),
        (("--parallel=0",), {}, "--parallel: wanted 1 or more, found 0"),
        (("--opportunistic-tries=-1",), {}, "wanted 0 or more, found -1"),
        (("--opportunistic-delay=5",), {}, "needs --opportunistic-tries"),
        (("--dest-rapi-port=0",), {}, "--dest-rapi-port: wanted a port, found 0"),
        (("-I", "x", "--dest-primary-node=n"), {}, "exclude each other"),
        (("--dest-secondary-node=n",), {}, "needs --dest-primary-node"),
        (
            ("--opportunistic-tries=1", "--dest-primary-node=n"),
            {},
            "needs an allocator",
        ),
        (("--dest-disk-template=floppy",), {}, "invalid choice"),
        (
            ("--dest-disk-template=drbd", "--dest-primary-node=n"),
            {},
            "disk template drbd needs --dest-secondary-node",
        ),
        (
            (
                *("--dest-disk-template=drbd", "--dest-primary-node=n"),
                "--dest-secondary-node=n",
            ),
            {},
            "disk template drbd needs two nodes, found n twice",
        ),
        (("--net=x:mac=auto",), {}, "--net: wanted INDEX:KEY=VALUE"),
        (("--net=0:a=b", "--net=0:a=c"), {}, "NIC 0 is given twice"),
        (("-H", "no_kvm"), {}, "cannot be removed here"),
        (("-B", "a=1,a=2"), {}, "a"),
        (("--src-username=joe",), {}, "wanted a file with its password"),
        (("--src-password-file=/x",), {}, "wanted a user for the password"),
        (
            ("--src-username=joe", "--src-password-file=/nonexistent"),
            {},
            "--src-password-file: /nonexistent: No such file",
        ),
        (("--dest-ca-file=/nonexistent",), {}, "--dest-ca-file: /nonexistent: No such"),
    ],
)
def test_wrong_options_end_with_code_2(parse, capsys, words, more, text):
    with pytest.raises(SystemExit) as err:
        parse(*words, **more)
    assert err.value.code == 2
    assert text in capsys.readouterr().err


def test_an_empty_password_is_refused(parse, files, capsys):
    (files / "password").write_text("\nhidden words\n")
    with pytest.raises(SystemExit):
        parse("--src-username=joe", f"--src-password-file={files}/password")
    shown = capsys.readouterr().err
    assert "found 0" in shown
    assert "hidden" not in shown
