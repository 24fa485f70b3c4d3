"""Other policies on the copy of a cluster: what they change, and what is refused."""

import pytest

from ganeti.base import errors
from ganeti.commands.cluster.further_rows import DUTIES as DUTY_OPTIONS
from ganeti.decisions.repair import limits
from ganeti.devel.sim import policy
from ganeti.devel.sim.description import (
    ClusterDescription,
    GroupDescription,
    InstanceDescription,
    NodeDescription,
)

PREFIX = "ganeti:watcher:autorepair:"
CLUSTER = ClusterDescription(
    nodes=(NodeDescription(name="node1"), NodeDescription(name="node2", group="rack")),
    groups=(GroupDescription(name="rack", tags=("old",)),),
    instances=(
        InstanceDescription(
            name="web1",
            primary="node1",
            template="plain",
            tags=(f"{PREFIX}migrate", f"{PREFIX}pending:migrate:x:1:", "old"),
        ),
    ),
    tags=(f"{PREFIX}suspend:1700000000", f"{PREFIX}reinstall-file"),
    limits={"moved-share": 10.0},
    freeze="because",
)
NAMES = {"group": {"u1": "rack"}, "instance": {"u1": "web1", "w": "web1"}}


def differences(after):
    return policy.differences(CLUSTER, after)


def applied(text):
    return policy.apply(CLUSTER, policy.parse(text), NAMES)


def test_settings_replace_those_of_the_cluster():
    after = applied(
        "node-death=yes,moved-share=none,quiet-time=10m,fenced-per-hour=3,freeze=no,"
        "diagnose=yes,diagnose-interval=2m"
    )
    assert after.node_death
    assert after.limits == {"quiet-time": 600.0, "fenced-per-hour": 3.0}
    assert (after.freeze, after.diagnose, after.diagnose_s) == ("", True, 120.0)
    assert after.instances == CLUSTER.instances


def test_shares_may_have_a_percent_sign_and_a_point():
    assert applied("moved-share=12.5%").limits == {"moved-share": 12.5}


DUTIES = (
    "maintenance-interval=10m,auto-balance-cluster=yes,auto-balance-threshold=0.5,"
    "auto-balance-load=yes,auto-balance-disk-moves=yes,maintenance-repairs=yes"
)


def test_duties_of_the_maintenance_daemon_are_settings():
    after = applied(DUTIES)
    assert after.maintenance == {
        "roundDelay": 600,
        "balance": True,
        "balanceThreshold": 0.5,
        "balanceLoad": True,
        "balanceDiskMoves": True,
        "repairs": True,
    }
    shown = {each.key: (each.before, each.after) for each in differences(after)}
    assert shown["maintenance-interval"] == ("300", "600")
    assert shown["auto-balance-threshold"] == ("0.1", "0.5")
    assert shown["maintenance-repairs"] == ("no", "yes")


def test_a_default_leaves_no_trace():
    defaults = "auto-balance-cluster=no,maintenance-interval=300"
    assert applied(f"{defaults},store=file") == CLUSTER


def test_each_setting_of_automation_is_a_key():
    """Whoever adds a setting to ``modify`` adds it here."""
    options = {flag.removeprefix("--") for row in DUTY_OPTIONS for flag in row.names}
    assert options <= policy.KEYS.keys()
    assert set(limits.NAMES) <= policy.KEYS.keys()


def test_the_store_may_be_in_etcd():
    assert applied("store=etcd").store == "etcd"


def test_a_freeze_has_a_reason_with_commas():
    assert applied("freeze=one\\, two").freeze == "one, two"


def test_permissions_replace_tags_of_their_object_alone():
    after = applied("repair=failover,repair:group:rack=suspend")
    assert after.tags == (f"{PREFIX}failover", f"{PREFIX}reinstall-file")
    assert after.groups[0].tags == (f"{PREFIX}suspend", "old")
    assert after.instances == CLUSTER.instances


@pytest.mark.parametrize("name", ["web1", "w", "u1"])
def test_a_permission_of_an_instance_keeps_its_repairs(name):
    (web1,) = applied(f"repair:instance:{name}=none").instances
    assert web1.tags == (f"{PREFIX}pending:migrate:x:1:", "old")


def test_a_group_without_settings_can_get_some():
    after = applied("repair:group:default=migrate")
    assert {group.name: group.tags for group in after.groups} == {
        "rack": ("old",),
        "default": (f"{PREFIX}migrate",),
    }


WRONG = {
    "auto-balance-cluster=1": "auto-balance-cluster: wanted yes or no, found '1'",
    "auto-balance-threshold=much": "wanted a score such as 0.1, found 'much'",
    "auto-balance-threshold=1001": "auto-balance-threshold: wanted a gain of 0 to 1000",
    "maintenance-interval=0": "maintenance-interval: wanted 1 to 604800 seconds",
    "maintenance-interval=1.5": "wanted whole seconds, found '1.5'",
    "store=cloud": "store: wanted file or etcd, found 'cloud'",
    "speed=5": "--policy: wanted one of node-death=yes|no, .* found 'speed=5'",
    "node-death": "found 'node-death'",
    "node-death=": "node-death: wanted yes|no, found no value",
    "node-death=maybe": "node-death: wanted yes or no, found 'maybe'",
    "moved-share=x": "moved-share: wanted percent or none, found 'x'",
    "moved-share=nan": "found 'nan'",
    "moved-share=101": "moved-share: wanted 0 to 100 percent, found 101",
    "fenced-per-hour=1.5": "wanted a number such as 2, found '1.5'",
    "quiet-time=soon": "quiet-time: wanted a time such as 30s .* found 'soon'",
    "diagnose-interval=0": "diagnose-interval: wanted at least 1s, found '0'",
    "repair=all": "repair: wanted one of none, fix-storage, .* found 'all'",
    "repair:group:x=none": "x is no group with nodes of the cluster; wanted one of",
    "repair:instance:x=none": "x is no instance of the cluster; wanted one of web1",
    "repair:node:x=none": "found 'repair:node:x=none'",
    "repair:instance:=none": "found 'repair:instance:=none'",
    "repair=none,repair=migrate": "repair is migrate here and none in --policy",
    "repair:group:u1=none,repair:group:rack=migrate": "repair:group:rack is migrate",
    "freeze=why,node-death=yes": "node-death=yes contradicts freeze=why",
    "diagnose=no,diagnose-interval=5m": "diagnose-interval contradicts diagnose=no",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_and_contradictory_policies_are_refused(text):
    with pytest.raises(errors.OpPrereqError, match=WRONG[text].replace("|", r"\|")):
        applied(text)


def test_equal_settings_do_not_contradict():
    assert applied("node-death=no,node-death=no,freeze=why") == applied("freeze=why")


def test_a_file_has_a_setting_per_line():
    text = "# at night\n\nnode-death = yes # why\nquiet-time=0\n"
    assert policy.parse_file(text, "night") == [
        policy.Setting("node-death", "yes", "night, line 3"),
        policy.Setting("quiet-time", "0", "night, line 4"),
    ]


def test_an_error_names_the_line_of_a_file():
    with pytest.raises(errors.OpPrereqError, match="night, line 2: wanted one of"):
        policy.parse_file("node-death=yes\nspeed\n", "night")


def test_differences_are_shown_for_people():
    after = applied(
        "node-death=yes,moved-share=none,repair=failover,repair:group:rack=none"
    )
    assert [
        (each.key, each.before, each.after)
        for each in policy.differences(CLUSTER, after)
    ] == [
        ("node-death", "no", "yes"),
        ("moved-share", "10", "none"),
        ("repair", "suspend:1700000000", "failover"),
    ]
