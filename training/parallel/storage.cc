#include "training/parallel/storage.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"

namespace tutti::training {
namespace {

void check(const StorageOptions& options) {
  if (options.stage < 0 || options.stage > 3) {
    throw Error(ErrorCode::invalid_argument, cat("unknown ZeRO stage ", options.stage),
                {.remedy = "use 0 (plain data parallelism), 1, 2 or 3"});
  }
  if (options.dtype != DType::f32 && options.dtype != DType::bf16 && options.dtype != DType::f16) {
    throw Error(ErrorCode::invalid_argument,
                cat("parameters cannot be trained in ", name(options.dtype)),
                {.remedy = "use f32, bf16 or f16"});
  }
  check(options.offload);
  if (options.offload.parameters() && options.stage < 3) {
    throw Error(ErrorCode::invalid_argument,
                cat("parameters cannot be offloaded in ZeRO stage ", options.stage),
                {.cause = "each rank computes with whole parameters, which stay in memory",
                 .remedy = "use ZeRO stage 3, or --offload optimizer"});
  }
}

std::unique_ptr<Pager> pager_for(const OffloadOptions& offload) {
  return offload.kinds.empty() ? nullptr : std::make_unique<Pager>(offload.directory);
}

Layout layout_for(const ParameterGroups& groups, const ParameterTable& table,
                  const StorageOptions& options) {
  check(options);
  std::vector<int> owners;
  for (const Communicator& ranks : groups.ranks) {
    owners.push_back(options.owners_among(ranks.size()));
  }
  return make_layout(table.specs(), {.ranks = std::move(owners),
                                     .bucket_elements = options.bucket_elements,
                                     .first_bucket_elements = options.first_bucket_elements,
                                     .bucket_per_unit = options.stage == 3,
                                     .alignment = options.alignment,
                                     .parameters = options.parameters,
                                     .groups = groups.group_of,
                                     .alone = options.alone});
}

Tensor part(Tensor whole, int64_t first, int64_t count) {
  return whole.col_range(first, count).reshaped(1, count);
}

}  // namespace

ParameterStorage::ParameterStorage(ParameterGroups groups, ParameterTable& table,
                                   const StorageOptions& options)
    : groups_(std::move(groups)),
      communicator_(groups_.ranks.front()),
      table_(table),
      options_(options),
      layout_(layout_for(groups_, table, options)),
      pool_(communicator_, options.backend) {
  for (const Communicator& ranks : groups_.ranks) {
    owners_.push_back(options.owner(ranks.rank(), ranks.size()));
  }
  pager_ = pager_for(options_.offload);
  if (pager_ != nullptr) {
    offloaded_ = std::make_unique<OffloadedPieces>(
        *pager_, static_cast<size_t>(options_.offload.window) << 20);
  }
  place(values_, value_memory_, options_.dtype, whole_values(), offloads_values());
  place(gradients_, gradient_memory_, gradient_type(), whole_gradients(), offloads_gradients());
  if (!own_masters() && options_.masters) masters_ = allocate_state(owned_elements());
  for (int b = 0; b < static_cast<int>(layout_.buckets.size()); ++b) {
    show_values(b);
    show_gradients(b);
  }
  make_owned();
  if (!settings().get_bool("TUTTI_DETERMINISTIC")) return;
  sums_.emplace(table, layout_, gradient_type(), [this](size_t bytes) {
    return allocate_shared(communicator_, options_.backend, bytes);
  });
}

void ParameterStorage::place(std::vector<Place>& places, Memory<std::byte>& memory, DType dtype,
                             bool whole, bool in_file) {
  const int64_t elements = whole ? layout_.size : layout_.owned_size;
  const size_t bytes = static_cast<size_t>(elements) * size_of(dtype);
  memory =
      in_file ? pager_->allocate(bytes) : allocate_shared(communicator_, options_.backend, bytes);
  for (int b = 0; b < static_cast<int>(layout_.buckets.size()); ++b) {
    const Bucket& bucket = layout_.buckets[at(b)];
    const int64_t shard = bucket.shard_size();
    if (whole) {
      const Tensor all = row(memory.get() + static_cast<size_t>(bucket.offset) * size_of(dtype),
                             dtype, bucket.size);
      places.push_back({all, owns() ? part_of(b, all, owners_[at(bucket.group)]) : Tensor()});
    } else {
      const auto offset = static_cast<size_t>(bucket.owned_offset) * size_of(dtype);
      places.push_back({{}, row(memory.get() + offset, dtype, shard), in_file});
    }
  }
}

Memory<float> ParameterStorage::allocate_row() {
  return communicator_.allocate<float>(static_cast<size_t>(owned_elements()));
}

Memory<float> ParameterStorage::allocate_state(int64_t count) {
  const auto floats = static_cast<size_t>(count);
  if (!options_.offload.optimizer()) return communicator_.allocate<float>(floats);
  const Memory<std::byte> bytes = pager_->allocate(floats * sizeof(float));
  return {bytes, reinterpret_cast<float*>(bytes.get())};
}

int ParameterStorage::owner_count() const {
  return options_.owners_among(groups_.ranks.front().size());
}

Tensor ParameterStorage::part_of(int bucket, Tensor whole, int owner) const {
  const int64_t shard = layout_.buckets[at(bucket)].shard_size();
  return part(whole, owner * shard, shard);
}

Tensor ParameterStorage::own_part_of_gradients(int bucket) const {
  return part_of(bucket, gradients(bucket), owners_[at(layout_.buckets[at(bucket)].group)]);
}

// Returns a view of a parameter in its whole bucket; empty if the bucket is not resident.
Tensor ParameterStorage::shown(int parameter, Tensor bucket) const {
  if (bucket.data == nullptr) return {};
  const Slot& slot = layout_.slots[at(parameter)];
  const int64_t rows = std::max<int64_t>(1, table_.specs()[at(parameter)].local_rows());
  return bucket.col_range(slot.offset, slot.count).reshaped(rows, slot.count / rows);
}

Memory<float> ParameterStorage::updated_whole(int parameter) const {
  if (!whole_values() || !own_masters()) return nullptr;
  const Slot& slot = layout_.slots[at(parameter)];
  auto* const values = reinterpret_cast<float*>(value_memory_.get());
  return {value_memory_, values + layout_.buckets[at(slot.bucket)].offset + slot.offset};
}

void ParameterStorage::show_values(int bucket) {
  for (const int parameter : layout_.buckets[at(bucket)].parameters) {
    table_.set_value(parameter, shown(parameter, values(bucket)));
  }
}

void ParameterStorage::show_values_in(Tensor all) {
  for (const Bucket& bucket : layout_.buckets) {
    for (const int parameter : bucket.parameters) {
      table_.set_value(parameter, shown(parameter, part(all, bucket.offset, bucket.size)));
    }
  }
}

void ParameterStorage::show_gradients(int bucket) {
  for (const int parameter : layout_.buckets[at(bucket)].parameters) {
    const Tensor gradient = shown(parameter, gradients(bucket));
    table_.set_gradient(parameter, gradient);
    for (size_t use = 0; use < apart_.size(); ++use) {
      SharedUse& shared = table_.shared_uses()[use];
      if (shared.parameter != parameter || apart_[use].data == nullptr || gradient.empty())
        continue;
      shared.view.gradient = tensor_at(apart_[use].data, gradient.dtype, gradient.rows,
                                       gradient.cols, options_.backend);
    }
  }
}

int64_t ParameterStorage::shared_count(size_t shared_use) const {
  return table_.specs()[at(table_.shared_uses()[shared_use].parameter)].local_count();
}

size_t ParameterStorage::shared_bytes(size_t shared_use) const {
  return static_cast<size_t>(shared_count(shared_use)) * size_of(gradient_type());
}

// If each step has one micro-batch, takes the memory from the pool; add_separate_gradients()
// returns it. Otherwise allocates the memory once and keeps it.
void ParameterStorage::keep_separate(size_t shared_use, bool apart) {
  apart_.resize(std::max(apart_.size(), shared_use + 1));
  Apart& use = apart_[shared_use];
  if (!apart) return give_back(shared_use);
  if (use.data != nullptr) return;
  if (options_.one_pass) {
    use.data = pool_.acquire(shared_bytes(shared_use));
  } else {
    if (use.memory == nullptr) {
      use.memory = allocate_shared(communicator_, options_.backend, shared_bytes(shared_use));
    }
    use.data = use.memory.get();
  }
  show_gradients(layout_.slots[at(table_.shared_uses()[shared_use].parameter)].bucket);
}

void ParameterStorage::give_back(size_t shared_use) {
  std::byte* const data = std::exchange(apart_[shared_use].data, nullptr);
  if (data == nullptr) return;
  if (options_.one_pass) pool_.release(data, shared_bytes(shared_use));
  show_gradients(layout_.slots[at(table_.shared_uses()[shared_use].parameter)].bucket);
}

void ParameterStorage::begin_sums(const std::vector<int64_t>& micro_batches) {
  if (sums_) sums_->begin_step(micro_batches);
}

void ParameterStorage::end_micro_batch(int unit) {
  if (sums_) sums_->end_micro_batch(unit);
}

void ParameterStorage::add_separate_gradients(int parameter) {
  if (sums_) sums_->add_others(parameter);
  const Tensor sum = table_.at(parameter).gradient;
  for (size_t use = 0; use < apart_.size(); ++use) {
    const SharedUse& shared = table_.shared_uses()[use];
    if (shared.parameter != parameter || apart_[use].data == nullptr) continue;
    add(sum, shared.view.gradient, sum);
    if (options_.one_pass) give_back(use);
  }
}

Tensor ParameterStorage::from_pool(int bucket, DType dtype) {
  const int64_t size = layout_.buckets[at(bucket)].size;
  return row(pool_.acquire(static_cast<size_t>(size) * size_of(dtype)), dtype, size);
}

void ParameterStorage::acquire_values(int bucket) {
  values_[at(bucket)].whole = from_pool(bucket, options_.dtype);
  show_values(bucket);
}

void ParameterStorage::release_values(int bucket) {
  pool_.release(values(bucket).data, values(bucket).bytes());
  values_[at(bucket)].whole = {};
  show_values(bucket);
}

void ParameterStorage::acquire_gradients(int bucket) {
  const Tensor whole = from_pool(bucket, gradient_type());
  zero(whole);
  gradients_[at(bucket)].whole = whole;
  show_gradients(bucket);
}

void ParameterStorage::release_gradients(int bucket) {
  pool_.release(gradients(bucket).data, gradients(bucket).bytes());
  gradients_[at(bucket)].whole = {};
  show_gradients(bucket);
}

void ParameterStorage::zero_gradients() {
  for (size_t use = 0; use < apart_.size(); ++use) {
    if (apart_[use].data == nullptr) continue;
    zero(row(apart_[use].data, gradient_type(), shared_count(use)));
  }
  if (!whole_gradients() && !adds_to_shards()) return;
  if (offloads_gradients()) {
    for (Place& gradient : gradients_) gradient.stale = true;
    return;
  }
  const int64_t count = whole_gradients() ? layout_.size : layout_.owned_size;
  zero(row(gradient_memory_.get(), gradient_type(), count));
}

// zero_gradients() only marks shards in files as stale. A stale shard is zeroed here, where its
// pages are in memory.
void ParameterStorage::add_to_shard(int bucket) {
  const Tensor sum = own_gradients(bucket);
  if (std::exchange(gradients_[at(bucket)].stale, false)) zero(sum);
  add(sum, own_part_of_gradients(bucket), sum);
}

void ParameterStorage::fetch(Place& place, bool writes) {
  if (!place.in_file || place.fetched || place.own.empty()) return;
  const PageRange range{{place.own.data, place.own.bytes()}, writes};
  place.fetched = pager_->fetch({&range, 1});
}

void ParameterStorage::await(Place& place, bool writes) {
  fetch(place, writes);
  if (place.fetched) pager_->wait(*place.fetched);
}

void ParameterStorage::evict(ConstTensor row) const {
  if (!is_in_file(row)) return;
  const PageRange range{{row.data, row.bytes()}, true};
  pager_->evict({&range, 1});
}

void ParameterStorage::evict(Place& place) {
  if (!place.in_file || place.own.empty()) return;
  place.fetched.reset();
  const PageRange range{{place.own.data, place.own.bytes()}, true};
  pager_->start_writing({&range, 1});
  pager_->evict({&range, 1});
}

void ParameterStorage::make_owned() {
  if (!owns()) return;
  for (const Piece& piece : layout_.pieces(owners_)) {
    const int64_t in_shard = piece.owned_offset - layout_.buckets[at(piece.bucket)].owned_offset;
    const Tensor value = part(own_values(piece.bucket), in_shard, piece.count);
    const Tensor gradient = part(own_gradients(piece.bucket), in_shard, piece.count);
    std::span<float> master;
    if (own_masters()) {
      master = value.values<float>();
    } else if (masters_ != nullptr) {
      master = {masters_.get() + piece.owned_offset, static_cast<size_t>(piece.count)};
    }
    owned_.push_back({.piece = piece,
                      .spec = &table_.specs()[at(piece.parameter)],
                      .master = master,
                      .gradient = gradient,
                      .value = own_masters() ? Tensor{} : value,
                      .copy = std::ranges::count(options_.copies, piece.parameter) > 0,
                      .loops = offloaded_.get()});
  }
}

StorageBytes ParameterStorage::bytes() const {
  int64_t used = 0;
  for (const Slot& slot : layout_.slots) used += slot.count;
  int64_t owned = 0;
  for (const OwnedPiece& piece : owned_) owned += piece.piece.count;
  StorageBytes bytes{.gathered = pool_.bytes()};
  const auto add = [&](int64_t& kind, bool whole, DType dtype, bool in_file) {
    const auto element = static_cast<int64_t>(size_of(dtype));
    if (in_file) {
      bytes.files += owned_elements() * element;
      return;
    }
    kind = (whole ? used : owned) * element;
    bytes.padding += (whole ? layout_.size - used : owned_elements() - owned) * element;
  };
  add(bytes.parameters, whole_values(), options_.dtype, offloads_values());
  add(bytes.gradients, whole_gradients(), gradient_type(), offloads_gradients());
  if (masters_ != nullptr) add(bytes.masters, false, DType::f32, options_.offload.optimizer());
  for (size_t use = 0; use < apart_.size(); ++use) {
    if (apart_[use].memory == nullptr) continue;
    bytes.gradients += static_cast<int64_t>(size_of(gradient_type())) * shared_count(use);
  }
  if (sums_) bytes.gradients += sums_->bytes();
  return bytes;
}

int64_t most_in_memory(const Layout& layout, const OffloadOptions& options,
                       const FilePages& pages) {
  int64_t shards = 0;
  int64_t before = 0;  // number of elements of the previous bucket
  for (const Bucket& bucket : layout.buckets) {
    const int64_t own = bucket.shard_size();
    shards = std::max(shards, (before + own) * pages.of_value + own * pages.of_gradient);
    before = own;
  }
  const int64_t pass = shards + pages.activations;
  return std::min(pages.files, std::max({options.window << 20, pass, pages.wholes}));
}

void store_masters(const OwnedPiece& piece) {
  if (piece.value.empty() || piece.master.empty()) return;
  convert(
      tensor_at(static_cast<const void*>(piece.master.data()), DType::f32, 1, piece.piece.count),
      piece.value);
}

}  // namespace tutti::training
