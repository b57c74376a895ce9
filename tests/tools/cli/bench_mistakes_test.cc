// Tests the errors of `tutti bench` for wrong commands.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Mistake {
  std::string name;
  Words arguments;
  std::vector<std::string> said;
};

class BenchMistake : public Cli, public ::testing::WithParamInterface<Mistake> {};

TEST_P(BenchMistake, MistakeIsReportedOnceWithARemedy) {
  Words arguments = {"bench"};
  for (std::string word : GetParam().arguments) arguments.push_back(word);
  const Result result = run(arguments);
  EXPECT_THAT(result.code, ::testing::AnyOf(1, 2));
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  for (const std::string& part : GetParam().said) EXPECT_THAT(result.err, HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(
    Cli, BenchMistake,
    ::testing::Values(
        Mistake{"NoCollective", {}, {"collective is required", "--help"}},
        Mistake{"LoadOfOneRank", {"all_reduce", "--load", "1"}, {"--load", "-n of at least 2"}},
        Mistake{"Collective", {"all_redcue", "-n", "2"}, {"all_redcue", "all_reduce, all_gather"}},
        Mistake{"Algorithm",
                {"all_reduce", "-n", "2", "--algorithm", "rign"},
                {"rign", "naive", "ring", "recursive_doubling"}},
        Mistake{"OtherAlgorithm",
                {"all_gather", "-n", "2", "--algorithm", "double_binary_tree"},
                {"all_gather", "double_binary_tree", "auto"}},
        Mistake{"DType", {"all_reduce", "-n", "2", "--dtype", "f33"}, {"f33", "f32", "bf16", "u8"}},
        Mistake{"Op", {"all_reduce", "-n", "2", "--op", "add"}, {"add", "sum, prod, min, max"}},
        Mistake{"OpOfAnotherType",
                {"all_reduce", "-n", "2", "--op", "band"},
                {"band", "f32", "integers"}},
        Mistake{
            "Transport", {"all_reduce", "-n", "2", "--transport", "udp"}, {"udp", "auto|shm|tcp"}},
        Mistake{"AlgorithmThatDoesNotRunHere",
                {"all_reduce", "-n", "3", "--algorithm", "swing"},
                {"swing does not run on 3 ranks", "even", "--algorithm list"}},
        Mistake{"AlgorithmThatIsNotDeterministic",
                {"all_reduce", "-n", "3", "--algorithm", "ring", "--deterministic"},
                {"ring is graded same bits, not canonical", "--algorithm list"}},
        Mistake{"CompositionForOneHost",
                {"all_reduce", "-n", "3", "--algorithm", "hierarchical(ring,ring,ring)"},
                {"hierarchical(ring,ring,ring)", "several hosts"}},
        Mistake{"CompositionForAnotherCollective",
                {"all_gather", "-n", "4", "--algorithm", "hierarchical(ring,ring,ring)"},
                {"is an algorithm for all_reduce, not for all_gather"}},
        Mistake{"SendRecvHasNoAlgorithm",
                {"send_recv", "-n", "2", "--algorithm", "ring"},
                {"send_recv", "ring", "auto"}},
        Mistake{"RootThatIsNoRank",
                {"broadcast", "-n", "3", "--root", "3"},
                {"--root 3 is not one of the 3 ranks", "0 to 2"}},
        Mistake{"NegativeRoot", {"reduce", "-n", "3", "--root", "-1"}, {"--root", "not -1"}},
        Mistake{"RootOfACollectiveWithoutOne",
                {"all_reduce", "-n", "3", "--root", "1"},
                {"all_reduce has no root", "broadcast, reduce, gather or scatter"}},
        Mistake{"PeersForAnotherRoot",
                {"broadcast", "-n", "2", "--root", "1", "--peers", "floor"},
                {"--root 0"}},
        Mistake{"Peer",
                {"all_reduce", "-n", "2", "--peers", "floor,opnempi"},
                {"opnempi", "openmpi, mpich, gloo, floor"}},
        Mistake{"PeerOfAFramework",
                {"all_reduce", "-n", "2", "--peers", "horovod"},
                {"Horovod is not among the peers", "--peers openmpi,gloo"}},
        Mistake{"PeersOfUnevenBlocks", {"all_gatherv", "-n", "2", "--peers", "floor"}, {"--peers"}},
        Mistake{"PeersOfAnotherType",
                {"all_reduce", "-n", "2", "--dtype", "f64", "--peers", "floor"},
                {"--peers"}},
        Mistake{"PlotOfAnotherKind",
                {"all_reduce", "-n", "2", "--plot", "plot.pdf"},
                {"plot.pdf", ".svg", ".png"}},
        Mistake{
            "PlotOfBarrier", {"barrier", "-n", "2", "--plot", "plot.svg"}, {"--plot", "barrier"}},
        Mistake{"OpOfPairs",
                {"all_reduce", "-n", "2", "--dtype", "f32_i32"},
                {"sum is not defined for f32_i32", "minloc and maxloc"}},
        Mistake{"Size", {"all_reduce", "-n", "2", "--min", "8Q"}, {"8Q", "K, M, G or T"}},
        Mistake{"NegativeSize", {"all_reduce", "-n", "2", "--max", "-8"}, {"-8", "size in bytes"}},
        Mistake{"SizesTurned",
                {"all_reduce", "-n", "2", "--min", "2K", "--max", "1K"},
                {"2K", "1K", "--min"}},
        Mistake{"Factor", {"all_reduce", "-n", "2", "--factor", "1"}, {"--factor", "at least 2"}},
        Mistake{"NoRanks", {"all_reduce", "-n", "0"}, {"--ranks", "0"}},
        Mistake{"RanksThatAreNoNumber", {"all_reduce", "-n", "two"}, {"--ranks", "two"}},
        Mistake{"Iterations", {"all_reduce", "--iterations", "-5"}, {"--iterations", "-5"}},
        Mistake{"Option", {"all_reduce", "--algorithmm", "ring"}, {"--algorithmm", "--help"}},
        Mistake{"Json",
                {"all_reduce", "-n", "2", "--json", "/nonexistent/x"},
                {"cannot write /nonexistent/x", "No such file", "remedy"}},
        Mistake{"Csv",
                {"all_reduce", "-n", "2", "--csv", "/nonexistent/x"},
                {"cannot write /nonexistent/x", "No such file", "remedy"}}),
    [](const auto& mistake) { return mistake.param.name; });

class BenchFailure : public Cli {};

TEST_F(BenchFailure, FullDiskIsAnError) {
  for (const std::string option : {"--json", "--csv"}) {
    const Result result =
        run({"bench", "all_reduce", "-n", "2", "--max", "64", option, "/dev/full"});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("cannot write /dev/full: No space left on device"));
  }
}

TEST_F(BenchFailure, RanksMustMatchTheLauncher) {
  const Result result =
      run({"run", "-n", "2", "--", tutti(), "bench", "all_reduce", "-n", "3", "--max", "64"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("-n 3, but the launcher started 2 ranks"));
}

}  // namespace
}  // namespace tutti::tool
