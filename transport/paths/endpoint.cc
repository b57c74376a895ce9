#include "transport/paths/endpoint.h"

#include <utility>

#include "base/settings.h"
#include "transport/ucx/provider.h"

namespace tutti {

namespace {

std::unique_ptr<ucx::Provider> open_ucx(const Job& job) {
  const bool wanted = settings().get_string("TUTTI_TRANSPORT").ends_with("ucx");
  return wanted && job.size > 1 ? std::make_unique<ucx::Provider>() : nullptr;
}

Job with_address(Job job, const ucx::Provider* ucx) {
  if (ucx != nullptr) job.fabric = ucx->address();
  return job;
}

}  // namespace

Endpoint::Endpoint(const Job& job) : Endpoint(job, open_ucx(job)) {}

Endpoint::Endpoint(const Job& job, std::unique_ptr<ucx::Provider> ucx)
    : ucx_(std::move(ucx)),
      control_(Control::connect(with_address(job, ucx_.get()))),
      wait_set_(bell_of(control_->rank())) {
  if (ucx_ == nullptr) return;
  ucx_->join(
      {.own = control_->rank(),
       .count = control_->size(),
       .address_of = [this](int rank) -> std::string_view { return control_->peer(rank).fabric; },
       .gone = [this](int rank) { return control_->has_left(rank) || control_->has_died(rank); }},
      wait_set_);
}

Endpoint::~Endpoint() {
  if (control_->forked()) return;
  if (ucx_ != nullptr) ucx_->leave();
  last_bytes_.wait();
}

std::string Endpoint::bell_of(int world_rank) const {
  const std::string& name = control_->peer(world_rank).unix_name;
  return name.empty() ? std::string() : name + "-bell";
}

}  // namespace tutti
