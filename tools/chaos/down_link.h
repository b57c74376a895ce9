// Takes a network interface down while the object exists.
#pragma once

#include <string>

namespace tutti::tool::chaos {

class DownLink {
 public:
  // Takes the interface down. `name`: "eth0", or "NAMESPACE/eth0" in a network namespace of `ip
  // netns`. Throws Error(system) if the interface does not exist or cannot be taken down.
  explicit DownLink(const std::string& name);
  ~DownLink();
  DownLink(const DownLink&) = delete;
  DownLink& operator=(const DownLink&) = delete;

 private:
  const std::string name_;
};

}  // namespace tutti::tool::chaos
