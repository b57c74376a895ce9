// Tests `tutti draw`: a picture, JSON, or a list of steps, of built-in and imported algorithms.
#include <pugixml.hpp>
#include <string>

#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kBroadcast = R"(<algo name="b" ngpus="2" nchunksperloop="1" nchannels="1"
  coll="broadcast" inplace="1" outofplace="0">
  <gpu id="0" i_chunks="1" o_chunks="0" s_chunks="0">
    <tb id="0" send="1" recv="-1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1"
        hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="1" o_chunks="0" s_chunks="0">
    <tb id="0" send="-1" recv="0" chan="0">
      <step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1"
        hasdep="0"/>
    </tb>
  </gpu>
</algo>
)";

class Draw : public Cli {};

TEST_F(Draw, ListsTheStepsOfEveryRank) {
  const Result result = run({"draw", "ring", "-n", "3"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, IsQuiet());
  EXPECT_THAT(result.out, AllOf(HasSubstr("all_reduce ring, 3 ranks"),
                                HasSubstr("grade: same bits"), HasSubstr("rounds: 4; messages: 12"),
                                HasSubstr("rank 2\n"), HasSubstr("send input[2] to 1")));
}

TEST_F(Draw, WritesAPictureAndJson) {
  const std::string svg = path("ring.svg");
  const std::string programs = path("ring.json");
  const Result result = run(
      {"draw", "ring", "-n", "4", "--collective", "all_gather", "--svg", svg, "--json", programs});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, IsEmpty());
  pugi::xml_document document;
  ASSERT_TRUE(document.load_file(svg.c_str()));
  EXPECT_STREQ(document.child("svg").child("title").child_value(), "all_gather ring, 4 ranks");
  EXPECT_EQ(document.select_nodes("//polygon").size(), 4u * 3) << "an arrow for each message";
  const Json object = Json::parse(read(programs));
  EXPECT_EQ(object["collective"], "all_gather");
  EXPECT_EQ(object["ranks"], 4);
  EXPECT_EQ(object["programs"].size(), 4u);
}

TEST_F(Draw, ReadsFilesOfMscclsFormat) {
  const Result result = run({"draw", write("one.xml", kBroadcast), "-n", "2"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("broadcast one, 2 ranks, root 0"),
                                HasSubstr("recv output[0] from 0")));
  const Result other = run({"draw", path("one.xml"), "-n", "3"});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("it is for 2 ranks"));
}

TEST_F(Draw, NamesMistakes) {
  const auto expect_refused = [&](const Words& arguments, const std::string& said) {
    const Result result = run(arguments);
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr(said));
  };
  expect_refused({"draw", "rign", "-n", "4"}, "ring");
  expect_refused({"draw", "ring"}, "--ranks");
  expect_refused({"draw", "ring", "-n", "0"}, "at least 1");
  expect_refused({"draw", "ring", "-n", "4", "--collective", "al_reduce"}, "use one of all_reduce");
  expect_refused({"draw", "ring", "-n", "4", "--root", "4"}, "unknown rank 4");
  expect_refused({"draw", "ring", "-n", "4", "--group", "3"}, "does not divide");
  expect_refused({"draw", "ring", "-n", "4", "--svg", "/nowhere/at/all.svg"},
                 "/nowhere/at/all.svg");
  std::string cut = kBroadcast;
  cut.resize(cut.size() / 2);
  expect_refused({"draw", write("cut.xml", cut), "-n", "2"}, "cut.xml, line ");
}

}  // namespace
}  // namespace tutti::tool
