"""renew-crypto: the files and the job that its options mean, and their contradictions."""

import pathlib

import pytest
from cryptography import x509 as certificates
from cryptography.hazmat.primitives import serialization

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base.pathutils import Paths
from ganeti.base.process import SystemRunner
from ganeti.base.tls import x509
from ganeti.bootstrap import renew_crypto


class Renewal:
    """The renewal of files, which only notes its options."""

    def __init__(self):
        self.options = []
        self.troubles = []
        self.must_restart = False

    def renew(self, paths, runner, _clock, options, *, feedback):
        assert isinstance(runner, SystemRunner)
        feedback(f"renewing on {paths.hostname}")
        self.options.append(options)
        return self.troubles


@pytest.fixture
def environ(tmp_path):
    root = tmp_path / "n1.tst"
    paths = Paths(root=str(root), hostname="n1.tst")
    place = root / "var/lib/ganeti"
    assert str(place) == paths.data_dir
    place.mkdir(parents=True)
    (place / "ssconf_master_node").write_text("n1.tst\n")
    (place / "ssconf_online_nodes").write_text("n1.tst\nn2.tst\n")
    return {"GANETI_ROOTDIR": str(root), "GANETI_HOSTNAME": "n1.tst"}


@pytest.fixture
def renewal(monkeypatch):
    made = Renewal()
    monkeypatch.setattr(renew_crypto, "renew", made.renew)
    monkeypatch.setattr(renew_crypto, "needs_restart", lambda _paths: made.must_restart)
    return made


@pytest.fixture
def run(environ, renewal):
    def run(line, answers=None):
        master = FakeMaster()
        words = ["gnt-cluster", "renew-crypto", *line.split()]
        done = commands.run(words, master, environ=environ, answers=answers)
        jobs = [args[0] for method, args in master.calls if method == "SubmitJob"]
        done.ops = [op for job in jobs for op in job]
        assert {method for method, _ in master.calls} <= {"SubmitJob", "QueryJobs"}
        return done

    return run


def parameters(done):
    (op,) = done.ops
    generic = ("reason", "debug_level")
    return {key: value for key, value in op.items() if key not in generic}


ALL = "All requested certificates and keys have been replaced.\n"
NOTICE = (
    "Updating certificates and keys. The daemons of all nodes are stopped until the"
    " end; after an interruption, run the same command again.\n"
)
JOB = {
    "OP_ID": "OP_CLUSTER_RENEW_CRYPTO",
    "cluster_certificate": False,
    "node_certificates": False,
    "renew_ssh_keys": False,
    "verbose": False,
}


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        (
            "--new-cluster-certificate",
            {"cluster_certificate": True, "node_certificates": True},
        ),
        ("--new-node-certificates", {"node_certificates": True}),
        ("--new-ssh-keys", {"renew_ssh_keys": True}),
        ("--new-ssh-host-keys -v", {"ssh_host_keys": True, "verbose": True}),
        (
            "--new-ssh-keys --ssh-key-type rsa --ssh-key-bits 4096",
            {"renew_ssh_keys": True, "ssh_key_type": "rsa", "ssh_key_bits": 4096},
        ),
    ],
)
def test_items_that_a_job_renews(run, renewal, options, changed):
    done = run(f"{options} --force")
    assert (done.code, done.out, done.err) == (0, ALL, "")
    assert parameters(done) == JOB | changed
    assert renewal.options == []


def contents(renewal):
    (options,) = renewal.options
    return dict(options.contents)


def certificate_and_key(pem):
    return (
        certificates.load_pem_x509_certificate(pem),
        serialization.load_pem_private_key(pem, None),
    )


def test_a_new_certificate_of_the_remote_api_has_its_key(run, renewal):
    done = run("--new-rapi-certificate --force")
    assert (done.code, done.out) == (0, f"{NOTICE}renewing on n1.tst\n{ALL}")
    assert done.ops == []
    made = contents(renewal)
    assert list(made) == ["rapi.pem"]
    certificate, key = certificate_and_key(made["rapi.pem"])
    assert certificate.public_key() == key.public_key()
    (options,) = renewal.options
    assert not options.cluster_certificate
    assert options.check_host_keys


def test_the_files_of_spice_belong_together(run, renewal):
    assert run("--new-spice-certificate --no-ssh-key-check -f").code == 0
    made = contents(renewal)
    assert set(made) == {"spice.pem", "spice-ca.pem"}
    certificate, _ = certificate_and_key(made["spice.pem"])
    assert certificates.load_pem_x509_certificate(made["spice-ca.pem"]) == certificate
    assert b"PRIVATE KEY" not in made["spice-ca.pem"]
    assert not renewal.options[0].check_host_keys


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--new-confd-hmac-key", "hmac.key"),
        ("--new-cluster-domain-secret", "cluster-domain-secret"),
    ],
)
def test_each_new_secret_differs(run, renewal, option, name):
    assert run(f"{option} -f").code == run(f"{option} -f").code == 0
    first, second = (dict(options.contents) for options in renewal.options)
    assert set(first) == set(second) == {name}
    assert first[name] != second[name]
    assert min(len(first[name].strip()), len(second[name].strip())) >= 32


