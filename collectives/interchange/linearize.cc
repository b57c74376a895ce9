#include "collectives/interchange/linearize.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "collectives/interchange/placement.h"
#include "collectives/interchange/threadblock.h"

namespace tutti {

namespace {

struct Message {
  int32_t receiver = -1;
  std::vector<int32_t> size_classes;
};

// Exceptions from the normal order that let some step progress.
enum class StepOrder : uint8_t { none, send_ahead, lose_input };

class Linearizer {
 public:
  explicit Linearizer(const MscclAlgorithm& algorithm) : algorithm_(algorithm) {
    const auto gpus = static_cast<int32_t>(algorithm.gpus.size());
    result_.programs.resize(gpus);
    result_.origins.resize(gpus);
    passing_.assign(gpus, 0);
    for (int32_t gpu = 0; gpu < gpus; ++gpu) {
      placements_.emplace_back(algorithm, gpu);
      first_.push_back(static_cast<int32_t>(threadblocks_.size()));
      for (const MscclThreadblock& tb : algorithm.gpus[gpu].threadblocks) add(gpu, tb);
    }
    connect();
  }

  Linearized run() {
    for (size_t t = 0; t < threadblocks_.size(); ++t) wake(static_cast<int32_t>(t));
    do {
      while (!awake_.empty()) {
        const int32_t t = awake_.front();
        awake_.pop_front();
        threadblocks_[t].awake = false;
        while (advance(t, StepOrder::none)) continue;
      }
    } while (advance_any(StepOrder::send_ahead) || advance_any(StepOrder::lose_input) ||
             receive_early());
    refuse_if_stuck();
    finish();
    return std::move(result_);
  }

 private:
  // ---- the threadblocks

  void add(int32_t gpu, const MscclThreadblock& source) {
    Threadblock tb{.source = &source, .gpu = gpu};
    tb.actions = actions_of(source, passing_[gpu]);
    for (const Action& action : tb.actions) {
      placements_[gpu].expect_read(action.src);
      placements_[gpu].expect_read(action.src2);
    }
    threadblocks_.push_back(std::move(tb));
  }

  void connect() {
    std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> receivers;
    for (size_t t = 0; t < threadblocks_.size(); ++t) {
      const Threadblock& tb = threadblocks_[t];
      if (!std::ranges::any_of(tb.actions, receives_message)) continue;
      receivers[{tb.source->recv_peer, tb.gpu, tb.source->channel}] = static_cast<int32_t>(t);
    }
    for (size_t t = 0; t < threadblocks_.size(); ++t) {
      Threadblock& tb = threadblocks_[t];
      for (const MscclStep& step : tb.source->steps) {
        if (step.after_threadblock < 0) continue;
        std::vector<int32_t>& followers =
            threadblocks_[first_[tb.gpu] + step.after_threadblock].followers;
        const auto number = static_cast<int32_t>(t);
        if (followers.empty() || followers.back() != number) followers.push_back(number);
      }
      if (!std::ranges::any_of(tb.actions, sends_message)) continue;
      tb.receiver = receivers.at({tb.gpu, tb.source->send_peer, tb.source->channel});
      threadblocks_[tb.receiver].sender = static_cast<int32_t>(t);
      senders_[{tb.gpu, tb.source->send_peer}].push_back(static_cast<int32_t>(t));
    }
  }
  static bool receives_message(const Action& action) { return receives(action); }
  static bool sends_message(const Action& action) { return action.kind == StepKind::send; }

  // ---- progress

  void wake(int32_t t) {
    if (t < 0 || std::exchange(threadblocks_[t].awake, true)) return;
    awake_.push_back(t);
  }

  std::optional<Message>& on_its_way(int32_t from, int32_t to) { return messages_[{from, to}]; }

  // Returns true if the current step's dependencies are done.
  bool is_ready(const Threadblock& tb) const {
    const Action* action = tb.head();
    if (action == nullptr) return false;
    const MscclStep& step = tb.source->steps[action->step];
    if (step.after_threadblock < 0) return true;
    return threadblocks_[first_[tb.gpu] + step.after_threadblock].done() > step.after_step;
  }

  bool spares_inputs(const Threadblock& tb) const {
    return !placements_[tb.gpu].would_lose_input(tb.head()->dst, tb.head()->src);
  }

  bool can_send(const Threadblock& tb) {
    return is_ready(tb) && tb.head()->kind == StepKind::send &&
           !on_its_way(tb.gpu, tb.source->send_peer);
  }

  // Returns true if the threadblock would receive the next message at once.
  bool takes_message(const Threadblock& tb) const {
    return is_ready(tb) && receives(*tb.head()) && tb.early.empty() && spares_inputs(tb);
  }

