// Sums over ranks that a module needs in the middle of its work; who makes the module knows how.
#pragma once

#include <functional>
#include <span>

#include "training/core/axes.h"
#include "training/core/pass.h"

namespace tutti::training {

// Numbers become the sums of those of all ranks along the axis. Collective, and blocks; in
// deterministic mode in an order that does not tell how many ranks there are.
using SumOverAxis = std::function<void(Pass& pass, Axis axis, std::span<double> numbers)>;

}  // namespace tutti::training
