// Tests `tutti bench --device cuda` over two hosts on a driver without a GPU
// (tests/support/fake_cuda). Long all-reduces, all-gathers and reduce-scatters run within each host
// and between the hosts; all other calls are staged through host memory.
#include <filesystem>
#include <string>

#include "tests/tools/cli/two_hosts.h"

namespace tutti::tool {
namespace {

using ::testing::SizeIs;

class DeviceOfTwoHosts : public TwoHosts {
 protected:
  Json bench(const std::string& collective, const Words& more = {},
             const std::string& device = "cuda") const {
    Words command = {tutti(), "bench",    collective, "--device",      device, "--min",
                     "4K",    "--max",    "1M",       "--factor",      "256",  "--iterations",
                     "3",     "--digest", "--json",   path("out.json")};
    command.insert(command.end(), more.begin(), more.end());
    const Process::Environment driver = {
        {"LD_LIBRARY_PATH", std::filesystem::absolute("tests/support/fake_cuda")}};
    const Result result = start_on_both(4, command, driver).finish();
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(read(path("out.json")));
  }
};

TEST_F(DeviceOfTwoHosts, CallsAreRight) {
  for (const std::string collective : {"all_reduce", "all_gather", "reduce_scatter",
                                       "reduce_scatterv", "broadcast", "all_to_all", "send_recv"}) {
    SCOPED_TRACE(collective);
    const Json document = bench(collective);
    ASSERT_THAT(document.at("results"), SizeIs(2));
    for (const Json& one : document.at("results")) EXPECT_EQ(one.at("wrong"), 0);
    const bool by_hosts =
        collective == "all_reduce" || collective == "all_gather" || collective == "reduce_scatter";
    if (!by_hosts) continue;
    EXPECT_EQ(document.at("results").at(0).at("algorithm"), "staged");
    EXPECT_EQ(document.at("results").at(1).at("algorithm"), "by_hosts");
  }
}

TEST_F(DeviceOfTwoHosts, OperatorsWorkWithinAndAcrossHosts) {
  for (const std::string op : {"avg", "premul_sum", "max"}) {
    SCOPED_TRACE(op);
    const Json document = bench("all_reduce", {"--op", op});
    for (const Json& one : document.at("results")) EXPECT_EQ(one.at("wrong"), 0);
  }
}

TEST_F(DeviceOfTwoHosts, ResultsHaveTheBitsOfTheProcessor) {
  const Json on_device = bench("all_reduce", {"--deterministic", "--dtype", "bf16"});
  const Json on_host = bench("all_reduce", {"--deterministic", "--dtype", "bf16"}, "host");
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(on_device.at("results").at(i).at("digest"), on_host.at("results").at(i).at("digest"));
  }
}

}  // namespace
}  // namespace tutti::tool
