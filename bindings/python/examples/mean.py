"""The mean of an array over all ranks: python -m tutti.run -n 4 mean.py"""

import numpy as np

import tutti

with tutti.init() as world:
    samples = np.random.default_rng(seed=world.rank).normal(size=1_000_000)
    mean = world.all_reduce(samples.mean(), "avg")
    if world.rank == 0:
        print(f"{world.size * len(samples):,} samples on {world.size} ranks, mean {mean:.6f}")
