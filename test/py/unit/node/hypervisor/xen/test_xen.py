"""Guests of Xen: their start and end by xl, and what xl prints."""

import errno
import functools
import os
import pathlib
import types

import pytest

from fakes import nodes
from fakes.processes import FakeRunner
from fakes.xen_guests import NIC, disk, instance
from ganeti.base import errors, pathutils
from ganeti.base.process import RunResult
from ganeti.node import hypervisor
from ganeti.node.hypervisor import registry
from ganeti.node.hypervisor.base import GuestState
from ganeti.node.hypervisor.xen import driver as checks
from ganeti.node.hypervisor.xen import files, migration, xl
from ganeti.node.hypervisor.xen.files import Files
from ganeti.tools.xen import xen_console

HEAD = "Name                                        ID   Mem VCPUs\tState\tTime(s)\n"
NODE = (
    "Domain-0                                     0   979     1     r-----     134.0\n"
)
#: Recorded from Xen 4.17.
INFO = """\
host                   : lab1.lab.test
release                : 6.1.0-56-amd64
nr_cpus                : 8
nr_nodes               : 1
cores_per_socket       : 2
threads_per_core       : 2
virt_caps              : pv gnttab-v1 gnttab-v2
total_memory           : 1399
free_memory            : 302
xen_major              : 4
xen_minor              : 17
xen_extra              : .7
xen_commandline        : console=com1 dom0_mem=979M,max:979M
"""


def row(name, number=3, memory=96, state="-b----", time="3.8"):
    return f"{name:40} {number:5} {memory:5}     1     {state}       {time}\n"


class Xl(FakeRunner):
    """xl with domains; ``failing`` are the commands that fail, with their messages."""

    def __init__(self):
        super().__init__(xl=self._answer)
        self.domains = {}
        self.failing = {}
        self.after = {}
        self.info = INFO

    def _answer(self, argv):
        command, *words = argv[1:]
        if command in self.failing:
            return 1, "", self.failing[command]
        if command == "list":
            return 0, HEAD + NODE + "".join(self.domains.values()), ""
        if command == "info":
            return 0, self.info, ""
        if command == "create":
            name = words[-1].rpartition("/")[2]
            self.domains[name] = row(
                name, state="--p---" if "-p" in words else "r-----"
            )
        if command == "destroy":
            self.domains = {
                name: text
                for name, text in self.domains.items()
                if words[0] not in (name, text.split()[1])
            }
        self.domains |= self.after.pop(command, {})
        return 0, "", ""

    @property
    def changes(self):
        """The commands other than questions."""
        return [line for line in self.lines if line not in ("xl list", "xl info")]


@pytest.fixture
def xen(tmp_path):
    """A driver, its xl and its paths."""
    paths = pathutils.Paths(str(tmp_path), "n1")
    runner = Xl()
    effects = hypervisor.NodeEffects(paths, runner, nodes.CountedClock())
    drivers = registry.drivers(effects)
    made = types.SimpleNamespace(
        runner=runner, paths=paths, effects=effects, driver=drivers["xen-pvm"]
    )
    made.hvm = drivers["xen-hvm"]
    made.config = pathlib.Path(paths.at("/etc/xen/web1"))
    made.start = lambda **params: made.driver.start(
        instance(nics=[NIC], **params), [disk()], paused=False
    )
    return made


def stop(driver, **how):
    driver.stop("web1", hvparams={}, **{"force": False, **how})


def test_a_guest_starts_ends_and_leaves_nothing(xen):
    xen.start()
    assert xen.runner.changes == [f"xl create {xen.config}"]
    assert xen.config.stat().st_mode & 0o777 == 0o600
    assert files.read_nic(xen.paths, "web1", 0)["BRIDGE"] == "br7"
    assert xen.driver.list_names() == ["web1"]
    assert xen.driver.info("web1").state is GuestState.RUNNING
    for refused in (xen.start, lambda: xen.driver.cleanup("web1")):
        with pytest.raises(errors.HypervisorError, match=r"web1: .* running"):
            refused()
    stop(xen.driver)
    stop(xen.driver, force=True)
    assert xen.runner.changes[1:] == ["xl shutdown -F web1", "xl destroy web1"]
    xen.driver.cleanup("web1")
    assert not xen.config.exists()
    assert not os.path.exists(files.nic_directory(xen.paths, "web1"))
    with pytest.raises(errors.HypervisorError, match="web1: not running"):
        stop(xen.driver)


