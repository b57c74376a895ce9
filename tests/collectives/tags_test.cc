// Tests messages with tags, receives from any source, messages that are shorter than their
// receives, and probes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "collectives/communicator.h"
#include "tests/support/fabrics.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using Values = std::vector<int32_t>;

ConstBuffer from(const Values& values) { return const_buffer_of(std::span<const int32_t>(values)); }
Buffer into(Values& values) { return buffer_of(std::span(values)); }

// Returns `count` values that differ between messages.
Values message(size_t count, int which) {
  Values values(count);
  std::iota(values.begin(), values.end(), which * 1000);
  return values;
}

MessageInfo info(int source, int tag, uint64_t count) {
  return {.source = source, .tag = tag, .dtype = DType::i32, .count = count};
}

class Tags : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string problem = testing::lacks(GetParam());
    if (!problem.empty()) GTEST_SKIP() << problem;
    settings().set("TUTTI_TRANSPORT", GetParam());
  }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(All, Tags, ::testing::Values("shm", "tcp", "ucx", "ofi"),
                         [](const auto& info) { return info.param; });

// Some messages have a few kilobytes, others many slices.
const std::vector<size_t> kCounts = {0, 1, 7, 1000, 50'001, 1'000'000};

TEST_P(Tags, SelectMessagesInAnyOrder) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (const size_t count : kCounts) {
      if (comm.rank() == 0) {
        std::vector<Values> out;
        std::vector<Work> works;
        for (int tag = 0; tag < 4; ++tag) out.push_back(message(count, tag));
        for (int tag = 0; tag < 4; ++tag) {
          works.push_back(comm.send_async(from(out[tag]), 1, {.tag = tag}));
        }
        for (Work& work : works) work.wait();
      } else {
        for (const int tag : {2, 3, 0, 1}) {
          Values in(count);
          EXPECT_EQ(comm.recv(into(in), 0, {.tag = tag}), info(0, tag, count));
          EXPECT_EQ(in, message(count, tag));
        }
      }
    }
  });
}

TEST_P(Tags, WorkFromLibraryMemory) {
  constexpr size_t kCount = 1'000'000;
  testing::run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    if (comm.rank() == 0) {
      const Memory<int32_t> memory = comm.allocate<int32_t>(2 * kCount);
      std::vector<Work> works;
      for (int tag = 0; tag < 2; ++tag) {
        const std::span<int32_t> out(memory.get() + static_cast<size_t>(tag) * kCount, kCount);
        std::ranges::copy(message(kCount, tag), out.begin());
        works.push_back(
            comm.send_async(const_buffer_of(std::span<const int32_t>(out)), 1, {.tag = tag}));
      }
      for (Work& work : works) work.wait();
    } else {
      for (const int tag : {1, 0}) {
        Values in(kCount + 5);
        EXPECT_EQ(comm.recv(into(in), 0, {.tag = tag, .may_be_shorter = true}),
                  info(0, tag, kCount));
        in.resize(kCount);
        EXPECT_EQ(in, message(kCount, tag));
      }
    }
  });
}

// Receives from any source match messages that arrive early or late, from this rank or from others.
TEST_P(Tags, ReceivesThatReduceCombine) {
  testing::run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (const size_t count : kCounts) {
      for (int tag = 0; tag < 2; ++tag) {
        if (tag == 1) comm.barrier();  // the second message arrives before it is received
        std::vector<Work> works;
        const Values out = message(count, job.rank);
        works.push_back(comm.send_async(from(out), 0, {.tag = tag}));
        if (job.rank == 0) {
          Values sum(count, 7);
          for (int i = 0; i < 2; ++i) {
            const MessageInfo got =
                comm.recv_reduce(into(sum), kAnySource, ReduceOp::sum, {.tag = tag});
            EXPECT_EQ(got.count, count);
            EXPECT_EQ(got.dtype, DType::i32);
          }
          Work last = comm.recv_reduce_async(into(sum), kAnySource, ReduceOp::sum, {.tag = tag});
          last.wait();
          Values wanted(count, 7);
          for (int rank = 0; rank < 3; ++rank) {
            const Values its = message(count, rank);
            for (size_t i = 0; i < count; ++i) wanted[i] += its[i];
          }
          EXPECT_EQ(sum, wanted);
        }
        for (Work& work : works) work.wait();
      }
    }
    Values own(3, 1);
    EXPECT_THROW(comm.recv_reduce(into(own), 0, ReduceOp::avg), Error);
    EXPECT_THROW(comm.recv_reduce(into(own), 0, ReduceOp::minloc), Error);
    EXPECT_THROW(comm.recv_reduce(into(own), 0, ReduceOp::sum, {.may_be_shorter = true}), Error);
  });
}

