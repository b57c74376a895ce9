#include "transport/paths/endpoint.h"

#include <utility>

namespace tutti {

Endpoint::Endpoint(std::shared_ptr<Control> control)
    : control_(std::move(control)), wait_set_(bell_of(control_->rank())) {}

Endpoint::~Endpoint() {
  if (!control_->forked()) last_bytes_.wait();
}

std::string Endpoint::bell_of(int world_rank) const {
  const std::string& name = control_->peer(world_rank).unix_name;
  return name.empty() ? std::string() : name + "-bell";
}

}  // namespace tutti
