#include "tests/tools/cli/two_hosts.h"

#include "base/text.h"

namespace tutti::tool {

Result shell(const std::string& script) { return Process({"sh", "-c", script}).finish(); }

void TwoHosts::SetUp() {
  const std::string suffix = std::filesystem::path(path("")).parent_path().extension().string();
  a_ = "tutti-a" + suffix;  // the directory's name is random
  b_ = "tutti-b" + suffix;
  const std::string script = cat(
      "set -e; command -v ip > /dev/null || { echo 'ip is not installed' >&2; exit 1; }\n"
      "ip netns add ",
      a_, "; ip netns add ", b_, "; ip -n ", a_, " link add cable type veth peer name cable netns ",
      b_, "; ip -n ", a_, " address add 10.199.0.1/24 dev cable; ip -n ", b_,
      " address add 10.199.0.2/24 dev cable; for host in ", a_, " ", b_,
      "; do ip -n $host link set lo up; ip -n $host link set cable up; done; for host in ", a_, " ",
      b_,
      // libfabric recognizes the interface only once it is up.
      "; do until ip -n $host link show cable | grep -q 'state UP'; do :; done; done");
  const Result made = shell(script);
  if (made.code != 0) GTEST_SKIP() << "no network namespaces: " << made.err;
}

void TwoHosts::TearDown() {
  Cli::TearDown();
  for (const std::string& host : {a_, b_}) shell("ip netns delete " + host);
  EXPECT_THAT(shell("ip netns list").out, ::testing::Not(::testing::HasSubstr(a_)));
}

Process TwoHosts::start_on_both(int ranks, const Words& command,
                                Process::Environment environment) const {
  Words words = {"run", "--hosts", a_ + "," + b_, "-n", cat(ranks), "--"};
  words.insert(words.end(), command.begin(), command.end());
  environment["TUTTI_RSH"] = "ip netns exec";
  return start(words, std::move(environment));
}

Process TwoHosts::start_tutti_on_both(int ranks, const Words& arguments) const {
  Words command = {tutti()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return start_on_both(ranks, command);
}

}  // namespace tutti::tool
