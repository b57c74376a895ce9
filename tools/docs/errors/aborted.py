import numpy as np
import tutti

with tutti.init() as world:
    if world.rank == 1:
        world.abort("the file of samples is damaged")
    world.all_reduce(np.zeros(4))
