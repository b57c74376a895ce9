#include "collectives/gpu/windows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/cuda/stream.h"
#include "base/error.h"
#include "base/mix_bits.h"
#include "base/text.h"

namespace tutti::gpu {

namespace {

std::vector<Window::Description> exchanged(const Window::Description& mine,
                                           const Exchange& exchange) {
  const std::vector<std::byte> bytes = exchange(std::as_bytes(std::span(&mine, 1)));
  std::vector<Window::Description> all(bytes.size() / sizeof mine);
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

// Returns the size of a block if the one-block buffer `one` is this rank's own block of the buffer
// `blocks`, otherwise 0.
uint64_t stride_of(const ConstBuffer& one, const void* blocks, size_t block_bytes, int rank) {
  const auto* const own =
      static_cast<const std::byte*>(blocks) + block_bytes * static_cast<size_t>(rank);
  return one.data == own ? block_bytes : 0;
}

// Returns true if two ranks share a GPU. (A GPU can join a multicast object only once.)
bool share_a_gpu(std::span<const Window::Description> all) {
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (all[i].memory.device == all[j].memory.device) return true;
    }
  }
  return false;
}

}  // namespace

// ---- one rank's window

Window::Window(int rank, int ranks, const cuda::Context& context, void* data, size_t bytes)
    : rank_(rank),
      ranks_(ranks),
      context_(context),
      data_(static_cast<std::byte*>(data)),
      bytes_(bytes),
      offered_(context, data),
      table_(context, static_cast<size_t>(ranks) * sizeof(std::byte*)) {
  const cuda::ExportedMemory& memory = offered_.exported();
  if (memory.offset + bytes <= memory.size) return;
  throw Error(ErrorCode::invalid_argument,
              cat("a window of ", bytes, " bytes at ", data, " exceeds its allocation, which has ",
                  memory.size - memory.offset, " bytes from that address"),
              {.cause = "the length is wrong, or the memory consists of several allocations"});
}

Window::Description Window::description() const {
  return {
      .bytes = bytes_,
      .memory = offered_.exported(),
      .can_be_multicast = offered_.handle() && cuda::device_info(context_.ordinal()).has_multicast};
}

void Window::reach(std::span<const Description> all) {
  const cuda::CurrentContext current(context_);
  starts_.assign(static_cast<size_t>(ranks_), data_);
  for (size_t peer = 0; peer < all.size(); ++peer) {
    if (all[peer].bytes != bytes_) {
      throw Error(ErrorCode::mismatch,
                  cat("a window has ", bytes_, " bytes on rank ", rank_, " and ", all[peer].bytes,
                      " on rank ", peer),
                  {.remedy = "register the same number of bytes on every rank"});
    }
    if (peer == static_cast<size_t>(rank_)) continue;
    imported_.emplace_back(context_, all[peer].memory);
    starts_[peer] = imported_.back().data();
  }
  const cuda::Stream stream(context_);
  cuda::copy_async(table_.data(), starts_.data(), starts_.size() * sizeof starts_[0],
                   stream.handle());
  cuda::synchronize(stream.handle());
}

// Creates the multicast objects in the order of multicast.h. Whole allocations are bound, so the
// window must be at the same offset in each of them.
void Window::make_multicast(std::span<const Description> all, const Exchange& exchange) {
  const auto fits = [&](const Description& description) {
    return description.can_be_multicast && description.memory.offset == all[0].memory.offset &&
           description.memory.size == all[0].memory.size &&
           description.memory.device != cuda::Uuid{};
  };
  if (!std::ranges::all_of(all, fits) || share_a_gpu(all)) return;
  const size_t size = all[0].memory.size;
  std::optional<cuda::Multicast> made;
  Agreement agreement(exchange);
  cuda::ExportedMulticast object;
  agreement.attempt([&] {
    if (rank_ != 0) return;
    made.emplace(context_, ranks_, size);
    object = made->exported();
  });
  if (agreement.failed() >= 0) return;
  const std::vector<std::byte> description = exchange(std::as_bytes(std::span(&object, 1)));
  std::memcpy(&object, description.data(), sizeof object);
  agreement.attempt([&] {
    if (rank_ != 0) made.emplace(context_, object);
  });
  if (agreement.failed() >= 0) return;
  agreement.attempt([&] { made->bind(offered_.handle(), size); });
  if (agreement.failed() >= 0) return;
  multicast_ = std::move(made);
}

