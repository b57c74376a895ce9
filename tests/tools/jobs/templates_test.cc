// Tests the templates of tools/jobs: manifests are consistent, and ranks with the environments of
// pods and Ray actors form a job.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/path.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A cluster starts within seconds, or later on a busy machine.
constexpr std::chrono::seconds kRaysPatience{150};

class Templates : public Cli {
 protected:
  void SetUp() override {
    if (find_program("python3").empty()) GTEST_SKIP() << "there is no python3";
  }

  // Runs a rank in each environment, and expects that they form a job.
  void expect_a_job(const std::vector<Process::Environment>& environments) const {
    const std::string file = path("result.json");
    std::vector<std::unique_ptr<Process>> ranks;
    for (const Process::Environment& environment : environments) {
      Words command = {tutti(),    "bench", "all_reduce", "--max", "1K",
                       "--factor", "16",    "--json",     file};
      ranks.push_back(std::make_unique<Process>(std::move(command), environment));
    }
    for (const auto& rank : ranks) {
      const Result result = rank->finish();
      EXPECT_EQ(result.code, 0) << result.err;
      EXPECT_THAT(result.err, IsEmpty());
    }
    EXPECT_EQ(Json::parse(read(file))["ranks"], environments.size());
  }
};

TEST_F(Templates, ManifestsAreConsistent) {
  Words command = {"python3", "tests/tools/jobs/check_manifests.py"};
  for (const char* name : {"indexed-job", "jobset", "pytorchjob", "mpijob"}) {
    command.push_back(cat("tools/jobs/kubernetes/", name, ".yaml"));
  }
  const Result result = Process(command).finish();
  if (result.code == 77) GTEST_SKIP() << "python3 has no package yaml";
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "4 manifests\n");
}

TEST_F(Templates, PodsOfAnIndexedJobJoin) {
  const std::string port = cat(free_port());
  std::vector<Process::Environment> pods;
  for (int index = 0; index < 4; ++index) {
    pods.push_back({{"JOB_COMPLETION_INDEX", cat(index)},
                    {"WORLD_SIZE", "4"},
                    {"MASTER_ADDR", "localhost"},
                    {"MASTER_PORT", port},
                    {"TUTTI_TOKEN", "the token of the secret"}});
  }
  expect_a_job(pods);
}

TEST_F(Templates, ActorsOfRayJoin) {
  const Result result = Process({"python3", "-c",
                                 "import sys, json; sys.path.insert(0, 'tools/jobs/ray')\n"
                                 "import tutti_ray\n"
                                 "assert len(tutti_ray.where()) == 2\n"
                                 "places = [('127.0.0.1', " +
                                     cat(free_port()) +
                                     ")] * 2 + [('127.0.0.2', 1)]\n"
                                     "print(json.dumps(tutti_ray.environments(places)))"})
                            .finish();
  ASSERT_EQ(result.code, 0) << result.err;
  std::vector<Process::Environment> actors;
  for (const Json& environment : Json::parse(result.out)) {
    actors.push_back(environment.get<Process::Environment>());
  }
  ASSERT_EQ(actors.size(), 3u);
  EXPECT_EQ(actors[1]["LOCAL_RANK"], "1");
  EXPECT_EQ(actors[1]["LOCAL_WORLD_SIZE"], "2");
  EXPECT_EQ(actors[2]["LOCAL_RANK"], "0");
  EXPECT_EQ(actors[2]["TUTTI_TOKEN"], actors[0]["TUTTI_TOKEN"]);
  EXPECT_GE(actors[0]["TUTTI_TOKEN"].size(), 32u);
  expect_a_job(actors);
}

// RAY_PYTHON=PATH names an interpreter that has Ray.
TEST_F(Templates, ActorsOfARealRayClusterJoin) {
  const char* given = std::getenv("RAY_PYTHON");
  const std::string python = given != nullptr ? given : "python3";
  const Result result =
      start_program({python, "tests/tools/jobs/ray_cluster.py", tutti(), path("result")})
          .finish(kRaysPatience);
  if (result.code == 77) GTEST_SKIP() << python << " has no Ray (pip install ray): set RAY_PYTHON";
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("right"));
  const Json document = Json::parse(read(path("result")));
  EXPECT_EQ(document["ranks"], 4);
  for (const Json& size : document["results"]) EXPECT_EQ(size["wrong"], 0);
}

}  // namespace
}  // namespace tutti::tool
