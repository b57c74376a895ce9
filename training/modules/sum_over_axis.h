// Function that sums over ranks in the middle of a module's work; the creator of the module
// provides it.
#pragma once

#include <functional>
#include <span>

#include "training/core/axes.h"
#include "training/core/pass.h"

namespace tutti::training {

// Replaces `numbers` by their sums over all ranks along `axis`. Collective and blocking. In
// deterministic mode the order of summation is independent of the number of ranks.
using SumOverAxis = std::function<void(Pass& pass, Axis axis, std::span<double> numbers)>;

}  // namespace tutti::training
