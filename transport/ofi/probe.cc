#include "transport/ofi/probe.h"

#include <algorithm>

#include "base/text.h"
#include "transport/ofi/library.h"
#include "transport/ofi/resources.h"

namespace tutti::ofi {

namespace {

std::string registration_of(int mode) {
  struct Bit {
    int bit;
    const char* name;
  };
  constexpr Bit kBits[] = {{FI_MR_LOCAL, "local"},
                           {FI_MR_VIRT_ADDR, "virtual addresses"},
                           {FI_MR_ALLOCATED, "allocated"},
                           {FI_MR_PROV_KEY, "keys of its own"},
                           {FI_MR_ENDPOINT, "by endpoint"}};
  std::string text;
  for (const Bit& bit : kBits) {
    if ((mode & bit.bit) != 0) text += cat(text.empty() ? "" : ", ", bit.name);
  }
  return text.empty() ? "none" : text;
}

std::string describe(const fi_info& info) {
  return cat(info.fabric_attr->prov_name, "/", info.domain_attr->name,
             " (reads remote memory; registration: ", registration_of(info.domain_attr->mr_mode),
             info.domain_attr->data_progress == FI_PROGRESS_MANUAL ? "; progress by its user" : "",
             ")");
}

}  // namespace

std::string version() {
  const uint32_t version = library().version();
  return cat(FI_MAJOR(version), ".", FI_MINOR(version));
}

std::vector<std::string> devices() {
  std::vector<std::string> found = {describe(*choose(Near{}, ""))};
  const Owned<fi_info> all = usable();
  for (const fi_info* info = all.get(); info != nullptr; info = info->next) {
    const std::string text = describe(*info);
    if (std::ranges::find(found, text) == found.end()) found.push_back(text);
  }
  return found;
}

}  // namespace tutti::ofi
