"""Whatever a master asks of a node is done or refused, never a crash."""

import os
import tempfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes import nodes, values
from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node import calls as backend
from ganeti.node import hypervisor
from ganeti.node.hypervisor import registry

#: They act on the machine itself, however fake the node is.
REAL = {
    *("node_activate_master_ip", "node_deactivate_master_ip", "test_delay"),
    *("node_change_master_netmask", "node_leave_cluster", "node_powercycle"),
    *("node_start_master_daemons", "node_stop_master", "node_ensure_daemon"),
    *("node_verify", "node_verify_light", "import_start", "export_start"),
    *("x509_cert_create", "node_ssh_keys_renew", "node_ssh_key_add"),
    *("node_ssh_key_remove", "instance_migrate", "run_oob", "impexp_abort"),
    *("etc_hosts_modify", "node_has_ip_address", "set_watcher_pause"),
}
backend.load()
ODD = st.sampled_from(["", "x", "../../etc", "/etc/passwd", "é", "a\0b", "a" * 300])


def damaged(record):
    """Return records with some values replaced."""
    keys = st.sampled_from(sorted(record))
    return st.dictionaries(keys, values.JSON | ODD, max_size=2).map(
        lambda changes: {**record, **changes}
    )


def argument(kind):
    if kind is DiskX:
        return damaged(nodes.disk())
    if kind is InstanceX:
        return damaged(nodes.instance())
    if kind == list[DiskX]:
        return st.lists(damaged(nodes.disk()), max_size=2)
    if kind is str:
        return ODD | values.WORDS
    return values.fitting(kind)


@pytest.fixture(scope="module")
def node():
    with tempfile.TemporaryDirectory(prefix="gn-", dir="/tmp") as root:
        real = nodes.make_node(root, time=nodes.CountedClock())
        # No procedure may depend on another one having been called before.
        os.makedirs(real.paths.data_dir, exist_ok=True)
        runner = FakeRunner(
            **{"ovs-vsctl": (0, "", ""), "os-image": (1, "", "no image")},
            lvs=(0, '{"report": [{"lv": []}]}', ""),
            vgs=(0, '{"report": [{"vg": []}]}', ""),
        )
        effects = hypervisor.NodeEffects(real.paths, runner, real.clock)
        yield backend.LocalNode(
            real.paths, runner, real.clock, registry.drivers(effects)
        )


@pytest.mark.parametrize("name", sorted(backend.PROCEDURES.keys() - REAL))
def test_procedures_take_or_refuse_any_arguments(node, name):
    kinds = backend.PROCEDURES[name].kinds

    @settings(
        max_examples=30,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(*[argument(kind) for kind in kinds]))
    def check(args):
        try:
            backend.call(node, name, list(args))
        except errors.GenericError as err:
            assert str(err)  # noqa: PT017 - it may also succeed

    check()
