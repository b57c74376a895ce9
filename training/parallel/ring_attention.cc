#include "training/parallel/ring_attention.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <vector>

#include "training/core/thread_pool.h"
#include "training/core/token_partition.h"
#include "training/kernels/elementwise.h"
#include "training/parallel/mesh.h"

namespace tutti::training {
namespace {

using Clock = std::chrono::steady_clock;

// Tags of messages that two ranks may have in flight at once.
enum Tag : int { kKeys, kGradients };

void convert_rows(ConstTensor from, Tensor to) {
  for (int64_t row = 0; row < from.rows; ++row) {
    convert(from.row_range(row, 1), to.row_range(row, 1));
  }
}

// Each row has the keys and, beside them, the values of one token, so that a range of rows is one
// message.
struct KeysAndValues {
  Tensor all;

  Tensor keys() const { return all.col_range(0, all.cols / 2); }
  Tensor values() const { return all.col_range(all.cols / 2, all.cols / 2); }
  KeysAndValues rows(const Share& rows) const { return {all.row_range(rows.first, rows.count)}; }
};

// Returns the number of rows of a message's memory. Adds a margin, so that the number is equal for
// all micro-batches of a shape although their partitions differ slightly, and memory is reused.
int64_t rows_of_message(const TokenPartition& partition) {
  const int64_t even = partition.mask().tokens() / partition.ranks();
  return std::max(partition.most(), even + even / 16 + 1);
}

size_t bytes_of(int64_t rows, int64_t width, DType type) {
  return static_cast<size_t>(rows * width) * size_of(type);
}

// Communication of a rank in one call of attention.
class Ring {
 public:
  Ring(Pass& pass, const AttentionShape& heads)
      : pass_(pass), partition_(*pass.batch->partition), width_(2 * heads.key_width()) {}

  ~Ring() {
    // After an error, messages may be in flight, so the buffers must not be reused.
    if (std::uncaught_exceptions() > 0) return;
    for (const std::span<std::byte> memory : lent_) {
      pass_.mesh->messages(Axis::context, nullptr).release(memory.data(), memory.size());
    }
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  int ranks() const { return partition_.ranks(); }
  // Return, for a step, the rank whose keys this rank has, and the rank that has this rank's keys.
  int before(int step) const { return (partition_.rank() + ranks() - step) % ranks(); }
  int after(int step) const { return (partition_.rank() + step) % ranks(); }

  // Returns memory for keys and values of this rank or another rank. Other ranks of the host read
  // sent messages directly, while this rank computes.
  KeysAndValues take_message(DType type) {
    const int64_t rows = rows_of_message(partition_);
    if (pass_.mesh == nullptr) {
      alone_.push_back(allocate(pass_.arena.backend(), bytes_of(rows, width_, type)));
      return {tensor_at(alone_.back().get(), type, rows, width_, pass_.arena.backend())};
    }
    BufferPool& pool = pass_.mesh->messages(Axis::context, pass_.arena.backend());
    const size_t bytes = bytes_of(rows, width_, type);
    lent_.push_back({pool.acquire(bytes), bytes});
    return {tensor_at(lent_.back().data(), type, rows, width_, pass_.arena.backend())};
  }

  Work send(const KeysAndValues& rows, int rank, Tag tag) {
    if (rows.all.rows == 0) return {};
    const auto bytes = static_cast<double>(rows.all.bytes());
    if (pass_.mesh == nullptr) {
      pass_.record_unsent({Axis::context, "ring", bytes});
      return {};
    }
    sent_ += bytes;
    return in_flight_.emplace_back(along().send_async(as_buffer(rows.all), rank, {.tag = tag}));
  }
  Work receive(const KeysAndValues& rows, int rank, Tag tag) {
    if (rows.all.rows == 0) return {};
    if (pass_.mesh == nullptr) {
      zero(rows.all);
      return {};
    }
    return in_flight_.emplace_back(along().recv_async(as_buffer(rows.all), rank, {.tag = tag}));
  }
  // Makes progress on long messages.
  void poll() {
    std::erase_if(in_flight_, [](Work& work) { return work.test(); });
  }
  void wait(Work& work) {
    const Clock::time_point start = Clock::now();
    work.wait();
    if (pass_.mesh != nullptr) pass_.mesh->add_unit_traffic(Axis::context, "ring", sent_, start);
    sent_ = 0;
  }

 private:
  Communicator& along() { return pass_.mesh->along(Axis::context); }

  Pass& pass_;
  const TokenPartition& partition_;
  int64_t width_;
  double sent_ = 0;  // bytes sent since the last wait
  std::vector<Work> in_flight_;
  std::vector<std::span<std::byte>> lent_;
  std::vector<BackendMemory> alone_;  // memory that replaces lent_ in a pass without a mesh
};

// Returns the shape of the attention of this rank's queries to those keys of `rank` that they
// attend to.
AttentionShape shape_on(const AttentionShape& heads, const TokenPartition& partition, int rank) {
  AttentionShape shape = heads;
  shape.keys = partition.seen_of(rank).count;
  shape.starts = partition.starts(rank);
  shape.ends = partition.ends(rank);
  return shape;
}

// Some query heads, and the key heads that they use.
struct Turn {
  AttentionShape shape;
  Share queries, keys;  // ranges of heads

