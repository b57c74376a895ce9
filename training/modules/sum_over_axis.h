// Sums over ranks in the middle of a module's work, provided by the creator of the module.
#pragma once

#include <functional>
#include <span>

#include "training/core/axes.h"
#include "training/core/pass.h"

namespace tutti::training {

// Replaces numbers by their sums over all ranks along the axis. Collective and blocking; in
// deterministic mode the order is independent of the number of ranks.
using SumOverAxis = std::function<void(Pass& pass, Axis axis, std::span<double> numbers)>;

}  // namespace tutti::training
