"""Adding, removing and changing nodes."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors
from ganeti.daemons.masterd.duties.candidate_rights import CandidateRights
from ganeti.master import config
from ganeti.master.config.address_pool import AddressPool
from ganeti.master.config.config import Config
from ganeti.master.locking import Level
from ganeti.operations import candidate_role
from ganeti.protocols.ssh import host_keys, keys

MASTER = clusters.node_uuid(1)
N2 = clusters.node_uuid(2)
GOOD = {
    "version": 3010000,
    "node_verify": {"nodelist": {}},
    "node_crypto_tokens": [["ssl", clusters.DIGEST]],
    "hooks_runner": [],
    "node_ssh_key_add": [],
    "node_ssh_key_remove": [],
    "etc_hosts_modify": True,
    "node_has_ip_address": True,
}

#: A host name with the form of a uuid.
UUID = "c0ffee00-1234-4abc-8def-0123456789ab"


def engine_with(*, nodes=2, extra=(), script=None, **cluster):
    engine = Engine(
        clusters.snapshot(nodes=nodes, extra=extra, **cluster),
        {**SUCCESSFUL_ACTS, **GOOD, **(script or {})},
    )
    engine.hosts["node9"] = ("node9.example.com", ["192.0.2.9"])
    engine.hosts[UUID] = (UUID, ["192.0.2.9"])
    engine.hosts["node2"] = ("node2.example.com", ["192.0.2.2"])
    engine.hosts["node1"] = ("node1.example.com", ["192.0.2.1"])
    return engine


def add(engine, name="node9", **options):
    return engine.run(
        {"OP_ID": "OP_NODE_ADD", "node_name": name, "node_setup": True, **options}
    )


def modify(engine, name="node2", **options):
    return engine.run({"OP_ID": "OP_NODE_SET_PARAMS", "node_name": name, **options})


def node(engine, name):
    return engine.snapshot.nodes[engine.snapshot.uuid_of("nodes", name)]


def test_a_switch_is_created_when_a_node_gets_its_parameters():
    engine = engine_with(script={"node_configure_ovs": None})
    modify(engine, ndparams={"spindle_count": "2"})
    assert engine.rpc.called("node_configure_ovs") == []
    modify(engine, ndparams={"ovs": "True", "ovs_link": "eth1"})
    made = [(clusters.node_uuid(2), ("switch1", "eth1"))]
    assert engine.rpc.called("node_configure_ovs") == made
    modify(engine, ndparams={"ovs": "False"})
    assert engine.rpc.called("node_configure_ovs") == []


# Adding
def test_a_new_node_becomes_a_candidate_with_certificate_and_keys():
    engine = engine_with()
    assert add(engine) is None
    new = node(engine, "node9.example.com")
    assert new.master_candidate
    assert (new.primary_ip, new.secondary_ip) == ("192.0.2.9", "192.0.2.9")
    assert new.group == clusters.GROUP
    assert engine.snapshot.cluster.candidate_certs == {new.uuid: clusters.DIGEST}
    ((where, args),) = engine.rpc.called("node_ssh_key_add")
    assert where == MASTER
    assert args == (
        new.uuid,
        "node9.example.com",
        ["node1.example.com", "node2.example.com", "node9.example.com"],
        True,
        True,
        True,
    )
    ((where, args),) = engine.rpc.called("node_verify")
    assert (where, args[0]) == (MASTER, {"nodelist": {"node9.example.com": 22}})
    assert engine.locks.big_lock_is_exclusive()
    assert engine.locks.names(Level.NODE) == set(engine.snapshot.nodes)
    hooks = {(n, a[1]) for n, a in engine.rpc.called("hooks_runner")}
    assert hooks == {
        (MASTER, "pre"),
        (N2, "pre"),
        (MASTER, "post"),
        (N2, "post"),
        (new.uuid, "post"),
    }


def test_a_dry_run_contacts_no_machine_which_is_not_prepared_yet():
    engine = engine_with()
    add(engine, dry_run=True)
    assert {name for name, *_ in engine.rpc.calls} <= {"hooks_runner"}
    with pytest.raises(
        errors.OpPrereqError, match="already in the cluster, use --readd"
    ):
        add(engine, "node2", dry_run=True)


def refuse_certificates(monkeypatch):
    """Let each node refuse its certificate."""
    monkeypatch.setattr("ganeti.base.tls.authority.is_used", lambda _path: True)
    monkeypatch.setattr(
        "ganeti.operations.trust.certificates.renew",
        lambda _ctx, nodes, runner: ({}, {node.name: "refused" for node in nodes}),
    )


@pytest.mark.parametrize("takes_certificate", [True, False])
def test_a_node_that_fails_its_checks_leaves_no_trace(monkeypatch, takes_certificate):
    engine = engine_with(modify_etc_hosts=True)
    if takes_certificate:
        engine.rpc.script["node_verify"] = failure("refused")
    else:
        refuse_certificates(monkeypatch)
    before = engine.snapshot
    with pytest.raises(errors.OpExecError, match="refused"):
        add(engine)
    changes = [args[0] for _, args in engine.rpc.called("etc_hosts_modify")]
    assert changes == ["add", "remove"]
    assert engine.snapshot.nodes == before.nodes
    assert not engine.rpc.called("node_ssh_key_add")


def test_a_known_node_that_takes_no_certificate_keeps_its_access(monkeypatch):
    engine = engine_with()
    refuse_certificates(monkeypatch)
    with pytest.raises(errors.OpExecError, match="cannot get its certificate"):
        add(engine, "node2", readd=True)
    assert not engine.rpc.called("node_ssh_key_remove")


def test_a_known_node_that_becomes_incapable_is_forgotten_and_forgets():
    engine = engine_with()
    add(engine, "node2", readd=True, master_capable=False)
    ((_, args),) = engine.rpc.called("node_ssh_key_remove")
    assert args[4:] == (True, True, False, True, True)


def test_a_full_pool_or_incapable_node_gives_a_regular_one():
    engine = engine_with(candidate_pool_size=2)
    add(engine)
    assert not node(engine, "node9.example.com").master_candidate
    assert not engine.rpc.called("node_crypto_tokens")
    engine = engine_with()
    add(engine, master_capable=False)
    new = node(engine, "node9.example.com")
    assert not new.master_candidate
    # Its key goes nowhere, and it gets those of candidates.
    assert engine.rpc.called("node_ssh_key_add")[0][1][3:] == (False, False, True)


@pytest.mark.parametrize(
    ("options", "prepare", "text", "ecode"),
    [
        ({"name": "node8"}, None, "cannot be found: unknown", "resolver_error"),
        ({"name": "node2"}, None, "already in the cluster", "already_exists"),
        ({"name": UUID}, None, "must not look like a uuid", "wrong_input"),
        ({"readd": True}, None, "add it without --readd", "unknown_entity"),
        ({"name": "node1", "readd": True}, None, "is the master", "wrong_state"),
        ({"secondary_ip": "x"}, None, "wanted an IPv4 address", "wrong_input"),
        ({"secondary_ip": "192.0.2.2"}, None, "is used by", "resource_not_unique"),
        ({"secondary_ip": "198.51.100.9"}, None, "but the master", "wrong_input"),
        ({"group": "nope"}, None, "not known", "unknown_entity"),
        (
            {"ndparams": {"exclusive_storage": True}},
            None,
            "only be set for groups and the cluster",
            "wrong_input",
        ),
        ({"ndparams": {"bogus": 1}}, None, "unknown", ""),
        ({}, lambda e: e.dead.add("192.0.2.9"), "not reachable", "environment_error"),
        (
            {},
            lambda e: e.rpc.script.update(version=2),
            "wanted 3010000",
            "environment_error",
        ),
        (
            {"name": "node2", "readd": True, "secondary_ip": "192.0.2.77"},
            None,
            "keeps its secondary",
            "wrong_input",
        ),
        (
            {"name": "node2", "readd": True, "group": "default"},
            None,
            "keeps its group",
            "wrong_input",
        ),
    ],
)
def test_impossible_additions_are_refused_without_a_change(
    options, prepare, text, ecode
):
    engine = engine_with()
    if prepare:
        prepare(engine)
    before = engine.snapshot
    refusals = (errors.OpPrereqError, errors.TypeEnforcementError)
    with pytest.raises(refusals, match=text) as info:
        add(engine, **options)
    assert info.value.args[1:] == ((ecode,) if ecode else ())
    assert engine.snapshot is before


def test_a_node_that_ssh_does_not_reach_is_not_added():
    engine = engine_with(
        script={"node_verify": {"nodelist": {"node9.example.com": "no route"}}}
    )
    before = engine.snapshot
    with pytest.raises(errors.OpExecError, match="no route"):
        add(engine)
    assert engine.snapshot is before


def test_readding_resets_the_roles_and_demotes_who_is_no_candidate():
    engine = engine_with(
        nodes=1,
        extra=[clusters.node(2, offline=True, master_candidate=False, powered=False)],
        candidate_pool_size=1,
    )
    add(engine, "node2", readd=True)
    again = node(engine, "node2.example.com")
    assert not again.offline
    assert again.powered
    assert not again.master_candidate
    assert engine.rpc.called("node_demote_from_mc") == [(N2, ())]
    assert engine.rpc.called("node_ssh_key_remove")[0][1][-1] is True


def refusing_version(times):
    """Return answers of a node that has seen another master, until it is led back."""
    asked = []

    def answer(_node, _args):
        asked.append(1)
        if len(asked) <= times:
            return failure("term 2 is over", deposed=True)
        return GOOD["version"]

    return answer


def test_readding_waits_until_the_node_follows_this_master():
    engine = engine_with(script={"version": refusing_version(3)})
    began = engine.clock.monotonic()
    add(engine, "node2", readd=True)
    assert len(engine.rpc.called("version")) == 4
    assert 1 <= engine.clock.monotonic() - began < 5


@pytest.mark.parametrize(("options", "calls"), [({}, 1), ({"readd": True}, 10)])
def test_a_refused_term_ends_the_addition_after_a_while(options, calls):
    engine = engine_with(script={"version": refusing_version(1000)})
    before = engine.snapshot
    name = "node2" if options else "node9"
    with pytest.raises(errors.OpPrereqError, match="term 2 is over"):
        add(engine, name, **options)
    assert len(engine.rpc.called("version")) >= calls
    assert engine.snapshot is before


# Removing
def test_a_removed_node_runs_its_own_post_hooks_and_another_takes_its_place():
    engine = engine_with(
        extra=[clusters.node(3, master_candidate=False)], candidate_pool_size=2
    )
    engine.run({"OP_ID": "OP_NODE_REMOVE", "node_name": "node2"})
    assert N2 not in engine.snapshot.nodes
    assert node(engine, "node3.example.com").master_candidate
    hooks = [(n, a[1]) for n, a in engine.rpc.called("hooks_runner")]
    assert (N2, "post") in hooks
    assert (N2, "pre") not in hooks
    assert engine.rpc.called("node_leave_cluster") == [(N2, (True,))]
    ((_where, args),) = engine.rpc.called("node_ssh_key_remove")
    assert args[:2] == (N2, "node2.example.com")
    # Nobody logs in there any more, nor it elsewhere.
    assert args[4:] == (True, True, True, True, False)
    assert engine.locks.names(Level.NODE) == set(engine.snapshot.nodes)


def test_the_master_and_nodes_with_instances_cannot_be_removed():
    engine = engine_with(extra=[clusters.instance(5, primary=2)])
    before = engine.snapshot
    for name, text in (("node1", "is the master"), ("node2", "primary node of inst5")):
        with pytest.raises(errors.OpPrereqError, match=text):
            engine.run({"OP_ID": "OP_NODE_REMOVE", "node_name": name})
    assert engine.snapshot is before


def test_an_unreachable_node_can_still_be_removed():
    engine = engine_with(script={"node_leave_cluster": failure("dead")})
    engine.run({"OP_ID": "OP_NODE_REMOVE", "node_name": "node2"})
    assert "dead" in engine.callbacks.text()
    assert N2 not in engine.snapshot.nodes


# Changing
def test_setting_a_role_clears_the_others_and_every_node_learns_of_a_demotion():
    engine = engine_with(candidate_certs={N2: "AA"})
    assert modify(engine, drained=True) == [
        ("drained", True),
        ("master_candidate", False),
    ]
    changed = node(engine, "node2.example.com")
    assert (changed.drained, changed.master_candidate) == (True, False)
    assert engine.snapshot.cluster.candidate_certs == {}
    assert engine.rpc.called("node_demote_from_mc") == [(N2, ())]
    assert engine.rpc.called("node_ssh_key_remove")
    assert engine.locks.modes() == {
        Level.NODE: (frozenset([N2]), False),
        Level.NODE_RES: (frozenset([N2]), False),
    }
    # ... and back: there is room in the pool.
    assert ("master_candidate", True) in modify(engine, drained=False)
    assert engine.snapshot.cluster.candidate_certs == {N2: clusters.DIGEST}


def test_a_candidate_without_the_secrets_cannot_call_others(tmp_path):
    engine = Engine(
        clusters.snapshot(extra=[clusters.node(2, master_candidate=False)], nodes=1),
        {**SUCCESSFUL_ACTS, **GOOD, "upload_file": failure("disk full")},
        root=str(tmp_path),
    )
    data = tmp_path / "var/lib/ganeti"
    data.mkdir(parents=True)
    (data / "server-key.pem").write_text("secret")
    modify(engine, master_candidate=True)
    assert node(engine, "node2.example.com").master_candidate
    assert engine.snapshot.cluster.candidate_certs == {}
    assert "has not got all secrets" in engine.callbacks.text()
    # The master daemon repeats it, see `ganeti.daemons.masterd.duties.candidate_rights`.


def test_calls_to_a_demoted_node_end_before_its_copy_is_removed(monkeypatch):
    engine, order = engine_with(), []

    def release_copy(_config, uuid, _seconds):
        order.append((uuid, list(engine.rpc.called("node_demote_from_mc"))))
        return False

    monkeypatch.setattr(Config, "release_copy", release_copy)
    modify(engine, drained=True)
    assert order == [(N2, [])]
    assert engine.rpc.called("node_demote_from_mc") == [(N2, ())]
    assert "has not ended after 30 s" in engine.callbacks.text()


def test_an_offline_node_is_not_called():
    engine = engine_with()
    modify(engine, offline=True)
    assert node(engine, "node2.example.com").offline
    assert not engine.rpc.called("node_demote_from_mc")


@pytest.mark.parametrize("pool_size", [1, 3])
def test_a_node_that_lost_its_role_while_it_was_away_loses_the_secrets(pool_size):
    """It was marked offline as a candidate; another one may have its place now."""
    engine = engine_with(candidate_pool_size=pool_size)
    modify(engine, offline=True)
    modify(engine, offline=False)
    is_candidate = node(engine, "node2.example.com").master_candidate
    called = engine.rpc.called("node_demote_from_mc")
    assert (called == []) == is_candidate == (pool_size == 3)


def test_a_node_that_can_no_longer_be_master_is_forgotten_and_known_again():
    engine = engine_with()
    modify(engine, master_capable=False)
    ((_, args),) = engine.rpc.called("node_ssh_key_remove")
    assert args[2] == [MASTER]
    assert args[3] == ["node1.example.com"]
    # From authorized and public keys; its own list of public keys is cleared.
    assert args[4:] == (True, True, False, True, False)
    modify(engine, master_capable=True)
    ((_, args),) = engine.rpc.called("node_ssh_key_add")
    assert args[3:] == (True, True, True)
    assert node(engine, "node2.example.com").master_candidate


def test_a_node_that_never_becomes_a_candidate_gets_their_keys_when_it_is_back():
    engine = engine_with()
    modify(engine, master_capable=False)
    modify(engine, offline=True)
    engine.rpc.calls.clear()
    modify(engine, offline=False)
    ((_, args),) = engine.rpc.called("node_ssh_key_add")
    assert args[1:] == (
        "node2.example.com",
        ["node1.example.com"],
        *(False, False, True),
    )


def test_a_node_that_is_back_gets_the_keys_of_all_candidates():
    engine = engine_with()
    modify(engine, offline=True)
    engine.rpc.calls.clear()
    modify(engine, offline=False)
    # Its own key is authorised as that of a candidate, and it gets the others' keys.
    ((_, args),) = engine.rpc.called("node_ssh_key_add")
    assert args[0] == N2
    assert args[3:] == (True, False, True)


def test_auto_promote_locks_all_nodes_and_finds_a_replacement():
    engine = engine_with(
        extra=[clusters.node(3, master_candidate=False)], candidate_pool_size=2
    )
    with pytest.raises(errors.OpPrereqError, match="needed as master candidate"):
        modify(engine, master_candidate=False)
    modify(engine, master_candidate=False, auto_promote=True)
    assert not node(engine, "node2.example.com").master_candidate
    assert node(engine, "node3.example.com").master_candidate
    assert engine.locks.modes()[Level.NODE] == (None, False)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("node2", {}, "no changes requested"),
        ("node2", {"offline": True, "drained": True}, "at most one"),
        ("node1", {"offline": True}, "is the master"),
        ("node1", {"master_capable": False}, "is the master"),
        ("node2", {"powered": False}, "no out-of-band helper"),
        ("node4", {"vm_capable": False}, "must stay vm_capable"),
        ("node3", {"master_candidate": True}, "not master_capable"),
        ("node2", {"secondary_ip": "192.0.2.1"}, "is used by node"),
        ("node2", {"secondary_ip": "198.51.100.2"}, "but the master"),
        ("node1", {"secondary_ip": "198.51.100.1"}, "needs force"),
        ("node2", {"ndparams": {"spindle_count": "x"}}, "wanted a whole number"),
        ("node2", {"hv_state": {"kvm": {"bogus": 1}}}, "unknown"),
        ("node2", {"disk_state": {"file": {}}}, "wanted one of plain"),
    ],
)
def test_impossible_changes_are_refused(name, options, text):
    engine = engine_with(
        extra=[
            clusters.node(3, master_capable=False, master_candidate=False),
            clusters.node(4),
            clusters.instance(1, primary=4),
        ]
    )
    before = engine.snapshot
    refusals = (errors.OpPrereqError, errors.TypeEnforcementError)
    with pytest.raises(refusals, match=text):
        modify(engine, name, **options)
    assert engine.snapshot is before


def test_parameters_and_states_are_stored_and_listed():
    engine = engine_with()
    result = modify(
        engine,
        ndparams={"spindle_count": "4", "ssh_port": "default"},
        hv_state={"kvm": {"mem_total": 4096}},
    )
    assert result[:2] == [("spindle_count", 4), ("ssh_port", "default")]
    changed = node(engine, "node2.example.com")
    assert changed.ndparams == {"spindle_count": 4}
    assert changed.hv_state_static["kvm"]["mem_total"] == 4096
    assert changed.hv_state_static["kvm"]["cpu_total"] == 1


def test_unsetting_what_is_not_set_is_only_noted():
    engine = engine_with()
    assert modify(engine, drained=False) == []
    assert "already unset" in engine.callbacks.text()


def test_an_offline_node_must_answer_before_it_goes_online():
    engine = engine_with(
        nodes=1, extra=[clusters.node(2, offline=True, master_candidate=False)]
    )
    engine.dead.add("192.0.2.2")
    with pytest.raises(errors.OpPrereqError, match="does not answer"):
        modify(engine, offline=False)
    engine.dead.clear()
    modify(engine, offline=False)
    assert "without being re-added" in engine.callbacks.text()


def test_power_cycling_takes_no_locks_and_spares_the_master():
    engine = engine_with(script={"node_powercycle": "Reboot scheduled in 5 seconds"})
    op = {"OP_ID": "OP_NODE_POWERCYCLE", "node_name": "node2"}
    assert engine.run(op) == "Reboot scheduled in 5 seconds"
    assert engine.locks.modes() == {}
    ((_, (hypervisor, parameters)),) = engine.rpc.called("node_powercycle")
    assert (hypervisor, parameters["kvm_path"]) == ("kvm", "/usr/bin/kvm")
    with pytest.raises(errors.OpPrereqError, match="only be reset with force"):
        engine.run({**op, "node_name": "node1"})


# SSH host keys
def rooted(tmp_path, **options):
    """Return an engine whose master has a known_hosts file, and the file."""
    engine = engine_with(**options)
    engine.root = str(tmp_path / "n1")
    path = tmp_path / "n1/var/lib/ganeti/known_hosts"
    path.parent.mkdir(parents=True)
    path.write_text("cluster1.example.com ssh-rsa AAAA\n")
    return engine, path


def host_key():
    return " ".join(keys.generate("ed25519").public.split()[:2])


def names_by_key(path):
    return {key: names for names, key in host_keys.read_known_hosts(str(path))}


def test_host_keys_of_a_new_node_are_recorded_and_known_before_its_check(tmp_path):
    engine, path = rooted(tmp_path)
    key, seen = host_key(), []
    expected = ("node9.example.com", "cluster1.example.com")

    def verify(_uuid, _args):
        seen.append(names_by_key(path).get(key))
        return {"nodelist": {}}

    engine.rpc.script["node_verify"] = verify
    add(engine, ssh_host_keys=[f"{key} root@liar\n"])
    assert seen == [expected]
    assert node(engine, "node9.example.com").ssh_host_keys == (key,)
    assert names_by_key(path)[key] == expected
    sent = {where for where, _args in engine.rpc.called("upload_file")}
    assert sent == set(engine.snapshot.nodes) - {MASTER}
    # The other two nodes have no recorded keys: they are known by the shared one.
    assert ("cluster1.example.com",) in names_by_key(path).values()


def test_host_keys_of_a_node_that_fails_its_check_are_forgotten(tmp_path):
    engine, path = rooted(tmp_path)
    old = host_key()
    add(engine, ssh_host_keys=[old])
    engine.rpc.script["node_verify"] = {"nodelist": {"node9": "refused"}}
    with pytest.raises(errors.OpExecError, match="refused"):
        add(engine, readd=True, ssh_host_keys=[host_key()])
    assert node(engine, "node9.example.com").ssh_host_keys == (old,)
    own = [key for key, names in names_by_key(path).items() if len(names) > 1]
    assert own == [old]


def test_a_node_that_is_added_again_has_its_new_keys_or_keeps_them(tmp_path):
    engine, path = rooted(tmp_path)
    old, new = host_key(), host_key()
    add(engine, ssh_host_keys=[old])
    add(engine, readd=True)
    assert node(engine, "node9.example.com").ssh_host_keys == (old,)
    add(engine, readd=True, ssh_host_keys=[new])
    assert node(engine, "node9.example.com").ssh_host_keys == (new,)
    assert old not in names_by_key(path)


def test_a_node_with_the_key_of_another_is_reported(tmp_path):
    engine, _path = rooted(tmp_path)
    key = host_key()
    add(engine, ssh_host_keys=[key])
    add(engine, "node2", readd=True, ssh_host_keys=[key])
    text = engine.callbacks.text()
    assert "node2.example.com has an SSH host key of node node9.example.com" in text
    assert "--new-ssh-host-keys" in text


def test_a_removed_node_is_not_known_any_more(tmp_path):
    engine, path = rooted(tmp_path)
    key = host_key()
    add(engine, ssh_host_keys=[key])
    engine.rpc.called("upload_file").clear()
    engine.run({"OP_ID": "OP_NODE_REMOVE", "node_name": "node9.example.com"})
    assert key not in names_by_key(path)
    assert engine.rpc.called("upload_file")[-1][0] == N2


@pytest.mark.parametrize(
    "lines",
    [["ssh-ed25519 AAAA"], ["x ssh-ed25519"], ["{key}\n* {key}"], ["{key}"] * 10],
)
def test_host_keys_that_are_none_are_refused(tmp_path, lines):
    engine, path = rooted(tmp_path)
    key = host_key()
    with pytest.raises(errors.OpPrereqError, match="SSH"):
        add(engine, ssh_host_keys=[line.format(key=key) for line in lines])
    assert path.read_text() == "cluster1.example.com ssh-rsa AAAA\n"


def test_two_nodes_that_return_at_once_get_the_keys_of_each_other():
    """The later distribution sees both roles, though the files of the first are old."""
    extra = {"offline": True, "master_candidate": False}
    engine = engine_with(nodes=3, modify_ssh_setup=True)
    seen = []

    def back(number):
        before = node(engine, f"node{number}.example.com")
        with engine.config.edit(f"job{number}") as edit:
            return before.replace(**extra), edit.update(before)

    def distribute(_node, _args):
        last = engine.rpc.called("write_ssconf_files")[-1]
        seen.append((last[0], last[1][0]["online_nodes"].split()))
        return []

    engine.rpc.script["node_ssh_key_add"] = distribute
    names = [f"node{number}.example.com" for number in (1, 2, 3)]
    for pair in [back(2), back(3)]:
        candidate_role.follow(CandidateRights(engine.deps())._context(), *pair)
    assert seen == [(MASTER, names)] * 2


@pytest.mark.parametrize("commits", [1, 99])
def test_roles_that_change_while_they_are_written_are_written_again(commits):
    """The files of the later commit may be there already, and come only once."""
    engine = engine_with(nodes=3, modify_ssh_setup=True)
    old = node(engine, "node2.example.com")
    left = [commits]

    def write(_node, _args):
        if left[0]:
            left[0] -= 1
            with engine.config.edit("later") as edit:
                now = edit.snapshot.nodes[old.uuid]
                edit.update(
                    now.replace(offline=not now.offline, master_candidate=now.offline)
                )

    engine.rpc.script |= {"write_ssconf_files": write, "node_ssh_key_add": []}
    context = CandidateRights(engine.deps())._context()
    candidate_role.follow(context, old.replace(offline=True), old)
    written = [args[0] for _, args in engine.rpc.called("write_ssconf_files")]
    assert len(written) == min(commits + 1, 5)
    if commits == 1:
        newest = config.ssconf_values(engine.snapshot)
        assert written[-1] == {name: newest[name] for name in written[-1]}


def pool(engine):
    return AddressPool(engine.snapshot.networks[clusters.NETWORK]).external()


def of_nodes(**changes):
    return clusters.network(network="192.0.2.0/28", **changes)


def test_the_address_of_a_new_node_is_kept_from_instances():
    engine = engine_with(extra=[of_nodes()])
    add(engine)
    assert "192.0.2.9" in pool(engine)
    assert "reserved 192.0.2.9 of node node9.example.com" in engine.callbacks.text()
    add(engine, readd=True)
    assert "reserved" not in engine.callbacks.text()


def test_a_new_node_with_the_address_of_an_instance_is_a_warning():
    bits = "0" * 9 + "1" + "0" * 6
    engine = engine_with(extra=[of_nodes(reservations=bits)])
    add(engine)
    assert "192.0.2.9" not in pool(engine)
    assert "is an address of instance" in engine.callbacks.text()
    assert engine.snapshot.uuid_of("nodes", "node9.example.com")
