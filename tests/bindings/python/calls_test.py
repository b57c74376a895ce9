"""Calls under way: waiting, awaiting, dropping; messages; threads."""

import asyncio
import gc
import threading

import numpy as np
from jobs import on_ranks

import tutti


@on_ranks(2, 3)
def test_works(world):
    works = [world.all_reduce_async(np.full(n, world.rank + 1.0)) for n in (1, 100, 10000)]
    for n, work in reversed(list(zip((1, 100, 10000), works))):
        result = work.wait()
        assert result.shape == (n,) and (result == sum(range(1, world.size + 1))).all()
        assert work.wait() is result and work.test() and work.wait_for(0)
    assert world.barrier_async().wait() is None


@on_ranks(2)
def test_a_call_is_not_complete_before_all_ranks_have_made_it(world):
    if world.rank == 0:
        work = world.all_reduce_async(np.ones(5))
        assert not work.test() and not work.wait_for(0.001)
        world.send(1, 1)
        assert work.wait().tolist() == [2] * 5
    else:
        world.recv(np.empty((), int), 0)
        world.all_reduce(np.ones(5))


@on_ranks(2)
def test_arrays_live_as_long_as_the_call(world):
    """Works that are dropped, and with them the only names of their arrays."""
    outs = []
    for i in range(50):
        out = np.empty(20000)
        outs.append(out)
        world.all_reduce_async(np.full(20000, float(i)), out=out)
        world.all_reduce_async(np.full(20000, -1.0))
    gc.collect()
    rubbish = [np.full(20000, 99.0) for _ in range(100)]
    world.barrier()
    for i, out in enumerate(outs):
        assert (out == 2.0 * i).all()
    del rubbish


@on_ranks(2)
def test_no_reference_is_left(world):
    import sys

    array, out = np.ones(100), np.empty(100)
    before = sys.getrefcount(array), sys.getrefcount(out)
    for _ in range(20):
        world.all_reduce(array, out=out)
        world.all_reduce_async(array, out=out).wait()
        world.all_reduce_async(array, out=out)
        world.barrier()
    world.barrier()
    assert (sys.getrefcount(array), sys.getrefcount(out)) == before


@on_ranks(3)
def test_messages(world):
    everyone = range(world.size)
    others = [rank for rank in everyone if rank != world.rank]
    works = [
        world.send_async(np.full(4, world.rank, "i4"), rank, tag=world.rank) for rank in others
    ]
    for rank in others:
        out = np.empty(4, "i4")
        assert world.recv(out, rank) == tutti.Message(rank, rank, "int32", 4)
        assert out.tolist() == [rank] * 4
    for work in works:
        assert work.wait() is None
    if world.rank == 0:
        seen = world.probe()
        out = np.empty(10)
        assert world.recv(out, seen.source, seen.tag, may_be_shorter=True) == seen
        other = world.recv_async(out, may_be_shorter=True)
        assert other.wait() is out
        assert sorted([seen, other.message]) == [(1, 7, "float64", 1), (2, 7, "float64", 2)]
        assert world.probe_now() is None
    else:
        world.send(np.ones(world.rank), 0, 7)
    world.send(np.ones(3), world.rank, 5)
    assert world.probe_now(world.rank) == (world.rank, 5, "float64", 3)
    world.recv(np.empty(3), world.rank, 5)


@on_ranks(2)
def test_await(world):
    async def all_of_it():
        assert (await world.all_reduce_async(1)) == 2
        results = await asyncio.gather(*(sum_of(n) for n in range(1, 40)))
        assert [result.tolist() for result in results] == [[2.0] * n for n in range(1, 40)]
        # The event loop continues while a call waits for the other rank.
        if world.rank == 0:
            late = asyncio.ensure_future(sum_of(5))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not late.done()
            world.send(1, 1, 9)
            assert (await late).tolist() == [2.0] * 5
        else:
            await world.recv_async(np.empty((), int), 0, 9)
            await sum_of(5)

    async def sum_of(n):
        return await world.all_reduce_async(np.ones(n))

    for _ in range(3):
        asyncio.run(all_of_it())