  template <bool is_const>
  BasicTensor<is_const> of_queries(BasicTensor<is_const> all) const {
    return all.col_range(queries.first * shape.head_size, queries.count * shape.head_size);
  }
  template <bool is_const>
  BasicTensor<is_const> of_keys(BasicTensor<is_const> all) const {
    return all.col_range(keys.first * shape.head_size, keys.count * shape.head_size);
  }
  template <bool is_const>
  BasicTensor<is_const> statistics(BasicTensor<is_const> all) const {
    return all.row_range(queries.first, queries.count);
  }
};

// Divides the heads into turns with as many key heads as there are threads. Calls body(turn) for
// each, and makes progress on messages after it.
template <typename Body>
void in_turns(Ring& ring, const AttentionShape& all, const Body& body) {
  const auto first_query = [&](int64_t key_head) {
    return std::clamp<int64_t>(key_head * all.group_size() - all.before, 0, all.heads);
  };
  const int64_t at_once = threads_here();
  for (int64_t key_head = 0; key_head < all.groups(); key_head += at_once) {
    const int64_t end = std::min(key_head + at_once, all.groups());
    Turn turn{all, {first_query(key_head), 0}, {key_head, end - key_head}};
    turn.queries.count = first_query(end) - turn.queries.first;
    turn.shape.heads = turn.queries.count;
    turn.shape.key_heads = turn.keys.count;
    turn.shape.group = all.group_size();
    turn.shape.before = key_head == 0 ? all.before : 0;
    body(turn);
    ring.poll();
  }
}

// Calls body(step, keys and values) for each step. In step 0 the keys and values are this rank's,
// in a later step those of rank before(step) to which this rank attends. `own`: this rank's keys
// and values, which are sent to the other ranks.
template <typename Body>
void go_round(Ring& ring, const TokenPartition& partition, const KeysAndValues& own,
              const Body& body) {
  const std::array<KeysAndValues, 2> buffers = {ring.take_message(own.all.dtype),
                                                ring.take_message(own.all.dtype)};
  std::vector<Work> sends;
  KeysAndValues here = own;
  for (int step = 0; step < ring.ranks(); ++step) {
    const int next = step + 1;
    KeysAndValues coming;
    Work received;
    if (next < ring.ranks()) {
      const int from = ring.before(next), to = ring.after(next);
      coming = buffers[static_cast<size_t>(next % 2)].rows({0, partition.seen_of(from).count});
      received = ring.receive(coming, from, kKeys);
      sends.push_back(ring.send(own.rows(partition.seen_by(to)), to, kKeys));
    }
    body(step, here);
    ring.wait(received);
    here = coming;
  }
  for (Work& send : sends) ring.wait(send);
}

void add_rows(ConstTensor terms, Tensor sums) {
  for (int64_t row = 0; row < terms.rows; ++row) {
    const Tensor sum = sums.row_range(row, 1);
    add(sum, terms.row_range(row, 1), sum);
  }
}

// Sends the gradients of keys to the ranks that own the keys. `sums`: gradients of this rank's
// keys, to which received parts are added.
class GradientsHome {
 public:
  GradientsHome(Ring& ring, const TokenPartition& partition, const Qkv& sums)
      : ring_(ring),
        partition_(partition),
        sums_(sums),
        received_(ring.take_message(sums.keys.dtype)),
        parts_{ring.take_message(sums.keys.dtype), ring.take_message(sums.keys.dtype)} {}

  // Returns memory for the gradients of a step other than the first.
  KeysAndValues part(int step) {
    const auto buffer = static_cast<size_t>(step % 2);
    ring_.wait(sends_[buffer]);
    return parts_[buffer].rows({0, partition_.seen_of(ring_.before(step)).count});
  }
  // Sends the complete gradients of a step.
  void send(int step, const KeysAndValues& part) {
    sends_[static_cast<size_t>(step % 2)] = ring_.send(part, ring_.before(step), kGradients);
    add_received();
    seen_ = partition_.seen_by(ring_.after(step));
    receive_ = ring_.receive(received_.rows({0, seen_.count}), ring_.after(step), kGradients);
  }
  void finish() {
    add_received();
    for (Work& send : sends_) ring_.wait(send);
  }