def test_a_paused_guest_hears_of_its_shutdown(xen):
    xen.driver.start(instance(), [disk()], paused=True)
    assert xen.runner.changes == [f"xl create -p {xen.config}"]
    stop(xen.driver)
    assert xen.runner.changes[1:] == ["xl unpause web1", "xl shutdown -F web1"]


def test_a_failed_start_leaves_its_configuration_in_the_logs(xen):
    xen.runner.failing["create"] = "libxl: error:\n  no such kernel\n"
    kept = f"{xen.paths.log_dir}/xen/web1.config"
    text = (
        f"web1: cannot start: xl create exited with code 1: libxl: error: no .*{kept}"
    )
    with pytest.raises(errors.HypervisorError, match=text):
        xen.start()
    assert 'name = "web1"' in pathlib.Path(kept).read_text()
    assert os.stat(kept).st_mode & 0o777 == 0o600
    assert not xen.config.exists()


def test_a_file_of_somebody_else_is_left_alone(xen):
    xen.config.parent.mkdir(parents=True)
    xen.config.write_text("autoballoon = 0\n")
    with pytest.raises(
        errors.HypervisorError, match="configures no guest of this name"
    ):
        xen.start()
    xen.driver.cleanup("web1")
    assert xen.config.read_text() == "autoballoon = 0\n"
    assert xen.runner.changes == []
    # One of another tool for this guest is replaced.
    xen.config.write_text("name = 'web1'\nmemory = 5\n")
    xen.start()
    assert "memory = 256" in xen.config.read_text()


@pytest.mark.parametrize("name", ["0", "12", "../x", "a b", "-p"])
def test_names_that_mean_something_else_to_xl_are_refused(xen, name):
    with pytest.raises(errors.HypervisorError, match=f"instance name|instance {name}"):
        xen.driver.stop(name, hvparams={}, force=True)
    assert xen.runner.changes == []


def test_a_guest_that_has_ended_by_itself_is_destroyed(xen):
    xen.runner.domains["web1"] = row("web1", state="---s--")
    assert xen.driver.info("web1").state is GuestState.SHUTDOWN
    stop(xen.driver)
    xen.runner.domains["web1"] = row("web1", state="----c-")
    xen.driver.cleanup("web1")
    assert xen.runner.changes == ["xl destroy web1", "xl destroy web1"]


def test_a_guest_whose_state_is_saved_has_not_ended(xen):
    xen.runner.domains["web1"] = row("web1", state="---ss-")
    assert xen.driver.info("web1").state is GuestState.RUNNING
    with pytest.raises(errors.HypervisorError, match="cannot clean up"):
        xen.driver.cleanup("web1")
    assert xen.runner.changes == []


@pytest.mark.parametrize("reason", "-rcwS")
def test_a_guest_has_ended_whatever_its_reason(xen, reason):
    xen.runner.domains["web1"] = row("web1", state=f"---s{reason}-")
    assert xen.driver.info("web1").state is GuestState.SHUTDOWN


def resumes(xen):
    """Let the program of migrations resume a guest, as it does with xl."""

    def resume(argv):
        assert argv[1:] == ("resume", "web1")
        xen.runner.domains["web1"] = row("web1", state="-b----")
        return 0, "", ""

    xen.runner.answers["xen-migration"] = resume


def test_a_guest_whose_saving_was_interrupted_is_resumed(xen):
    resumes(xen)
    for go_on in (
        lambda: xen.driver.finalize_source(instance(), success=False),
        lambda: stop(xen.driver),
    ):
        xen.runner.domains["web1"] = row("web1", state="---ss-")
        go_on()
        assert xen.driver.info("web1").state is GuestState.RUNNING
    assert xen.runner.changes[-1] == "xl shutdown -F web1"
    assert "xl destroy web1" not in xen.runner.changes


