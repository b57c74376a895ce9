#include "training/parallel/servers/worker.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {

using Clock = std::chrono::steady_clock;

Worker::Worker(Communicator& pushes, Communicator& answers, ParameterStorage& storage,
               const SyncOptions& options)
    : pushes_(pushes),
      answers_(answers),
      storage_(storage),
      options_(options),
      roles_(roles_of(options, pushes_.size())),
      answered_(static_cast<size_t>(roles_.servers())) {}

int64_t Worker::bytes() const {
  return most_own_ * storage_.layout().size * static_cast<int64_t>(sizeof(float));
}

void Worker::begin_stretch(int64_t steps, bool own_writes) {
  own_.clear();
  writes_own_ = own_writes && options_.bound > 0;
  if (writes_own_) most_own_ = std::max(most_own_, std::min(options_.bound + 1, steps));
}

int64_t Worker::exchange(const Push& push, double rate) {
  std::vector<Work> answers = receive_answers(push.pulls != 0);
  const Clock::time_point from = Clock::now();
  send(push);
  for (Work& answer : answers) answer.wait();
  waited_ += Clock::now() - from;
  ++staleness_.pushes;
  if (options_.kind == SyncKind::async || push.pulls != 0) count_staleness();
  if (writes_own_) {
    OwnWrite& write = own_.emplace_back();
    write.clock = push.clock;
    write.rate = rate;
    for (int b = 0; b < static_cast<int>(storage_.layout().buckets.size()); ++b) {
      const auto gradients = storage_.gradients(b).values<float>();
      write.gradients.insert(write.gradients.end(), gradients.begin(), gradients.end());
    }
    if (push.pulls != 0) write_own();
  }
  return answered_.front().next;
}

void Worker::count_staleness() {
  for (const Answer& answer : answered_) {
    staleness_.largest = std::max(staleness_.largest, answer.staleness);
    staleness_.sum += answer.staleness;
    ++staleness_.answers;
    if (options_.kind == SyncKind::async || answer.staleness <= options_.bound) continue;
    throw Error(ErrorCode::internal, cat("received values are ", answer.staleness,
                                         " clocks stale; the bound is ", options_.bound));
  }
}

std::vector<Work> Worker::receive_answers(bool with_values) {
  std::vector<Work> works;
  const int buckets = static_cast<int>(storage_.layout().buckets.size());
  for (int server = 0; server < roles_.servers(); ++server) {
    const int rank = roles_.first_server() + server;
    works.push_back(answers_.recv_async(bytes_of(answered_[static_cast<size_t>(server)]), rank,
                                        {.tag = kHeaderTag}));
    for (int b = 0; with_values && b < buckets; ++b) {
      works.push_back(answers_.recv_async(
          as_buffer(storage_.part_of(b, storage_.values(b), server)), rank, {.tag = kRowTag}));
    }
  }
  return works;
}

void Worker::send(const Push& push) {
  std::vector<Work> works;
  const int buckets = static_cast<int>(storage_.layout().buckets.size());
  for (int server = 0; server < roles_.servers(); ++server) {
    const int rank = roles_.first_server() + server;
    works.push_back(
        pushes_.send_async({&push, sizeof(push), DType::u8}, rank, {.tag = kHeaderTag}));
    for (int b = 0; b < buckets; ++b) {
      const Tensor part = storage_.part_of(b, storage_.gradients(b), server);
      works.push_back(pushes_.send_async(as_const(as_buffer(part)), rank, {.tag = kRowTag}));
      if (rank != pushes_.rank()) bytes_sent_ += static_cast<double>(part.bytes());
    }
  }
  for (Work& work : works) work.wait();
}

// A server's values contain the updates of clocks 0 to version - 1, so own gradients of later
// clocks are subtracted here.
void Worker::write_own() {
  const auto& buckets = storage_.layout().buckets;
  for (int server = 0; server < roles_.servers(); ++server) {
    const int64_t version = answered_[static_cast<size_t>(server)].version;
    for (const OwnWrite& write : own_) {
      if (write.clock < version) continue;
      for (int b = 0; b < static_cast<int>(buckets.size()); ++b) {
        const auto values = storage_.part_of(b, storage_.values(b), server).values<float>();
        const Bucket& bucket = buckets[static_cast<size_t>(b)];
        const float* const own =
            write.gradients.data() + bucket.offset + server * bucket.shard_size();
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] -= static_cast<float>(write.rate * own[i]);
        }
      }
    }
  }
  int64_t oldest = answered_.front().version;
  for (const Answer& answer : answered_) oldest = std::min(oldest, answer.version);
  while (!own_.empty() && own_.front().clock < oldest) own_.pop_front();
}

}  // namespace tutti::training
