"""``gnt-cluster modify --help-parameters``, and errors about unknown parameters."""

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.operations.parameters import typed_params


def test_all_parameters_are_explained_without_a_master() -> None:
    master = FakeMaster()
    master.down = errors.NoMasterError("/socket")
    done = commands.run("gnt-cluster modify --help-parameters", master)
    assert (done.code, done.err) == (0, "")
    assert (
        "vcpus (whole number, default 1)\n    Number of virtual CPUs. Takes effect at"
        " the next start of the instance by\n    Ganeti; not hot-pluggable.\n"
    ) in done.out
    assert "acpi (true or false, default true)\n" in done.out
    assert "Parameters: hypervisor kvm (-H kvm:NAME=VALUE,...)\n" in done.out
    assert "build_time" not in done.out
    assert max(map(len, done.out.splitlines())) < 200


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("serial_consol", "did you mean serial_console"), ("zzz", "is similar")],
)
def test_an_unknown_parameter_gets_the_nearest_and_the_list(name, nearest) -> None:
    with pytest.raises(errors.TypeEnforcementError) as caught:
        typed_params.hypervisor("kvm", {name: "x"})
    text = caught.value.args[0]
    assert text.startswith(f"hypervisor kvm: parameter {name}: unknown; ")
    assert nearest in text
    assert text.endswith("'gnt-cluster modify --help-parameters' explains all")
