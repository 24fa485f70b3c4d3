"""The logical units of the cluster as a whole."""

import base64
import zlib

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors
from ganeti.master.locking import Level

MASTER = clusters.node_uuid(1)


def run(engine, op, **parameters):
    return engine.run({"OP_ID": f"OP_CLUSTER_{op}", **parameters})


def test_post_init_records_the_masters_certificate_and_runs_hooks_after(tmp_path):
    root = tmp_path / "n1"
    (root / "etc/ganeti/hooks/cluster-init-post.d").mkdir(parents=True)
    engine = Engine(
        clusters.snapshot(nodes=1),
        {"node_crypto_tokens": [["ssl", clusters.DIGEST]], "hooks_runner": []},
        root=str(root),
    )
    assert run(engine, "POST_INIT") is True
    assert engine.snapshot.cluster.candidate_certs == {MASTER: clusters.DIGEST}
    ((node, args),) = engine.rpc.called("hooks_runner")
    assert (node, args[:2]) == (MASTER, ("cluster-init", "post"))
    assert args[2]["GANETI_OP_TARGET"] == "cluster1.example.com"
    assert engine.locks.big_lock_is_exclusive()


def test_destroy_needs_an_empty_cluster_and_returns_the_master():
    engine = Engine(clusters.snapshot(nodes=2))
    with pytest.raises(errors.OpPrereqError, match="still has 1 node"):
        run(engine, "DESTROY")
    engine = Engine(clusters.snapshot(nodes=1, instances=1))
    with pytest.raises(errors.OpPrereqError, match="still has 1 instance"):
        run(engine, "DESTROY")
    engine = Engine(
        clusters.snapshot(nodes=1), SUCCESSFUL_ACTS | {"hooks_runner": failure("down")}
    )
    assert run(engine, "DESTROY") == MASTER
    ((_, args),) = engine.rpc.called("hooks_runner")
    assert args[:2] == ("cluster-destroy", "post")
    assert engine.rpc.called("node_deactivate_master_ip")
    assert "did not answer: down" in engine.callbacks.text()


def test_the_master_address_goes_up_and_down_on_the_master_alone():
    engine = Engine(script={"node_activate_master_ip": None})
    run(engine, "ACTIVATE_MASTER_IP")
    ((node, (parameters, external)),) = engine.rpc.called("node_activate_master_ip")
    assert node == MASTER
    assert external is False
    assert parameters == {
        "uuid": MASTER,
        "ip": "192.0.2.100",
        "netmask": 32,
        "netdev": "br0",
        "ip_family": 2,
    }
    engine.rpc.script["node_deactivate_master_ip"] = failure("busy")
    with pytest.raises(errors.OpExecError, match="busy"):
        run(engine, "DEACTIVATE_MASTER_IP")


def test_rename_changes_name_and_address_and_warns_if_it_cannot_go_up(tmp_path):
    data = tmp_path / "n1/var/lib/ganeti"
    data.mkdir(parents=True)
    (data / "known_hosts").write_text("cluster1.example.com ssh-rsa AAAA\n")
    engine = Engine(
        script={
            **SUCCESSFUL_ACTS,
            "hooks_runner": [],
            "node_activate_master_ip": failure("no device"),
        },
        root=str(tmp_path / "n1"),
    )
    engine.hosts["new"] = ("new.example.com", ["2001:db8::1", "192.0.2.200"])
    engine.dead.add("192.0.2.200")
    assert run(engine, "RENAME", name="new") == "new.example.com"
    cluster = engine.snapshot.cluster
    assert (cluster.cluster_name, cluster.master_ip) == (
        "new.example.com",
        "192.0.2.200",
    )
    assert "no device" in engine.callbacks.text()
    assert (data / "known_hosts").read_text().startswith("new.example.com ssh-rsa ")
    down, up = (
        engine.rpc.called(f"node_{word}_master_ip")[0][1][0]["ip"]
        for word in ("deactivate", "activate")
    )
    assert (down, up) == ("192.0.2.100", "192.0.2.200")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "does not resolve"),
        (("cluster1.example.com", ["192.0.2.100"]), "neither name nor address"),
        (("new.example.com", ["192.0.2.200"]), "in use"),
        (("new.example.com", ["2001:db8::1"]), "no address of the cluster's family"),
    ],
)
def test_rename_is_refused_without_a_change(answer, text):
    engine = Engine()
    if answer:
        engine.hosts["new"] = answer
    before = engine.snapshot
    with pytest.raises(errors.OpPrereqError, match=text):
        run(engine, "RENAME", name="new")
    assert engine.snapshot is before


