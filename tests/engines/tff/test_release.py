# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import asyncio
import collections

import pytest
import tensorflow_federated as tff

from dpfl import mechanisms
from dpfl.engines.tff import release
from dpfl.planning import ledger
from tests.refusals import refuses


@pytest.fixture
def book():
    mechanism = mechanisms.Gaussian(5, 1.0, 2.0)
    participation = mechanisms.PoissonSampling(50, 5, 6)
    return ledger.Ledger(mechanism, participation, 100, 1e-3)


def metrics(loss):
    return collections.OrderedDict(loss=loss)


def released(manager, keys):
    async def program():
        for key in keys:
            await manager.release(metrics(10.0 - key), key)

    asyncio.run(program())


def test_epsilon_of_every_round_is_among_its_metrics(book):
    memory = tff.program.MemoryReleaseManager()
    released(release.EpsilonReleaseManager(book, memory), [1, 2, 3])
    found = memory.values()
    assert list(found) == [1, 2, 3]
    for key, value in found.items():
        assert list(value) == ["loss", "epsilon", "delta"]
        assert value["loss"] == 10.0 - key and value["delta"] == 1e-3
        assert value["epsilon"] == book.cost.epsilon_after(key)


def test_resumed_program_is_charged_for_earlier_rounds(book):
    memory = tff.program.MemoryReleaseManager()
    released(release.EpsilonReleaseManager(book, memory), [4])
    assert memory.values()[4]["epsilon"] == book.cost.epsilon_after(4)


def test_repeated_round_is_charged_again(book, tmp_path):
    memory = tff.program.MemoryReleaseManager()
    released(release.EpsilonReleaseManager(book, memory), [1, 2, 3, 2])
    assert book.rounds == 2
    assert memory.values()[2]["epsilon"] == book.cost.epsilon_after(4)
    # After a kill, by what is in the file.
    cost = book.cost
    run = cost.mechanism, cost.participation, cost.dimension, cost.delta
    for process in range(2):
        kept = ledger.Ledger(*run, path=tmp_path / "ledger")
        released(release.EpsilonReleaseManager(kept, memory), [1, 2])
        expected = cost.epsilon_after(2 * process + 2)
        assert memory.values()[2]["epsilon"] == expected


def test_round_beyond_the_plan_is_not_released(book):
    memory = tff.program.MemoryReleaseManager()
    manager = release.EpsilonReleaseManager(book, memory)
    for keys in ([7], [5, 6, 7]):
        with refuses(ValueError, 6, 7):
            released(manager, keys)
    assert list(memory.values()) == [5, 6] and book.rounds == 6


@pytest.mark.parametrize(
    "value, key, error, parts",
    [
        (metrics(1.0), 0, ValueError, ("key", 0)),
        (metrics(1.0), "3", TypeError, ("key", "'3'")),
        (1.0, 3, TypeError, ("value", 1.0)),
        ({"epsilon": 1.0}, 3, ValueError, ("value", "epsilon")),
    ],
)
def test_unaccountable_releases_are_refused(book, value, key, error, parts):
    memory = tff.program.MemoryReleaseManager()
    manager = release.EpsilonReleaseManager(book, memory)
    released(manager, [1, 2])
    with refuses(error, *parts):
        asyncio.run(manager.release(value, key))
    assert book.rounds == 2 and list(memory.values()) == [1, 2]


def test_works_inside_tff_grouping_and_periodic_managers(book):
    """Beside another in a group; of a periodic one it is charged for every round."""
    memory, other = (tff.program.MemoryReleaseManager() for _ in range(2))
    manager = release.EpsilonReleaseManager(book, memory)
    released(tff.program.GroupingReleaseManager([manager, other]), [1])
    released(tff.program.PeriodicReleaseManager(manager, 2), [2, 3])
    assert "epsilon" not in other.values()[1]
    assert memory.values()[3]["epsilon"] == book.cost.epsilon_after(3)