TEST_P(Tags, ReceivesThatReduceWorkWithOtherWireFormats) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<float> values(100, static_cast<float>(job.rank + 1));
    if (job.rank == 0) {
      comm.send(values, 1, {.wire = WireFormat::mx8});
    } else {
      comm.recv_reduce(values, 0, ReduceOp::max, {.wire = WireFormat::mx8});
      EXPECT_EQ(values, std::vector<float>(100, 2));
      comm.recv_reduce(values, 0, ReduceOp::sum, {.wire = WireFormat::mx8});
      EXPECT_EQ(values, std::vector<float>(100, 3));
    }
    if (job.rank == 0) comm.send(values, 1, {.wire = WireFormat::mx8});
  });
}

TEST_P(Tags, ComeFromAnySource) {
  for (const int ranks : {2, 3, 5, 8}) {
    testing::run_ranks(ranks, [](const Job& job) {
      Communicator comm = Communicator::init(job);
      constexpr int kTurns = 5;
      if (comm.rank() != 0) {
        for (int turn = 0; turn < kTurns; ++turn) {
          comm.send(from(message(10, comm.rank() * 10 + turn)), 0, {.tag = comm.rank() * 7});
        }
        return;
      }
      std::vector<int> turns(comm.size());
      for (int i = 0; i < kTurns * (comm.size() - 1); ++i) {
        Values in(10);
        const MessageInfo got = comm.recv(into(in), kAnySource, {.tag = kAnyTag});
        ASSERT_GT(got.source, 0);
        EXPECT_EQ(got, info(got.source, got.source * 7, 10));
        EXPECT_EQ(in, message(10, got.source * 10 + turns[got.source]++));
      }
      EXPECT_EQ(std::ranges::count(turns, kTurns), comm.size() - 1);
    });
  }
}

// The receives are posted before any send. Each message matches the oldest receive that accepts it.
TEST_P(Tags, GoToTheOldestReceiveThatAcceptsThem) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    if (comm.rank() == 0) {
      comm.barrier();
      for (int i = 0; i < 4; ++i) comm.send(from(message(1, i)), 1, {.tag = i % 2});
    } else {
      std::vector<Values> in(4, Values(1));
      std::vector<Work> works;
      works.push_back(comm.recv_async(into(in[0]), 0, {.tag = 1}));
      works.push_back(comm.recv_async(into(in[1]), kAnySource, {.tag = kAnyTag}));
      works.push_back(comm.recv_async(into(in[2]), 0, {.tag = kAnyTag}));
      works.push_back(comm.recv_async(into(in[3]), kAnySource, {.tag = 1}));
      comm.barrier();
      for (Work& work : works) work.wait();
      EXPECT_EQ(in[0], message(1, 1));
      EXPECT_EQ(in[1], message(1, 0));
      EXPECT_EQ(in[2], message(1, 2));
      EXPECT_EQ(in[3], message(1, 3));
      EXPECT_EQ(works[1].received(), info(0, 0, 1));
      EXPECT_EQ(works[3].received(), info(0, 1, 1));
    }
  });
}

TEST_P(Tags, MayBeShorterThanTheirReceives) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (const size_t count : kCounts) {
      if (comm.rank() == 0) {
        comm.send(from(message(count, 3)), 1);
        comm.send(from(message(count, 4)), 1);
      } else {
        for (const size_t room : {count, count + 100'000}) {
          Values in(room, -1);
          EXPECT_EQ(comm.recv(into(in), 0, {.may_be_shorter = true}), info(0, 0, count));
          Values expected = message(count, room == count ? 3 : 4);
          expected.resize(room, -1);
          EXPECT_EQ(in, expected);
        }
      }
    }
  });
}

