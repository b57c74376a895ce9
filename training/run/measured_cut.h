// Where to cut a model into stages, by what its units take on this machine.
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "training/data/data_set.h"
#include "training/run/train_options.h"

namespace tutti::training {

// The first unit of each of `chunks` chunks, the slowest of which is as fast as can be
// (pipeline/partition.h). Collective: rank 0 times the units, with the run's first micro-batch, and
// tells the others. The model's parameters are in no memory yet.
std::vector<int> measured_cut(Communicator world, Model& model,
                              const std::vector<const DataSet*>& data, const TrainOptions& options,
                              int chunks);

}  // namespace tutti::training
