// RAII wrappers of libfabric's objects.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "transport/ofi/cards.h"

namespace tutti::ofi {

struct Close {
  template <typename Object>
  void operator()(Object* object) const {
    ::fi_close(&object->fid);
  }
  void operator()(fi_info* info) const;
};
template <typename Object>
using Owned = std::unique_ptr<Object, Close>;

// Returns all providers with reliable datagrams and remote reads, best first.
Owned<fi_info> usable();

// Returns the provider to use (cards.h). Throws Error(unsupported) if there is none.
Owned<fi_info> choose(const Near& near, const std::string& provider);

// A fabric, and this process's endpoint on it.
struct Endpoint {
  // Opens the endpoint. Throws Error: unsupported, system.
  Endpoint(const Near& near, const std::string& provider);

  std::string provider() const { return info->fabric_attr->prov_name; }
  bool wants(int mode) const { return (info->domain_attr->mr_mode & mode) != 0; }

  Owned<fi_info> info;
  Owned<fid_fabric> fabric;
  Owned<fid_domain> domain;
  Owned<fid_av> addresses;
  Owned<fid_cq> completions;
  Owned<fid_ep> endpoint;
  int event_fd = -1;  // descriptor of the completion queue; -1: the provider has none
};

// Memory that a network card may read or write.
class Registration {
 public:
  Registration() = default;
  // Registers memory. `key` is used if the provider does not assign its own. The result is empty if
  // the provider refuses, as it does at the limit of locked memory.
  Registration(const Endpoint& endpoint, std::span<const std::byte> memory, uint64_t access,
               uint64_t key);

  explicit operator bool() const { return region_ != nullptr; }
  void* descriptor() const { return region_ ? ::fi_mr_desc(region_.get()) : nullptr; }
  uint64_t key() const { return ::fi_mr_key(region_.get()); }
  void abandon() { static_cast<void>(region_.release()); }

 private:
  Owned<fid_mr> region_;
};

}  // namespace tutti::ofi
