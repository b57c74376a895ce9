// Divides a model into pipeline stages by measured unit times.
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "training/data/data_set.h"
#include "training/run/train_options.h"

namespace tutti::training {

// Divides the model into `chunks` chunks so that the slowest chunk takes as little time as possible
// (pipeline/partition.h). Returns the first unit of each chunk. Collective: rank 0 times the units
// with the run's first micro-batch and broadcasts the times. The model's parameters must not have
// memory yet.
std::vector<int> measured_cut(Communicator world, Model& model,
                              const std::vector<const DataSet*>& data, const TrainOptions& options,
                              int chunks);

}  // namespace tutti::training
