// Tests the conversion of small MSCCL files to programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collectives/interchange/msccl_import.h"
#include "tests/collectives/interchange/xml.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Imported read(const Xml& xml) { return read_msccl(xml.text(), "test.xml"); }

std::vector<std::string> steps(const Imported& imported, int rank) {
  std::vector<std::string> words;
  for (const Step& step : imported.programs[rank].steps) words.push_back(to_string(step));
  return words;
}

TEST(Msccl, SendReceiveAndReduceInPlace) {
  Xml xml("allreduce", 2, 2);
  for (int own : {0, 1}) {
    const std::string mine = cat('i', own);
    const std::string other = cat('i', 1 - own);
    xml.gpu(2, 0, 0).tb(1 - own, 1 - own);
    xml.step("s", other, other).step("rrc", mine, mine).step("s", mine, mine);
    xml.step("r", other, other);
  }
  const Imported imported = read(xml);
  EXPECT_EQ(imported.collective, Collective::all_reduce);
  EXPECT_EQ(imported.name, "test");
  EXPECT_EQ(imported.ranks, 2);
  EXPECT_EQ(imported.grade, Grade::same_bits) << "rank 1 adds rank 0's part on the right";
  EXPECT_THAT(steps(imported, 1),
              ElementsAre("send input[0] to 0", "recv from 0, output[1] = input[1] op received",
                          "send output[1] to 0", "recv output[0] from 0"));
  EXPECT_EQ(imported.programs[0].scratch_chunks, 0);
}

TEST(Msccl, FusedSteps) {
  Xml xml("allreduce", 3, 1);
  xml.gpu(1, 0, 0).tb(1, 1).step("s", "i0", "i0").step("r", "i0", "i0");
  xml.gpu(1, 0, 0).tb(2, 0).step("rrs", "i0", "i0");
  xml.tb(0, 2).step("rcs", "i0", "i0");
  xml.gpu(1, 0, 0).tb(1, 1).step("rrcs", "i0", "i0");
  const Imported imported = read(xml);
  EXPECT_EQ(imported.grade, Grade::same_bits);
  EXPECT_THAT(steps(imported, 1),
              ElementsAre("recv from 0, scratch[0] = input[0] op received", "send scratch[0] to 2",
                          "recv output[0] from 2", "send output[0] to 0"));
  EXPECT_THAT(steps(imported, 2),
              ElementsAre("recv from 1, output[0] = input[0] op received", "send output[0] to 1"));
}

TEST(Msccl, CopyReduceAndNop) {
  Xml xml("allreduce", 2, 2, "inplace=\"0\" outofplace=\"1\"");
  for (int own : {0, 1}) {
    xml.gpu(2, 2, 2).tb(1 - own, 1 - own).step("s", "i0", "s0", 2).step("r", "i0", "s0", 2);
    xml.tb(-1, -1).step("cpy", "i0", "o0", 2).nop(0, 1);
    xml.step("re", "s1", "o1").step("re", "s0", "o0");
  }
  const Imported imported = read(xml);
  EXPECT_EQ(imported.programs[0].scratch_chunks, 2);
  EXPECT_EQ(imported.programs[0].chunks_per_message, 2);
  EXPECT_THAT(steps(imported, 0),
              ::testing::UnorderedElementsAre("copy input[0-1] to output[0-1]",
                                              "send input[0-1] to 1", "recv scratch[0-1] from 1",
                                              "reduce output[1] = output[1] op scratch[1]",
                                              "reduce output[0] = output[0] op scratch[0]"));
}

// Scratch chunks are renumbered, because a chunk's number determines its size, which must be that
// of its contents.
TEST(Msccl, ScratchChunksHaveTheSizeOfTheirContents) {
  Xml xml("allreduce", 2, 2);
  xml.gpu(2, 0, 0).tb(1, 1).step("s", "i1", "s0").step("r", "i1", "i1");
  xml.step("s", "i0", "s0").step("r", "i0", "i0");
  xml.gpu(2, 0, 1).tb(0, 0).step("r", "i1", "s0").step("re", "s0", "i1").step("s", "i1", "i1");
  xml.step("r", "i0", "s0").step("re", "s0", "i0").step("s", "i0", "i0");
  const Imported imported = read(xml);
  EXPECT_EQ(imported.programs[1].scratch_chunks, 2);
  EXPECT_EQ(steps(imported, 1)[0], "recv scratch[1] from 0");
  EXPECT_EQ(steps(imported, 1)[3], "recv scratch[0] from 0");
}

TEST(Msccl, AnAllGatherInPlaceHasItsOwnBlockInTheOutput) {
  Xml xml("allgather", 2, 4);
  xml.gpu(0, 4, 0).tb(1, 1).step("s", "o0", "o0", 2).step("r", "o2", "o2", 2);
  xml.gpu(0, 4, 0).tb(0, 0).step("s", "o2", "o2", 2).step("r", "o0", "o0", 2);
  const Imported imported = read(xml);
  EXPECT_EQ(imported.programs[0].input_chunks, 2);
  EXPECT_THAT(steps(imported, 1), ElementsAre("send input[0-1] to 0", "recv output[0-1] from 0",
                                              "copy input[0-1] to output[2-3]"));
}