TEST_P(Tags, ProbesFindMessagesBeforeTheyAreReceived) {
  testing::run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    EXPECT_EQ(comm.probe(), std::nullopt);
    comm.barrier();
    if (comm.rank() > 0) {
      for (const size_t count : kCounts) {
        comm.send(from(message(count, 1)), 0, {.tag = comm.rank()});
        comm.send(from(message(count + 1, 2)), 0, {.tag = 9});
      }
    } else {
      for (const size_t count : kCounts) {
        // The second message of each sender, which follows its first one.
        for (const int source : {2, 1}) {
          EXPECT_EQ(comm.await_message(source, 9), info(source, 9, count + 1));
          EXPECT_EQ(comm.probe(source, 9), info(source, 9, count + 1));
          Values in(count + 1);
          comm.recv(into(in), source, {.tag = 9});
          EXPECT_EQ(in, message(count + 1, 2));
        }
        for (int i = 0; i < 2; ++i) {
          const MessageInfo next = i == 0 ? comm.await_message(1, 1) : comm.await_message(2);
          EXPECT_EQ(next.source, i + 1);
          EXPECT_EQ(next.count, count);
          Values in(next.count);
          EXPECT_EQ(comm.recv(into(in), next.source, {.tag = next.tag}), next);
          EXPECT_EQ(in, message(count, 1));
        }
      }
    }
    comm.barrier();
    EXPECT_EQ(comm.probe(), std::nullopt);
  });
}

// Each rank sends to all ranks including itself, and receives in its own order. Messages of one
// source and tag must keep their order, whatever else is received.
TEST_P(Tags, KeepTheirOrderAmongThoseThatMatch) {
  for (const uint32_t seed : {1, 2, 3, 4, 5}) {
    testing::run_ranks(4, [seed](const Job& job) {
      Communicator comm = Communicator::init(job);
      constexpr int kMessages = 40;
      constexpr int kMostTags = 3;
      std::minstd_rand random(seed * 100 + static_cast<uint32_t>(comm.rank()));
      // The length and tag of a message are functions of its source, destination and number, so
      // that all ranks know them.
      const auto shape = [&](int source, int to, int number) {
        std::minstd_rand own(seed * 7919 + static_cast<uint32_t>(source * 977 + to * 31 + number));
        own.discard(3);
        const int tag = static_cast<int>(own() % kMostTags);
        const size_t count = own() % 5 == 0 ? own() % 60'000 : own() % 50;
        return std::pair{tag, count};
      };
      std::vector<Values> out;
      std::vector<Work> works;
      for (int number = 0; number < kMessages; ++number) {
        for (int to = 0; to < comm.size(); ++to) {
          const auto [tag, count] = shape(comm.rank(), to, number);
          out.push_back(message(count, number));
          works.push_back(comm.send_async(from(out.back()), to, {.tag = tag}));
        }
      }
      using Kind = std::pair<int, int>;  // source and tag
      std::map<Kind, std::deque<int>> coming;
      for (int source = 0; source < comm.size(); ++source) {
        for (int number = 0; number < kMessages; ++number) {
          coming[{source, shape(source, comm.rank(), number).first}].push_back(number);
        }
      }
      Values in(60'000);
      while (!coming.empty()) {
        const auto [source, tag] =
            std::next(coming.begin(), static_cast<long>(random() % coming.size()))->first;
        const int asked_source = random() % 4 == 0 ? kAnySource : source;
        const int asked_tag = random() % 4 == 0 ? kAnyTag : tag;
        const MessageInfo got =
            comm.recv(into(in), asked_source, {.tag = asked_tag, .may_be_shorter = true});
        ASSERT_TRUE(asked_source == kAnySource || got.source == asked_source);
        ASSERT_TRUE(asked_tag == kAnyTag || got.tag == asked_tag);
        const auto kind = coming.find({got.source, got.tag});
        ASSERT_NE(kind, coming.end());
        const int number = kind->second.front();
        kind->second.pop_front();
        if (kind->second.empty()) coming.erase(kind);
        const Values expected = message(shape(got.source, comm.rank(), number).second, number);
        ASSERT_EQ(Values(in.begin(), in.begin() + static_cast<long>(got.count)), expected);
      }
      for (Work& work : works) work.wait();
    });
  }
}

TEST_P(Tags, MessagesThatDoNotFitAreErrorsOnAllRanks) {
  struct Misfit {
    size_t sent;
    size_t room;
    bool may_be_shorter;
    DType dtype;
  };
  for (const Misfit& misfit : {Misfit{2, 3, false, DType::i32}, Misfit{4, 3, true, DType::i32},
                               Misfit{3, 3, true, DType::f32}}) {
    for (const int source : {0, kAnySource}) {
      const auto errors = testing::run_ranks_catching(3, [&](const Job& job) {
        Communicator comm = Communicator::init(job);
        Values values(misfit.room);
        if (comm.rank() == 0) {
          comm.send(from(message(misfit.sent, 1)), 1, {.tag = 5});
        } else if (comm.rank() == 1) {
          comm.recv({values.data(), misfit.room, misfit.dtype}, source,
                    {.tag = 5, .may_be_shorter = misfit.may_be_shorter});
        }
        comm.barrier();
      });
      for (const auto& error : errors) {
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
        EXPECT_NE(std::string(error->what()).find("tag 5"), std::string::npos) << error->what();
      }
    }
  }
}

TEST_P(Tags, MessagesThatNobodySendsAreReported) {
  const auto errors = testing::run_ranks_catching(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values values(1);
    if (comm.rank() == 0) {
      comm.send(from(message(1, 1)), 1, {.tag = 8});
    } else {
      comm.recv(into(values), 0, {.timeout = std::chrono::milliseconds(300), .tag = 9});
    }
    comm.barrier();
  });
  ASSERT_TRUE(errors[1]);
  EXPECT_EQ(errors[1]->code(), ErrorCode::timeout);
  const std::string text = errors[1]->what();
  EXPECT_NE(text.find("send/recv of 1 i32, tag 9"), std::string::npos) << text;
  EXPECT_NE(text.find("has sent 1 i32, tag 8, which no receive matches"), std::string::npos)
      << text;
}

