// The memory of a model's parameters on one rank, by ZeRO stage (Rajbhandari et al.: ZeRO, 2020):
//
//   stage                     0     1     2     3
//   values                    all   all   all   shard    | in the model's type
//   gradients                 all   all   shard shard    | in the model's type, sums in f32
//   masters, optimizer state  all   shard shard shard    | fp32
//
// Sharded data exist as whole buckets only while they are needed, in memory from a pool. Gradients
// that are sums of several micro-batches are in f32, because 16 bits would lose small terms. Stages
// 2 and 3 keep shards of such sums if each micro-batch's gradients are reduced over ranks
// separately (StorageOptions::shard_sums), otherwise whole sums. Values in f32 in the host's memory
// are updated in place and have no masters, unless StorageOptions::separate_masters is set.
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

// Groups of parameters. The ranks of a group sum the gradients of the group's parameters, and with
// ZeRO shard these parameters.
struct ParameterGroups {
  // Creates a single group. NOLINTNEXTLINE(google-explicit-constructor)
  ParameterGroups(Communicator all) : ranks{std::move(all)} {}
  ParameterGroups(std::vector<Communicator> all, std::vector<int> of)
      : ranks(std::move(all)), group_of(std::move(of)) {}

  std::vector<Communicator> ranks;  // by group: its ranks
  std::vector<int> group_of;        // by parameter: its group; empty: all are in group 0
};

struct StorageOptions {
  int stage = 0;             // ZeRO stage, 0 to 3
  DType dtype = DType::f32;  // type of values: f32, bf16 or f16
  // True if each step has one micro-batch per rank. Gradients are then rounded once, to the values'
  // type, and stages 2 and 3 keep shards of them.
  bool one_pass = false;
  // True: stages 2 and 3 keep shards of the sums over several micro-batches.
  bool shard_sums = false;
  // True: 16-bit values have masters in fp32. False: the values themselves are updated, rounded
  // stochastically or to the nearest value.
  bool masters = true;
  // Memory space of values and gradients; null: the host's. The optimizer works in the host's
  // memory, so values in other spaces have f32 masters, too.
  const Backend* backend = nullptr;
  // Stages 1 to 3: number of owners, which are the last ranks; the other ranks own nothing. 0: all
  // ranks are owners.
  int owners = 0;
  // True: values in f32 have masters as well, which are updated while the values are in use.
  bool separate_masters = false;
  OffloadOptions offload;  // which state is in files
  int64_t bucket_elements = 1 << 20;
  int64_t first_bucket_elements = 1 << 16;
  // alignment of parameters and shards, in elements (LayoutOptions)
  int64_t alignment = kAlignment;
  // `parameters`: the parameters of this pipeline stage, ascending; nullopt: all parameters of the
  // model. `copies`: the parameters that another stage has too. That stage counts them in norms and
  // checkpoints.
  std::optional<std::vector<int>> parameters;
  std::vector<int> copies;
  std::vector<int> alone;  // parameters that have their own bucket

  // owners_among() returns the number of owners of a bucket that `ranks` ranks sum. owner() returns
  // a rank's index among the owners, or a negative number if the rank owns nothing. In stage 0 each
  // rank is the only owner, with index 0, of its own copy.
  int owners_among(int ranks) const { return stage == 0 ? 1 : owners == 0 ? ranks : owners; }
  int owner(int rank, int ranks) const {
    return stage == 0 ? 0 : rank - (ranks - owners_among(ranks));
  }
};

// Memory on this rank in bytes. `padding`: alignment gaps in the memory of parameters, gradients
// and masters; these three members do not include the gaps. `gathered`: high-water mark of the pool
// of temporary buckets. Only `files` includes bytes in files.
struct StorageBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t masters = 0;
  int64_t padding = 0;
  int64_t gathered = 0;
  int64_t files = 0;
};

// Inputs of most_in_memory(), in bytes.
struct FilePages {
  int64_t files = 0;     // total size of the files
  int64_t of_value = 0;  // bytes of an element of the shards of values; 0: the shards are in memory
  // bytes of an element of the shards of gradients; 0: the shards are in memory
  int64_t of_gradient = 0;
  int64_t wholes = 0;       // bytes of the states of whole parameters that are in memory at once
  int64_t activations = 0;  // bytes of the activations that are in memory at once
};
// Returns the maximum number of bytes of the files that are in memory at once. It is the largest
// of: the window (in loops over owned pieces); the value shards of two adjacent buckets, the
// gradient shard of one, and activations (in forward and backward); the states of whole parameters.
// The result does not exceed the size of the files.
int64_t most_in_memory(const Layout& layout, const OffloadOptions& options, const FilePages& pages);

