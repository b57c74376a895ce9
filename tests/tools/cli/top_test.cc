// Tests `tutti top`: jobs with a late, stopped or killed rank, watched from outside.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr const char* kToken = "00112233445566778899aabbccddeeff";
constexpr const char* kOtherToken = "ffeeddccbbaa99887766554433221100";

class Top : public Cli {
 protected:
  // Returns the command of a job of late_rank.
  static Words job_of(int ranks, const Words& late_rank, const Words& options = {}) {
    Words words = {"run", "-n", cat(ranks)};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", std::filesystem::absolute("tests/tools/cli/late_rank")});
    words.insert(words.end(), late_rank.begin(), late_rank.end());
    return words;
  }
  // Starts one of two ranks by hand in the test's own directory.
  Process start_rank(const std::string& rank, Process::Environment environment) const {
    environment.merge(Process::Environment{{"RANK", rank}, {"WORLD_SIZE", "2"}});
    const std::string program = std::filesystem::absolute("tests/tools/cli/late_rank");
    return start_program({"sh", "-c", cat("cd ", path(""), " && exec ", program, " 0 1")},
                         environment);
  }
  Json look_at(const std::string& job) const {
    const Result result = run({"top", "--job", job, "--json", "--once", "--every", "0.1"});
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.code == 0 ? result.out : "{}");
  }
  Words top(const Words& more) const {
    Words words = {"top", "--job", cat(process_of_rank(1))};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Json look() const {
    const Result result = run(top({"--json", "--once", "--every", "0.5"}));
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out);
  }
  std::string variable_of(pid_t pid, const std::string& name) const {
    for (const std::string& variable : split(read(cat("/proc/", pid, "/environ")), '\0')) {
      if (variable.starts_with(name + "=")) return variable.substr(name.size() + 1);
    }
    return "";
  }
  static void end(Process& job) {
    ::kill(job.pid(), SIGTERM);
    job.finish();
  }
};

TEST_F(Top, NamesTheLateRank) {
  Process job = start(job_of(3, {"2", "30"}));
  ASSERT_THAT(job.read_lines(1), SizeIs(1)) << "the first call is through";
  const Json view = look();
  ASSERT_THAT(view["ranks"], SizeIs(3));
  EXPECT_GT(view["seconds"].get<double>(), 0.4);
  for (int rank = 0; rank < 3; ++rank) {
    const Json& row = view["ranks"][rank];
    EXPECT_EQ(row["rank"], rank);
    EXPECT_EQ(row["state"], "answers");
    EXPECT_EQ(row["pid"], process_of_rank(rank));
    EXPECT_FALSE(row["host"].get<std::string>().empty());
    EXPECT_GT(row["calls"].get<int>(), 1);
    EXPECT_GE(row["bytes"].get<int>(), 2 * 4096);
    EXPECT_GT(row["calls_per_second"].get<double>(), 1);
    EXPECT_TRUE(row.contains("current") && row.contains("current_seconds"));
    EXPECT_TRUE(row["waits_for"].is_array());
  }
  EXPECT_GT(view["ranks"][0]["waiting_share"].get<double>(), 0.5);
  EXPECT_LT(view["ranks"][2]["waiting_share"].get<double>(), 0.3);
  EXPECT_GT(view["ranks"][2]["late_share"].get<double>(), 0.3);
  EXPECT_GT(view["ranks"][2]["late_seconds"].get<double>(), 0.01);
  EXPECT_LT(view["ranks"][0]["late_share"].get<double>(), 0.2);
  EXPECT_FALSE(view["links"].empty());
  EXPECT_GT(view["links"][0]["bytes_per_second"].get<double>(), 0);
  ASSERT_TRUE(view["straggler"].is_object());
  EXPECT_EQ(view["straggler"]["rank"], 2);
  EXPECT_THAT(view["straggler"]["why"].get<std::string>(),
              AllOf(HasSubstr("waited"), HasSubstr(" ms a call")));

  const Result table = run(top({"--once", "--every", "0.5"}));
  EXPECT_THAT(table.out, AllOf(HasSubstr("waiting"), HasSubstr("links: "),
                               HasSubstr("straggler: rank 2 ("), HasSubstr("GB/s")));
  end(job);
}

