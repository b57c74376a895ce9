// Asynchronous decentralized SGD. The ranks form two halves. When a rank of the first half has
// computed its gradients, it averages its values with the values of a random rank of the second
// half, which continues to compute meanwhile. Each rank then updates its values by gradients that
// it computed from older values. No rank waits for a straggler.
//
//   rank 0 (asks)     compute | average with 1 | update | compute | average with 3 | update
//   rank 1 (answers)  compute ........ | averaged | ....... | update | compute ...
//
// Even ranks request averages. Odd ranks answer the requests in a separate thread, so that no two
// ranks wait for each other. Averaging preserves the sum of both ranks' values, and therefore the
// mean of all values. At the end of a stretch of steps, when ranks exchange losses, all averages
// are complete.
//
// A replay preserves the order in which an odd rank applied its own updates and answered requests
// (replay/update_order.h).
//
// Lian, Zhang, Zhang, Liu: Asynchronous decentralized parallel stochastic gradient descent, ICML
// 2018, algorithm 1 and its section on deadlocks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "training/parallel/averaging/averaging.h"
#include "training/parallel/averaging/value_row.h"
#include "training/parallel/replay/order_files.h"

namespace tutti::training {

class AdPsgd : public Averaging {
 public:
  AdPsgd(ParameterStorage& storage, const SyncOptions& options, uint64_t seed);
  ~AdPsgd() override;
  AdPsgd(const AdPsgd&) = delete;
  AdPsgd& operator=(const AdPsgd&) = delete;

  void publish_values() override;
  void begin_stretch(int64_t steps) override;
  void finish_values() override;
  std::optional<int> recorded_ranks(int64_t first) override;
  void abort(const std::string& reason) override;

 private:
  bool asks() { return ranks().rank() % 2 == 0; }
  void exchange(int64_t update) override;
  void ask(int64_t update);
  void take_update();
  void answer_all();
  void answer(int from, int64_t update);
  void await_turn(std::unique_lock<std::mutex>& lock, const AppliedPush& push);
  int next_source();
  bool is_next(const AppliedPush& push) const;
  StretchOrder stretch();
  void throw_failure();
  // Returns row `index` of memory_. 0: this rank's values; 1: the values with which the model
  // computes; 2: an update; 3: another rank's values; 4: values to send to that rank.
  std::span<float> row(size_t index) const { return {memory_.get() + index * count(), count()}; }
  size_t count() const { return static_cast<size_t>(values_.size()); }

  uint64_t seed_;
  ValueRow values_;
  Memory<float> memory_;
  OrderFiles files_;
  bool in_stretch_ = false;
  int64_t first_ = 1;  // first update of the stretch
  int64_t last_ = 0;

  std::mutex mutex_;  // guards the members below, and row 0 on a rank that answers
  std::condition_variable turned_;
  UpdateOrder order_;                      // updates and answers of this stretch (odd ranks)
  const UpdateOrder* recorded_ = nullptr;  // the order to replay
  std::exception_ptr failure_;             // exception of the answering thread
  bool ends_ = false;

  // Declared after the memory of messages in flight, so that the communicators are destroyed first.
  Communicator requests_;
  Communicator replies_;
  std::thread thread_;
};

}  // namespace tutti::training