 private:
  void add_received() {
    ring_.wait(receive_);
    const KeysAndValues its = received_.rows({0, seen_.count});
    add_rows(its.keys(), sums_.keys.row_range(seen_.first, seen_.count));
    add_rows(its.values(), sums_.values.row_range(seen_.first, seen_.count));
    seen_ = {};
  }

  Ring& ring_;
  const TokenPartition& partition_;
  Qkv sums_;
  KeysAndValues received_;
  std::array<KeysAndValues, 2> parts_;
  std::array<Work, 2> sends_;
  Work receive_;
  Share seen_;  // this rank's rows whose gradients are in received_
};

KeysAndValues pack(Ring& ring, const ConstQkv& own) {
  const KeysAndValues packed = ring.take_message(own.keys.dtype).rows({0, own.keys.rows});
  copy_rows(own.keys, packed.keys());
  copy_rows(own.values, packed.values());
  return packed;
}

}  // namespace

// Backward needs the most memory: keys of this rank and two others, and three parts of their
// gradients.
int64_t RingAttention::message_bytes(const TokenPartition& partition, int64_t key_width,
                                     DType type) const {
  const int64_t rows = rows_of_message(partition);
  return static_cast<int64_t>(3 * bytes_of(rows, 2 * key_width, type) +
                              3 * bytes_of(rows, 2 * key_width, value_type(type)));
}

AttentionOverRanks::Saved RingAttention::forward(Pass& pass, const AttentionShape& heads,
                                                 const ConstQkv& own, Tensor output) const {
  const Tensor lse = pass.arena.take(value_type(output.dtype), heads.heads, output.rows);
  const ArenaScope scope(pass.arena);
  const TokenPartition& partition = *pass.batch->partition;
  const DType wide = value_type(output.dtype);
  const bool is_wide = wide == output.dtype;
  Ring ring(pass, heads);
  const Tensor sum = is_wide ? output : pass.arena.take(wide, output.rows, output.cols);
  const Tensor part = pass.arena.take(wide, output.rows, output.cols);
  const Tensor part_lse = pass.arena.take(lse.dtype, lse.rows, lse.cols);
  go_round(ring, partition, pack(ring, own), [&](int step, const KeysAndValues& there) {
    if (there.all.rows == 0) return;
    const AttentionShape shape = shape_on(heads, partition, ring.before(step));
    const Tensor found = step == 0 ? sum : part, found_lse = step == 0 ? lse : part_lse;
    in_turns(ring, shape, [&](const Turn& turn) {
      causal_attention(
          turn.shape,
          {turn.of_queries(own.queries), turn.of_keys(there.keys()), turn.of_keys(there.values())},
          turn.of_queries(found), turn.statistics(found_lse), pass.arena);
    });
    if (step > 0) merge_attention(shape, part, part_lse, sum, lse);
  });
  if (!is_wide) convert(sum, output);
  return {.lse = lse};
}

void RingAttention::backward(Pass& pass, const AttentionShape& heads, const ConstQkv& own,
                             ConstTensor output, const Saved& saved, ConstTensor output_gradient,
                             const Qkv& gradients) const {
  const ArenaScope scope(pass.arena);
  const TokenPartition& partition = *pass.batch->partition;
  const DType wide = value_type(own.queries.dtype);
  const bool is_wide = wide == own.queries.dtype;
  const auto like = [&](ConstTensor other) {
    return pass.arena.take(wide, other.rows, other.cols);
  };
  const Qkv sums = is_wide ? gradients : Qkv{like(own.queries), like(own.keys), like(own.values)};
  const Tensor part = like(own.queries);
  Ring ring(pass, heads);
  GradientsHome home(ring, partition, sums);
  go_round(ring, partition, pack(ring, own), [&](int step, const KeysAndValues& there) {
    KeysAndValues theirs;
    Qkv found = sums;
    if (step > 0) {
      theirs = home.part(step);
      found = {part, theirs.keys(), theirs.values()};
    }
    if (there.all.rows > 0) {
      in_turns(ring, shape_on(heads, partition, ring.before(step)), [&](const Turn& turn) {
        causal_attention_backward(
            turn.shape,
            {turn.of_queries(own.queries), turn.of_keys(there.keys()),
             turn.of_keys(there.values())},
            turn.of_queries(output), turn.statistics(saved.lse), turn.of_queries(output_gradient),
            {turn.of_queries(found.queries), turn.of_keys(found.keys), turn.of_keys(found.values)},
            pass.arena);
      });
      if (step > 0) add_rows(part, sums.queries);
    }
    if (step > 0) home.send(step, theirs);
  });
  home.finish();
  if (is_wide) return;
  convert_rows(sums.queries, gradients.queries);
  convert_rows(sums.keys, gradients.keys);
  convert_rows(sums.values, gradients.values);
}

}  // namespace tutti::training
