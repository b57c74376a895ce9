#include "tools/launcher/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/error.h"
#include "tools/launcher/child.h"
#include "tools/launcher/protocol.h"

namespace tutti::tool {
namespace {

using std::chrono::milliseconds;

// An Output that writes into pipes, which hold small texts.
class OutputTest : public testing::Test {
 protected:
  Output make(int ranks, bool prefix_lines = true) {
    return Output(ranks, prefix_lines, out_.write.get(), err_.write.get());
  }
  std::string out() { return drain(out_); }
  std::string err() { return drain(err_); }

  Clock::time_point start_ = Clock::now();

 private:
  static std::string drain(Pipe& pipe) {
    const char mark = '\0';
    EXPECT_EQ(::write(pipe.write.get(), &mark, 1), 1);  // so that read() never blocks
    std::string text;
    char buffer[4096];
    while (!text.ends_with('\0')) {
      text.append(buffer, static_cast<size_t>(::read(pipe.read.get(), buffer, sizeof buffer)));
    }
    text.pop_back();
    return text;
  }

  Pipe out_ = make_pipe();
  Pipe err_ = make_pipe();
};

TEST_F(OutputTest, EqualLinesAreMergedWithTheRanks) {
  Output output = make(4);
  for (int rank : {2, 0, 3}) output.add(rank, Stream::out, "hello\n", start_);
  EXPECT_EQ(out(), "");  // the line waits for the fourth rank
  output.show_due(start_ + Output::kWindow);
  EXPECT_EQ(out(), "[0,2,3] hello\n");
  output.add(1, Stream::out, "hello\n", start_ + Output::kWindow);
  output.finish();
  EXPECT_EQ(out(), "[1] hello\n");
}

TEST_F(OutputTest, LineThatAllRanksPrintedWaitsNoLonger) {
  Output output = make(2);
  output.add(0, Stream::out, "a\n", start_);
  output.add(1, Stream::out, "a\n", start_);
  EXPECT_EQ(out(), "[0,1] a\n");
}

TEST_F(OutputTest, EqualLinesAreMergedPastDifferentOnes) {
  Output output = make(3);
  for (int rank = 0; rank < 3; ++rank) {
    output.add(rank, Stream::out, "begin\nrank " + std::to_string(rank) + "\nend\n", start_);
  }
  output.finish();
  EXPECT_EQ(out(), "[0-2] begin\n[0] rank 0\n[1] rank 1\n[2] rank 2\n[0-2] end\n");
}

TEST_F(OutputTest, OrderOfARankIsKeptIfRanksDiffer) {
  Output output = make(2);
  output.add(0, Stream::out, "a\nb\na\n", start_);
  output.add(1, Stream::out, "b\na\nb\n", start_);
  output.finish();
  const std::string shown = out();
  for (const auto& [rank, own] : {std::pair('0', "aba"), std::pair('1', "bab")}) {
    std::string lines;
    size_t begin = 0;
    for (size_t end; (end = shown.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string line = shown.substr(begin, end - begin);
      if (line.substr(0, line.find(']')).find(rank) != std::string::npos) lines += line.back();
    }
    EXPECT_EQ(lines, own) << shown;
  }
}

TEST_F(OutputTest, StreamsAreNotMerged) {
  Output output = make(2);
  output.add(0, Stream::out, "x\n", start_);
  output.add(1, Stream::err, "x\n", start_);
  output.finish();
  EXPECT_EQ(out(), "[0] x\n");
  EXPECT_EQ(err(), "[1] x\n");
}

TEST_F(OutputTest, LinesArriveInPieces) {
  Output output = make(1);
  output.add(0, Stream::out, "one li", start_);
  EXPECT_EQ(out(), "");
  output.add(0, Stream::out, "ne\nlast", start_);
  EXPECT_EQ(out(), "[0] one line\n");
  output.end(0, Stream::out, start_);
  EXPECT_EQ(out(), "[0] last\n");
}

TEST_F(OutputTest, LastStateOfAProgressLineIsShown) {
  Output output = make(1);
  output.add(0, Stream::out, "10%\r50%\r", start_);
  output.add(0, Stream::out, "100%\nwindows\r\n", start_);
  EXPECT_EQ(out(), "[0] 100%\n[0] windows\n");
}

TEST_F(OutputTest, BytesPassWithoutPrefixes) {
  Output output = make(2, /*prefix_lines=*/false);
  output.add(0, Stream::out, "10%\r", start_);
  EXPECT_EQ(out(), "10%\r");
  output.add(1, Stream::err, "oops", start_);
  EXPECT_EQ(err(), "oops");
}

TEST_F(OutputTest, TailHasTheLastErrorLinesUnlessTheyAreOnTheScreen) {
  Output output = make(2);
  for (int i = 0; i < 30; ++i) {
    output.add(1, Stream::err, "line " + std::to_string(i) + "\n", start_);
  }
  output.finish();
  EXPECT_EQ(output.tail(1), "");  // no later lines have pushed rank 1's lines off the screen
  EXPECT_EQ(output.tail(0), "");  // rank 0 printed nothing
  for (int64_t i = 1; i < Output::kOnScreen; ++i) {
    output.add(0, Stream::err, "later " + std::to_string(i) + "\n", start_ + milliseconds(1));
  }
  output.finish();
  EXPECT_EQ(output.tail(1), "");  // the line is still on the screen
  output.add(0, Stream::err, "much later\n", start_ + milliseconds(1));
  output.finish();
  const std::string tail = output.tail(1);
  EXPECT_TRUE(tail.starts_with("[1] line 10\n")) << tail;
  EXPECT_TRUE(tail.ends_with("[1] line 29\n")) << tail;
}

TEST_F(OutputTest, ManyLinesDoNotWait) {
  Output output = make(2);
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += "x" + std::to_string(i) + "\n";
  output.add(0, Stream::out, lines, start_);
  EXPECT_TRUE(out().starts_with("[0] x0\n[0] x1\n"));
}

TEST(Protocol, EveryByteCanBeSent) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const Json json = {{"text", to_json_text(bytes)}};
  EXPECT_EQ(from_json_text(Json::parse(json.dump())["text"]), bytes);
  EXPECT_THROW(from_json_text("\xe2\x82\xac"), Error);
}

TEST(Protocol, JobsCanBeSent) {
  const HostJob job{.host = "b",
                    .display = "b",
                    .ranks = {2, 3, 7},
                    .world_size = 7,
                    .command = {"echo", "\xff"},
                    .environment = {{"TUTTI_LOG", "info"}},
                    .directory = "/tmp"};
  const HostJob same = job_from_json(to_json(job));
  EXPECT_EQ(same.ranks, job.ranks);
  EXPECT_EQ(same.world_size, 7);
  EXPECT_EQ(same.command, job.command);
  EXPECT_EQ(same.environment, job.environment);
  EXPECT_EQ(same.directory, "/tmp");
}

TEST(Protocol, EachHostOfATreeHasItsOwnName) {
  HostJob job{.host = "a", .environment = {{"A", "1"}, {"TUTTI_HOST", "a"}, {"TUTTI_RACK", "r"}}};
  HostJob below{.host = "b", .environment = {{"A", "1"}, {"TUTTI_HOST", "b"}}};
  below.below.push_back({.host = "c", .environment = {{"A", "1"}, {"TUTTI_HOST", "c"}}});
  job.below.push_back(below);
  const HostJob same = job_from_json(to_json(job));
  EXPECT_EQ(same.environment, job.environment);
  EXPECT_EQ(same.below.at(0).environment, below.environment);
  EXPECT_EQ(same.below.at(0).below.at(0).environment, below.below.at(0).environment);
}

TEST(Protocol, ExitsCanBeSent) {
  const RankExit exit = exit_from_json(to_json(RankExit{.rank = 4, .pid = 99, .signal = 9}));
  EXPECT_EQ(exit.rank, 4);
  EXPECT_EQ(exit.exit_code(), 137);
}

}  // namespace
}  // namespace tutti::tool