def test_files_of_the_administrator_are_taken_as_they_are(run, renewal, tmp_path):
    pair = x509.create_self_signed()
    (tmp_path / "pair").write_bytes(pair.pem)
    (tmp_path / "ca").write_bytes(pair.certificate_pem)
    (tmp_path / "secret").write_bytes(b"hush \n\n")
    done = run(
        f"--rapi-certificate {tmp_path}/pair --spice-certificate {tmp_path}/pair"
        f" --spice-ca-certificate {tmp_path}/ca"
        f" --cluster-domain-secret {tmp_path}/secret -f"
    )
    assert done.code == 0
    assert contents(renewal) == {
        "rapi.pem": pair.pem,
        "spice.pem": pair.pem,
        "spice-ca.pem": pair.certificate_pem,
        "cluster-domain-secret": b"hush\n",
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--rapi-certificate {}/none", "No such file"),
        ("--rapi-certificate {}/ca", "key"),
        ("--spice-certificate {}/pair --spice-ca-certificate {}/empty", "certificate"),
        ("--cluster-domain-secret {}/empty", "is empty"),
        ("--cluster-domain-secret {}/none", "cannot read"),
    ],
)
def test_files_that_do_not_fit_are_refused(run, renewal, tmp_path, options, text):
    pair = x509.create_self_signed()
    (tmp_path / "pair").write_bytes(pair.pem)
    (tmp_path / "ca").write_bytes(pair.certificate_pem)
    (tmp_path / "empty").write_bytes(b" \n")
    done = run(options.replace("{}", str(tmp_path)) + " --force")
    assert done.code == 1
    assert text in done.err
    assert (renewal.options, done.ops) == ([], [])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("", "nothing to renew: name at least one certificate, key or secret"),
        (
            "--new-rapi-certificate --rapi-certificate /x",
            (
                "RAPI certificate: only one of --new-rapi-certificate and"
                " --rapi-certificate can be used"
            ),
        ),
        (
            "--new-cluster-domain-secret --cluster-domain-secret /x",
            (
                "cluster domain secret: only one of --new-cluster-domain-secret and"
                " --cluster-domain-secret can be used"
            ),
        ),
        (
            "--new-spice-certificate --spice-certificate /x",
            (
                "SPICE certificate: only one of --new-spice-certificate and"
                " --spice-certificate can be used"
            ),
        ),
        (
            "--new-spice-certificate --spice-ca-certificate /x",
            (
                "SPICE certificate: only one of --new-spice-certificate and"
                " --spice-ca-certificate can be used"
            ),
        ),
        ("--spice-certificate /x", "must be given together"),
        ("--spice-ca-certificate /x", "must be given together"),
        ("--ssh-key-type rsa", "--ssh-key-type and --ssh-key-bits need --new-ssh-keys"),
        (
            "--ssh-key-bits 4096 --new-ssh-host-keys",
            "--ssh-key-type and --ssh-key-bits need --new-ssh-keys",
        ),
    ],
)
def test_contradictions_are_refused_before_anything_is_done(
    run, renewal, options, text
):
    done = run(f"{options} --force")
    assert done.code == 1
    assert text in done.err
    assert (renewal.options, done.ops) == ([], [])


def test_an_expired_cluster_certificate_is_a_file_and_the_job_leaves_it_out(
    run, renewal
):
    renewal.must_restart = True
    done = run("--new-cluster-certificate -f")
    assert done.code == 0
    (options,) = renewal.options
    assert (options.cluster_certificate, dict(options.contents)) == (True, {})
    assert parameters(done) == JOB | {"node_certificates": True}


def test_the_need_of_a_restart_alone_replaces_no_cluster_certificate(run, renewal):
    renewal.must_restart = True
    done = run("--new-ssh-keys -f")
    assert renewal.options == []
    assert parameters(done) == JOB | {"renew_ssh_keys": True}


@pytest.mark.parametrize(
    ("option", "question"),
    [
        (
            "--new-confd-hmac-key",
            (
                "This requires all daemons on all nodes to be restarted and may take some"
                " time. Continue?"
            ),
        ),
        ("--new-ssh-keys", "All daemons and jobs go on during this. Continue?"),
    ],
)
def test_the_question_names_what_stops(run, renewal, option, question):
    done = run(option, answers=["n\n"])
    assert done.code == 1
    assert " ".join(done.terminal.split()) == f"{question} y/[n]/?:"
    assert (renewal.options, done.ops) == ([], [])
    done = run(option, answers=["y\n"])
    assert done.code == 0
    assert len(renewal.options) + len(done.ops) == 1


def test_nodes_that_lack_the_new_files_are_an_error_after_the_job(run, renewal):
    renewal.troubles = ["n2.tst: no answer", "n3.tst: disk full"]
    done = run("--new-confd-hmac-key --new-ssh-keys -f")
    assert done.code == 1
    assert done.err == (
        "Warning: n2.tst: no answer\nWarning: n3.tst: disk full\n"
        "These nodes do not have the new files: mark them offline and add them again"
        " with gnt-node add --readd, or run the same command again.\n"
    )
    assert parameters(done) == JOB | {"renew_ssh_keys": True}
    assert ALL not in done.out


