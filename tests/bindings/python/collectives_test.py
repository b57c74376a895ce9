"""Every collective: types, odd sizes, in place, blocks of unequal length, against NumPy."""

import importlib.util

import ml_dtypes
import numpy as np
import pytest
from jobs import on_ranks
from tutti import Error

DTYPES = [
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
]  # fmt: skip
SIZES = [0, 1, 3, 1001]


def values(rank, shape, dtype):
    """Small whole numbers, other ones on each rank: what is made of them is exact in every type."""
    count = int(np.prod(shape))
    return ((np.arange(count) + rank) % 3).astype(dtype).reshape(shape)


def everyone(world, shape, dtype):
    return [values(rank, shape, dtype) for rank in range(world.size)]


def same(got, wanted):
    assert isinstance(got, np.ndarray)
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    assert got.tobytes() == wanted.tobytes()


def total(arrays):
    return np.sum([array.astype("f8") for array in arrays], axis=0).astype(arrays[0].dtype)


@on_ranks(1, 2, 3)
def test_all_types_and_sizes(world):
    for dtype in DTYPES:
        for n in SIZES:
            mine = values(world.rank, n, dtype)
            all_of_them = everyone(world, n, dtype)
            sums = total(all_of_them)
            kept = mine.copy()
            same(world.all_reduce(mine), sums)
            same(world.all_gather(mine), np.concatenate(all_of_them))
            same(world.broadcast(mine, world.size - 1), all_of_them[-1])
            same(world.scan(mine), total(all_of_them[: world.rank + 1]))
            reduced = world.reduce(mine, root=world.size - 1)
            gathered = world.gather(mine, world.size - 1)
            if world.rank == world.size - 1:
                same(reduced, sums)
                same(gathered, np.concatenate(all_of_them))
            else:
                assert reduced is None and gathered is None
            below = world.exscan(mine)
            if world.rank > 0:
                same(below, total(all_of_them[: world.rank]))
            else:
                assert below is None
            same(mine, kept)


@on_ranks(1, 2, 3)
def test_blocks(world):
    for dtype in DTYPES:
        for n in SIZES:
            shape = (world.size * n, 2)
            mine = values(world.rank, shape, dtype)
            all_of_them = everyone(world, shape, dtype)
            here = slice(world.rank * n, (world.rank + 1) * n)
            same(world.reduce_scatter(mine), total(all_of_them)[here])
            same(world.all_to_all(mine), np.concatenate([array[here] for array in all_of_them]))
            same(world.scatter(mine, 0), all_of_them[0][here])
            out = np.empty((n, 2), dtype)
            assert world.scatter(mine if world.rank == 0 else None, 0, out=out) is out
            same(out, all_of_them[0][here])


@on_ranks(2, 3)
def test_blocks_of_unequal_length(world):
    size, rank = world.size, world.rank
    counts = [(r * 5 + 3) % 7 * (r != 1) for r in range(size)]  # rank 1 has none
    ends = np.cumsum(counts)
    here = slice(ends[rank] - counts[rank], ends[rank])
    for dtype in DTYPES:
        for row in [(), (2, 3)]:
            blocks = [values(r, (counts[r], *row), dtype) for r in range(size)]
            joined = np.concatenate(blocks)
            same(world.all_gather(blocks[rank], counts=counts), joined)
            gathered = world.gather(blocks[rank], 1, counts=counts if rank == 1 else [])
            if rank == 1:
                same(gathered, joined)
            whole = [values(r, joined.shape, dtype) for r in range(size)]
            same(world.reduce_scatter(whole[rank], counts=counts), total(whole)[here])
            same(world.scatter(whole[rank], 1, counts=counts), whole[1][here])
            # Rank r sends r + s rows to rank s.
            outgoing = [
                values(r, (sum(r + s for s in range(size)), *row), dtype) for r in range(size)
            ]
            start = [sum(r + s for s in range(rank)) for r in range(size)]
            same(
                world.all_to_all(
                    outgoing[rank],
                    input_counts=[rank + s for s in range(size)],
                    output_counts=[r + rank for r in range(size)],
                ),
                np.concatenate([outgoing[r][start[r] : start[r] + r + rank] for r in range(size)]),
            )


@on_ranks(2, 3)
def test_in_place(world):
    size, rank, n = world.size, world.rank, 1001
    sums = total(everyone(world, n, "f4"))
    array = values(rank, n, "f4")
    assert world.all_reduce(array, out=array) is array
    same(array, sums)
    array = values(rank, n, "f4")
    world.broadcast(array, 1, out=array)
    same(array, values(1, n, "f4"))
    array = values(rank, n, "f4")
    world.reduce(array, out=array)
    same(array, sums if rank == 0 else values(rank, n, "f4"))
    array = np.empty((size, n), "f4")
    array[rank] = values(rank, n, "f4")
    world.all_gather(array[rank : rank + 1], out=array)
    same(array, np.stack(everyone(world, n, "f4")))
    array = values(rank, (size, n), "f4")
    world.reduce_scatter(array, out=array[rank : rank + 1])
    same(array[rank], total(everyone(world, (size, n), "f4"))[rank])
    array = values(rank, (size, n), "f4")
    world.all_to_all(array, out=array)
    same(array, np.stack([values(r, (size, n), "f4")[rank] for r in range(size)]))


