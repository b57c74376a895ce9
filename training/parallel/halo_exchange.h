// Halos (modules/halo_messages.h) between ranks along the spatial axis, as messages from one to
// another in memory that the ranks of a host read where it lies.
#pragma once

#include "training/modules/halo_messages.h"

namespace tutti::training {

class HaloExchange : public HaloMessages {
 public:
  std::unique_ptr<Exchange> begin(Pass& pass, DType type, std::vector<Message> sent,
                                  std::vector<Message> received) const override;
};

}  // namespace tutti::training