def test_a_plan_lists_files_and_job_and_does_nothing(run, renewal, environ):
    done = run("--new-confd-hmac-key --new-ssh-keys --plan")
    assert done.code == 0
    data = f"{environ['GANETI_ROOTDIR']}/var/lib/ganeti"
    assert done.out.splitlines() == [
        "Steps of this command",
        "  1. log in to n2.tst as root over SSH",
        "  2. block the watcher",
        "  3. stop all daemons on n2.tst, n1.tst",
        f"  4. write {data}/hmac.key",
        "  5. copy these files to n2.tst",
        "  6. start all daemons on n2.tst, n1.tst",
        "  7. submit OP_CLUSTER_RENEW_CRYPTO(renew_ssh_keys=true)",
    ]
    assert (renewal.options, done.ops) == ([], [])


def test_a_plan_of_the_job_alone_has_no_other_step(run):
    done = run("--new-ssh-keys --plan")
    assert done.out.splitlines() == [
        "Steps of this command",
        "  1. submit OP_CLUSTER_RENEW_CRYPTO(renew_ssh_keys=true)",
    ]


def test_a_plan_of_an_expired_cluster_certificate_has_its_own_steps(run, renewal):
    renewal.must_restart = True
    done = run("--new-cluster-certificate --plan")
    assert "   5. issue new certificates for all nodes" in done.out.splitlines()
    expected = "submit OP_CLUSTER_RENEW_CRYPTO(node_certificates=true)"
    assert done.out.splitlines()[-1].endswith(expected)


def test_only_the_master_can_do_this(run, environ, renewal):
    master_file = f"{environ['GANETI_ROOTDIR']}/var/lib/ganeti/ssconf_master_node"
    pathlib.Path(master_file).write_text("n2.tst\n")
    done = run("--new-ssh-keys -f")
    assert done.code == 1
    assert "this is not the master node: please connect to 'n2.tst'" in done.err
    assert (renewal.options, done.ops) == ([], [])


LOST = "--new-cluster-certificate --without-master"


def test_another_candidate_renews_certificates_alone_and_submits_no_job(
    run, environ, renewal
):
    master_file = f"{environ['GANETI_ROOTDIR']}/var/lib/ganeti/ssconf_master_node"
    pathlib.Path(master_file).write_text("n2.tst\n")
    done = run(f"{LOST} -f")
    assert (done.code, done.err, done.ops) == (0, "", [])
    assert "run 'gnt-cluster master-failover' now" in done.out
    (options,) = renewal.options
    assert (options.cluster_certificate, options.without_master) == (True, True)
    assert dict(options.contents) == {}
    renewal.troubles = ["n3.tst: no answer"]
    assert run(f"{LOST} -f").code == 1
    done = run(LOST, answers=["n\n"])
    assert done.code == 1
    assert "the present master does not get" in " ".join(done.terminal.split())
    assert len(renewal.options) == 2


def test_candidates_that_are_given_up_are_typed_and_shown_in_the_question(
    run, environ, renewal
):
    master_file = f"{environ['GANETI_ROOTDIR']}/var/lib/ganeti/ssconf_master_node"
    pathlib.Path(master_file).write_text("n2.tst\n")
    done = run(f"{LOST} --lost-candidates n2.tst,n3.tst", answers=["y\n"])
    assert done.code == 0
    question = " ".join(done.terminal.split())
    assert "only n2.tst, n3.tst can have are lost, also acknowledged ones" in question
    (options,) = renewal.options
    assert options.given_up == ("n2.tst", "n3.tst")


@pytest.mark.parametrize(
    "line",
    [
        "--new-cluster-certificate --lost-candidates n2.tst",
        f"{LOST} --lost-candidates ,",
    ],
)
def test_candidates_are_given_up_with_other_options_alone(run, environ, renewal, line):
    if "without" in line:
        master_file = f"{environ['GANETI_ROOTDIR']}/var/lib/ganeti/ssconf_master_node"
        pathlib.Path(master_file).write_text("n2.tst\n")
    done = run(f"{line} -f")
    assert done.code == 1
    assert "--lost-candidates: wanted names of nodes, together with" in done.err
    assert renewal.options == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--without-master", "wanted --new-cluster-certificate, and nothing else"),
        (f"{LOST} --new-ssh-keys", "nothing else to be replaced"),
        (f"{LOST} --new-rapi-certificate", "nothing else to be replaced"),
        (LOST, "n1.tst is the master; leave the option out"),
    ],
)
def test_without_a_master_nothing_else_is_renewed(run, environ, renewal, options, text):
    if "leave" not in text:
        master_file = f"{environ['GANETI_ROOTDIR']}/var/lib/ganeti/ssconf_master_node"
        pathlib.Path(master_file).write_text("n2.tst\n")
    done = run(f"{options} -f")
    assert done.code == 1
    assert f"--without-master: {text}" in done.err or text in done.err
    assert (renewal.options, done.ops) == ([], [])
