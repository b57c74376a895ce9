// Initializes the communicator of a training job.
#pragma once

#include "collectives/communicator.h"
#include "training/parallel/mesh.h"

namespace tutti::training {

// Calls Communicator::init() for a job with this mesh. With a pipeline, turns on the progress
// thread (unless the user has set TUTTI_PROGRESS_THREAD), so that messages between hosts progress
// while a stage computes its next micro-batch.
Communicator join(const MeshShape& shape);

}  // namespace tutti::training
