// The rendezvous of a process group's ranks.
#pragma once

#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "connection.h"

namespace tutti::torch_backend {

// Joins a job whose ranks meet in `store`. Blocks.
std::shared_ptr<Connection> join(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                 std::chrono::milliseconds timeout);

}  // namespace tutti::torch_backend
