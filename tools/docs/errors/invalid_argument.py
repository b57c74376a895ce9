import numpy as np
import tutti

with tutti.init() as world:
    world.broadcast(np.zeros(4), root=2)  # there are ranks 0 and 1