def test_a_guest_that_cannot_be_resumed_is_an_error(xen):
    xen.runner.domains["web1"] = row("web1", state="---ss-")
    xen.runner.answers["xen-migration"] = lambda _argv: (1, "", "")
    with pytest.raises(errors.HypervisorError, match="web1: xen-migration resume"):
        xen.driver.finalize_source(instance(), success=False)


def wait_here(xen, arrival):
    """Leave a guest that has arrived, and whose source has not decided."""
    guest = Files(xen.paths, "web1")
    guest.make_directories()
    pathlib.Path(guest.migration("arrival")).write_text(arrival)
    xen.runner.domains["web1"] = row("web1", state="--p---")


def test_a_guest_that_waits_for_the_word_of_its_source_does_not_run(xen):
    for arrival in migration.Arrival:
        wait_here(xen, arrival)
        assert xen.driver.info("web1").state is GuestState.SHUTDOWN
        # It would be shown on the wrong node during each migration.
        assert xen.driver.all_infos() == []
        assert xen.driver.list_names() == ["web1"]
    text = "waits on this node .*--cleanup web1, .* shutdown and startup"
    with pytest.raises(errors.HypervisorError, match=text):
        xen.driver.require_startable("web1")
    assert xen.runner.changes == []
    # As its shutdown does.
    xen.driver.cleanup("web1")
    assert xen.runner.changes == ["xl destroy web1"]
    xen.driver.require_startable("web1")
    # A part of a guest is worth nothing: the start removes it.
    wait_here(xen, migration.Arrival.INCOMPLETE)
    xen.driver.require_startable("web1")


def test_a_guest_that_is_let_go_on_to_end_is_not_given_up_any_more(xen):
    guest = Files(xen.paths, "web1")
    guest.make_directories()
    pathlib.Path(guest.migration("result")).write_text('{"code": 0}')
    xen.runner.domains["web1"] = row("web1", state="--p---")
    xen.runner.after["unpause"] = {"web1": row("web1", state="-b----")}
    stop(xen.driver)
    assert xen.runner.changes == ["xl unpause web1", "xl shutdown -F web1"]
    assert migration.status(guest).status == "failed"


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("state", ["--p---", "---ss-"])
def test_the_migration_of_a_guest_ends_once_before_the_guest_ends(
    xen, monkeypatch, state, force
):
    ended = []

    def end(_effects, guest):
        assert xen.runner.changes == []
        ended.append(guest.name)

    monkeypatch.setattr(migration, "stop", end)
    resumes(xen)
    write_result(xen, '{"code": 0}')
    xen.runner.domains["web1"] = row("web1", state=state)
    stop(xen.driver, force=force)
    assert ended == ["web1"]
    assert xen.runner.changes[-1] == (
        "xl destroy web1" if force else "xl shutdown -F web1"
    )
    # So its copy at the target does not go on.
    assert migration.status(Files(xen.paths, "web1")).status == "failed"


@pytest.mark.parametrize("force", [True, False])
def test_a_guest_that_leaves_while_it_is_to_end_has_been_given_up(
    xen, monkeypatch, force
):
    def leave(_effects, _guest):
        write_result(xen, '{"code": 0}')
        xen.runner.domains.clear()

    monkeypatch.setattr(migration, "stop", leave)
    xen.runner.domains["web1"] = row("web1", state="---ss-")
    stop(xen.driver, force=force)
    assert xen.runner.changes == []
    assert migration.status(Files(xen.paths, "web1")).status == "completed"


def test_a_copy_that_goes_on_while_it_is_to_be_removed_stays(xen, monkeypatch):
    wait_here(xen, migration.Arrival.COMPLETE)

    def go_on(_effects, guest):
        os.unlink(guest.migration("arrival"))
        xen.runner.domains["web1"] = row("web1", state="-b----")

    monkeypatch.setattr(migration, "stop", go_on)
    with pytest.raises(errors.HypervisorError, match=r"cannot clean up, .* running"):
        xen.driver.cleanup("web1")
    assert xen.runner.changes == []


