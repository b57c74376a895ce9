#include "training/data/client_set.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "training/core/placement.h"

namespace tutti::training {

namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, what,
              {.where = "--labels-per-client", .remedy = remedy});
}

void check_share(int64_t labels, const ClientShare& share) {
  if (labels == 0) {
    refuse("the data has no labels for --labels-per-client",
           "use images (MNIST files), or remove the option");
  }
  const int64_t least = (labels + share.clients - 1) / share.clients;
  if (share.labels >= least && share.labels <= labels) return;
  refuse(cat(share.clients, " clients cannot have ", share.labels, " of ", labels, " labels each"),
         cat("use a number from ", least, " to ", labels, ", so that each label has a client"));
}

}  // namespace

ClientSet::ClientSet(const DataSet& set, const ClientShare& share) : set_(set) {
  std::map<uint8_t, std::vector<uint64_t>> by_label;
  const std::span<const uint8_t> labels = set.labels();
  for (uint64_t example = 0; example < labels.size(); ++example) {
    by_label[labels[example]].push_back(example);
  }
  const auto count = static_cast<int64_t>(by_label.size());
  check_share(count, share);
  // Turn t has label t modulo `count`; client r has turns [r L, (r + 1) L).
  const int64_t turns = share.clients * share.labels;
  int64_t label = 0;
  for (const auto& [name, examples] : by_label) {
    for (int64_t turn = label++; turn < turns; turn += count) {
      if (turn / share.labels != share.client) continue;
      const int64_t holders = (turns - turn % count + count - 1) / count;
      const Share own = even_share(std::ssize(examples), turn / count, holders);
      const auto first = examples.begin() + own.first;
      examples_.insert(examples_.end(), first, first + own.count);
    }
  }
  std::ranges::sort(examples_);
  if (!examples_.empty()) return;
  refuse(cat("client ", share.client, " of ", share.clients, " would have no example"),
         "use fewer clients or more examples");
}

}  // namespace tutti::training