  bool advance(int32_t t, StepOrder effort) {
    Threadblock& tb = threadblocks_[t];
    if (!is_ready(tb)) return false;
    const Action& action = *tb.head();
    if (action.kind == StepKind::send) {
      if (!can_send(tb)) return false;
      if (effort < StepOrder::send_ahead && !takes_message(threadblocks_[tb.receiver]))
        return false;
      execute(tb, action, [&] { send(tb, action); });
      wake(tb.receiver);
    } else if (effort < StepOrder::lose_input && !spares_inputs(tb)) {
      return false;
    } else if (!receives(action)) {
      execute(tb, action, [&] { compute(tb, action); });
    } else if (!tb.early.empty()) {
      execute(tb, action, [&] { take_early(tb, action); });
    } else {
      const std::optional<Message>& message = on_its_way(tb.source->recv_peer, tb.gpu);
      if (!message || message->receiver != t) {
        wake_sender(tb, effort);
        return false;
      }
      execute(tb, action, [&] { receive(tb, action); });
    }
    ++tb.next;
    for (const int32_t follower : tb.followers) wake(follower);
    wake(t);
    return true;
  }

  // Wakes the sender that waits for this threadblock, which has now reached its receive.
  void wake_sender(const Threadblock& tb, StepOrder effort) {
    if (effort == StepOrder::none && tb.sender >= 0 && can_send(threadblocks_[tb.sender])) {
      wake(tb.sender);
    }
  }

  // Runs one step of any threadblock. The search continues at the threadblock that ran last.
  bool advance_any(StepOrder effort) {
    const size_t all = threadblocks_.size();
    for (size_t i = 0; i < all; ++i) {
      const size_t t = (turn_ + i) % all;
      if (advance(static_cast<int32_t>(t), effort)) {
        turn_ = t;
        return true;
      }
    }
    return false;
  }

  // Receives a message before its turn, to make room for another one between the same two gpus.
  bool receive_early() {
    for (auto& [pair, message] : messages_) {
      if (!message || !somebody_waits_to_send(pair)) continue;
      Threadblock& tb = threadblocks_[message->receiver];
      execute(tb, *tb.head(), [&] { store_early(tb, pair.first, *message); });
      message.reset();
      for (const int32_t sender : senders_[pair]) wake(sender);
      return true;
    }
    return false;
  }
  void store_early(Threadblock& tb, int32_t from, const Message& message) {
    const auto count = static_cast<int32_t>(message.size_classes.size());
    const MscclRange range = passing_range(passing_[tb.gpu], count);
    Placement& placement = placements_[tb.gpu];
    placement.expect_read(range);
    const auto to = placement.write(range, message.size_classes, nullptr, steps_of(tb));
    steps_of(tb).push_back(recv(from, to_ranges(to)));
    tb.early.push_back(range);
  }
  bool somebody_waits_to_send(const std::pair<int32_t, int32_t>& pair) {
    return std::ranges::any_of(senders_[pair], [&](int32_t t) {
      const Threadblock& tb = threadblocks_[t];
      return is_ready(tb) && tb.head()->kind == StepKind::send;
    });
  }

  // ---- steps

  template <typename Body>
  void execute(const Threadblock& tb, const Action& action, Body body) {
    try {
      body();
    } catch (const Placement::Refusal& refusal) {
      refuse(place(tb, action.step), refusal.problem);
    }
    note_origin(tb, action.step);
  }

  std::vector<Step>& steps_of(const Threadblock& tb) { return result_.programs[tb.gpu].steps; }

  void send(const Threadblock& tb, const Action& action) {
    const std::vector<PlacedChunk> from = placements_[tb.gpu].read(action.src);
    steps_of(tb).push_back(tutti::send({tb.source->send_peer}, to_ranges(from)));
    on_its_way(tb.gpu, tb.source->send_peer) =
        Message{.receiver = tb.receiver, .size_classes = size_classes_of(from)};
  }

  void receive(const Threadblock& tb, const Action& action) {
    std::optional<Message>& message = on_its_way(tb.source->recv_peer, tb.gpu);
    const std::vector<int32_t> size_classes = std::move(message->size_classes);
    message.reset();
    for (const int32_t sender : senders_[{tb.source->recv_peer, tb.gpu}]) wake(sender);
    Placement& placement = placements_[tb.gpu];
    std::vector<PlacedChunk> from;
    if (action.kind == StepKind::recv_reduce) {
      from = placement.read(action.src);
      check_same_parts(from, size_classes);
    }
    const auto to = placement.write(action.dst, size_classes, nullptr, steps_of(tb));
    steps_of(tb).push_back(
        action.kind == StepKind::recv_reduce
            ? recv_reduce_right(tb.source->recv_peer, to_ranges(from), to_ranges(to))
            : recv(tb.source->recv_peer, to_ranges(to)));
  }

  void take_early(Threadblock& tb, const Action& action) {
    const MscclRange arrived = tb.early.front();
    tb.early.pop_front();
    Action local{.kind = StepKind::copy, .src = arrived, .dst = action.dst, .step = action.step};
    if (action.kind == StepKind::recv_reduce) {
      local.kind = StepKind::reduce;
      local.src = action.src;
      local.src2 = arrived;
    }
    compute(tb, local);
  }