def test_secrets_of_candidates_go_to_candidates_alone(tmp_path):
    root = tmp_path / "n1"
    data = root / "var/lib/ganeti"
    (data / "rapi").mkdir(parents=True)
    secrets = ("cluster-domain-secret", "rapi.pem", "rapi/users")
    for name in ("hmac.key", *secrets):
        (data / name).write_text("x\n")
    plain = clusters.node(3, master_candidate=False)
    engine = Engine(
        clusters.snapshot(nodes=2, extra=[plain]),
        {
            **SUCCESSFUL_ACTS,
            "hooks_runner": [],
            "node_crypto_tokens": [["ssl", clusters.DIGEST]],
            "node_ssh_key_add": [],
        },
        root=str(root),
    )
    run(engine, "REDIST_CONF")
    prefix = "/###-VIRTUAL-PATH-###,/var/lib/ganeti/"
    sent = {(args[0][0], node) for node, args in engine.rpc.called("upload_file")}
    candidate = clusters.node_uuid(2)
    assert sent == {
        (prefix + "hmac.key", candidate),
        (prefix + "hmac.key", plain.uuid),
        *((prefix + name, candidate) for name in secrets),
    }
    engine.rpc.calls.clear()
    request = {"node_name": plain.name, "master_candidate": True}
    engine.run({"OP_ID": "OP_NODE_SET_PARAMS", **request})
    sent = {(args[0][0], node) for node, args in engine.rpc.called("upload_file")}
    assert sent == {(prefix + name, plain.uuid) for name in secrets}


def test_redistribution_sends_the_administrators_files_after_their_list(tmp_path):
    root = tmp_path / "n1"
    conf = root / "etc/ganeti"
    conf.mkdir(parents=True)
    (conf / "shared-files").write_text("/opt/site/ifup\n")
    (root / "opt/site").mkdir(parents=True)
    (root / "opt/site/ifup").write_text("#!/bin/sh\n")
    (conf / "vnc-web1").write_text("secret\n")
    web1 = clusters.instance(
        1, 1, hvparams={"vnc_password_file": str(conf / "vnc-web1")}
    )
    engine = Engine(clusters.snapshot(nodes=2, extra=[web1]), root=str(root))
    engine.rpc.script |= dict.fromkeys(("upload_file", "write_ssconf_files"))
    run(engine, "REDIST_CONF")
    sent = [args[0][0] for _node, args in engine.rpc.called("upload_file")]
    prefix = "/###-VIRTUAL-PATH-###,"
    names = ["/etc/ganeti/shared-files", "/opt/site/ifup", "/etc/ganeti/vnc-web1"]
    assert sent == [prefix + name for name in names]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("/var/lib/ganeti/server.pem", "line 1: /var/lib/ganeti/server.pem: files of"),
        ("/opt/none", "which shared-files names, cannot be sent: No such file"),
    ],
)
def test_a_wrong_list_of_files_is_refused_before_anything_is_sent(tmp_path, line, why):
    conf = tmp_path / "n1/etc/ganeti"
    conf.mkdir(parents=True)
    (conf / "shared-files").write_text(f"{line}\n")
    engine = Engine(clusters.snapshot(nodes=2), root=str(tmp_path / "n1"))
    with pytest.raises(errors.OpPrereqError, match=why):
        run(engine, "REDIST_CONF")
    assert engine.rpc.called("upload_file") == []


def test_a_password_file_that_nodes_do_not_accept_is_named(tmp_path):
    odd = clusters.instance(1, 1, hvparams={"vnc_password_file": "/opt/secret"})
    engine = Engine(clusters.snapshot(nodes=2, extra=[odd]), root=str(tmp_path))
    with pytest.raises(errors.OpPrereqError, match="/opt/secret is not sent"):
        run(engine, "REDIST_CONF")


def test_redistribution_sends_the_masters_files_to_online_nodes_only(tmp_path):
    root = tmp_path / "n1"
    data = root / "var/lib/ganeti"
    (data / "rapi").mkdir(parents=True)
    (data / "hmac.key").write_text("secret\n")
    (data / "server.pem").write_text("never sent\n")
    (data / "rapi/users").write_text("user\n" * 500)
    engine = Engine(
        clusters.snapshot(nodes=2, extra=[clusters.node(3, offline=True)]),
        SUCCESSFUL_ACTS,
        root=str(root),
    )
    serial = engine.snapshot.cluster.serial_no
    run(engine, "REDIST_CONF")
    sent = {
        args[0][0]: (node, args[0]) for node, args in engine.rpc.called("upload_file")
    }
    prefix = "/###-VIRTUAL-PATH-###,/var/lib/ganeti/"
    assert set(sent) == {prefix + "hmac.key", prefix + "rapi/users"}
    assert {node for node, _ in sent.values()} == {clusters.node_uuid(2)}
    assert sent[prefix + "hmac.key"][1][1] == [0, "secret\n"]
    kind, text = sent[prefix + "rapi/users"][1][1]
    assert (kind, zlib.decompress(base64.b64decode(text))) == (1, b"user\n" * 500)
    written = engine.rpc.called("write_ssconf_files")
    assert [node for node, _ in written] == [clusters.node_uuid(i) for i in (1, 2)]
    assert written[0][1][0]["node_list"].startswith("node1.example.com")
    assert engine.snapshot.cluster.serial_no == serial + 1
    assert engine.locks.modes() == {
        Level.NODEGROUP: (None, True),
        Level.NODE: (None, True),
    }