def test_a_guest_that_its_source_has_let_go_is_not_destroyed(xen):
    """The program was killed before it let the guest go on."""
    xen.runner.domains["web1"] = row("web1", state="--p---")
    with pytest.raises(errors.HypervisorError, match="is not destroyed"):
        xen.driver.finalize_destination(instance(), "", success=False)
    assert xen.runner.changes == []


def test_a_guest_that_is_gone_without_a_result_may_have_left(xen):
    with pytest.raises(errors.HypervisorError, match="web1: does not run here any"):
        xen.driver.finalize_source(instance(), success=False)
    # Its domain is being removed after the decision.
    write_result(xen, '{"code": 0}')
    xen.runner.domains["web1"] = row("web1", state="----d-")
    with pytest.raises(errors.HypervisorError, match="web1: has left for the target"):
        xen.driver.finalize_source(instance(), success=False)
    assert migration.status(Files(xen.paths, "web1")).status == "completed"


def test_a_decision_that_came_to_nothing_is_taken_back(xen):
    """The program was killed between its decision and the end of the domain."""
    write_result(xen, '{"code": 0}')
    xen.runner.domains["web1"] = row("web1", state="--p---")
    xen.runner.after["unpause"] = {"web1": row("web1", state="-b----")}
    xen.driver.finalize_source(instance(), success=False)
    assert xen.runner.changes == ["xl unpause web1"]
    assert migration.status(Files(xen.paths, "web1")).status == "failed"


def test_a_full_disk_of_the_target_is_named_before_the_guest_leaves(xen, monkeypatch):
    def full(_paths, _instance):
        raise OSError(errno.ENOSPC, "No space left on device", "/run/x")

    monkeypatch.setattr(files, "write_nics", full)
    with pytest.raises(errors.HypervisorError, match=r"web1: .*No space left.*/run/x"):
        xen.driver.accept(instance(), "", "192.0.2.2", [disk()])
    assert not xen.config.exists()


def test_a_console_lets_no_guest_go_on_that_waits_in_a_migration(xen):
    guest = Files(xen.paths, "web1")
    guest.make_directories()
    for file, text in (("arrival", "complete"), ("result", '{"code": 0}')):
        xen.runner.domains["web1"] = row("web1", state="--p---")
        path = pathlib.Path(guest.migration(file))
        path.write_text(text)
        xen_console.unpause(xen.driver._effects, "web1", print)
        assert xen.runner.changes == []
        path.unlink()


def test_a_guest_that_its_source_has_given_up_goes_on(xen):
    wait_here(xen, migration.Arrival.COMPLETE)
    xen.runner.after["unpause"] = {"web1": row("web1", state="-b----")}
    xen.driver.finalize_destination(instance(), "", success=True)
    assert xen.driver.info("web1").state is GuestState.RUNNING
    # Nor does a later pause make it one that waits.
    xen.runner.domains["web1"] = row("web1", state="--p---")
    assert xen.driver.info("web1").state is GuestState.RUNNING


def test_a_destroyed_domain_that_stays_is_an_error(xen):
    xen.start()
    xen.runner.failing["destroy"] = "busy"
    with pytest.raises(errors.HypervisorError, match=r"xl destroy .*: busy"):
        stop(xen.driver, force=True)


@pytest.mark.parametrize(
    "after",
    [
        {"web1": row("web1", number=4)},
        {"web1": row("web1", time="0.1")},
    ],
)
def test_a_reboot_ends_with_another_domain_or_less_time(xen, after):
    xen.runner.domains["web1"] = row("web1")
    xen.runner.after["reboot"] = after
    xen.driver.reboot(instance())
    assert xen.runner.changes == ["xl reboot -F web1"]