class ParameterStorage {
 public:
  // Points the table's views at the memory of whole buckets; views of sharded buckets are empty
  // until the buckets are acquired. `table` and the backend of `options` must outlive the storage.
  // Throws Error(invalid_argument) for an invalid stage, type or offload option.
  ParameterStorage(ParameterGroups groups, ParameterTable& table, const StorageOptions& options);

  const Layout& layout() const { return layout_; }
  const ParameterGroups& groups() const { return groups_; }
  // Returns the ranks that sum a bucket's gradients.
  Communicator ranks_of(int bucket) const {
    return groups_.ranks[at(layout_.buckets[at(bucket)].group)];
  }
  const StorageOptions& options() const { return options_; }
  // Return, for the first group, the rank of the first owner, the number of owners, true if this
  // rank is an owner, and the number of elements of this rank's shards (alignment gaps included; 0
  // if it is no owner).
  int first_owner() const { return groups_.ranks.front().size() - owner_count(); }
  int owner_count() const;
  bool owns() const { return owners_.front() >= 0; }
  int64_t owned_elements() const { return owns() ? layout_.owned_size : 0; }
  // Returns all masters of this rank, bucket by bucket; empty if values are updated in place.
  std::span<float> masters() const {
    return {masters_.get(), masters_ == nullptr ? 0 : static_cast<size_t>(owned_elements())};
  }
  // Allocates zeroed memory for owned_elements() floats.
  Memory<float> allocate_row();
  // Allocates zeroed memory for `count` floats of the optimizer, in a file if the optimizer is
  // offloaded.
  Memory<float> allocate_state(int64_t count);
  // Returns the pager of this rank's files, which lives as long as the storage; null if nothing is
  // offloaded.
  Pager* pager() { return pager_.get(); }
  // Returns the observer of loops over owned pieces; null if nothing is offloaded.
  OffloadedPieces* offloaded() { return offloaded_.get(); }
  // Releases the pages of those parts of a piece that are in files.
  void evict(const OwnedPiece& piece) const {
    if (offloaded_ != nullptr) offloaded_->evict(piece);
  }
  // Releases the pages of a row that is in a file.
  void evict(ConstTensor row) const;
  bool is_in_file(ConstTensor row) const { return pager_ != nullptr && pager_->holds(row.data); }
  bool whole_values() const { return options_.stage < 3; }
  bool whole_gradients() const {
    return options_.stage < 2 || !(options_.one_pass || options_.shard_sums);
  }
  // Returns true if a bucket's gradients are added to this rank's shard once they are reduced over
  // ranks.
  bool adds_to_shards() const { return !whole_gradients() && !options_.one_pass; }
  // Return true if this rank's shards of values, or of gradients, are in files.
  bool offloads_values() const { return !whole_values() && options_.offload.parameters(); }
  bool offloads_gradients() const { return !whole_gradients() && options_.offload.optimizer(); }
  DType gradient_type() const { return options_.one_pass ? options_.dtype : DType::f32; }

  // Returns a parameter's values if they are whole, in f32, and updated in place; otherwise null.
  // Their memory lives as long as the pointer.
  Memory<float> updated_whole(int parameter) const;

  // all_values() returns all buckets' values as one row, if they are whole. show_values_in() points
  // the parameters' views at `all`: a row of older weights, or again the row that all_values()
  // returns.
  Tensor all_values() const { return row(value_memory_.get(), options_.dtype, layout_.size); }
  void show_values_in(Tensor all);

  // Return a whole bucket as a row; empty if the bucket is sharded and not acquired.
  Tensor values(int bucket) const { return values_[at(bucket)].whole; }
  Tensor gradients(int bucket) const { return gradients_[at(bucket)].whole; }
  // Return this rank's shard of a bucket, in the whole bucket or in separate memory.
  Tensor own_values(int bucket) const { return values_[at(bucket)].own; }
  Tensor own_gradients(int bucket) const { return gradients_[at(bucket)].own; }
  // Returns the part of the bucket's whole gradients that corresponds to this rank's shard. The
  // gradients must be whole or acquired.
  Tensor own_part_of_gradients(int bucket) const;
  // Returns the part of a whole bucket that belongs to the owner with index `owner`.
  Tensor part_of(int bucket, Tensor whole, int owner) const;

  // Acquire and release pooled memory for sharded buckets. Acquired gradients are zeroed. Releasing
  // empties the views.
  void acquire_values(int bucket);
  void release_values(int bucket);
  void acquire_gradients(int bucket);
  void release_gradients(int bucket);
  void zero_gradients();  // zeroes whole gradients, and shards that accumulate
  // Adds this rank's part of a bucket's whole gradients to its shard.
  void add_to_shard(int bucket);

