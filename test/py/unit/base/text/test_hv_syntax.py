"""Values of hypervisor parameters that end up in files of other programs."""

import pytest

from ganeti.base import errors
from ganeti.base.constants.parameters import hvparams
from ganeti.base.text import hv_syntax


def defaults(hypervisor, **given):
    table = hvparams.HYPERVISOR[hypervisor]
    return {name: row.default for name, row in table.items()} | given


@pytest.mark.parametrize("hypervisor", sorted(hvparams.HYPERVISOR))
def test_defaults_are_accepted(hypervisor):
    hv_syntax.check(hypervisor, defaults(hypervisor))


@pytest.mark.parametrize(
    "given",
    [
        {"cpu_mask": "0-3,^1"},
        {"devices": "c 1:3 rw, b 8:* r"},
        {"devices": ""},
        {"drop_capabilities": ""},
        {"extra_config": "lxc.signal.halt=SIGUSR1,lxc.cap.drop = sys_nice"},
        {"extra_cgroups": "io,pids"},
    ],
)
def test_values_for_containers(given):
    hv_syntax.check("lxc", defaults("lxc", **given))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cpu_mask": "0:1"}, "cpu_mask: CPU mask '0:1': wanted one mask"),
        ({"cpu_mask": "3-1"}, "'3-1' starts above its end"),
        ({"cpu_mask": "0-99999999"}, "wanted processors up to 8191"),
        ({"cpu_mask": "²"}, "wanted a number or a range"),
        ({"devices": "c 1:3"}, "devices: wanted devices such as .*, found 'c 1:3'"),
        ({"devices": "c 1:3 rw\nlxc.x = y"}, "one line without control characters"),
        ({"drop_capabilities": "SYS_BOOT"}, "wanted capabilities .*'SYS_BOOT'"),
        ({"extra_config": "lxc.x"}, "extra_config: wanted settings .*'lxc.x'"),
        ({"extra_config": "rootfs=/"}, "wanted settings"),
        ({"extra_config": "lxc.x=\u2028y"}, "control characters"),
        ({"extra_cgroups": "../io"}, "wanted controllers"),
    ],
)
def test_values_that_containers_would_not_understand(given, text):
    with pytest.raises(errors.ParseError, match=f"hypervisor lxc: .*{text}"):
        hv_syntax.check("lxc", defaults("lxc", **given))


@pytest.mark.parametrize("script", ["/sbin/init", "/ganeti-chroot"])
def test_scripts_inside_a_root_directory(script):
    hv_syntax.check("chroot", {"init_script": script})


@pytest.mark.parametrize("script", ["", "init", "/../sbin/init", "/a//b", "/a/./b"])
def test_scripts_that_may_be_outside_of_a_root_directory(script):
    with pytest.raises(errors.ParseError, match="init_script: wanted an absolute path"):
        hv_syntax.check("chroot", {"init_script": script})


def test_processors_are_listed_in_order():
    assert hv_syntax.format_processors(frozenset((10, 2, 0))) == "0,2,10"
