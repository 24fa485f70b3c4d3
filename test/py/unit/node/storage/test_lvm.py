"""LVM's reports, as its tools printed them on a machine with such volumes."""

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.node.storage import lvm

LVS = """
  {
      "report": [
          {
              "lv": [
                  {"vg_name":"vg0", "lv_name":"abc.disk0_data", "lv_size":"20.00", "lv_attr":"-wi-------", "devices":"/dev/loop0(0)"},
                  {"vg_name":"vg0", "lv_name":"spread", "lv_size":"28.00", "lv_attr":"-wi-ao----", "devices":"/dev/loop0(10)"},
                  {"vg_name":"vg0", "lv_name":"spread", "lv_size":"28.00", "lv_attr":"-wi-ao----", "devices":"/dev/loop1(0)"},
                  {"vg_name":"vg0", "lv_name":"spread", "lv_size":"28.00", "lv_attr":"-wi-ao----", "devices":"/dev/loop0(30)"},
                  {"vg_name":"vg0", "lv_name":"striped", "lv_size":"24.00", "lv_attr":"-wi-a-----", "devices":"/dev/loop0(20),/dev/loop1(10)"},
                  {"vg_name":"vg1", "lv_name":"thin", "lv_size":"8.00", "lv_attr":"Vwi-a-tz--", "devices":""}
              ]
          }
      ]
  }
"""
VGS = """
  {
      "report": [
          {"vg": [{"vg_name":"vg0", "vg_size":"376.00", "vg_free":"8.00"}, {"vg_name":"vg1", "vg_size":"99.50", "vg_free":"0"}]}
      ]
  }
"""


def test_a_volume_has_each_device_once_whatever_its_segments():
    actual = lvm.volumes(FakeRunner(lvs=(0, LVS, "")))
    assert [(v.group, v.name, v.size_text, v.devices) for v in actual] == [
        ("vg0", "abc.disk0_data", "20.00", ("/dev/loop0",)),
        ("vg0", "spread", "28.00", ("/dev/loop0", "/dev/loop1")),
        ("vg0", "striped", "24.00", ("/dev/loop0", "/dev/loop1")),
        ("vg1", "thin", "8.00", ()),
    ]
    assert [v.is_inactive for v in actual] == [True, False, False, False]
    assert [v.is_open for v in actual] == [False, True, False, False]


def test_only_the_named_groups_are_asked_and_a_name_is_no_option():
    runner = FakeRunner(lvs=(0, LVS, ""))
    lvm.volumes(runner, ["vg0", "vg1"])
    assert runner.lines[0].endswith(" -- vg0 vg1")
    with pytest.raises(errors.StorageError, match="'-x' is no name"):
        lvm.volumes(runner, ["vg0", "-x"])


def test_groups_have_whole_mebibytes():
    assert lvm.volume_groups(FakeRunner(vgs=(0, VGS, ""))) == {"vg0": 376, "vg1": 99}


def test_nothing_is_found_where_there_are_no_groups():
    empty = '{"report": [{"lv": []}]}'
    assert lvm.volumes(FakeRunner(lvs=(0, empty, "  a warning\n"))) == []


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            (5, "", '  Volume group "x" not found\n  Cannot process it\n'),
            'exited with code 5: Volume group "x" not found; Cannot process it',
        ),
        ((3, "", ""), "exited with code 3: no output"),
        ((0, "hello", ""), "lvs: no report in its output"),
        ((0, '{"report": [{"lv": [{}]}]}', ""), "lvs: no report in its output"),
    ],
)
def test_failures_contain_the_report_of_the_tool(answer, text):
    with pytest.raises(errors.StorageError, match=text):
        lvm.volumes(FakeRunner(lvs=answer))


def test_without_lvm_the_error_names_the_package():
    def missing(argv):
        raise errors.CommandError(f"{argv[0]}: cannot be run: No such file")

    with pytest.raises(errors.StorageError, match="in the package lvm2"):
        lvm.volumes(FakeRunner(lvs=missing))
