"""An export for Ganeti names what it leaves out: SSH host keys, parameters of guests."""

from fakes import clusters
from ganeti.migration import old_config
from ganeti.model.objects import Update


def test_recorded_host_keys_are_left_out_and_foreign_ones_named():
    snapshot = clusters.snapshot(nodes=3)
    shared = f"ssh-rsa {snapshot.cluster.rsahostkeypub}"
    keys = ((shared, "ssh-ed25519 A"), ("ssh-ed25519 B",), ())
    nodes = sorted(snapshot.nodes.values(), key=lambda node: node.name)
    changed = snapshot.apply(
        Update("nodes", node.uuid, node.replace(ssh_host_keys=own))
        for node, own in zip(nodes, keys, strict=True)
    )
    plain, lost = old_config.without_extensions(changed)
    assert lost == ["node node2.example.com: SSH host keys of its own"]
    assert dict(plain.nodes) == dict(snapshot.nodes)


def test_the_authentication_of_the_remote_api_is_named():
    snapshot = clusters.snapshot(nodes=1)
    cluster = snapshot.cluster.replace(rapi_require_authentication=True)
    changed = snapshot.apply([Update("cluster", "", cluster)])
    plain, [lost] = old_config.without_extensions(changed)
    assert "--require-authentication" in lost
    assert plain.cluster == snapshot.cluster


def test_the_first_of_the_default_allocators_is_kept():
    setting = "allocate=own,hail:relocate=hail"
    snapshot = clusters.snapshot(nodes=1, default_iallocator=setting)
    plain, [lost] = old_config.without_extensions(snapshot)
    assert setting in lost
    assert plain.cluster.default_iallocator == "own"


def test_sizes_of_stripes_are_left_out():
    values = {"plain": {"stripes": 2, "stripe_size": 64}}
    snapshot = clusters.snapshot(nodes=1, diskparams=values)
    plain, [lost] = old_config.without_extensions(snapshot)
    assert lost == "cluster: disk parameter plain: stripe_size = 64"
    assert plain.cluster.diskparams == {"plain": {"stripes": 2}}


def test_parameters_of_guests_that_are_left_out_are_named():
    own = {"firmware": "uefi", "tpm": False, "acpi": True}
    snapshot = clusters.snapshot(
        nodes=1,
        hvparams={"kvm": {"io_threads": 2, "firmware": "bios"}, "fake": {}},
        os_hvp={"tiny": {"kvm": {"tpm": True}}},
        extra=[
            clusters.instance(1, hvparams=own, firmware_state="AA=="),
            clusters.instance(2, hvparams={"acpi": False}),
        ],
    )
    _, lost = old_config.without_extensions(snapshot)
    assert lost == [
        "cluster: hypervisor kvm: io_threads = 2",
        "os tiny: hypervisor kvm: tpm = True",
        "instance inst1.example.com: hypervisor kvm: firmware = uefi",
        "instance inst1.example.com: the copies of its UEFI variables and TPM",
    ]