TEST_F(Top, NamesTheRankThatOthersWaitFor) {
  Process job = start(job_of(3, {"1", "60000"}));
  ASSERT_THAT(job.read_lines(1), SizeIs(1)) << "the first call is through";
  const Json view = look();
  ASSERT_TRUE(view["straggler"].is_object());
  EXPECT_EQ(view["straggler"]["rank"], 1);
  EXPECT_THAT(view["straggler"]["why"].get<std::string>(),
              AllOf(HasSubstr("has waited for"), HasSubstr("is in no call")));
  EXPECT_TRUE(view["ranks"][1]["current"].is_null());
  EXPECT_THAT(view["ranks"][0]["current"].get<std::string>(), HasSubstr("call 2, all_reduce"));
  EXPECT_GT(view["ranks"][0]["current_seconds"].get<double>(), 0.3);
  end(job);
}

// A spare always waits, and the ranks that it waits for are working.
TEST_F(Top, IgnoresSparesInComparisons) {
  Process job = start(job_of(3, {"-1", "20", "-1", "spare"}));
  ASSERT_THAT(job.read_lines(1), SizeIs(1)) << "the first call is through";
  const Json view = look();
  EXPECT_GT(view["ranks"][2]["current_seconds"].get<double>(), 0.3);
  EXPECT_EQ(view["ranks"][2]["calls_per_second"].get<double>(), 0);
  if (view["straggler"].is_object()) {  // one of the two may be slow by itself
    EXPECT_THAT(view["straggler"]["why"].get<std::string>(), Not(HasSubstr("barrier")));
    EXPECT_GE(view["ranks"][view["straggler"]["rank"].get<int>()]["late_share"].get<double>(), 0.1);
  }
  for (const int rank : {0, 1}) {
    EXPECT_LT(view["ranks"][rank]["late_share"].get<double>(), 0.6) << rank;
  }
  end(job);
}

TEST_F(Top, ShowsAStoppedRank) {
  Process job = start(job_of(3, {"0", "1"}));
  ASSERT_THAT(job.read_lines(1), SizeIs(1)) << "the first call is through";
  const pid_t stopped = process_of_rank(1);
  ::kill(stopped, SIGSTOP);
  const Json view = look();
  ::kill(stopped, SIGCONT);
  EXPECT_EQ(view["ranks"][1]["state"], "silent");
  EXPECT_EQ(view["ranks"][2]["state"], "answers");
  ASSERT_TRUE(view["straggler"].is_object());
  EXPECT_EQ(view["straggler"]["rank"], 1);
  EXPECT_THAT(view["straggler"]["why"].get<std::string>(), HasSubstr("does not answer"));
  end(job);
}

TEST_F(Top, AnotherTokenIsRefused) {
  Process job = start(job_of(2, {"0", "1"}));
  ASSERT_THAT(job.read_lines(1), SizeIs(1)) << "the first call is through";
  const pid_t rank = process_of_rank(1);
  const std::string there = cat("localhost:", variable_of(rank, "MASTER_PORT"));
  const Words words = {"top", "--job", there, "--once", "--json", "--every", "0.1"};
  const Result refused = run(words, {{"TUTTI_TOKEN", kOtherToken}});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("different tokens"));
  EXPECT_EQ(refused.out, "");
  const Result right = run(words, {{"TUTTI_TOKEN", variable_of(rank, "TUTTI_TOKEN")}});
  EXPECT_EQ(right.code, 0) << right.err;
  EXPECT_THAT(Json::parse(right.out)["ranks"], SizeIs(2));
  end(job);
}

// The rendezvous file takes precedence over an address, and is removed after the rendezvous.
TEST_F(Top, FindsAJobWithARendezvousFile) {
  const std::string secret = write("secret", kToken);
  std::filesystem::permissions(secret, std::filesystem::perms(0600));
  const std::string meeting = cat("file:", path("meeting"));
  const Process::Environment environment = {{"TUTTI_RENDEZVOUS", meeting},
                                            {"MASTER_ADDR", "localhost"},
                                            {"MASTER_PORT", "1"},
                                            {"TUTTI_TOKEN_FILE", "secret"}};
  Process zero = start_rank("0", environment);
  Process one = start_rank("1", environment);
  ASSERT_THAT(zero.read_lines(1), SizeIs(1)) << "the first call is through";
  EXPECT_THAT(look_at(cat(process_of_rank(0)))["ranks"], SizeIs(2));
  EXPECT_THAT(look_at(meeting)["ranks"], SizeIs(2));
  ::kill(zero.pid(), SIGKILL);
  ::kill(one.pid(), SIGKILL);
}

