"""Pools that share parsed texts: each change is in the result, and in it alone."""

import random

import pytest

from ganeti.base import errors
from ganeti.master.config.address_pool import AddressPool
from ganeti.model.objects import Network

NETWORK = Network(name="net", uuid="net-1", network="192.0.2.0/28", serial_no=1)


def test_a_change_of_one_pool_is_not_in_another_of_the_same_network():
    network = AddressPool.fresh(NETWORK).result()
    first, second = AddressPool(network), AddressPool(network)
    first.use("192.0.2.1")
    first.reserve("192.0.2.2", external=True)
    assert not second.is_used("192.0.2.1")
    assert not second.is_external("192.0.2.2")
    assert second.result() == network


def test_an_array_without_a_change_keeps_its_text():
    network = AddressPool.fresh(NETWORK).result()
    pool = AddressPool(network)
    pool.use("192.0.2.1")
    result = pool.result()
    assert result.ext_reservations is network.ext_reservations
    assert result.reservations == "01" + "0" * 14


def test_a_network_without_arrays_gets_them():
    result = AddressPool(NETWORK).result()
    assert result.reservations == result.ext_reservations == "0" * 16


def test_a_damaged_array_is_refused_each_time():
    damaged = NETWORK.replace(reservations="x" * 16)
    for _ in range(2):
        with pytest.raises(errors.AddressPoolError, match="net: reservations"):
            AddressPool(damaged)


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 200])
def test_many_changes_at_once_are_in_the_text(count):
    network = AddressPool.fresh(NETWORK.replace(network="192.0.2.0/24")).result()
    pool = AddressPool(network)
    for number in range(1, count + 1):
        pool.use(f"192.0.2.{number}")
    pool.release("192.0.2.1")
    result = pool.result()
    assert result.reservations == "00" + "1" * (count - 1) + "0" * (255 - count)
    again = AddressPool(result)
    assert again.used() == [f"192.0.2.{n}" for n in range(2, count + 1)]
    assert again.generate() == "192.0.2.1"


def test_a_text_with_separators_is_read_as_one_without():
    pool = AddressPool(NETWORK.replace(reservations="0000 0000_0000 0010"))
    assert pool.used() == ["192.0.2.14"]
    pool.use("192.0.2.1")
    assert pool.result().reservations == "0100000000000010"


@pytest.mark.parametrize("seed", range(5))
def test_results_equal_a_plain_model(seed):
    rng, network = random.Random(seed), AddressPool.fresh(NETWORK).result()
    used, external = set(), {0, 15}
    for _ in range(200):
        number, is_external = rng.randint(1, 14), rng.random() < 0.5
        address, pool = f"192.0.2.{number}", AddressPool(network)
        marked = external if is_external else used
        if number in marked:
            pool.release(address, external=is_external)
            marked.remove(number)
        elif number not in used | external:
            pool.reserve(address, external=is_external)
            marked.add(number)
        network = pool.result()
        assert network.reservations == _text(used)
        assert network.ext_reservations == _text(external)


def _text(numbers):
    return "".join("1" if number in numbers else "0" for number in range(16))
