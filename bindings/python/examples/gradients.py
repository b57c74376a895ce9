"""Data-parallel training in NumPy: each rank has its own data, the gradients are summed while the
next ones are made.

python -m tutti.run -n 4 gradients.py
"""

import numpy as np

import tutti

FEATURES, SAMPLES, LAYERS, STEPS, RATE = 64, 512, 4, 200, 0.1

with tutti.init() as world:
    shared = np.random.default_rng(0)
    truths = [shared.normal(size=FEATURES) for _ in range(LAYERS)]
    weights = [np.zeros(FEATURES) for _ in range(LAYERS)]
    own = np.random.default_rng(1 + world.rank)
    inputs = own.normal(size=(SAMPLES, FEATURES))

    for _ in range(STEPS):
        works = []
        for truth, weight in zip(truths, weights):
            error = inputs @ (weight - truth)
            gradient = inputs.T @ error / SAMPLES
            # overlaps with the next computation
            works.append(world.all_reduce_async(gradient, "avg", out=gradient))
        for weight, work in zip(weights, works):
            weight -= RATE * work.wait()

    distance = max(np.abs(weight - truth).max() for weight, truth in zip(weights, truths))
    same = world.all_gather(np.stack(weights)[None])
    if world.rank == 0:
        print(f"largest error of a weight: {distance:.1e}")
        print(f"equal on all ranks: {(same == same[0]).all()}")
