// Tests that defective files are refused, with the place and the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/interchange/msccl_import.h"
#include "tests/collectives/interchange/xml.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns the error of read_msccl(), or "" if the file is accepted.
std::string refusal(const std::string& xml) {
  try {
    read_msccl(xml, "bad.xml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("bad.xml"));
    return error.what();
  }
  return {};
}

// Returns a correct file: a reduction to GPU 0 and a broadcast of the result, with 3 GPUs and 2
// chunks. Line 3 is the first threadblock of the first GPU, line 4 its first step.
std::string good() {
  Xml xml("allreduce", 3, 2);
  xml.gpu(2, 0, 0).tb(2, 1).step("rrc", "i0", "i0", 2).step("s", "i0", "i0", 2);
  xml.gpu(2, 0, 0).tb(0, 2).step("rrs", "i0", "i0", 2).step("r", "i0", "i0", 2);
  xml.gpu(2, 0, 0).tb(1, 0).step("s", "i0", "i0", 2).step("rcs", "i0", "i0", 2);
  return xml.text();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return text.replace(place, from.size(), to);
}

struct Mutation {
  std::string from;
  std::string to;
  std::vector<std::string> said;
};

TEST(MscclRefusal, TheUnchangedFileIsGood) { EXPECT_EQ(refusal(good()), ""); }

TEST(MscclRefusal, NamesThePlaceAndTheReason) {
  const std::string first_step = "line 4, gpu 0, threadblock 0, step 0";
  const std::vector<Mutation> mutations = {
      {"coll=\"allreduce\"", "coll=\"custom\"", {"line 1", "cannot be proved"}},
      {"coll=\"allreduce\"", "coll=\"allrduce\"", {"line 1", "\"allrduce\"", "cannot be imported"}},
      {"coll=\"allreduce\"", "", {"line 1", "no attribute coll"}},
      {"ngpus=\"3\"", "ngpus=\"-1\"", {"line 1", "ngpus=\"-1\""}},
      {"ngpus=\"3\"", "ngpus=\"1000\"", {"line 1", "ngpus is 1000", "fewer"}},
      {"ngpus=\"3\"", "ngpus=\"99999999999999999999\"", {"line 1", "99999999999999999999"}},
      {"ngpus=\"3\"", "ngpus=\"2\"", {"line 3, gpu 0, threadblock 0", "send=\"2\""}},
      {"nchunksperloop=\"2\"", "nchunksperloop=\"2000000000\"", {"line 1", "2000000000"}},
      {"nchunksperloop=\"2\"", "nchunksperloop=\"2x\"", {"line 1", "\"2x\""}},
      {"nchunksperloop=\"2\"", "nchunksperloop=\"3\"", {"line 2, gpu 0", "missing contribution"}},
      {"coll=\"allreduce\"", "coll=\"allgather\"", {"not a multiple of the 3 gpus"}},
      {"inplace=\"1\"", "inplace=\"yes\"", {"line 1", "inplace=\"yes\""}},
      {"<gpu id=\"1\"", "<gpu id=\"0\"", {"line 8", "gpu 0 appears twice"}},
      {"<gpu id=\"1\"", "<cpu id=\"1\"", {"line 13", "mismatch"}},
      {"s_chunks=\"0\"", "s_chunks=\"2000000000\"", {"line 2, gpu 0", "2000000000"}},
      {"i_chunks=\"2\"", "i_chunks=\"1\"", {first_step, "out of bounds: there are 1"}},
      {"tb id=\"0\"", "tb id=\"-3\"", {"line 3, gpu 0", "id=\"-3\""}},
      {"send=\"2\"", "send=\"7\"", {"line 3, gpu 0, threadblock 0", "send=\"7\""}},
      {"send=\"2\"", "send=\"0\"", {"line 3, gpu 0, threadblock 0", "its own gpu"}},
      {"send=\"2\"", "send=\"-1\"", {"line 5", "step 1", "no send peer"}},
      {"recv=\"1\"", "recv=\"-1\"", {first_step, "no recv peer"}},
      {"chan=\"0\"", "chan=\"1\"", {"gpu 0", "unmatched"}},
      {"step s=\"0\"", "step s=\"5\"", {"line 4", "step 0 is expected"}},
      {"type=\"rrc\"", "type=\"rrx\"", {first_step, "\"rrx\""}},
      {"type=\"rrc\"", "type=\"cpy\"", {"gpu 1, threadblock 0, step 0", "unmatched send"}},
      {"type=\"rrc\"", "type=\"nop\"", {"gpu 1, threadblock 0, step 0", "unmatched send"}},
      {"type=\"rrc\"", "type=\"r\"", {"not a correct all_reduce", "missing contribution"}},
      {"type=\"rrs\"", "type=\"rcs\"", {"not a correct all_reduce", "missing contribution"}},
      {"type=\"rcs\"", "type=\"rrcs\"", {"gpu 2, threadblock 0, step 1", "double count"}},
      {"type=\"rcs\"",
       "type=\"r\"",
       {"line 11, gpu 1, threadblock 0, step 1", "unmatched receive"}},
      {"srcbuf=\"i\"", "srcbuf=\"q\"", {first_step, "srcbuf=\"q\""}},
      {"srcbuf=\"i\"", "srcbuf=\"s\"", {first_step, "out of bounds: there are 0"}},
      {"srcoff=\"0\"", "srcoff=\"1\"", {first_step, "chunks 1 to 2 of i are out of bounds"}},
      {"srcoff=\"0\"", "srcoff=\"-1\"", {first_step, "srcoff=\"-1\""}},
      {"dstoff=\"0\"", "dstoff=\"2000000000\"", {first_step, "2000000000"}},
      {"cnt=\"2\"", "cnt=\"2000000000\"", {first_step, "cnt=\"2000000000\""}},
      {"cnt=\"2\"", "cnt=\"0\"", {first_step, "cnt=\"0\""}},
      {"cnt=\"2\"", "cnt=\"1\"", {first_step, "receives 1 chunks", "sends 2"}},
      {"depid=\"-1\" deps=\"-1\"", "depid=\"9\" deps=\"0\"", {first_step, "no such threadblock"}},
      {"depid=\"-1\" deps=\"-1\"", "depid=\"0\" deps=\"2\"", {first_step, "has 2 steps"}},
      {"depid=\"-1\" deps=\"-1\"",
       "depid=\"0\" deps=\"1\"",
       {first_step, "deadlock", "waits for step 1 of threadblock 0"}},
      {"</algo>", "", {"truncated"}},
      {"<algo", "<algorithm", {"truncated"}},
      {good(), "", {"truncated"}},
      {good(), "<html/>", {"no <algo>"}},
  };
  for (const Mutation& mutation : mutations) {
    const std::string said = refusal(replaced(good(), mutation.from, mutation.to));
    for (const std::string& part : mutation.said) {
      EXPECT_THAT(said, HasSubstr(part)) << mutation.from << " -> " << mutation.to;
    }
  }
}

// In files of TACCL, <copy> describes data that stays on a GPU.
TEST(MscclRefusal, ForeignElementsThatAffectResultsAreRefused) {
  const std::string copy = "<copy i_off=\"0\" o_off=\"0\"/>";
  for (const char* end : {"</gpu>", "</tb>", "</algo>"}) {
    EXPECT_EQ(refusal(replaced(good(), end, copy + end)), "") << end;
    EXPECT_THAT(refusal(replaced(good(), end, cat("<step/>", end))),
                std::string(end) == "</tb>" ? HasSubstr("no attribute s")
                                            : HasSubstr("<step> where only <"));
  }
  const std::string needed = replaced(good(), "type=\"rrc\"", "type=\"r\"");
  EXPECT_THAT(refusal(replaced(needed, "</gpu>", copy + "</gpu>")),
              AllOf(HasSubstr("not a correct all_reduce"),
                    HasSubstr("express these elements as steps"), HasSubstr("<copy> (line ")));
}

TEST(MscclRefusal, FilesCutOffAnywhereAreRefused) {
  const std::string text = good();
  for (size_t length = 0; length + 2 < text.size(); ++length) {
    EXPECT_NE(refusal(text.substr(0, length)), "") << length;
  }
}

TEST(MscclRefusal, EachMissingStepIsNoticed) {
  const std::vector<std::string> lines = split(good(), '\n');
  for (const std::string& line : lines) {
    if (line.find("<step") == std::string::npos) continue;
    EXPECT_NE(refusal(replaced(good(), line + '\n', "")), "") << line;
  }
}

TEST(MscclRefusal, TwoThreadblocksOnOneChannel) {
  Xml xml("broadcast", 2, 2);
  xml.gpu(2, 0, 0).tb(1, -1).step("s", "i0", "i0");
  xml.tb(1, -1).step("s", "i1", "i1");
  xml.gpu(2, 0, 0).tb(-1, 0).step("r", "i0", "i0").step("r", "i1", "i1");
  EXPECT_THAT(refusal(xml.text()), HasSubstr("the same peer and channel 0"));
}

TEST(MscclRefusal, AResultInTheWrongPlace) {
  Xml xml("allgather", 2, 2);
  xml.gpu(0, 2, 0).tb(1, 1).step("s", "o0", "o0").step("r", "o1", "o1");
  xml.gpu(0, 2, 0).tb(0, 0).step("s", "o1", "o1").step("r", "o1", "o1");
  EXPECT_THAT(refusal(xml.text()),
              ::testing::AllOf(HasSubstr("gpu 1"), HasSubstr("output chunk 0")));
}

TEST(MscclRefusal, PartsThatAreMixedUp) {
  Xml xml("reduce", 2, 2);
  xml.gpu(2, 0, 0).tb(-1, 1).step("rrc", "i1", "i1").step("rrc", "i0", "i0");
  xml.gpu(2, 0, 0).tb(0, -1).step("s", "i0", "i0").step("s", "i1", "i1");
  EXPECT_THAT(refusal(xml.text()),
              ::testing::AllOf(HasSubstr("line 4, gpu 0, threadblock 0, step 0"),
                               HasSubstr("combines part 1 of the data with part 0")));
}

TEST(MscclRefusal, AChunkThatNothingHasWritten) {
  Xml xml("broadcast", 2, 1);
  xml.gpu(1, 0, 0).tb(1, 1).step("s", "i0", "i0").step("r", "i0", "i0");
  xml.gpu(1, 0, 0).tb(0, 0).step("s", "i0", "i0").step("r", "i0", "i0");
  EXPECT_THAT(refusal(xml.text()), ::testing::AllOf(HasSubstr("gpu 1, threadblock 0, step 0"),
                                                    HasSubstr("which was never written")));
}

// Chunks of one size class are far apart in scratch, so that a few steps can require much scratch.
TEST(MscclRefusal, TooMuchScratch) {
  constexpr int kSteps = 300;
  Xml xml("broadcast", 2, 1 << 16);
  xml.gpu(1 << 16, 0, 0).tb(1, -1);
  for (int i = 0; i < kSteps; ++i) xml.step("s", "i0", "s0");
  xml.gpu(1 << 16, 0, kSteps).tb(-1, 0);
  for (int i = 0; i < kSteps; ++i) xml.step("r", "i0", cat('s', i));
  EXPECT_THAT(refusal(xml.text()), HasSubstr("scratch chunks"));
}

TEST(MscclRefusal, ACircleOfGpus) {
  Xml xml("allreduce", 2, 1);
  for (int other : {1, 0}) {
    xml.gpu(1, 0, 1).tb(other, other).step("r", "i0", "s0").step("s", "i0", "s0");
    xml.step("re", "s0", "i0");
  }
  EXPECT_THAT(refusal(xml.text()),
              ::testing::AllOf(HasSubstr("deadlock"), HasSubstr("waits for a message from gpu 1"),
                               HasSubstr("waits for a message from gpu 0")));
}

}  // namespace
}  // namespace tutti
