// The memory of a model's parameters on one rank, by ZeRO stage (Rajbhandari et al.: ZeRO, 2020):
//
//   stage                     0     1     2     3
//   values                    all   all   all   shard    | in the model's type
//   gradients                 all   all   shard shard    | in the model's type: one micro-batch's
//   masters, optimizer state  all   shard shard shard    | fp32
//
// Sharded data exist as whole buckets while they are needed, in memory from a pool. Gradients that
// are sums of several micro-batches are in f32: 16 bits would lose small terms. Stages 2 and 3 keep
// shards of such sums if each micro-batch's gradients are reduced over ranks by themselves
// (StorageOptions::shard_sums), otherwise whole sums. Values in f32 in the host's memory have no
// masters: they are updated in place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/layout.h"
#include "training/kernels/elementwise.h"
#include "training/offload/offloaded_pieces.h"
#include "training/offload/options.h"
#include "training/offload/pager.h"
#include "training/optimizers/optimizer.h"
#include "training/parallel/buffer_pool.h"
#include "training/parallel/gradient_sums.h"

namespace tutti::training {

// Groups of parameters by the ranks over which gradients are summed, and values are sharded.
struct ParameterGroups {
  // One group.
  // NOLINTNEXTLINE(google-explicit-constructor)
  ParameterGroups(Communicator all) : ranks{std::move(all)} {}
  ParameterGroups(std::vector<Communicator> all, std::vector<int> of)
      : ranks(std::move(all)), group_of(std::move(of)) {}

  std::vector<Communicator> ranks;  // of each group
  std::vector<int> group_of;        // by parameter; empty: all are in the first
};

struct StorageOptions {
  int stage = 0;             // ZeRO stage, 0 to 3
  DType dtype = DType::f32;  // of values: f32, bf16 or f16
  // Each step has one micro-batch per rank: gradients are rounded once, to the values' type, and
  // stages 2 and 3 keep shards of them.
  bool one_pass = false;
  // Stages 2 and 3 keep shards of the sums over several micro-batches.
  bool shard_sums = false;
  // 16-bit values have masters in fp32. Without masters the values themselves are updated,
  // rounded stochastically or to the nearest value.
  bool masters = true;
  // Memory space of values and gradients; null: the host's. The optimizer works in the host's
  // memory: in other spaces values have f32 masters, too.
  const Backend* backend = nullptr;
  // Stages 1 to 3: number of owners, the last ranks; the others own nothing. 0: all ranks.
  int owners = 0;
  // Values in f32 have masters as well: they are updated while the values are in use.
  bool masters_apart = false;
  OffloadOptions offload;  // state in files
  int64_t bucket_elements = 1 << 20;
  int64_t first_bucket_elements = 1 << 16;
  int64_t alignment = kAlignment;  // of parameters and shards, in elements (LayoutOptions)
  // A pipeline stage's parameters, ascending; none: all. `copies` are those that another stage has
  // too, and counts in norms and checkpoints.
  std::optional<std::vector<int>> parameters;
  std::vector<int> copies;
  std::vector<int> alone;  // parameters that get a bucket of their own

  // Number of owners of a bucket that `ranks` ranks sum, and the owner number of a rank; negative:
  // it is no owner.
  int owners_among(int ranks) const { return stage == 0 ? 1 : owners == 0 ? ranks : owners; }
  int owner(int rank, int ranks) const {
    return stage == 0 ? 0 : rank - (ranks - owners_among(ranks));
  }
};

// Bytes on this rank. `padding` is the part of the others that no parameter uses; `gathered` is the
// high-water mark of pooled buckets. The other kinds exclude bytes in files.
struct StorageBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t masters = 0;
  int64_t padding = 0;
  int64_t gathered = 0;
  int64_t files = 0;
};

// Sizes in bytes that limit how much of a rank's files is in memory.
struct FilePages {
  int64_t files = 0;        // total size of the files
  int64_t of_value = 0;     // an element of the shards of values; 0: they are in memory
  int64_t of_gradient = 0;  // likewise for gradients
  int64_t wholes = 0;       // the states of whole parameters that are in memory at once
  int64_t activations = 0;  // the activations that are in memory at once
};
// Returns the maximum number of bytes in memory at once: a window during loops over owned pieces;
// during forward and backward the value shards of two adjacent buckets, the gradient shard of one,
// and activations.
int64_t most_in_memory(const Layout& layout, const OffloadOptions& options, const FilePages& pages);

