// Tests `tutti bench --device cuda` between processes on a driver without a GPU
// (tests/support/fake_cuda): the unmodified program with that driver's folder on LD_LIBRARY_PATH.
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/tools/cli/deaths.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class Device : public Deaths {
 protected:
  static Process::Environment driver() {
    return {{"LD_LIBRARY_PATH", std::filesystem::absolute("tests/support/fake_cuda")},
            {"FAKE_CUDA_DELAY_US", "20"}};
  }
  Json bench(Words words) const {
    words.insert(words.begin(), "bench");
    words.insert(words.end(), {"--json", path("out.json")});
    const Result result = run(words, driver());
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(read(path("out.json")));
  }
};

TEST_F(Device, EveryCollectiveIsRight) {
  for (const std::string collective :
       {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
        "all_to_all", "scan", "exscan", "all_gatherv", "reduce_scatterv", "gatherv", "scatterv",
        "all_to_allv"}) {
    SCOPED_TRACE(collective);
    const Json document = bench({collective, "-n", "3", "--device", "cuda", "--min", "1K", "--max",
                                 "64K", "--factor", "64", "--iterations", "3"});
    EXPECT_EQ(document.at("device"), "cuda");
    ASSERT_THAT(document.at("results"), SizeIs(2));
    for (const Json& result : document.at("results")) EXPECT_EQ(result.at("wrong"), 0);
  }
}

TEST_F(Device, RunsOneAndEightProcesses) {
  for (const std::string ranks : {"1", "8"}) {
    const Json document = bench({"all_reduce", "-n", ranks, "--device", "cuda", "--min", "8",
                                 "--max", "1M", "--factor", "512", "--iterations", "2"});
    for (const Json& result : document.at("results")) EXPECT_EQ(result.at("wrong"), 0);
  }
}

TEST_F(Device, MessagesAreRight) {
  for (const std::string ranks : {"1", "2", "3"}) {
    const Json document = bench({"send_recv", "-n", ranks, "--device", "cuda", "--min", "1K",
                                 "--max", "1M", "--factor", "32", "--iterations", "3"});
    for (const Json& result : document.at("results")) EXPECT_EQ(result.at("wrong"), 0);
  }
}

TEST_F(Device, GraphsAreRight) {
  for (const std::string collective : {"all_reduce", "send_recv"}) {
    const Json document = bench({collective, "-n", "3", "--device", "cuda", "--graph", "--min",
                                 "1K", "--max", "64K", "--factor", "64", "--iterations", "3"});
    EXPECT_EQ(document.at("graph"), true);
    for (const Json& result : document.at("results")) EXPECT_EQ(result.at("wrong"), 0);
  }
}

// This tree's library of that name replaces NCCL.
TEST_F(Device, BenchComparesWithNccl) {
  Process::Environment environment = driver();
  environment["LD_LIBRARY_PATH"] += ":" + std::filesystem::absolute("bindings/nccl").string();
  for (const std::string collective : {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                       "reduce", "gather", "scatter", "all_to_all"}) {
    SCOPED_TRACE(collective);
    const Result result =
        run({"bench", collective, "-n", "3", "--device", "cuda", "--peers", "nccl", "--min", "4K",
             "--max", "4K", "--rounds", "1", "--iterations", "2", "--json", path("out.json")},
            environment);
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_GT(Json::parse(read(path("out.json")))
                  .at("results")
                  .at(0)
                  .at("peers")
                  .at("nccl")
                  .at("time_us"),
              0.0);
  }
}

TEST_F(Device, ResultsHaveTheBitsOfTheProcessor) {
  for (const std::string dtype : {"f32", "bf16", "f8e5m2"}) {
    SCOPED_TRACE(dtype);
    const auto digest_on = [&](const std::string& device) {
      const Json document =
          bench({"all_reduce", "-n", "5", "--device", device, "--dtype", dtype, "--digest",
                 "--deterministic", "--min", "9K", "--max", "9K", "--iterations", "2"});
      return document.at("results").at(0).at("digest").get<std::string>();
    };
    EXPECT_EQ(digest_on("cuda"), digest_on("host"));
  }
}