def test_a_reboot_lasts_until_the_new_domain_runs(xen):
    xen.runner.domains["web1"] = row("web1")
    states = [
        row("web1", number=4, memory=0, state="------", time="0.0"),
        row("web1", number=4, state="--p---", time="0.0"),
        row("web1", number=4, time="0.0"),
    ]
    xen.runner.after["reboot"] = {"web1": states[0]}
    xen.effects.clock.wait = lambda _event, _s: xen.runner.domains.update(
        web1=states.pop(0) if len(states) > 1 else states[0]
    )
    xen.driver.reboot(instance())
    assert len(states) == 1


def test_a_reboot_that_does_not_happen_is_an_error(xen):
    with pytest.raises(errors.HypervisorError, match="web1: not running"):
        xen.driver.reboot(instance())
    xen.runner.domains["web1"] = row("web1")
    with pytest.raises(errors.HypervisorError, match="did not reboot within 600 sec"):
        xen.driver.reboot(instance())
    with pytest.raises(errors.HypervisorError, match=r"stay down, as .* exit"):
        xen.driver.reboot(instance(reboot_behavior="exit"))


def test_memory_changes_while_the_guest_runs(xen):
    xen.start()
    xen.driver.balloon(instance(), 200)
    assert xen.runner.changes[-1] == "xl mem-set web1 200m"
    xen.driver.resize_disk(instance(), None, 1)
    xen.runner.failing["mem-set"] = "too much"
    with pytest.raises(errors.HypervisorError, match=r"web1: xl mem-set .*: too much"):
        xen.driver.balloon(instance(), 200)


def test_a_machine_without_hardware_virtualisation_starts_and_takes_no_hvm(xen):
    made = instance("xen-hvm", vnc_bind_address="")
    text = r"web1: Xen finds no hardware virtualisation.*found 'pv gnttab-v1"
    with pytest.raises(errors.HypervisorError, match=text):
        xen.hvm.start(made, [disk()], paused=False)
    with pytest.raises(errors.HypervisorError, match=text):
        xen.hvm.accept(made, "", "192.0.2.1", [disk()])
    assert xen.runner.changes == []
    assert not xen.config.exists()


def test_the_password_of_a_display_comes_from_its_file(xen):
    xen.runner.info = INFO.replace(": pv ", ": pv hvm ")
    path = pathlib.Path(xen.paths.at("/etc/ganeti/vnc-cluster-password"))
    made = instance("xen-hvm")
    with pytest.raises(errors.HypervisorError, match=r"vnc_password_file: .*No such"):
        xen.hvm.start(made, [disk()], paused=False)
    path.parent.mkdir(parents=True)
    path.write_text("\nsecret\n")
    with pytest.raises(errors.HypervisorError, match="a password in the first line"):
        xen.hvm.start(made, [disk()], paused=False)
    path.write_text("secret\nmore\n")
    xen.hvm.start(made, [disk()], paused=False)
    assert 'vncpasswd = "secret"' in xen.config.read_text()
    assert not any("secret" in line for line in xen.runner.lines)


def test_a_node_has_the_memory_and_processors_of_the_machine(xen):
    xen.runner.domains["web1"] = row("web1")
    assert xen.driver.node_info() == {
        "memory_total": 1399,
        "memory_free": 302,
        "memory_dom0": 979,
        "memory_hv": 22,
        "cpu_total": 8,
        "cpu_nodes": 1,
        "cpu_sockets": 2,
        "cpu_dom0": 1,
        "hv_version": [4, 17],
    }


def test_the_list_has_guests_alone_in_order():
    text = HEAD + NODE + row("web2") + row("web1", state="r-----")
    text += (
        row("web3--incoming")
        + row("web4--migratedaway")
        + row("(null)", state="--ps-d")
    )
    rows = xl.guests(xl.domains(text))
    assert [each.name for each in rows] == ["web1", "web2"]
    assert rows[1].info == ("web2", "3", 96, 1, GuestState.RUNNING, 3.8, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "error\n",
        HEAD + "web1 3 512 1 r----- x\n",
        HEAD + "web1 3 512 1 r-----\n",
        HEAD + "web1 -3 512 1 r----- 1.0\n",
        HEAD + f"web1 3 {'9' * 30} 1 r----- 1.0\n",
        HEAD + "web1 3 512 1 zzzzzz 1.0\n",
        HEAD + "x" * 400 + " 3 512 1 r----- 1.0\n",
    ],
    ids=range(8),
)
def test_another_form_of_the_list_is_an_error(text):
    with pytest.raises(errors.HypervisorError, match="xl list: wanted") as caught:
        xl.domains(text)
    assert len(str(caught.value)) < 300


