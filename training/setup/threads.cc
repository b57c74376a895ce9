#include "training/setup/threads.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/processors.h"
#include "base/text.h"
#include "training/texts.h"

namespace tutti::training {
namespace {

// Collective: every rank's text, none of which has a zero in it.
std::vector<std::string> texts_of_all(Communicator& world, const std::string& own) {
  std::string all;
  for (const std::string& text : gather_texts(world, own)) all += text + '\0';
  return split(text_of_first(world, std::move(all)), '\0');
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

int share_of_processors(Communicator& world) {
  const std::string host = host_name() + '\n';
  std::vector<std::string> beside;  // what ranks of this host may run on
  for (const std::string& text : texts_of_all(world, host + own_processors())) {
    if (text.starts_with(host)) beside.push_back(text.substr(host.size()));
  }
  return std::max(1, usable_processors(beside) / static_cast<int>(beside.size()));
}

}  // namespace tutti::training
