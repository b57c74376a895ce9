#include "training/parallel/averaging/ad_psgd.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "training/parallel/averaging/peers.h"

namespace tutti::training {
namespace {

constexpr int kUpdateTag = 0;
constexpr int kRowTag = 1;
constexpr int64_t kEnd = -1;  // sent instead of an update's number to end the thread
constexpr std::chrono::nanoseconds kForever{0};

ConstBuffer sent(std::span<const float> row) { return {row.data(), row.size(), DType::f32}; }
Buffer received(std::span<float> row) { return {row.data(), row.size(), DType::f32}; }

}  // namespace

AdPsgd::AdPsgd(ParameterStorage& storage, const SyncOptions& options, uint64_t seed)
    : Averaging(storage, options),
      seed_(seed),
      values_(storage),
      memory_(ranks().allocate<float>(static_cast<size_t>(copies_of_values(options)) * count())),
      files_(ranks(), options),
      requests_(ranks().duplicate()),
      replies_(ranks().duplicate()) {
  if (asks()) return;
  thread_ = std::thread([this] { answer_all(); });
}

AdPsgd::~AdPsgd() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  turned_.notify_all();
  try {
    requests_.send({&kEnd, 1, DType::i64}, requests_.rank(), {.tag = kUpdateTag});
  } catch (const std::exception&) {  // the communicator has failed, so the thread ends
  }
  thread_.join();
}

void AdPsgd::abort(const std::string& reason) {
  requests_.abort(reason);
  replies_.abort(reason);
}

std::optional<int> AdPsgd::recorded_ranks(int64_t first) {
  const StretchOrder* const stretch = files_.replayed_from(first);
  if (stretch == nullptr) return std::nullopt;
  return static_cast<int>(stretch->workers);
}

void AdPsgd::publish_values() {
  const std::scoped_lock lock(mutex_);
  values_.read(0, row(0));
  values_.read(0, row(1));
}

void AdPsgd::begin_stretch(int64_t steps) {
  first_ = updates() + 1;
  last_ = updates() + steps;
  in_stretch_ = true;
  const StretchOrder* const recorded = files_.replayed(stretch());
  if (recorded == nullptr) return;
  {
    const std::scoped_lock lock(mutex_);
    recorded_ = &recorded->servers[static_cast<size_t>(ranks().rank())];
  }
  turned_.notify_all();
}

// All averages are complete once each rank has applied its updates, so a barrier suffices.
void AdPsgd::finish_values() {
  if (!std::exchange(in_stretch_, false)) return;
  throw_failure();
  {
    const Waiting waiting(*this);
    ranks().barrier();
  }
  if (!asks()) {
    const std::scoped_lock lock(mutex_);
    std::ranges::copy(row(0), row(1).begin());
    values_.write(0, row(0));
    const auto answers = std::ssize(order_) - (last_ - first_ + 1);
    count_sent(static_cast<uint64_t>(answers) * row(0).size_bytes());
  }
  files_.record(stretch(), 0, order_);
  const std::scoped_lock lock(mutex_);
  order_.clear();
  recorded_ = nullptr;
}

StretchOrder AdPsgd::stretch() {
  StretchOrder stretch{.way = text_of(options()),
                       .run = options().run,
                       .first = first_,
                       .last = last_,
                       .workers = ranks().size()};
  stretch.servers.resize(static_cast<size_t>(ranks().size()));
  return stretch;
}

void AdPsgd::exchange(int64_t update) {
  if (ranks().size() == 1) return;
  const auto from = std::chrono::steady_clock::now();
  throw_failure();
  values_.read(0, row(2));
  std::ranges::transform(row(2), row(1), row(2).begin(), std::minus<>());
  if (asks()) {
    ask(update);
    take_update();
  } else {
    std::unique_lock lock(mutex_);
    await_turn(lock, {ranks().rank(), update});
    take_update();
    order_.push_back({ranks().rank(), update});
  }
  turned_.notify_all();
  observe_span("average of values", 0, from);
}

// Adds this rank's update to its values. Other ranks may have averaged with these values since the
// update's gradients were computed.
void AdPsgd::take_update() {
  std::ranges::transform(row(0), row(2), row(0).begin(), std::plus<>());
  std::ranges::copy(row(0), row(1).begin());
  values_.write(0, row(1));
}

void AdPsgd::ask(int64_t update) {
  const int to = random_answerer(ranks().size(), seed_, update, ranks().rank());
  const Waiting waiting(*this);
  Work answer = replies_.recv_async(received(row(3)), to);
  Work asked = requests_.send_async({&update, 1, DType::i64}, to, {.tag = kUpdateTag});
  requests_.send(sent(row(0)), to, {.tag = kRowTag});
  asked.wait();
  answer.wait();
  average_pair(row(0), row(3));
  count_sent(row(0).size_bytes());
}

// Answers requests until the run ends. Runs in a separate thread of an odd rank.
void AdPsgd::answer_all() {
  try {
    for (;;) {
      int64_t update = 0;
      const CallOptions any{.timeout = kForever, .tag = kUpdateTag};
      const int from = requests_.recv({&update, 1, DType::i64}, next_source(), any).source;
      if (update == kEnd) return;
      answer(from, update);
    }
  } catch (const std::exception& error) {
    {
      const std::scoped_lock lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
    turned_.notify_all();
    abort(error.what());
  }
}

void AdPsgd::answer(int from, int64_t update) {
  requests_.recv(received(row(3)), from, {.tag = kRowTag});
  {
    std::unique_lock lock(mutex_);
    await_turn(lock, {from, update});
    std::ranges::copy(row(0), row(4).begin());
    average_pair(row(0), row(3));
    order_.push_back({from, update});
  }
  turned_.notify_all();
  replies_.send(sent(row(4)), from);
}

// Returns the source of the next request: any rank or, with a replay, the rank whose turn it is, so
// that no request has to wait for its turn.
int AdPsgd::next_source() {
  if (options().replay.empty()) return kAnySource;
  std::unique_lock lock(mutex_);
  const auto next = [&]() -> int {
    if (ends_) return ranks().rank();
    const bool known = recorded_ != nullptr && order_.size() < recorded_->size();
    return known ? static_cast<int>((*recorded_)[order_.size()].worker) : -1;
  };
  turned_.wait(lock, [&] { return ends_ || (next() >= 0 && next() != ranks().rank()); });
  return next();
}

bool AdPsgd::is_next(const AppliedPush& push) const {
  if (recorded_ == nullptr) return true;
  return order_.size() < recorded_->size() && (*recorded_)[order_.size()] == push;
}

void AdPsgd::await_turn(std::unique_lock<std::mutex>& lock, const AppliedPush& push) {
  if (recorded_ != nullptr && order_.size() >= recorded_->size()) {
    refuse_record("it ends before the run does");
  }
  turned_.wait(lock, [&] { return ends_ || failure_ || is_next(push); });
  if (failure_) std::rethrow_exception(failure_);
  if (ends_) throw Error(ErrorCode::aborted, "the run ends");
}

void AdPsgd::throw_failure() {
  const std::scoped_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace tutti::training
