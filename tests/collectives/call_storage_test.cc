// Tests how calls are stored: reused operations, cached compiled calls, and the record of the last
// calls.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collectives/runtime/calls/call_cache.h"
#include "collectives/runtime/calls/operation_pool.h"
#include "collectives/runtime/calls/operation_queue.h"
#include "collectives/runtime/waiting/flight_recorder.h"

namespace tutti {
namespace {

using internal::CallCache;
using internal::CallKey;
using internal::Operation;
using internal::OperationPool;
using internal::OperationQueue;
using Handle = std::shared_ptr<Operation>;

void finish(Handle& handle) {
  handle->done = true;
  handle = nullptr;
}

const Handle& begun(OperationPool& pool) {
  const Handle& operation = pool.take();
  operation->begin();
  return operation;
}

TEST(OperationPool, ReusesTheLastOperation) {
  OperationPool pool;
  Handle first = begun(pool);
  const Operation* const address = first.get();
  for (int call = 0; call < 1000; ++call) {
    finish(first);
    first = begun(pool);
    EXPECT_EQ(first.get(), address);
    EXPECT_FALSE(first->done);
  }
  EXPECT_EQ(pool.size(), 1U);
}

// A call that is refused ends without having begun.
TEST(OperationPool, ReusesAnOperationThatNeverBegan) {
  OperationPool pool;
  const Operation* const refused = pool.take().get();
  EXPECT_EQ(begun(pool).get(), refused);
  EXPECT_EQ(pool.size(), 1U);
}

TEST(OperationPool, KeepsOperationsInFlightOrHeld) {
  OperationPool pool;
  Handle held = begun(pool);
  held->done = true;
  const Operation* const in_flight = begun(pool).get();
  for (int call = 0; call < 100; ++call) {
    Handle handle = begun(pool);
    EXPECT_NE(handle.get(), held.get());
    EXPECT_NE(handle.get(), in_flight);
    finish(handle);
  }
  EXPECT_LE(pool.size(), 4U);
}

// The cost of a call must not grow with the number of outstanding calls.
TEST(OperationPool, ExaminesAFewForEachCall) {
  for (const size_t outstanding : {1000U, 4000U, 16'000U, 64'000U}) {
    OperationPool pool;
    std::vector<Handle> handles;
    for (size_t call = 0; call < outstanding; ++call) handles.push_back(begun(pool));
    EXPECT_LE(pool.examined(), 4 * outstanding);
    EXPECT_LE(pool.size(), outstanding);
    // In steady state, the oldest call ends and another begins. Then, too, few operations are
    // examined.
    const uint64_t before = pool.examined();
    for (size_t call = 0; call < 2 * outstanding; ++call) {
      Handle& oldest = handles[call % outstanding];
      finish(oldest);
      oldest = begun(pool);
    }
    EXPECT_LE(pool.examined() - before, 2 * 4 * outstanding);
    EXPECT_LE(pool.size(), 2 * outstanding);
  }
}

TEST(OperationPool, HoldsAtMostTwiceTheOperationsInUse) {
  OperationPool pool;
  std::mt19937 random(1);
  std::vector<Handle> handles(500);
  for (int call = 0; call < 200'000; ++call) {
    Handle& handle = handles[random() % handles.size()];
    if (handle != nullptr) {
      finish(handle);
    } else {
      handle = begun(pool);
    }
  }
  EXPECT_LE(pool.size(), 2 * handles.size());
}

TEST(OperationQueue, KeepsTheOrderOfOperationsThatRemain) {
  std::vector<Operation> operations(5);
  OperationQueue queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.pop_front(), nullptr);
  for (Operation& operation : operations) queue.push_back(operation);
  queue.erase(operations[2]);
  queue.erase(operations[4]);
  queue.erase(operations[0]);
  std::vector<const Operation*> left;
  for (const Operation* const operation : queue) left.push_back(operation);
  EXPECT_EQ(left, (std::vector<const Operation*>{&operations[1], &operations[3]}));
  queue.push_back(operations[0]);
  OperationQueue moved(std::move(queue));
  EXPECT_TRUE(queue.empty());  // NOLINT: it was moved from
  EXPECT_EQ(moved.size(), 3U);
  for (const size_t next : {1U, 3U, 0U}) EXPECT_EQ(moved.pop_front(), &operations[next]);
  EXPECT_TRUE(moved.empty());
}

CallKey key_of(uint64_t count) {
  std::vector<float> values(1);
  return CallKey::of(Request::all_reduce({values.data(), count, DType::f32},
                                         {values.data(), count, DType::f32}, ReduceOp::sum),
                     {});
}

CallCache::Compiled compiled_for(const Reduction& op) {
  CompiledCall compiled;
  compiled.reduction = op;
  return std::make_shared<const CompiledCall>(std::move(compiled));
}

// A model makes calls of many sizes, one per bucket and layer. Calls that differ only in size must
// not evict each other.
TEST(CallCache, KeepsSixteenKindsOfCallsWhateverTheirSizes) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 1000; ++trial) {
    CallCache cache;
    std::vector<uint64_t> counts;
    for (int i = 0; i < 16; ++i) counts.push_back(random() % (uint64_t{1} << (random() % 30)) + 1);
    for (const int round : {0, 1}) {
      for (const uint64_t count : counts) {
        const bool kept = cache.find(key_of(count), "", ReduceOp::sum) != nullptr;
        if (round == 1) {
          EXPECT_TRUE(kept) << "trial " << trial << ", " << count << " elements";
        }
        if (!kept) cache.put(key_of(count), "", compiled_for(ReduceOp::sum));
      }
    }
  }
}