TEST_F(Device, KilledRankEndsTheOthers) {
  for (const std::string protocol : {"auto", "staged"}) {
    SCOPED_TRACE(protocol);
    Process::Environment environment = driver();
    environment["TUTTI_GPU_PROTOCOL"] = protocol;
    Process job = start({"bench", "all_reduce", "-n", "3", "--device", "cuda", "--min", "256K",
                         "--max", "256K", "--iterations", "1000000"},
                        std::move(environment));
    ASSERT_THAT(job.read_lines(2), SizeIs(2)) << "the header";
    expect_a_clear_end(job, 3, 1);
  }
}

TEST_F(Device, ErrorNamesTheMissingDriver) {
  const Result result =
      run({"bench", "all_reduce", "-n", "2", "--device", "cuda"}, {{"LD_LIBRARY_PATH", ""}});
  if (result.code == 0) GTEST_SKIP() << "this host has a driver";
  EXPECT_THAT(result.err, AllOf(HasSubstr("CUDA cannot be used"), HasSubstr("remedy")));
}

// Tests windows in the library's memory, also with a multicast address, and in CUDA's memory.
TEST_F(Device, WindowsAreRight) {
  for (const std::string buffers : {"library", "registered"}) {
    for (const std::string collective : {"all_reduce", "reduce_scatter", "scatter"}) {
      const Result result =
          run({"bench", collective, "-n", "4", "--device", "cuda", "--buffers", buffers,
               "--algorithm", "all", "--min", "300K", "--max", "300K", "--iterations", "2"},
              driver());
      EXPECT_EQ(result.code, 0) << result.err;
      EXPECT_THAT(result.out, HasSubstr(buffers + " GPU buffers"));
    }
  }
}

// Measures the emulated GPU. Measurements of a real GPU are stored and used in the same way.
TEST_F(Device, TuneStoresItsMeasurements) {
  const std::string file = path("tune.json");
  Process::Environment two = driver();
  two["FAKE_CUDA_DEVICES"] = "2";
  const Result tuned = run({"tune", "--device", "cuda", "--json", file}, two);
  EXPECT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_THAT(tuned.out, HasSubstr("the fitted costs of class h100"));
  const Words question = {"explain", "all_reduce", "-n", "2", "--gpu", "h100", "--bytes", "8"};
  const Result with = run(question, {{"TUTTI_TUNE_FILE", file}});
  EXPECT_THAT(with.out, HasSubstr("costs: " + file));
  const auto times = [](const std::string& text) { return text.substr(text.find("\n\n")); };
  EXPECT_NE(times(with.out), times(run(question, {{"TUTTI_TUNE_FILE", "none"}}).out));
  two["FAKE_CUDA_DEVICES"] = "1";
  EXPECT_THAT(run({"tune", "--device", "cuda", "--json", file}, two).err,
              HasSubstr("there are 1 GPUs, but measuring requires at least two"));
}

TEST_F(Device, RefusesWrongOptions) {
  const auto said = [&](const Words& words) {
    const Result result = run(words, driver());
    EXPECT_NE(result.code, 0);
    return result.err;
  };
  EXPECT_THAT(said({"bench", "all_reduce", "--device", "abacus"}), HasSubstr("use host or cuda"));
  EXPECT_THAT(said({"bench", "all_reduce", "--graph"}), HasSubstr("add --device cuda"));
  EXPECT_THAT(said({"bench", "all_reduce", "--peers", "nccl"}), HasSubstr("without --device cuda"));
  EXPECT_THAT(said({"bench", "all_reduce", "--peers", "gloo", "--device", "cuda"}),
              HasSubstr("in the memory of the host"));
  EXPECT_THAT(said({"bench", "barrier", "-n", "2", "--device", "cuda"}),
              HasSubstr("not implemented for GPUs"));
}

}  // namespace
}  // namespace tutti::tool