// The job's key is not only the token, and the job does not listen at MASTER_PORT.
TEST_F(Top, FindsAJobOfTorchrunWithAShortToken) {
  const std::string port = cat(free_port());
  const Process::Environment environment = {
      {"TORCHELASTIC_RUN_ID", "none"},  {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"MASTER_ADDR", "127.0.0.1"},     {"MASTER_PORT", port},
      {"TUTTI_ALLOW_SHORT_TOKEN", "1"}, {"TUTTI_TOKEN", "short"}};
  Process zero = start_rank("0", environment);
  Process one = start_rank("1", environment);
  ASSERT_THAT(zero.read_lines(1), SizeIs(1)) << "the first call is through";
  EXPECT_THAT(look_at(cat("127.0.0.1:", port))["ranks"], SizeIs(2));
  EXPECT_THAT(look_at(cat(process_of_rank(1)))["ranks"], SizeIs(2));
  ::kill(zero.pid(), SIGKILL);
  ::kill(one.pid(), SIGKILL);
}

TEST_F(Top, DistinguishesJobsWithTheSameToken) {
  Process first = start(job_of(2, {"0", "1"}), {{"TUTTI_TOKEN", kToken}});
  ASSERT_THAT(first.read_lines(1), SizeIs(1)) << "the first call is through";
  const std::string there = cat("localhost:", variable_of(process_of_rank(0), "MASTER_PORT"));
  Process second = start(job_of(2, {"0", "1"}), {{"TUTTI_TOKEN", kToken}});
  ASSERT_THAT(second.read_lines(1), SizeIs(1)) << "the first call is through";
  const Result several = run({"top", "--once"});
  EXPECT_NE(several.code, 0);
  EXPECT_THAT(several.err, HasSubstr(cat("127.0.0.1", there.substr(there.find(':')))));
  EXPECT_THAT(split(several.err, '\n'), SizeIs(::testing::Ge(3))) << several.err;
  EXPECT_THAT(look_at(there)["ranks"], SizeIs(2));
  end(first);
  end(second);
}

TEST_F(Top, AttachesIfRankZeroIsStopped) {
  Process job = start(job_of(3, {"0", "1"}));
  ASSERT_THAT(job.read_lines(1), SizeIs(1)) << "the first call is through";
  const pid_t stopped = process_of_rank(0);
  const std::string there = cat("localhost:", variable_of(stopped, "MASTER_PORT"));
  ::kill(stopped, SIGSTOP);
  for (const std::string& name : {there, cat(stopped), cat(process_of_rank(2))}) {
    const Json view = look_at(name);
    ASSERT_THAT(view["ranks"], SizeIs(3)) << name;
    EXPECT_EQ(view["ranks"][0]["state"], "silent");
  }
  ::kill(stopped, SIGCONT);
  end(job);
}

TEST_F(Top, ReportsTheEndOfTheJob) {
  Process job = start(job_of(3, {"0", "1"}));
  ASSERT_THAT(job.read_lines(1), SizeIs(1)) << "the first call is through";
  Process watching = start(top({"--json", "--every", "0.1"}));
  EXPECT_THAT(watching.read_lines(2), SizeIs(2));
  ::kill(process_of_rank(2), SIGKILL);
  EXPECT_EQ(job.finish().code, 137);
  const Result result = watching.finish();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("the job has ended"));
}

// Ranks without calls outlive the rank that `tutti top` queries.
TEST_F(Top, QueriesAnotherRankIfTheFirstDies) {
  Process job = start(job_of(3, {"-1", "60000"}, {"--min-ranks", "1"}));
  ASSERT_THAT(job.read_lines(1), SizeIs(1)) << "the first call is through";
  const std::string there = cat("localhost:", variable_of(process_of_rank(0), "MASTER_PORT"));
  Process watching = start(top({"--json", "--every", "0.1"}));
  EXPECT_THAT(watching.read_lines(1), SizeIs(1));
  ::kill(process_of_rank(0), SIGKILL);
  Json view;
  for (size_t line = 2; line < 50; ++line) {
    view = Json::parse(watching.read_lines(line).back());
    if (view["ranks"][0]["state"] == "died") break;
  }
  EXPECT_EQ(view["ranks"][0]["state"], "died");
  EXPECT_EQ(view["ranks"][2]["state"], "answers");
  EXPECT_THAT(look_at(there)["ranks"], SizeIs(3)) << "which was rank 0's address";
  ::kill(watching.pid(), SIGINT);
  EXPECT_EQ(watching.finish().code, 0);
  end(job);
}