def test_a_name_with_the_look_of_a_row_is_a_name():
    (domain,) = xl.domains(HEAD + row("web1 7 1 1 r----- 1.0"))
    assert (domain.name, domain.number) == ("web1 7 1 1 r----- 1.0", 3)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("total_memory : x", "as total_memory, found 'x'"),
        ("nr_cpus : " + "9" * 40, "as nr_cpus"),
        ("xen_major : \u0663", "as xen_major"),
    ],
)
def test_wrong_values_of_a_node_are_errors(line, problem):
    rows = xl.domains(HEAD + NODE)
    with pytest.raises(errors.HypervisorError, match=f"xl info: .*{problem}"):
        xl.node_info(xl.info(f"{INFO}{line}\n"), rows)
    with pytest.raises(errors.HypervisorError, match="wanted a domain 0"):
        xl.node_info(xl.info(INFO), [])


@pytest.fixture
def kind(tmp_path, monkeypatch):
    """The file with the kind of hypervisor, and xl in the path."""
    monkeypatch.setattr(checks.shutil, "which", lambda _name, path: "/usr/sbin/xl")
    path = tmp_path / "type"
    path.write_text("xen\n")
    return path


def test_a_node_that_can_run_guests_has_no_problem(xen, kind):
    assert checks.xen_problem(xen.effects, "xen-pvm", str(kind)) is None
    text = checks.xen_problem(xen.effects, "xen-hvm", str(kind))
    assert "no hardware virtualisation" in text
    kind.write_text("kvm\n")
    text = checks.xen_problem(xen.effects, "xen-pvm", str(kind))
    assert "does not run under Xen" in text
    kind.unlink()
    text = checks.xen_problem(xen.effects, "xen-pvm", str(kind))
    assert text.endswith("found no such file)")


@pytest.mark.parametrize(
    "link",
    ["etc/rc3.d/S02xendomains", "etc/systemd/system/a.target.wants/xendomains.service"],
)
def test_a_service_that_restores_guests_by_itself_is_a_problem(
    xen, kind, tmp_path, link
):
    def problem():
        return checks.xen_problem(xen.effects, "xen-pvm", str(kind), str(tmp_path))

    settings = tmp_path / "etc/default/xendomains"
    settings.parent.mkdir(parents=True)
    settings.write_text("XENDOMAINS_SAVE=\nXENDOMAINS_SAVE=/var/lib/xen/save\n")
    assert problem() is None
    (tmp_path / link).parent.mkdir(parents=True)
    (tmp_path / link).touch()
    assert "found '/var/lib/xen/save'" in problem()
    settings.write_text("# XENDOMAINS_SAVE=/a\nXENDOMAINS_SAVE=\nXENDOMAINS_RESTORE=1")
    assert problem() is None
    settings.write_text('XENDOMAINS_SAVE="/a"  # here\n')
    assert "found '/a'" in problem()
    settings.unlink()
    assert problem() is None


def test_verify_names_what_is_missing(xen, kind, monkeypatch):
    xen.runner.failing["info"] = "cannot init xl context"
    text = "Xen: xl info exited with code 1: cannot init xl context"
    with pytest.raises(errors.HypervisorError, match=text):
        checks.xen_problem(xen.effects, "xen-pvm", str(kind))
    monkeypatch.setattr(checks, "xen_problem", lambda *_args: checks.xl.domain("0"))
    assert "Xen needs a name" in xen.driver.verify()
    monkeypatch.undo()
    monkeypatch.setattr(checks.shutil, "which", lambda _name, path: None)
    assert "xl of Xen is not installed" in xen.driver.verify()


