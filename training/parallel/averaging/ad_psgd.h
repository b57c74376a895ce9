// Asynchronous decentralized SGD: each second rank, when it has its gradients, averages its values
// with those of a random one of the others, which goes on computing meanwhile, and then updates
// them by gradients that are of values from before. Nobody waits for a slow rank.
//
//   rank 0 (asks)     compute | average with 1 | update | compute | average with 3 | update
//   rank 1 (answers)  compute ........ | averaged | ....... | update | compute ...
//
// Even ranks ask and odd ones answer, so that no two wait for each other; the answers come from a
// thread of their own. An average leaves the sum of both ranks' values, so the mean of all stays.
// Ranks meet where losses are told; then all averages are over.
//
// The order in which an odd rank was averaged and updated is what a replay keeps
// (replay/update_order.h): of its own updates, and of those that asked.
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
  // 0: this rank's values; 1: those that the model computes with; 2: an update; 3: another rank's
  // values; 4: those that are sent to it.
  std::span<float> row(size_t index) const { return {memory_.get() + index * count(), count()}; }
  size_t count() const { return static_cast<size_t>(values_.size()); }

  uint64_t seed_;
  ValueRow values_;
  Memory<float> memory_;
  OrderFiles files_;
  bool in_stretch_ = false;
  int64_t first_ = 1;  // updates of the stretch
  int64_t last_ = 0;

  std::mutex mutex_;  // of what follows, and of row 0 where this rank answers
  std::condition_variable turned_;
  UpdateOrder order_;                      // of the stretch, where this rank answers
  const UpdateOrder* recorded_ = nullptr;  // that it is to be
  std::exception_ptr failure_;             // of the thread
  bool ends_ = false;

  // After the memory that messages in flight use: calls end with them.
  Communicator requests_;
  Communicator replies_;
  std::thread thread_;
};

}  // namespace tutti::training