@on_ranks(2)
def test_await_a_failure(world):
    async def fail():
        try:
            await world.all_reduce_async(np.ones(world.rank + 1))
        except tutti.Error as error:
            assert error.code == tutti.ErrorCode.MISMATCH
            return True

    part = world.split(0)
    assert asyncio.run(fail())
    part.close()
    world.barrier = lambda: None  # it is aborted


@on_ranks(2)
def test_cancelled(world):
    async def cancel():
        if world.rank == 0:
            task = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                world.send(1, 1)
                return
            raise AssertionError("not cancelled")
        await world.recv_async(np.empty((), int), 0)
        await wait()

    async def wait():
        return await world.all_reduce_async(np.ones(5))

    asyncio.run(cancel())


@on_ranks(2)
def test_waits_again_after_a_timeout(world):
    async def receive():
        value = np.zeros((), int)
        work = world.recv_async(value, 0)
        for _ in range(20):
            try:
                await asyncio.wait_for(work_of(work), 0.01)
                raise AssertionError("nothing was sent")
            except asyncio.TimeoutError:
                assert not work.test()
        world.send(1, 0)
        first = asyncio.ensure_future(work_of(work))
        await asyncio.gather(first, work_of(work))
        assert value == 7

    async def work_of(work):
        return await work

    if world.rank == 1:
        asyncio.run(receive())
    else:
        world.recv(np.empty((), int), 1)
        world.send(7, 1)


@on_ranks(2)
def test_threads_wait_without_the_lock(world):
    """Two communicators, a thread each; neither rank could go on if a wait kept Python's lock."""
    parts = [world.split(0) for _ in range(2)]
    results = {}

    def work(which):
        for _ in range(50):
            results[which] = parts[which].all_reduce(which + 1)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: 2, 1: 4}


@on_ranks(2)
def test_one_thread_waits_for_a_call(world):
    if world.rank == 1:
        world.recv(np.empty((), int), 0)
        world.barrier()
        return
    work = world.barrier_async()
    waiting = threading.Thread(target=work.wait)
    waiting.start()
    try:
        while True:  # until the thread is there
            work.test()
    except tutti.Error as error:
        assert error.code == tutti.ErrorCode.INVALID_ARGUMENT
        assert "another thread" in str(error)
    world.send(1, 1)
    waiting.join()
    assert work.test()


@on_ranks(2)
def test_close_ends_what_waits(world):
    part = world.split(0)
    if world.rank == 0:
        caught = []

        def wait():
            started.set()
            try:
                part.recv(np.empty(5), 1)
            except tutti.Error as error:
                caught.append(error.code)

        started = threading.Event()
        thread = threading.Thread(target=wait)
        thread.start()
        started.wait()
        forgotten = part.recv_async(np.empty(5), 1)
        part.close()
        thread.join()
        assert caught == [tutti.ErrorCode.INVALID_ARGUMENT]
        for use in (
            forgotten.wait,
            forgotten.test,
            part.barrier,
            lambda: part.split(0),
            lambda: part.probe(),
        ):
            try:
                use()
            except tutti.Error as error:
                assert "closed" in str(error)
            else:
                raise AssertionError("a closed communicator was used")
    else:
        part.close()


def test_ranks_that_say_who_they_are(tmp_path):
    """And are threads of one process: every wait must let the others run."""
    sums = {}

    def be(rank):
        with tutti.init(rank, 3, rendezvous_file=tmp_path / "meet") as world:
            for _ in range(20):
                sums[rank] = world.all_reduce(np.arange(1000) + rank)
            world.split(rank % 2).close()

    threads = [threading.Thread(target=be, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank in range(3):
        assert (sums[rank] == 3 * np.arange(1000) + 3).all()


def test_two_ranks_in_one_loop(tmp_path):
    """Neither call is complete before the other is made, and one thread makes both."""
    joined = {}

    def join(rank):
        joined[rank] = tutti.init(rank, 2, rendezvous_file=tmp_path / "meet")

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def call(rank):
        return await joined[rank].all_reduce_async(np.full(100000, rank + 1))

    async def both():
        return await asyncio.gather(call(0), call(1))

    for result in asyncio.run(both()):
        assert (result == 3).all()
    joined[1].close()
    joined[0].close()