def test_parameters_are_checked_against_the_node(xen, tmp_path):
    kernel = tmp_path / "k"
    with pytest.raises(errors.HypervisorError, match=f"kernel_path: .* at {kernel}"):
        xen.driver.validate(instance(kernel_path=str(kernel)).hvparams)
    kernel.touch()
    xen.driver.validate(instance(kernel_path=str(kernel)).hvparams)
    loader = {"use_bootloader": True, "bootloader_path": str(tmp_path)}
    with pytest.raises(errors.HypervisorError, match="bootloader_path: wanted a file"):
        xen.driver.validate(instance(**loader).hvparams)
    xen.driver.validate(instance(use_bootloader=True).hvparams)
    # xl knows where its emulator is; no display needs no password.
    xen.hvm.validate(instance("xen-hvm", vnc_bind_address="").hvparams)
    with pytest.raises(errors.HypervisorError, match="vnc_password_file"):
        xen.hvm.validate(instance("xen-hvm").hvparams)
    with pytest.raises(errors.HypervisorError, match="blockdev_prefix: wanted 2 to 4"):
        xen.driver.validate(
            instance(use_bootloader=True, blockdev_prefix="x,").hvparams
        )


def test_the_files_of_xl_are_distributed(xen):
    path = xen.paths.at("/etc/xen/xl.conf")
    assert xen.driver.ancillary_files() == ([path], [path])


def test_a_virtual_node_is_not_reset_and_a_real_one_by_xen(xen):
    xen.driver.reset_host()
    assert xen.runner.lines == []
    effects = hypervisor.NodeEffects(
        pathutils.Paths("", "n1"), xen.runner, xen.effects.clock
    )
    registry.drivers(effects)["xen-pvm"].reset_host()
    assert xen.runner.lines == ["xl debug-key R"]


def test_a_missing_xl_is_an_error(xen):
    def run(argv, **_options):
        raise errors.CommandError(f"{argv[0]}: cannot be run")

    xen.runner.run = run
    with pytest.raises(errors.HypervisorError, match="Xen: xl: cannot be run"):
        xen.driver.list_names()


def test_an_xl_that_hangs_or_floods_is_an_error(xen):
    for more, text in (
        ({"timed_out": True}, "did not end in time"),
        ({"too_long": True}, "printed too much"),
    ):
        result = RunResult(("xl",), None, 9, "", "", **more)
        xen.runner.run = lambda _argv, result=result, **_options: result
        with pytest.raises(errors.HypervisorError, match=f"xl list {text}"):
            xen.driver.all_infos()


@pytest.mark.parametrize("name", ["web1--incoming", "x--migratedaway", "Domain-0"])
def test_names_that_nobody_would_see_run_are_refused(xen, name):
    """A guest with such a name was never in the list, so others started it again."""
    with pytest.raises(errors.HypervisorError, match=f"{name}: Xen needs another name"):
        xen.driver.info(name)
    with pytest.raises(errors.HypervisorError, match=f"{name}: Xen needs another name"):
        xen.driver.start(instance().replace(name=name), [disk()], paused=False)
    assert xen.runner.changes == []


def test_a_guest_that_has_arrived_is_not_destroyed(xen):
    xen.runner.domains["web1"] = row("web1", state="r-----")
    with pytest.raises(errors.HypervisorError, match="has arrived and runs"):
        xen.driver.finalize_destination(instance(), "", success=False)
    assert xen.runner.changes == []
    xen.runner.domains = {"web1--incoming": row("web1--incoming", state="--p---")}
    xen.driver.finalize_destination(instance(), "", success=False)
    assert xen.runner.changes == ["xl destroy 3"]


def write_result(xen, text):
    guest = Files(xen.paths, "web1")
    guest.make_directories()
    pathlib.Path(guest.migration("result")).write_text(text)