TEST_F(Top, ReportsAnAbortedJob) {
  std::filesystem::create_directory(path("reports"));
  const Result aborted =
      run(job_of(3, {"1", "60000"}), {{"TUTTI_REPORT", path("reports")}, {"TUTTI_TIMEOUT", "1"}});
  EXPECT_NE(aborted.code, 0);
  EXPECT_THAT(aborted.err, HasSubstr("Likely: rank 1 ("));
  const Result told = run({"top", "--report", path("reports")});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_THAT(told.out,
              AllOf(HasSubstr("of 3 ranks was aborted"), HasSubstr("timed out after 1 s"),
                    HasSubstr("rank 1 ("), HasSubstr("in no call; the last was call 1"),
                    HasSubstr("in call 2, all_reduce of 1024 f32"), HasSubstr("Likely: rank 1 (")));
  const Json reports = Json::parse(run({"top", "--report", path("reports"), "--json"}).out);
  ASSERT_THAT(reports["reports"], SizeIs(3));
  EXPECT_EQ(reports["reports"][0]["recorder"].back()["call"], 2);
  EXPECT_TRUE(reports["reports"][0]["recorder"].back()["seconds"].is_null());
  EXPECT_THAT(run({"top", "--report", path("nothing")}).err, HasSubstr("no rank has left"));
}

// A directory may contain reports of earlier jobs or earlier starts of this job, and a partial
// file.
TEST_F(Top, ShowsOnlyTheLastAbortedJob) {
  std::filesystem::create_directory(path("reports"));
  const Process::Environment environment = {{"TUTTI_REPORT", path("reports")},
                                            {"TUTTI_TIMEOUT", "1"}};
  EXPECT_NE(run(job_of(3, {"1", "60000"}), environment).code, 0);
  EXPECT_NE(run(job_of(2, {"0", "60000"}), environment).code, 0);
  write("reports/rank-7-communicator-1-job-0.json", R"({"rank": 7, "jo)");
  write("reports/rank-8-communicator-1-job-0.json", R"({"rank": 8})");
  const Result told = run({"top", "--report", path("reports")});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_THAT(told.out, AllOf(HasSubstr("Skipped "), HasSubstr("rank-7-communicator-1-job-0.json"),
                              HasSubstr("1 earlier jobs are not shown"),
                              HasSubstr("of 2 ranks was aborted"), HasSubstr("Likely: rank 0 (")));
  EXPECT_THAT(told.out, Not(HasSubstr("of 3 ranks")));
  const Json reports = Json::parse(run({"top", "--report", path("reports"), "--json"}).out);
  EXPECT_THAT(reports["reports"], SizeIs(2));
  EXPECT_THAT(reports["skipped"], SizeIs(2));
}

TEST_F(Top, WarningsNameTheRankThatIsAlwaysLate) {
  const Words late = job_of(3, {"1", "500", "6"});
  const Result warned = run(late, {{"TUTTI_LATE_WARNING", "0.2"}});
  EXPECT_EQ(warned.code, 0);
  EXPECT_THAT(warned.err, AllOf(HasSubstr("rank 1 ("), HasSubstr("is a straggler"),
                                HasSubstr("in 3 consecutive calls")));
  EXPECT_THAT(split(warned.err, '\n'), SizeIs(1)) << warned.err;
  EXPECT_EQ(run(late, {{"TUTTI_LATE_WARNING", "0"}}).err, "");
}

TEST_F(Top, ReportsAMissingJob) {
  EXPECT_THAT(run({"top", "--job", cat(::getpid())}).err, HasSubstr("a job of several ranks"));
  EXPECT_THAT(run({"top", "--job", "foo"}).err, HasSubstr("HOST:PORT"));
  const Result nobody = run({"top", "--job", cat("127.0.0.1:", free_port())});
  EXPECT_NE(nobody.code, 0);
  EXPECT_THAT(nobody.err, HasSubstr("Connection refused"));
}

}  // namespace
}  // namespace tutti::tool
