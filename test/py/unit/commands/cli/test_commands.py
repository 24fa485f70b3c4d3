"""Commands end to end against the fake master."""

from fakes import commands
from fakes.luxi_master import FakeMaster


def _two_instances():
    master = FakeMaster()
    master.objects["instance"] = [
        {"name": "web1.tst", "uuid": "u1", "pnode": "n1.tst", "oper_ram": 1536},
        {"name": "web2.tst", "uuid": "u2", "pnode": "n2.tst", "oper_ram": (4, None)},
    ]
    return master


def test_startup_of_two_instances_waits_for_both_and_prints_their_messages():
    master = _two_instances()
    master.messages["OP_INSTANCE_STARTUP"] = ["hello\n"]
    done = commands.run("gnt-instance startup --force-multiple web1 web2", master)
    assert done.code == 0
    assert done.out.splitlines()[:2] == [
        "Submitted jobs 1, 2",
        "Waiting for job 1 for web1.tst ...",
    ]
    assert done.out.count("hello\\n\n") == 2


def test_an_argument_that_is_no_text_is_refused_before_anything_happens():
    master = FakeMaster()
    done = commands.run("gnt-instance remove web\udcff", master)
    assert (done.code, done.out) == (1, "")
    assert done.err == "Error: wanted arguments in UTF-8, found 'web\\udcff'\n"
    assert not master.calls


def test_list_shows_status_texts_and_exits_14_on_an_unknown_field():
    done = commands.run("gnt-instance list -o name,oper_ram,foo", _two_instances())
    assert done.code == 14
    assert done.err == "Warning: Queried for unknown fields foo\n"
    assert done.out == ("Instance Memory foo\nweb1.tst   1.5G ??\nweb2.tst      * ??\n")