class ParameterStorage {
 public:
  // Points the table's views at whole memory; views of sharded data are empty until acquired. Both
  // arguments must outlive it. Throws Error(invalid_argument) for an invalid stage or type.
  ParameterStorage(ParameterGroups groups, ParameterTable& table, const StorageOptions& options);

  const Layout& layout() const { return layout_; }
  const ParameterGroups& groups() const { return groups_; }
  // The ranks that sum a bucket's gradients.
  Communicator ranks_of(int bucket) const {
    return groups_.ranks[at(layout_.buckets[at(bucket)].group)];
  }
  const StorageOptions& options() const { return options_; }
  // Owners of the first group's shards among its ranks: rank of the first owner, number of owners,
  // and number of elements of this rank's arrays, gaps included.
  int first_owner() const { return groups_.ranks.front().size() - owner_count(); }
  int owner_count() const;
  bool owns() const { return owners_.front() >= 0; }
  int64_t owned_elements() const { return owns() ? layout_.owned_size : 0; }
  // All masters of this rank, bucket by bucket; empty if values are updated in place.
  std::span<float> masters() const {
    return {masters_.get(), masters_ == nullptr ? 0 : static_cast<size_t>(owned_elements())};
  }
  // Zeroed memory for a row of this rank's arrays.
  Memory<float> allocate_row();
  // Zeroed memory for `count` floats of the optimizer, in a file if the optimizer is offloaded.
  Memory<float> allocate_state(int64_t count);
  // The pager of this rank's files; null: nothing is offloaded. It lives as long as the storage.
  Pager* pager() { return pager_.get(); }
  // The observer of loops over owned pieces; null: nothing is offloaded.
  OffloadedPieces* offloaded() { return offloaded_.get(); }
  // Releases the pages of a piece that are in files.
  void evict(const OwnedPiece& piece) const {
    if (offloaded_ != nullptr) offloaded_->evict(piece);
  }
  // Likewise for a row in any of the files.
  void evict(ConstTensor row) const;
  bool is_in_file(ConstTensor row) const { return pager_ != nullptr && pager_->holds(row.data); }
  bool whole_values() const { return options_.stage < 3; }
  bool whole_gradients() const {
    return options_.stage < 2 || !(options_.one_pass || options_.shard_sums);
  }
  // True if a bucket's gradients are added to this rank's shard once they are reduced over ranks.
  bool adds_to_shards() const { return !whole_gradients() && !options_.one_pass; }
  // Return true if this rank's shards of values, or of gradients, are in files.
  bool offloads_values() const { return !whole_values() && options_.offload.parameters(); }
  bool offloads_gradients() const { return !whole_gradients() && options_.offload.optimizer(); }
  DType gradient_type() const { return options_.one_pass ? options_.dtype : DType::f32; }

  // A parameter's values if they are whole and updated in place, otherwise null. Their memory lives
  // as long as the pointer.
  Memory<float> updated_whole(int parameter) const;

  // All buckets' values as one row, if they are whole. show_values_in() points the parameters at
  // another such row (older weights), or at this one again.
  Tensor all_values() const { return row(value_memory_.get(), options_.dtype, layout_.size); }
  void show_values_in(Tensor all);

  // A bucket as a row, in whole memory or in acquired memory.
  Tensor values(int bucket) const { return values_[at(bucket)].whole; }
  Tensor gradients(int bucket) const { return gradients_[at(bucket)].whole; }
  // This rank's shard of a bucket, in the whole bucket or in separate memory.
  Tensor own_values(int bucket) const { return values_[at(bucket)].own; }
  Tensor own_gradients(int bucket) const { return gradients_[at(bucket)].own; }
  // The part of the bucket's whole gradients that corresponds to this rank's shard, while acquired.
  Tensor own_part_of_gradients(int bucket) const;
  // An owner's part of a whole bucket.
  Tensor part_of(int bucket, Tensor whole, int owner) const;

  // Acquire pooled memory for sharded buckets; gradients are zeroed. Releasing empties the views.
  void acquire_values(int bucket);
  void release_values(int bucket);
  void acquire_gradients(int bucket);
  void release_gradients(int bucket);
  void zero_gradients();  // whole gradients, and shards that accumulate
  // Adds this rank's part of a bucket's whole gradients to its shard.
  void add_to_shard(int bucket);

