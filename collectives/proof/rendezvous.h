// Whether programs come to their end without any buffering: a send is done only when its readers
// have taken what was sent. Then messages may be read where they lie, with nothing copied aside.
//
// Not all do. Two ranks that exchange a chunk in place need a copy of at least one:
//
//   send x                  waits for the other to take x: but the other will only
//   recv into x             receive into x when its own x was taken
#pragma once

#include <span>

#include "collectives/program/plan.h"

namespace tutti {

// `plans[r]`: rank r's.
bool ends_without_buffers(std::span<const Plan> plans);

}  // namespace tutti
