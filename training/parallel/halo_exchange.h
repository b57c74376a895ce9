// Halo exchange (modules/halo_messages.h) between ranks along an axis of the mesh, by
// point-to-point messages whose memory the ranks of a host can read directly.
#pragma once

#include "training/core/axes.h"
#include "training/modules/halo_messages.h"

namespace tutti::training {

class HaloExchange : public HaloMessages {
 public:
  explicit HaloExchange(Axis axis) : axis_(axis) {}

  std::unique_ptr<Exchange> begin(Pass& pass, DType type, std::vector<Message> sent,
                                  std::vector<Message> received) const override;

 private:
  Axis axis_;
};

}  // namespace tutti::training
