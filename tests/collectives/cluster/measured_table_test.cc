// Tests that tables are read: as printed by nccl-tests, with output of mpirun and Slurm, and as
// written by hand.
#include "collectives/cluster/measured_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

Collective named(const std::string& name) {
  const auto found = parse_collective(name == "alltoall" ? "all_to_all" : name);
  if (!found) throw Error(ErrorCode::invalid_argument, "'" + name + "' is no collective");
  return *found;
}

MeasuredTable read(const std::string& text, const TableDefaults& defaults = {}) {
  return read_measured_table(text, "table.txt", defaults, named);
}

std::string refusal(const std::string& text, const TableDefaults& defaults = {}) {
  try {
    read(text, defaults);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "nothing was refused";
}

constexpr char kRanks[] =
    "# Using devices\n"
    "#  Rank  0 Group  0 Pid  9023 on     node1 device  0 [0x53] NVIDIA H100 80GB HBM3\n"
    "#  Rank  1 Group  0 Pid  9024 on     node1 device  1 [0x64] NVIDIA H100 80GB HBM3\n"
    "#  Rank  2 Group  0 Pid  7001 on     node2 device  0 [0x53] NVIDIA H100 80GB HBM3\n"
    "#  Rank  3 Group  0 Pid  7002 on     node2 device  1 [0x64] NVIDIA H100 80GB HBM3\n";
constexpr char kHead[] =
    "#                                                 out-of-place              in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     "
    "time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)\n";
constexpr char kRows[] =
    "           0             0     float     sum      -1     7.10    0.00    0.00      0     7.0  "
    "  0.00    0.00      0\n"
    "        1024           256     float     sum      -1    65.43    0.02    0.02      0    64.78 "
    "   0.02    0.02      0\n"
    "   268435456      67108864     float     sum      -1   1466.8  183.01  274.51      0   1465.2 "
    "  183.2   274.80      0\n"
    "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 137.1\n";

TEST(MeasuredTable, ReadsTheOutputOfNcclTests) {
  const MeasuredTable table =
      read(std::string("# nThread 1 nGpus 1\n# Collective test starting: all_reduce_perf\n") +
           kRanks + kHead + kRows);
  ASSERT_EQ(table.calls.size(), 2u) << "calls of nothing are left out";
  EXPECT_EQ(table.gpu, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(table.calls[0].collective, Collective::all_reduce);
  EXPECT_EQ(table.calls[0].hosts, 2);
  EXPECT_EQ(table.calls[0].gpus, 2);
  EXPECT_EQ(table.calls[0].bytes, 1024);
  EXPECT_EQ(table.calls[0].us, 65.43);
  EXPECT_EQ(table.calls[1].us, 1466.8);
}

TEST(MeasuredTable, ReadsThePrefixesOfMpirunAndSlurm) {
  for (const char* label : {"[1,0]<stdout>:", "0: ", "12:  "}) {
    std::string text = "+ mpirun -np 4 ./build/all_gather_perf -b 8 -e 1G\n";
    std::string lines = std::string(kRanks) + kHead + kRows;
    while (!lines.empty()) {
      const size_t end = lines.find('\n') + 1;
      text += label + lines.substr(0, end);
      lines.erase(0, end);
    }
    const MeasuredTable table = read(text);
    ASSERT_EQ(table.calls.size(), 2u) << label;
    EXPECT_EQ(table.calls[1].collective, Collective::all_gather);
    EXPECT_EQ(table.calls[1].bytes, 268435456);
    EXPECT_EQ(table.calls[1].hosts, 2);
  }
}

TEST(MeasuredTable, ReadsOldTablesWithoutARoot) {
  const MeasuredTable table =
      read(std::string(kRanks) +
           "#       size    count    type   redop     time   algbw   busbw  error     time\n"
           "     1048576   262144   float     sum    100.0   10.49   15.73  2e-07    99.0\n");
  ASSERT_EQ(table.calls.size(), 1u);
  EXPECT_EQ(table.calls[0].collective, Collective::all_reduce) << "by the two bandwidths";
  EXPECT_EQ(table.calls[0].us, 100);
}

TEST(MeasuredTable, ReadsSeveralRunsOfAFile) {
  const std::string one = std::string(kRanks) + kHead;
  const MeasuredTable table = read("all_reduce_perf\n" + one + kRows + "alltoall_perf\n" +
                                   "# Using devices\n#  Rank  0 Pid 1 on a device 0 [0x07] A100\n"
                                   "#  Rank  1 Pid 2 on a device 1 [0x08] A100\n" +
                                   kHead + kRows + kRows);
  ASSERT_EQ(table.calls.size(), 4u) << "the same call twice is one";
  EXPECT_EQ(table.calls[0].collective, Collective::all_reduce);
  EXPECT_EQ(table.calls[0].hosts, 2);
  EXPECT_EQ(table.calls[2].collective, Collective::all_to_all);
  EXPECT_EQ(table.calls[2].hosts, 1);
  EXPECT_EQ(table.calls[2].gpus, 2);
}

TEST(MeasuredTable, ReadsCsv) {
  const MeasuredTable table = read(
      "system,gpu,nodes,gpus,collective,size_bytes,oop_time_us,oop_busbw_GBps\r\n"
      "\"A system (4 GPUs, big)\",A100,2,8,alltoall,1048576,200.5,4.57\r\n"
      "\"A system (4 GPUs, big)\",A100,2,8,all_reduce,2000000,,10\r\n"
      "\"A system (4 GPUs, big)\",A100,2,8,all_reduce,4000000,,\r\n");
  ASSERT_EQ(table.calls.size(), 2u) << "the last one has no figure";
  EXPECT_EQ(table.gpu, "A100");
  EXPECT_EQ(table.calls[0].collective, Collective::all_reduce);
  EXPECT_DOUBLE_EQ(table.calls[0].us, 2e6 * 1.75 / 1e4);
  EXPECT_EQ(table.calls[1].collective, Collective::all_to_all);
  EXPECT_EQ(table.calls[1].gpus, 4);
  EXPECT_EQ(table.calls[1].us, 200.5);
}

TEST(MeasuredTable, TakesMissingFieldsFromTheCaller) {
  const MeasuredTable table = read(
      "bytes,time\n1024,30\n", {.collective = Collective::reduce_scatter, .hosts = 2, .gpus = 8});
  ASSERT_EQ(table.calls.size(), 1u);
  EXPECT_EQ(table.calls[0].collective, Collective::reduce_scatter);
  EXPECT_EQ(table.calls[0].hosts, 2);
  EXPECT_EQ(table.calls[0].gpus, 8);
}

TEST(MeasuredTable, TakesTheMedianOfACall) {
  const TableDefaults defaults{.collective = Collective::all_reduce, .gpus = 8};
  EXPECT_EQ(read("bytes,time\n1024,30\n1024,90\n1024,31\n", defaults).calls.at(0).us, 31);
}

TEST(MeasuredTable, NamesMissingFields) {
  EXPECT_THAT(refusal("nothing of the kind\n"), HasSubstr("no measured call found"));
  EXPECT_THAT(refusal(std::string("all_reduce_perf\n") + kHead + kRows),
              HasSubstr("table.txt, line 5: the output does not list the ranks"));
  EXPECT_THAT(
      refusal(std::string(kRanks) + kHead + "  1024  256  float  none  -1  65.43  0.02  0.02  0\n"),
      HasSubstr("does not name its collective"));
  EXPECT_THAT(refusal("bytes,collective\n8,all_reduce\n"),
              HasSubstr("neither time_us nor busbw_GBps"));
  EXPECT_THAT(refusal("bytes,time\n8,30\n", {.gpus = 8}), HasSubstr("name it with --collective"));
  EXPECT_THAT(refusal("bytes,time,nodes,gpus,op\n8,30,3,8,all_reduce\n"),
              HasSubstr("table.txt, line 2: 8 GPUs on 3 hosts"));
  EXPECT_THAT(refusal("bytes,time,gpus,op\n8,30,many,all_reduce\n"),
              HasSubstr("'many' is not a number (column ranks)"));
  EXPECT_THAT(refusal("bytes,time,gpus,op\nlarge,30,8,all_reduce\n"),
              HasSubstr("'large' is not a size in bytes"));
  EXPECT_THAT(refusal("bytes,time,gpus,op\n8,30,8,all_sing\n"), HasSubstr("all_sing"));
  EXPECT_THAT(refusal("system,bytes,time,gpus,op\na,8,30,8,all_reduce\nb,8,30,8,all_reduce\n"),
              HasSubstr("on several systems: 'a' and 'b'"));
}

}  // namespace
}  // namespace tutti
