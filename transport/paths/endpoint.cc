#include "transport/paths/endpoint.h"

#include <utility>

#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "transport/fabric/provider.h"

namespace tutti {

namespace {

std::unique_ptr<fabric::Provider> provider_of(std::unique_ptr<fabric::Driver> driver) {
  return driver ? std::make_unique<fabric::Provider>(std::move(driver)) : nullptr;
}

// Returns the prefix of a fabric's addresses. In the table of ranks, the fabric's name precedes the
// address.
std::string prefix_of(std::string_view fabric) { return cat(fabric, ":"); }

}  // namespace

Endpoint::Endpoint(const Job& job, const MeasuredFabrics& measured)
    : Endpoint(job, open_fabric(parse_transports(settings().get_string("TUTTI_TRANSPORT")).fabric,
                                job, measured)) {}

Endpoint::Endpoint(const Job& job, OpenedFabric fabric)
    : fabric_name_(std::move(fabric.name)),
      fabric_(provider_of(std::move(fabric.driver))),
      control_(Control::connect(with_address(job))),
      wait_set_(bell_of(control_->rank())),
      faults_(parse_faults(settings().get_string("TUTTI_FAULT")), control_->rank()) {
  join_fabric();
}

Job Endpoint::with_address(Job job) const {
  if (fabric_ != nullptr) job.fabric = prefix_of(fabric_name_) + fabric_->address();
  return job;
}

// Uses the fabric only if all ranks have it. The table determines this, so all ranks agree.
void Endpoint::join_fabric() {
  int with = 0;
  int without = -1;
  std::string_view name;
  for (int rank = 0; rank < control_->size(); ++rank) {
    const std::string_view address = control_->peer(rank).fabric;
    const std::string_view of = address.substr(0, address.find(':'));
    if (rank == 0) name = of;
    with += of.empty() ? 0 : 1;
    if (without < 0 && (of.empty() || of != name)) without = rank;
  }
  uses_fabric_ = fabric_ != nullptr && without < 0;
  if (with > 0 && !uses_fabric_ && control_->rank() == 0) {
    log(LogLevel::warning,
        cat(control_->describe(without), " has no fabric, or another one than rank 0 (", with,
            " of ", control_->size(),
            " ranks have one), so TCP is used between hosts; run `tutti info` on each host for the "
            "reason; `tutti tune --hosts` may have been run on some hosts only"));
  }
  if (!uses_fabric_) return;
  const size_t prefix = prefix_of(fabric_name_).size();
  fabric_->join(
      {.own = control_->rank(),
       .count = control_->size(),
       .address_of = [this, prefix](int rank) -> std::string_view {
         return std::string_view(control_->peer(rank).fabric).substr(prefix);
       },
       .gone = [this](int rank) { return control_->has_left(rank) || control_->has_died(rank); }},
      wait_set_);
}

Endpoint::~Endpoint() {
  if (control_->forked()) return;
  if (uses_fabric_) fabric_->leave();
  last_bytes_.wait();
}

std::string Endpoint::bell_of(int world_rank) const {
  const std::string& name = control_->peer(world_rank).unix_name;
  return name.empty() ? std::string() : name + "-bell";
}

}  // namespace tutti