def test_a_guest_that_has_left_is_not_started_where_it_was(xen):
    write_result(xen, '{"code": 1, "reason": "broken"}')
    xen.driver.require_startable("web1")
    write_result(xen, '{"code": 0}')
    with pytest.raises(errors.HypervisorError, match=r"has left this node .*--cleanup"):
        xen.driver.require_startable("web1")
    with pytest.raises(errors.HypervisorError, match="has left for the target"):
        xen.driver.finalize_source(instance(), success=False)
    # As its shutdown does, which ends the doubt.
    xen.driver.cleanup("web1")
    xen.driver.require_startable("web1")
    write_result(xen, '{"code": 0}')
    xen.driver.finalize_source(instance(), success=True)
    xen.driver.require_startable("web1")


def test_a_guest_that_leaves_while_its_migration_is_ended_has_left(xen, monkeypatch):
    alive = [7]
    monkeypatch.setattr(
        migration.pidfile, "live_pid", lambda *_args: alive[0] if alive else None
    )

    def leave(_pid, _number):
        write_result(xen, '{"code": 0}')
        alive.clear()

    monkeypatch.setattr(migration.os, "kill", leave)
    with pytest.raises(errors.HypervisorError, match="has left for the target"):
        xen.driver.finalize_source(instance(), success=False)
    # Nor does it start here later.
    with pytest.raises(errors.HypervisorError, match="has left this node"):
        xen.driver.require_startable("web1")


def test_a_guest_on_its_way_is_on_both_nodes(xen):
    xen.runner.domains["web1--incoming"] = row("web1--incoming", state="--p---")
    xen.runner.domains["web0"] = row("web0", number=4)
    assert xen.driver.list_names() == ["web0", "web1"]
    assert [each.name for each in xen.driver.all_infos()] == ["web0"]


def test_a_guest_that_waits_after_a_migration_goes_on(xen):
    for finalize in (
        lambda: xen.driver.finalize_source(instance(), success=False),
        lambda: xen.driver.finalize_destination(instance(), "", success=True),
    ):
        xen.runner.commands.clear()
        xen.runner.domains["web1"] = row("web1", state="--p---")
        xen.runner.after["unpause"] = {"web1": row("web1", state="-b----")}
        finalize()
        assert xen.runner.changes == ["xl unpause web1"]
        # Once it runs, nothing is left to do.
        finalize()
        assert xen.runner.changes == ["xl unpause web1"]


def test_a_guest_that_cannot_go_on_is_an_error(xen):
    xen.runner.domains["web1"] = row("web1", state="--p---")
    xen.runner.failing["unpause"] = "no such domain"
    text = "web1: xl unpause .*: no such domain"
    with pytest.raises(errors.HypervisorError, match=text):
        xen.driver.finalize_destination(instance(), "", success=True)


def test_xen_without_shadow_page_tables_migrates_no_running_guest(xen, monkeypatch):
    sent = []
    monkeypatch.setattr(migration, "send", lambda *_args, live: sent.append(live))
    xen.start()
    migrate = functools.partial(xen.driver.migrate, instance(), "192.0.2.2")
    text = r"web1: .* live, .*found 'pv gnttab-v1 gnttab-v2'\); use --non-live"
    with pytest.raises(errors.HypervisorError, match=text):
        migrate(live=True)
    migrate(live=False)
    xen.runner.info = INFO.replace("pv gnttab-v1", "pv shadow gnttab-v1")
    migrate(live=True)
    assert sent == [False, True]


def test_the_result_of_a_migration_stays_until_the_guest_is_gone(xen):
    """A clean-up after a kill needs it, to let the copy go on."""
    xen.runner.domains["web1"] = row("web1", state="---s--")
    write_result(xen, '{"code": 0}')
    result = pathlib.Path(Files(xen.paths, "web1").migration("result"))
    assert result.exists()
    xen.runner.failing["destroy"] = "killed"
    with pytest.raises(errors.HypervisorError, match="killed"):
        xen.driver.finalize_source(instance(), success=True)
    assert result.exists()
    xen.runner.failing.clear()
    xen.driver.finalize_source(instance(), success=True)
    assert not result.exists()