  // For shards in files; without files these do nothing. fetch starts reading, await blocks until
  // the shard is in memory, and evict writes it and releases its pages.
  void fetch_own_values(int bucket) { fetch(values_[at(bucket)], false); }
  void await_own_values(int bucket) { await(values_[at(bucket)], false); }
  void evict_own_values(int bucket) { evict(values_[at(bucket)]); }
  void fetch_own_gradients(int bucket) { fetch(gradients_[at(bucket)], true); }
  void await_own_gradients(int bucket) { await(gradients_[at(bucket)], true); }
  void evict_own_gradients(int bucket) { evict(gradients_[at(bucket)]); }

  // Call before zero_gradients(). With `apart`, the gradient of this shared use
  // (ParameterTable::shared_uses) has memory of its own, which add_what_is_apart() releases if a
  // step is one micro-batch; otherwise it is the parameter's gradient.
  void keep_apart(size_t shared_use, bool apart);
  // Deterministic mode adds up micro-batches in a special order (gradient_sums.h). begin_sums()
  // must follow keep_apart(); end_micro_batch() must follow a unit's backward of each micro-batch.
  void begin_sums(const std::vector<int64_t>& micro_batches);
  void end_micro_batch(int unit);
  bool sums_in_order() const { return sums_.has_value(); }
  // Adds the separate gradients of shared uses to the parameter's gradient.
  void add_what_is_apart(int parameter);

  // The pieces that this rank updates, views of its memory with stable addresses.
  const std::vector<OwnedPiece>& owned() const { return owned_; }
  // Calls fill(piece, values), which writes fp32 values of each owned piece: initial values, or
  // others. The caller must distribute them (data_parallel.h).
  template <typename Fill>
  void fill_owned(Fill&& fill);

  StorageBytes bytes() const;
  // Temporary memory, counted as gathered.
  BufferPool& pool() { return pool_; }

 private:
  struct Place {
    Tensor whole;
    Tensor own;
    bool in_file = false;                  // `own` is in a file
    std::optional<Pager::Ticket> fetched;  // pending or done, and not evicted
    bool stale = false;                    // a gradient shard to be zeroed before use
  };

  static size_t at(int bucket) { return static_cast<size_t>(bucket); }
  // True if the values are updated in place, without masters.
  bool own_masters() const {
    return options_.dtype == DType::f32 && options_.backend == nullptr && !options_.masters_apart;
  }
  Tensor row(std::byte* data, DType dtype, int64_t count) const {
    return tensor_at(data, dtype, 1, count, options_.backend);
  }
  void place(std::vector<Place>& places, Memory<std::byte>& memory, DType dtype, bool whole,
             bool in_file);
  void fetch(Place& place, bool writes);
  void await(Place& place, bool writes);
  void evict(Place& place);
  // Points the views of the bucket's parameters into its memory, or at nothing.
  void show_values(int bucket);
  void show_gradients(int bucket);
  Tensor shown(int parameter, Tensor bucket) const;
  int64_t shared_count(size_t shared_use) const;  // in elements
  size_t shared_bytes(size_t shared_use) const;
  void give_back(size_t shared_use);
  void make_owned();
  Tensor from_pool(int bucket, DType dtype);

  ParameterGroups groups_;
  Communicator communicator_;  // any one of the groups', for memory
  ParameterTable& table_;
  StorageOptions options_;
  Layout layout_;
  std::vector<int> owners_;  // by group: this rank's number among a bucket's owners; negative: none
  std::unique_ptr<Pager> pager_;
  std::unique_ptr<OffloadedPieces> offloaded_;
  Memory<std::byte> value_memory_;
  Memory<std::byte> gradient_memory_;
  Memory<float> masters_;
  std::vector<Place> values_;
  std::vector<Place> gradients_;
  std::vector<OwnedPiece> owned_;
  // By shared use: memory of its own or from the pool; null if it is not separate.
  struct Apart {
    Memory<std::byte> memory;
    std::byte* data = nullptr;
  };
  std::vector<Apart> apart_;
  std::optional<GradientSums> sums_;
  BufferPool pool_;
};

// Converts masters to the model's type, if there are both.
void store_masters(const OwnedPiece& piece);

template <typename Fill>
void ParameterStorage::fill_owned(Fill&& fill) {
  std::vector<float> filled;
  for (const OwnedPiece& piece : owned_) {
    filled.resize(static_cast<size_t>(piece.piece.count));
    fill(piece, std::span<float>(filled));
    convert(tensor_at(static_cast<const void*>(filled.data()), DType::f32, 1, piece.piece.count),
            piece.updated());
    store_masters(piece);
    evict(piece);
  }
}

}  // namespace tutti::training
