#include "training/setup/threads.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/processors.h"
#include "base/reduce_op.h"

namespace tutti::training {
namespace {

// Collective: every rank's text.
std::vector<std::string> texts_of_all(Communicator& world, const std::string& own) {
  std::array<int64_t, 1> longest = {std::ssize(own) + 1};
  world.all_reduce(std::span<int64_t>(longest), ReduceOp::max);
  const auto length = static_cast<size_t>(longest[0]);
  std::vector<char> sent(length);
  std::ranges::copy(own, sent.begin());
  std::vector<char> all(length * static_cast<size_t>(world.size()));
  world.all_gather({sent.data(), length, DType::u8}, {all.data(), all.size(), DType::u8});
  std::vector<std::string> texts;
  for (size_t at = 0; at < all.size(); at += length) texts.emplace_back(&all[at]);
  return texts;
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
