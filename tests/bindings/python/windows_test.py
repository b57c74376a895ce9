"""One-sided calls, and formats of what travels."""

import numpy as np
import pytest
from jobs import on_ranks

import tutti


@on_ranks(1, 2, 3)
def test_put_get_and_accumulate(world):
    for own in (np.zeros(8, np.float32), 32):
        window = tutti.Window(world, own)
        assert (window.rank, window.size) == (world.rank, world.size)
        assert window.bytes_of(world.size - 1) == 32 and window.memory.nbytes == 32
        following = (world.rank + 1) % world.size
        window.put(np.array([world.rank + 1.0], np.float32), following, offset=4)
        window.fence()
        values = window.memory.view(np.float32)
        assert values[1] == (world.rank - 1) % world.size + 1
        window.accumulate(np.full(2, 2, np.float32), 0, 8, "prod")
        window.accumulate(np.full(2, 1, np.float32), 0, 16)
        window.fence()
        read = window.get(np.empty(4, np.float32), 0, 8)
        assert read.tolist() == [0, 0, world.size, world.size]
        window.free()
        with pytest.raises(tutti.Error, match="has ended"):
            window.flush()


@on_ranks(2, 4)
def test_swaps_and_signals(world):
    with tutti.Window(world, 16) as window:
        for _ in range(20):
            while window.compare_and_swap(0, world.rank + 1, 0) != 0:
                pass
            count = window.get(np.empty(1, np.int64), 0, 8)
            window.put(count + 1, 0, 8)
            window.flush(0)
            assert window.compare_and_swap(world.rank + 1, 0, 0) == world.rank + 1
        window.fence()
        if world.rank == 0:
            assert window.memory.view(np.int64)[1] == 20 * world.size
            assert window.compare_and_swap(5, -7, 0, dtype="int32") == 0
        for rank in range(window.size):
            window.signal(rank, slot=2)
        window.wait_signal(2, window.size)


@on_ranks(3)
def test_a_window_goes_on_without_the_dead(world):
    window = tutti.Window(world, 8, members_may_die=True)
    if world.rank == 1:
        window.close()
        return
    other = 2 - world.rank
    with pytest.raises(tutti.Error, match="rank 1"):
        while True:
            window.put(np.zeros(1), 1)
            window.flush(1)
    window.put(np.array([world.rank + 5.0]), other)
    window.fence()
    assert window.memory.view(float)[0] == other + 5
    window.free()


@on_ranks(2)
def test_mistakes(world):
    with tutti.Window(world, 8) as window:
        for wrong in (
            lambda: window.put(np.zeros(2), 1),
            lambda: window.put(np.zeros(1), 2),
            lambda: window.get(np.zeros(1), 0, -1),
            lambda: window.accumulate(np.zeros(1), 0, 0, "avg"),
            lambda: window.accumulate(np.zeros(1), 0, 0, "no op"),
            lambda: window.compare_and_swap(0, 1, 0, dtype="float32"),
            lambda: window.signal(0, 64),
            lambda: window.bytes_of(2),
            lambda: world.all_reduce(np.zeros(1, np.float32), wire="mx9"),
            lambda: world.all_reduce(np.zeros(1, np.float64), wire="mx8"),
        ):
            with pytest.raises((tutti.Error, TypeError)):
                wrong()


@on_ranks(2)
def test_a_receive_that_reduces(world):
    if world.rank == 0:
        for value in (3.0, 5.0):
            world.send(np.full(4, value), 1)
        return
    out = np.full(4, 2.0)
    assert world.recv_reduce(out, 0).count == 4
    assert out.tolist() == [5] * 4
    assert world.recv_reduce_async(out, 0, "prod").wait() is out
    assert out.tolist() == [25] * 4
    with pytest.raises(tutti.Error, match="avg"):
        world.recv_reduce(out, 0, "avg")


@on_ranks(1, 3)
def test_wire_formats(world):
    ones = np.ones(100, np.float32)
    for wire in tutti.WIRE_FORMATS:
        assert (world.all_reduce(ones, wire=wire) == world.size).all()
    values = np.linspace(-3, 3, 64, dtype=np.float32) * (world.rank + 1)
    exact = world.all_reduce(values)
    rounded = world.all_reduce(values, wire="mx8")
    assert 0 < abs(rounded - exact).max() < 0.07 * abs(exact).max()
    assert (world.all_gather(rounded)[:64] == rounded).all()