  // These functions manage shards in files, and do nothing without files. fetch starts to read a
  // shard, await blocks until the shard is in memory (and starts to read it if fetch was not
  // called), and evict writes it and releases its pages.
  void fetch_own_values(int bucket) { fetch(values_[at(bucket)], false); }
  void await_own_values(int bucket) { await(values_[at(bucket)], false); }
  void evict_own_values(int bucket) { evict(values_[at(bucket)]); }
  void fetch_own_gradients(int bucket) { fetch(gradients_[at(bucket)], true); }
  void await_own_gradients(int bucket) { await(gradients_[at(bucket)], true); }
  void evict_own_gradients(int bucket) { evict(gradients_[at(bucket)]); }

  // Call before zero_gradients(). If `apart` is true, gives the gradient of this shared use
  // (ParameterTable::shared_uses) its own memory, which add_separate_gradients() releases if each
  // step has one micro-batch. If `apart` is false, backward adds the gradient of this use directly
  // to the parameter's gradient.
  void keep_separate(size_t shared_use, bool apart);
  // Sum micro-batches in the order of deterministic mode (gradient_sums.h). Call begin_sums() after
  // keep_separate(), and end_micro_batch() after each backward of a unit.
  void begin_sums(const std::vector<int64_t>& micro_batches);
  void end_micro_batch(int unit);
  bool sums_in_order() const { return sums_.has_value(); }
  // Adds the separate gradients of shared uses to the parameter's gradient, and in deterministic
  // mode the gradients of other ranks' micro-batches, too.
  void add_separate_gradients(int parameter);

  // Returns the pieces that this rank updates: views of its memory with stable addresses.
  const std::vector<OwnedPiece>& owned() const { return owned_; }
  // Calls fill(piece, values) for each owned piece; `fill` writes the piece's fp32 values. The
  // caller must then send the values to the other ranks (data_parallel.h).
  template <typename Fill>
  void fill_owned(Fill&& fill);

  StorageBytes bytes() const;
  // Returns the pool of temporary memory, which counts as gathered.
  BufferPool& pool() { return pool_; }

 private:
  struct Place {
    Tensor whole;
    Tensor own;
    bool in_file = false;  // true if `own` is in a file
    // set from the start of a fetch until the shard is evicted
    std::optional<Pager::Ticket> fetched;
    bool stale = false;  // true for a gradient shard that must be zeroed before use
  };

  static size_t at(int bucket) { return static_cast<size_t>(bucket); }
  // Returns true if the values are themselves the fp32 masters.
  bool own_masters() const {
    return options_.dtype == DType::f32 && options_.backend == nullptr &&
           !options_.separate_masters;
  }
  Tensor row(std::byte* data, DType dtype, int64_t count) const {
    return tensor_at(data, dtype, 1, count, options_.backend);
  }
  void place(std::vector<Place>& places, Memory<std::byte>& memory, DType dtype, bool whole,
             bool in_file);
  void fetch(Place& place, bool writes);
  void await(Place& place, bool writes);
  void evict(Place& place);
  // Points the views of the bucket's parameters into the bucket's memory, or at nothing if the
  // bucket is not resident.
  void show_values(int bucket);
  void show_gradients(int bucket);
  Tensor shown(int parameter, Tensor bucket) const;
  int64_t shared_count(size_t shared_use) const;  // number of elements
  size_t shared_bytes(size_t shared_use) const;
  void give_back(size_t shared_use);
  void make_owned();
  Tensor from_pool(int bucket, DType dtype);

  ParameterGroups groups_;
  Communicator communicator_;  // the first group's communicator; allocates memory
  ParameterTable& table_;
  StorageOptions options_;
  Layout layout_;
  std::vector<int> owners_;  // by group: this rank's index among the owners; negative: none
  std::unique_ptr<Pager> pager_;
  std::unique_ptr<OffloadedPieces> offloaded_;
  Memory<std::byte> value_memory_;
  Memory<std::byte> gradient_memory_;
  Memory<float> masters_;
  std::vector<Place> values_;
  std::vector<Place> gradients_;
  std::vector<OwnedPiece> owned_;
  // Memory of a shared use's gradient, own or from the pool; null if the gradient is not separate.
  struct Apart {
    Memory<std::byte> memory;
    std::byte* data = nullptr;
  };
  std::vector<Apart> apart_;
  std::optional<GradientSums> sums_;
  BufferPool pool_;
};

// Writes a piece's masters, rounded to the model's type, to its values, if the piece has both.
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