TEST(Msccl, AReduceScatterInPlaceKeepsOtherBlocksInScratch) {
  for (const char* spelling : {"reduce_scatter", "reducescatter"}) {
    Xml xml(spelling, 3, 3);
    for (int own = 0; own < 3; ++own) {
      const auto at = [&](int hops) { return cat('i', (own + 3 - hops) % 3); };
      xml.gpu(3, 0, 0).tb((own + 1) % 3, (own + 2) % 3);
      xml.step("s", at(1), at(1)).step("rrc", at(2), at(2)).step("s", at(2), at(2));
      xml.step("rrc", at(0), at(0));
    }
    const Imported imported = read(xml);
    EXPECT_EQ(imported.collective, Collective::reduce_scatter);
    EXPECT_THAT(
        steps(imported, 0),
        ElementsAre("send input[2] to 1", "recv from 2, scratch[1] = input[1] op received",
                    "send scratch[1] to 1", "recv from 2, output[0] = input[0] op received"));
  }
}

TEST(Msccl, BroadcastAndReduceHaveARoot) {
  Xml broadcast("broadcast", 2, 1, "inplace=\"1\" root=\"1\"");
  broadcast.gpu(1, 0, 0).tb(-1, 1).step("r", "i0", "i0");
  broadcast.gpu(1, 0, 0).tb(0, -1).step("s", "i0", "i0");
  EXPECT_EQ(read(broadcast).root, 1);
  EXPECT_THAT(steps(read(broadcast), 0), ElementsAre("recv output[0] from 1"));

  Xml reduce("reduce", 3, 1);
  reduce.gpu(1, 0, 0).tb(-1, 1).step("rrc", "i0", "i0");
  reduce.gpu(1, 0, 0).tb(0, 2).step("rrcs", "i0", "i0");
  reduce.gpu(1, 0, 0).tb(1, -1).step("s", "i0", "i0");
  EXPECT_EQ(read(reduce).collective, Collective::reduce);
  EXPECT_THAT(steps(read(reduce), 1),
              ElementsAre("recv from 2, scratch[0] = input[0] op received", "send scratch[0] to 0"))
      << "only the root has an output";
}

// In MSCCL, channels are separate queues, but a program has only one queue per peer. Here the
// second message must be sent first.
TEST(Msccl, ChannelsAreMergedInTheOrderOfTheReceiver) {
  Xml xml("broadcast", 2, 2);
  xml.gpu(2, 0, 0).tb(1, -1, 0).step("s", "i0", "i0");
  xml.tb(1, -1, 1).step("s", "i1", "i1");
  xml.gpu(2, 0, 0).tb(-1, 0, 0).step("r", "i0", "i0", 1, 1, 0);
  xml.tb(-1, 0, 1).step("r", "i1", "i1");
  const Imported imported = read(xml);
  EXPECT_THAT(steps(imported, 0), ElementsAre("send input[1] to 1", "send input[0] to 1",
                                              "copy input[0-1] to output[0-1]"));
  EXPECT_THAT(steps(imported, 1), ElementsAre("recv output[1] from 0", "recv output[0] from 0"));
}

// The first message is sent before the second one may be sent, but is received after it.
TEST(Msccl, AMessageBeforeItsTurnWaitsInScratch) {
  Xml xml("broadcast", 2, 2);
  xml.gpu(2, 0, 0).tb(1, -1, 0).step("s", "i0", "i0");
  xml.tb(1, -1, 1).step("s", "i1", "i1", 1, 0, 0);
  xml.gpu(2, 0, 0).tb(-1, 0, 0).step("r", "i0", "i0", 1, 1, 0);
  xml.tb(-1, 0, 1).step("r", "i1", "i1");
  EXPECT_THAT(steps(read(xml), 1), ElementsAre("recv scratch[0] from 0", "recv output[1] from 0",
                                               "copy scratch[0] to output[0]"));
}

// Both GPUs send first, so that one message is in flight in each direction.
TEST(Msccl, AnExchangeOutOfPlaceWorksInPlaceToo) {
  Xml xml("alltoall", 2, 2, "inplace=\"0\" outofplace=\"1\"");
  for (int own : {0, 1}) {
    const int other = 1 - own;
    xml.gpu(2, 2, 0).tb(-1, other).step("r", cat('i', own), cat('o', other));
    xml.tb(other, -1).step("s", cat('i', other), cat('o', own));
    xml.tb(-1, -1).step("cpy", cat('i', own), cat('o', own));
  }
  const Imported imported = read(xml);
  EXPECT_TRUE(imported.direct);
  EXPECT_EQ(imported.programs[0].scratch_chunks, 0) << "nothing needs saving";
}

TEST(Msccl, AnInputThatIsReadTooLateIsSavedForCallsInPlace) {
  Xml xml("alltoall", 2, 2, "inplace=\"0\" outofplace=\"1\"");
  xml.gpu(2, 2, 0).tb(1, 1).step("s", "i1", "o0").step("r", "i0", "o1").step("cpy", "i0", "o0");
  xml.gpu(2, 2, 0).tb(0, 0).step("r", "i1", "o0").step("s", "i0", "o1").step("cpy", "i1", "o1");
  const Imported imported = read(xml);
  EXPECT_FALSE(imported.direct);
  EXPECT_THAT(steps(imported, 1),
              ElementsAre("copy input[0] to scratch[0]", "recv output[0] from 0",
                          "send scratch[0] to 0", "copy input[1] to output[1]"));
}

TEST(Msccl, OneGpuAlone) {
  Xml xml("allreduce", 1, 3);
  xml.gpu(3, 0, 0);
  EXPECT_THAT(steps(read(xml), 0), ElementsAre("copy input[0-2] to output[0-2]"));
}

TEST(Msccl, CommentsAreAllowed) {
  Xml xml("allreduce", 1, 1);
  xml.gpu(1, 0, 0).tb(-1, -1);
  std::string text = "<!-- a licence -->\n" + xml.text();
  text.insert(text.find("    <tb"), "<!-- of threadblocks -->\n");
  EXPECT_EQ(read_msccl(text, "a/b/one.xml").name, "one");
}

}  // namespace
}  // namespace tutti