TEST(CallCache, FindsACallAfterItWasPut) {
  CallCache cache;
  for (uint64_t count = 1; count <= 5000; ++count) {
    const CallCache::Compiled compiled = compiled_for(ReduceOp::sum);
    EXPECT_EQ(cache.find(key_of(count), "ring", ReduceOp::sum), nullptr);
    cache.put(key_of(count), "ring", compiled);
    ASSERT_NE(cache.find(key_of(count), "ring", ReduceOp::sum), nullptr);
    EXPECT_EQ(*cache.find(key_of(count), "ring", ReduceOp::sum), compiled);
    EXPECT_EQ(cache.find(key_of(count), "", ReduceOp::sum), nullptr) << "another algorithm";
  }
}

UserOp op_of(const void* function, const void* context) {
  return {.combine = [](void*, const void*, const void*, uint64_t, DType) {},
          .identity = {function, context}};
}

TEST(CallCache, FindsACopyOfAnOperatorByItsIdentity) {
  const int function = 0;
  const int context = 0;
  const auto make = [&](UserOp op) { return Reduction::user(std::make_shared<const UserOp>(op)); };
  CallCache cache;
  cache.put(key_of(8), "", compiled_for(make(op_of(&function, &context))));
  const auto finds = [&](const Reduction& op) { return cache.find(key_of(8), "", op) != nullptr; };
  EXPECT_TRUE(finds(make(op_of(&function, &context))));
  EXPECT_FALSE(finds(make(op_of(&function, nullptr))));
  EXPECT_FALSE(finds(make(op_of(&context, &context))));
  EXPECT_FALSE(finds(make(op_of(nullptr, nullptr))));
  UserOp ordered = op_of(&function, &context);
  ordered.commutative = false;
  EXPECT_FALSE(finds(make(ordered)));
  UserOp wide = op_of(&function, &context);
  wide.width = 2;
  EXPECT_FALSE(finds(make(wide)));
}

TEST(CallCache, AnOperatorWithoutIdentityEqualsOnlyItself) {
  const auto op = std::make_shared<const UserOp>(op_of(nullptr, nullptr));
  CallCache cache;
  cache.put(key_of(8), "", compiled_for(Reduction::user(op)));
  EXPECT_NE(cache.find(key_of(8), "", Reduction::user(op)), nullptr);
  const auto another = std::make_shared<const UserOp>(op_of(nullptr, nullptr));
  EXPECT_EQ(cache.find(key_of(8), "", Reduction::user(another)), nullptr);
}

std::vector<uint32_t> calls_in(const FlightRecorder& recorder) {
  std::vector<uint32_t> calls;
  for (const CallRecord& record : recorder.records()) calls.push_back(record.call);
  return calls;
}

TEST(FlightRecorder, ContinuesAfterTheLargestNumber) {
  const auto words = encode(Signature{.collective = Collective::barrier});
  FlightRecorder recorder;
  EXPECT_TRUE(recorder.records().empty());
  EXPECT_FALSE(recorder.current());
  const std::vector<uint32_t> numbers = {UINT32_MAX - 1, UINT32_MAX, 1, 2};
  for (const uint32_t call : numbers) recorder.started(call, words, 100);
  EXPECT_EQ(calls_in(recorder), numbers);
  ASSERT_TRUE(recorder.current());
  EXPECT_EQ(recorder.current()->call, UINT32_MAX - 1);
  recorder.finished(UINT32_MAX - 1, 200);
  EXPECT_EQ(recorder.current()->call, UINT32_MAX);
  recorder.finished(UINT32_MAX, 200);
  EXPECT_EQ(recorder.current()->call, 1U);
}

TEST(FlightRecorder, EndsAtTheLargestNumber) {
  const auto words = encode(Signature{.collective = Collective::barrier});
  FlightRecorder recorder;
  recorder.started(UINT32_MAX, words, 100);
  EXPECT_EQ(calls_in(recorder), std::vector<uint32_t>{UINT32_MAX});
}

TEST(FlightRecorder, RemembersOnlyTheLastCalls) {
  const auto words = encode(Signature{.collective = Collective::barrier});
  FlightRecorder recorder;
  for (uint32_t call = 1; call <= 1000; ++call) {
    recorder.started(call, words, 100);
    recorder.finished(call, 200);
  }
  const std::vector<uint32_t> calls = calls_in(recorder);
  EXPECT_EQ(calls.size(), FlightRecorder::kCalls);
  EXPECT_EQ(calls.back(), 1000U);
  EXPECT_FALSE(recorder.current());
}

}  // namespace
}  // namespace tutti
