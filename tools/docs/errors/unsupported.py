import numpy as np
import tutti

with tutti.init() as world:
    world.all_reduce(np.zeros(4), algorithm="ring", deterministic=True)  # a ring's bits depend on more than the inputs
