"""The record of a take-over: steps in order, both ways, after each interruption."""

import pytest

from ganeti.base import errors
from ganeti.migration.takeover import journal, steps

NODES = (
    journal.Target(name="a", address="192.0.2.1", port=22, is_candidate=True),
    journal.Target(name="b", address="192.0.2.2", port=22, is_candidate=False),
)


def new():
    return journal.Journal(
        cluster="c", master="a", version=3000000, daemon_util="/x", nodes=NODES
    )


def test_each_step_has_one_turn_in_each_direction() -> None:
    record = new()
    for step in journal.OVER:
        for other in {*journal.OVER, *journal.BACK} - {step}:
            with pytest.raises(errors.ProgrammerError):
                record.begun(other)
            with pytest.raises(errors.ProgrammerError):
                record.done(other)
        record = record.begun(step).done(step)
    assert record.todo == ()
    record = record.turned()
    assert record.todo == journal.BACK
    for step in journal.BACK:
        record = record.begun(step).done(step)
    assert record.todo == ()
    assert record.turned() == record


@pytest.mark.parametrize("count", range(len(journal.OVER) + 1))
def test_the_store_counts_as_used_from_the_beginning_of_its_start(count) -> None:
    record = new()
    for step in journal.OVER[:count]:
        record = record.begun(step).done(step)
    assert record.has_used_store is (count > journal.OVER.index("start"))
    if record.todo:
        begun = record.begun(record.todo[0])
        assert begun.has_used_store is (count >= journal.OVER.index("start"))
        assert begun.turned().has_used_store is begun.has_used_store


def test_it_is_stored(tmp_path) -> None:
    path = str(tmp_path / "take-over" / "journal.json")
    assert journal.load(path) is None
    record = new().begun("stop").done("stop")
    journal.save(path, record)
    assert journal.load(path) == record


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cluster": "c"}'])
def test_damage_is_named(tmp_path, text) -> None:
    path = tmp_path / "journal.json"
    path.write_text(text)
    with pytest.raises(errors.ConfigurationError, match=r"journal\.json: damaged"):
        journal.load(str(path))


def test_steps_out_of_order_are_damage(tmp_path) -> None:
    path = str(tmp_path / "journal.json")
    journal.save(path, new().replace(over=("keep",)))
    with pytest.raises(errors.ConfigurationError, match="steps out of order"):
        journal.load(path)


def test_each_step_has_a_title() -> None:
    assert set(steps.TITLES) == {*journal.OVER, *journal.BACK}
    assert steps.title("copy", new()).endswith("candidates a")
    assert steps.title("stop", new()).endswith("on a, b")