bool Window::contains(const void* data, size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  return begin >= data_ && begin + bytes <= data_ + bytes_;
}

uint64_t Window::offset_of(const void* data) const {
  return static_cast<uint64_t>(static_cast<const std::byte*>(data) - data_);
}

std::byte* Window::multicast() const {
  return multicast_ ? multicast_->data() + offered_.exported().offset : nullptr;
}

// ---- a communicator's windows

uint64_t Windows::add(void* data, size_t bytes, const Exchange& exchange) {
  Agreement agreement(exchange);
  std::shared_ptr<Window> window;
  agreement.attempt(
      [&] { window = std::make_shared<Window>(rank_, ranks_, context_, data, bytes); });
  agreement.require("its memory cannot be shared");
  const std::vector<Window::Description> all = exchanged(window->description(), exchange);
  agreement.attempt([&] { window->reach(all); });
  agreement.require("cannot access the windows of all other ranks");
  window->make_multicast(all, exchange);
  const std::lock_guard lock(mutex_);
  windows_.emplace_back(++added_, std::move(window));
  return added_;
}

void Windows::remove(uint64_t number) {
  std::shared_ptr<const Window> removed;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(windows_, number, [](const auto& one) { return one.first; });
  if (found == windows_.end()) return;
  removed = std::move(found->second);
  windows_.erase(found);
}

std::byte* Windows::at(const void* data, size_t bytes, int peer) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, window] : windows_) {
    if (window->contains(data, bytes)) return window->start_of(peer) + window->offset_of(data);
  }
  return nullptr;
}

uint64_t Windows::place_of(const void* data, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const std::optional<Place> place = find(data, bytes, 0);
  return place ? mix_bits(mix_bits(place->number ^ kGolden) ^ place->buffer.offset) : 0;
}

std::optional<Windows::Place> Windows::find(const void* data, size_t bytes, uint64_t stride) const {
  const uint64_t shift = stride * static_cast<uint64_t>(rank_);
  for (const auto& [number, window] : windows_) {
    if (!window->contains(data, bytes)) continue;
    const uint64_t offset = window->offset_of(data) - shift;
    std::byte* const multicast = window->multicast();
    return Place{.number = number,
                 .window = window,
                 .buffer = {.windows = window->of_ranks(), .offset = offset, .stride = stride},
                 .multicast = multicast == nullptr || stride != 0 ? nullptr : multicast + offset};
  }
  return std::nullopt;
}

std::optional<LentBuffers> Windows::find(const Request& request) const {
  if (request.input.count == 0 || request.output.count == 0) return std::nullopt;
  const Collective c = request.collective;
  const bool small_input = has_output_blocks(c) && !has_input_blocks(c);
  const bool small_output = has_input_blocks(c) && !has_output_blocks(c);
  const uint64_t in_stride =
      small_input ? stride_of(request.input, request.output.data, request.input.bytes(), rank_) : 0;
  const uint64_t out_stride = small_output ? stride_of(as_const(request.output), request.input.data,
                                                       request.output.bytes(), rank_)
                                           : 0;
  const std::lock_guard lock(mutex_);
  const auto input = find(request.input.data, request.input.bytes(), in_stride);
  const auto output = find(request.output.data, request.output.bytes(), out_stride);
  if (!input || !output) return std::nullopt;
  uint64_t salt = kGolden;
  for (const uint64_t word : {input->number, input->buffer.offset, in_stride, output->number,
                              output->buffer.offset, out_stride}) {
    salt = mix_bits(salt ^ word);
  }
  return LentBuffers{.input = input->buffer,
                     .output = output->buffer,
                     .multicast_input = input->multicast,
                     .multicast_output = output->multicast,
                     .salt = salt};
}

}  // namespace tutti::gpu
