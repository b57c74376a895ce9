// Fuzzes host files, and texts of users and batch systems: lists of hosts, lists of numbers, racks,
// and places on a host.
#include "tools/launcher/hosts.h"

#include "base/text.h"
#include "tests/fuzz/target.h"
#include "topology/domain.h"
#include "topology/host_list.h"

namespace tutti {

namespace {

void take_line(const std::string& line) {
  fuzz::take("list of hosts", [&] { expand_host_list(line); });
  fuzz::take("list of numbers", [&] { expand_counts(line); });
  fuzz::take("", [&] { parse_rack(line); });
  fuzz::take("", [&] { to_text(parse_domain(line)); });
  fuzz::take("", [&] { parse_bytes(line); });
  fuzz::take("--hosts", [&] { tool::to_text(tool::parse_hosts(split(line, ','))); });
}

}  // namespace

}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  static const fuzz::InputFile file("hosts");
  const std::string_view text = fuzz::text_of(data, size);
  file.write(text);
  fuzz::take(file.path(), [&] {
    const std::vector<tool::Host> hosts = tool::read_host_file(file.path());
    const int slots = tool::total_slots(hosts);
    tool::deal_ranks(slots > 0 ? std::min(slots, 1000) : static_cast<int>(hosts.size()), hosts,
                     size % 2 == 0 ? tool::MapBy::slot : tool::MapBy::node);
  });
  for (const std::string& line : split(text, '\n')) take_line(line);
  return 0;
}
