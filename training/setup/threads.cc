#include "training/setup/threads.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/host_name.h"
#include "base/processors.h"
#include "training/core/group.h"

namespace tutti::training {

int share_of_processors(Communicator& world) {
  const std::string host = host_name() + '\n';
  std::vector<std::string> beside;  // sets of processors on which ranks of this host may run
  for (const std::string& text : texts_of_all(world, host + own_processors())) {
    if (text.starts_with(host)) beside.push_back(text.substr(host.size()));
  }
  return std::max(1, usable_processors(beside) / static_cast<int>(beside.size()));
}

}  // namespace tutti::training
