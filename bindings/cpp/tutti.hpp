// The C++ interface of Tutti: collectives among the ranks of a communicator.
//
//   #include <tutti/tutti.hpp>
//
//   tutti::Communicator world = tutti::Communicator::init();
//   std::vector<float> gradients(n);
//   world.all_reduce(gradients);      // sum over all ranks, in place
//   world.all_gather(mine, of_all);   // vectors, arrays and spans are buffers
//
// Installed by tools/install. The training layer has headers of its own:
// <tutti/training/trainer.h>.
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "collectives/communicator.h"
#include "collectives/group.h"
#include "collectives/one_sided/window.h"
