// Tests counts beyond 32 bits with real data. Too large for the sanitizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

TEST(AllReduce, MoreElementsThanFitInto32Bits) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    const size_t count = (size_t{1} << 31) + 77;
    Memory<uint8_t> values = comm.allocate<uint8_t>(count);
    std::memset(values.get(), comm.rank() + 1, count);
    comm.all_reduce(std::span(values.get(), count));
    const size_t wrong = count - std::count(values.get(), values.get() + count, uint8_t{3});
    EXPECT_EQ(wrong, 0);
  });
}

}  // namespace
}  // namespace tutti
