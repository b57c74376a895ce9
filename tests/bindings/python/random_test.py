"""Calls at random, in every form and several at a time, against the same calls in NumPy."""

import asyncio
import os
import random

import numpy as np
from jobs import on_ranks

DTYPES = ["int8", "int32", "int64", "uint16", "float16", "float32", "float64"]
CALLS = 300


class Job:
    """All ranks make the same random choices, and know each other's inputs."""

    def __init__(self, world, seed):
        self.world = world
        self.random = random.Random(seed)
        self.under_way = []  # (work or result, wanted, arrays that only this holds)

    def inputs(self, shapes):
        dtype = self.random.choice(DTYPES)
        return [
            np.random.default_rng(self.random.randrange(1 << 32))
            .integers(0, 5, shape)
            .astype(dtype)
            for shape in shapes
        ]

    def call(self):
        size, rank = self.world.size, self.world.rank
        rows = self.random.choice([0, 1, 2, 7, 300])
        row = self.random.choice([(), (3,), (2, 2)])
        root = self.random.randrange(size)
        name = self.random.choice(["reduce_scatter", "all_to_all", "scatter"] + 2 * [
            "all_reduce", "all_gather", "broadcast", "reduce", "gather", "scan"])  # fmt: skip
        options = {}
        if name in ("reduce_scatter", "all_to_all", "scatter"):
            all_of_them = self.inputs([(size * rows, *row)] * size)
        elif name in ("all_gather", "gather") and self.random.random() < 0.5:
            counts = [self.random.randrange(5) for _ in range(size)]
            all_of_them = self.inputs([(count, *row) for count in counts])
            options["counts"] = counts
        else:
            all_of_them = self.inputs([(rows, *row)] * size)
        mine = all_of_them[rank]
        total = np.sum(all_of_them, axis=0, dtype=mine.dtype) if not options else None
        here = slice(rank * rows, (rank + 1) * rows)
        arguments, wanted = {
            "all_reduce": lambda: ((), total),
            "reduce": lambda: (("sum", root), total if rank == root else None),
            "scan": lambda: ((), np.sum(all_of_them[: rank + 1], axis=0, dtype=mine.dtype)),
            "broadcast": lambda: ((root,), all_of_them[root]),
            "all_gather": lambda: ((), np.concatenate(all_of_them)),
            "gather": lambda: ((root,), np.concatenate(all_of_them) if rank == root else None),
            "reduce_scatter": lambda: ((), total[here]),
            "scatter": lambda: ((root,), all_of_them[root][here]),
            "all_to_all": lambda: ((), np.concatenate([array[here] for array in all_of_them])),
        }[name]()
        # Each rank chooses its own form of the call.
        own = random.random()
        if own < 0.4:
            self.check(getattr(self.world, name)(mine, *arguments, **options), wanted, name)
            return
        work = getattr(self.world, name + "_async")(mine, *arguments, **options)
        if own < 0.5:
            return  # dropped
        self.under_way.append((work, wanted, name))

    def check(self, result, wanted, name):
        if wanted is None:
            assert result is None, name
            return
        assert result.dtype == wanted.dtype and result.shape == wanted.shape, name
        assert result.tobytes() == wanted.tobytes(), name

    def finish_some(self):
        random.shuffle(self.under_way)
        while len(self.under_way) > 20 * random.random():
            work, wanted, name = self.under_way.pop()
            self.check(work.wait(), wanted, name)

    async def await_all(self):
        async def one(work, wanted, name):
            self.check(await work, wanted, name)

        await asyncio.gather(*(one(*entry) for entry in self.under_way))
        self.under_way.clear()


@on_ranks(2, 3, 5)
def test_random_calls(world):
    seed = int(os.environ.get("RANDOM_SEED", world.broadcast(random.randrange(1 << 31))))
    print(f"RANDOM_SEED={seed}", flush=True)
    job = Job(world, seed)
    for i in range(CALLS):
        job.call()
        if i % 10 == 9:
            job.finish_some()
        if i % 50 == 49:
            asyncio.run(job.await_all())
    world.barrier()