TEST_P(Tags, ReceivesFromAnySourceFailWhenAllHaveLeft) {
  const auto errors = testing::run_ranks_catching(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values values(1);
    if (comm.rank() == 1) comm.send(from(message(1, 6)), 2);
    if (comm.rank() != 2) return;
    comm.recv(into(values), kAnySource);
    EXPECT_EQ(values, message(1, 6));
    comm.recv(into(values), kAnySource);
  });
  ASSERT_TRUE(errors[2]);
  EXPECT_EQ(errors[2]->code(), ErrorCode::mismatch) << errors[2]->what();
  EXPECT_FALSE(errors[0]);
  EXPECT_FALSE(errors[1]);
}

TEST(TagsAlone, SendsToOneself) {
  testing::run_ranks(1, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    comm.send(from(message(3, 1)), 0, {.tag = 1});
    comm.send(from(message(2, 2)), 0, {.tag = 2});
    Values in(4);
    EXPECT_EQ(comm.probe(0, 2), info(0, 2, 2));
    EXPECT_EQ(comm.recv(into(in), kAnySource, {.tag = 2, .may_be_shorter = true}), info(0, 2, 2));
    EXPECT_EQ(in[0], 2000);
    EXPECT_EQ(comm.recv(into(in), 0, {.tag = kAnyTag, .may_be_shorter = true}), info(0, 1, 3));
    EXPECT_EQ(in[2], 1002);
    EXPECT_EQ(comm.probe(), std::nullopt);
  });
}

TEST(TagsAlone, TagsOutOfRangeAreRefused) {
  testing::run_ranks(1, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values in(1);
    const auto code = [](auto&& call) {
      try {
        call();
      } catch (const Error& error) {
        return error.code();
      }
      return ErrorCode::internal;
    };
    for (const int tag : {kAnyTag, -2, kLargestTag + 1}) {
      EXPECT_EQ(code([&] { comm.send(from(in), 0, {.tag = tag}); }), ErrorCode::invalid_argument);
    }
    for (const int tag : {-2, kLargestTag + 1}) {
      EXPECT_EQ(code([&] { comm.recv(into(in), 0, {.tag = tag}); }), ErrorCode::invalid_argument);
    }
    EXPECT_EQ(code([&] { comm.send(from(in), kAnySource); }), ErrorCode::invalid_argument);
    comm.send(from(message(1, 5)), 0, {.tag = kLargestTag});
    EXPECT_EQ(comm.recv(into(in), 0, {.tag = kLargestTag}), info(0, kLargestTag, 1));
  });
}

}  // namespace
}  // namespace tutti