@on_ranks(3)
def test_operators(world):
    for dtype in ["int16", "uint32", "float32", ml_dtypes.bfloat16]:
        arrays = [a.astype("f8") for a in everyone(world, 7, dtype)]
        mine = values(world.rank, 7, dtype)
        for op, function in [("sum", np.sum), ("prod", np.prod), ("min", np.min), ("max", np.max)]:
            same(world.all_reduce(mine, op), function(arrays, axis=0).astype(dtype))
    same(world.all_reduce(np.full(4, 1.5 * world.rank), "avg"), np.full(4, 1.5))
    same(world.all_reduce(np.array([1 << world.rank]), "bor"), np.array([7]))
    same(world.all_reduce(np.array([~(1 << world.rank)]), "band"), np.array([~7]))
    same(world.all_reduce(np.array([1]), "bxor"), np.array([1]))


@on_ranks(3)
def test_places_of_extremes(world):
    for value, index in [("f4", "i4"), ("f8", "i8"), ("i4", "i4"), ("i8", "i8")]:
        mine = np.array(
            [(-world.rank, world.rank), (7, world.rank)], dtype=[("value", value), ("index", index)]
        )
        low = world.all_reduce(mine, "minloc")
        assert low.tolist() == [(-2, 2), (7, 0)]
        assert world.all_reduce(mine, "maxloc").tolist() == [(0, 0), (7, 0)]
    turned = np.dtype({"names": ["value", "index"], "formats": ["f4", "i4"], "offsets": [4, 0]})
    for pair in [np.dtype([("value", ">f4"), ("index", ">i4")]), turned]:
        with pytest.raises(Error, match="native byte order"):
            world.all_reduce(np.zeros(2, pair), "minloc")


@on_ranks(2)
def test_kinds_of_arrays(world):
    import array

    class OnlyDLPack:
        def __init__(self, values):
            self.values, self.shape = values, values.shape

        def __dlpack__(self, **options):
            return self.values.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.values.__dlpack_device__()

    assert world.all_reduce(1.5) == 3
    assert world.all_reduce([1, 2]).tolist() == [2, 4]
    assert world.all_gather(world.rank).tolist() == [0, 1]
    assert world.all_reduce(memoryview(b"\1\2")).tolist() == [2, 4]
    own = array.array("i", [1, 2])
    assert world.all_reduce(own, out=own) is own and own.tolist() == [2, 4]
    data = bytearray(b"\1\2")
    world.all_reduce(data, out=data)
    assert data == b"\2\4"
    foreign = OnlyDLPack(np.ones((2, 3), "f4"))
    same(world.all_reduce(foreign), np.full((2, 3), 2, "f4"))
    world.all_reduce(foreign, out=foreign)
    same(foreign.values, np.full((2, 3), 2, "f4"))
    read_only = np.ones(3)
    read_only.flags.writeable = False
    same(world.all_reduce(read_only), np.full(3, 2.0))
    same(world.all_reduce(np.ones((2, 0, 3))), np.ones((2, 0, 3)))
    odd = np.zeros(17, np.uint8)[1:].view("f8")  # not aligned
    same(world.all_reduce(odd), np.zeros(2))


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@on_ranks(2)
def test_tensors(world):
    import torch

    for dtype in [torch.float32, torch.bfloat16, torch.int64]:
        tensor = torch.ones(3, 5, dtype=dtype)
        result = world.all_reduce(tensor)
        assert result.dtype == dtype and result.tolist() == [[2] * 5] * 3
        world.all_reduce(tensor, out=tensor)
        assert tensor.tolist() == [[2] * 5] * 3


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
@on_ranks(2)
def test_jax(world):
    from jax import numpy as jnp

    for dtype in [jnp.float32, jnp.bfloat16, jnp.float8_e5m2, jnp.int32]:
        array = jnp.arange(4, dtype=dtype)
        same(world.all_reduce(array), (2 * np.arange(4)).astype(array.dtype))


@on_ranks(3)
def test_parts(world):
    assert repr(world) == f"<tutti.Communicator: rank {world.rank} of 3>"
    part = world.split(world.rank % 2, key=-world.rank)
    assert part.size == (2 if world.rank % 2 == 0 else 1)
    assert part.all_gather(world.rank).tolist() == ([2, 0] if world.rank % 2 == 0 else [1])
    assert (world.split(None if world.rank == 1 else 0) is None) == (world.rank == 1)
    if world.rank > 0:
        with world.create([2, 1]) as pair:
            assert pair.rank == 2 - world.rank
            assert pair.all_gather(world.rank).tolist() == [2, 1]
    part.close()
    part.close()
    assert world.all_reduce(1) == 3


@on_ranks(3)
def test_queues(world):
    world.open_queues(2)
    queues = [0, 1, 2]
    turned = queues[world.rank :] + queues[: world.rank]
    works = {queue: world.all_gather_async([queue], queue=queue) for queue in turned}
    assert [works[queue].wait().tolist() for queue in queues] == [[queue] * 3 for queue in queues]
    with pytest.raises(Error, match="queue 3 is not open"):
        world.barrier(queue=3)


@on_ranks(2)
def test_options(world):
    same(
        world.all_reduce(np.ones(9), algorithm="ring", deterministic=False, timeout=60.0),
        np.full(9, 2.0),
    )
    same(world.all_reduce(np.ones(9), deterministic=True), np.full(9, 2.0))


def test_a_job_of_one():
    import tutti

    with tutti.init() as alone:
        assert (alone.rank, alone.size) == (0, 1)
        assert alone.all_reduce(5) == 5
