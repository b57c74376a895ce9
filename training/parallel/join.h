// How ranks that train find each other.
#pragma once

#include "collectives/communicator.h"
#include "training/parallel/mesh.h"

namespace tutti::training {

// Communicator::init() for a job with such a mesh. Where it has a pipeline, the progress thread is
// on (unless the user has set TUTTI_PROGRESS_THREAD): between hosts somebody must move a stage's
// messages while it computes the next micro-batch.
Communicator join(const MeshShape& shape);

}  // namespace tutti::training
