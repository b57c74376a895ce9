#include "transport/ofi/resources.h"

#include <cstdlib>

#include "base/error.h"
#include "base/text.h"
#include "transport/ofi/library.h"

namespace tutti::ofi {

namespace {

// Returns the requested capabilities. The registration modes are those that OfiDriver supports.
Owned<fi_info> hints() {
  Owned<fi_info> hints(library().dupinfo(nullptr));
  if (hints == nullptr) require_ok(-FI_ENOMEM, "fi_allocinfo");
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  return hints;
}

}  // namespace

void Close::operator()(fi_info* info) const { library().freeinfo(info); }

Owned<fi_info> usable() {
  fi_info* found = nullptr;
  const int result = library().getinfo(kVersion, nullptr, nullptr, 0, hints().get(), &found);
  if (result == -FI_ENODATA) return nullptr;
  require_ok(result, "fi_getinfo");
  return Owned<fi_info>(found);
}

Owned<fi_info> choose(const Near& near, const std::string& provider) {
  const Owned<fi_info> all = usable();
  const fi_info* const best = choose(all.get(), near, provider);
  if (best != nullptr) return Owned<fi_info>(library().dupinfo(best));
  const char* const only = std::getenv("FI_PROVIDER");
  throw Error(ErrorCode::unsupported,
              cat("libfabric has no usable provider",
                  only != nullptr ? cat(" (FI_PROVIDER=", only, ")") : "",
                  near.address.empty() ? "" : cat(" by the interface of ", near.address)),
              {.cause = "no available provider offers reliable datagrams (FI_EP_RDM) with messages "
                        "and remote reads, or the interface is down",
               .remedy = "run `fi_info -t FI_EP_RDM`; unset FI_PROVIDER, or name another"});
}

Endpoint::Endpoint(const Near& near, const std::string& provider) : info(choose(near, provider)) {
  fid_fabric* a_fabric = nullptr;
  require_ok(library().fabric(info->fabric_attr, &a_fabric, nullptr), "fi_fabric");
  fabric.reset(a_fabric);
  fid_domain* a_domain = nullptr;
  require_ok(::fi_domain(a_fabric, info.get(), &a_domain, nullptr), "fi_domain");
  domain.reset(a_domain);
  fi_av_attr of_addresses{};
  of_addresses.type = info->domain_attr->av_type;
  fid_av* an_av = nullptr;
  require_ok(::fi_av_open(a_domain, &of_addresses, &an_av, nullptr), "fi_av_open");
  addresses.reset(an_av);
  fi_cq_attr of_completions{};
  of_completions.format = FI_CQ_FORMAT_MSG;
  of_completions.wait_obj = FI_WAIT_FD;
  fid_cq* a_cq = nullptr;
  if (::fi_cq_open(a_domain, &of_completions, &a_cq, nullptr) == 0) {
    completions.reset(a_cq);
    if (::fi_control(&a_cq->fid, FI_GETWAIT, &event_fd) != 0) event_fd = -1;
  } else {
    of_completions.wait_obj = FI_WAIT_NONE;
    require_ok(::fi_cq_open(a_domain, &of_completions, &a_cq, nullptr), "fi_cq_open");
    completions.reset(a_cq);
  }
  fid_ep* an_endpoint = nullptr;
  require_ok(::fi_endpoint(a_domain, info.get(), &an_endpoint, nullptr), "fi_endpoint");
  endpoint.reset(an_endpoint);
  require_ok(::fi_ep_bind(an_endpoint, &an_av->fid, 0), "fi_ep_bind");
  require_ok(::fi_ep_bind(an_endpoint, &a_cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
  require_ok(::fi_enable(an_endpoint), "fi_enable");
}

Registration::Registration(const Endpoint& endpoint, std::span<const std::byte> memory,
                           uint64_t access, uint64_t key) {
  fid_mr* region = nullptr;
  if (::fi_mr_reg(endpoint.domain.get(), memory.data(), memory.size(), access, 0, key, 0, &region,
                  nullptr) != 0) {
    return;
  }
  region_.reset(region);
  if (!endpoint.wants(FI_MR_ENDPOINT)) return;
  if (::fi_mr_bind(region, &endpoint.endpoint->fid, 0) != 0 || ::fi_mr_enable(region) != 0) {
    region_.reset();
  }
}

}  // namespace tutti::ofi