  void compute(const Threadblock& tb, const Action& action) {
    if (action.is_nop) return;
    Placement& placement = placements_[tb.gpu];
    const std::vector<PlacedChunk> from = placement.read(action.src);
    if (action.kind == StepKind::copy) {
      const auto to = placement.write(action.dst, size_classes_of(from), &from, steps_of(tb));
      if (from != to) steps_of(tb).push_back(copy(to_ranges(from), to_ranges(to)));
      return;
    }
    const std::vector<PlacedChunk> other = placement.read(action.src2);
    check_same_parts(from, size_classes_of(other));
    const auto to = placement.write(action.dst, size_classes_of(from), nullptr, steps_of(tb));
    steps_of(tb).push_back(reduce(to_ranges(from), to_ranges(other), to_ranges(to)));
  }

  static void check_same_parts(const std::vector<PlacedChunk>& own,
                               const std::vector<int32_t>& other) {
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i].size_class == other[i]) continue;
      throw Placement::Refusal{cat("wrong chunk: combines part ", own[i].size_class,
                                   " of the data with part ", other[i])};
    }
  }

  // Records the origin of all steps appended since the last call.
  void note_origin(const Threadblock& tb, int32_t step) {
    result_.origins[tb.gpu].resize(result_.programs[tb.gpu].steps.size(), place(tb, step));
  }

  // ---- results and errors

  MscclPlace place(const Threadblock& tb, int32_t step) const {
    const std::vector<MscclStep>& steps = tb.source->steps;
    const int32_t last = static_cast<int32_t>(steps.size()) - 1;
    return {.line = steps.empty() ? tb.source->line : steps[std::min(step, last)].line,
            .gpu = tb.gpu,
            .threadblock = tb.source->id,
            .step = std::min(step, last)};
  }
  [[noreturn]] void refuse(const MscclPlace& place, std::string_view problem) const {
    refuse_msccl(algorithm_.file, place, problem);
  }

  void refuse_if_stuck() {
    constexpr int kShown = 4;
    std::string all;
    int stuck = 0;
    MscclPlace first;
    for (const Threadblock& tb : threadblocks_) {
      if (tb.head() == nullptr) continue;
      if (stuck == 0) first = place(tb, tb.head()->step);
      if (++stuck > kShown) continue;
      all += cat(stuck == 1 ? "" : "; ", "gpu ", tb.gpu, ", threadblock ", tb.source->id, ", step ",
                 tb.head()->step, " (", name(tb.source->steps[tb.head()->step].type),
                 ") waits for ", waits_for(tb));
    }
    if (stuck == 0) return;
    if (stuck > kShown) all += cat("; and ", stuck - kShown, " more threadblocks");
    refuse(first, cat("deadlock: ", all));
  }
  std::string waits_for(const Threadblock& tb) const {
    const MscclStep& step = tb.source->steps[tb.head()->step];
    if (!is_ready(tb)) {
      const Threadblock& other = threadblocks_[first_[tb.gpu] + step.after_threadblock];
      return cat("step ", step.after_step, " of threadblock ", other.source->id);
    }
    return tb.head()->kind == StepKind::send
               ? cat("gpu ", tb.source->send_peer, " to receive the previous message")
               : cat("a message from gpu ", tb.source->recv_peer);
  }

  void finish() {
    Program limits{.input_chunks = algorithm_.input_chunks,
                   .output_chunks = algorithm_.output_chunks};
    for (size_t gpu = 0; gpu < placements_.size(); ++gpu) {
      Program& program = result_.programs[gpu];
      const MscclPlace place{.line = algorithm_.gpus[gpu].line, .gpu = static_cast<int32_t>(gpu)};
      try {
        placements_[gpu].finish(program.steps);
      } catch (const Placement::Refusal& refusal) {
        refuse(place, refusal.problem);
      }
      result_.origins[gpu].resize(program.steps.size(), place);
      limits.scratch_chunks = std::max(limits.scratch_chunks, placements_[gpu].scratch_chunks());
      take_limits(program, limits);
    }
    for (Program& program : result_.programs) {
      std::vector<Step> steps = std::move(program.steps);
      program = limits;
      program.steps = std::move(steps);
    }
  }
  static void take_limits(const Program& program, Program& limits) {
    std::set<int32_t> targets;
    for (const Step& step : program.steps) {
      if (step.kind != StepKind::send) continue;
      targets.insert(step.peers[0]);
      int32_t chunks = 0;
      for (const ChunkRange& range : step.src) chunks += range.count;
      limits.chunks_per_message = std::max(limits.chunks_per_message, chunks);
    }
    limits.fan_out = std::max(limits.fan_out, static_cast<int32_t>(targets.size()));
  }

  const MscclAlgorithm& algorithm_;
  Linearized result_;
  std::vector<Placement> placements_;  // by gpu: where its chunks are
  std::vector<int32_t> passing_;       // by gpu: number of cells so far for values in fused steps
  std::vector<int32_t> first_;         // by gpu: its first threadblock
  std::vector<Threadblock> threadblocks_;
  std::deque<int32_t> awake_;
  size_t turn_ = 0;
  // Messages in flight, by sender and receiver.
  std::map<std::pair<int32_t, int32_t>, std::optional<Message>> messages_;
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> senders_;
};

}  // namespace

Linearized linearize(const MscclAlgorithm& algorithm) { return Linearizer(algorithm).run(); }

}  // namespace tutti
