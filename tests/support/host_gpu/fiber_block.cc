#include "tests/support/host_gpu/fiber_block.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/mix_bits.h"
#include "tests/support/multicast_members.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

// Undefined in tests without multicast.
extern "C" __attribute__((weak)) size_t cuFakeMulticastMembers(const void* address, size_t bytes,
                                                               void** members, size_t most);

namespace tutti::host_gpu {

namespace {

constexpr size_t kStackBytes = 64 << 10;

#if defined(__SANITIZE_THREAD__)
void* new_fiber() { return __tsan_create_fiber(0); }
void* this_fiber() { return __tsan_get_current_fiber(); }
void delete_fiber(void* fiber) { __tsan_destroy_fiber(fiber); }
// Reports a switch to the sanitizer. A switch synchronizes only at a fiber's start and end, so that
// only the kernel's own operations order its threads.
void tell_switch(void* fiber, bool orders) {
  __tsan_switch_to_fiber(fiber, orders ? 0 : __tsan_switch_to_fiber_no_sync);
}
#else
void* new_fiber() { return nullptr; }
void* this_fiber() { return nullptr; }
void delete_fiber(void*) {}
void tell_switch(void*, bool) {}
#endif

}  // namespace

FiberBlock::FiberBlock(const Grid& grid, unsigned number, const NamedKernel& kernel,
                       void** parameters)
    : grid_(grid),
      number_(number),
      kernel_(kernel),
      parameters_(parameters),
      shared_((grid.shared_bytes + 15) / 8),
      random_state_(mix_bits(grid.seed * 1'000'003 + number)) {
  fibers_.reserve(grid.threads);
  for (unsigned i = 0; i < grid.threads; ++i) {
    fibers_.push_back({.thread = Thread(*this, i)});
    runnable_.push_back(i);
  }
  // As on a GPU, shared memory is uninitialized.
  std::memset(shared_.data(), 0xa5, shared_.size() * sizeof(uint64_t));
}

const Thread::Members& Thread::members_of(const std::byte* multicast) {
  constexpr size_t kPage = 64 << 10;  // a request for each vector would take long
  constexpr size_t kVector = sizeof(gpu::Vector);
  const auto address = reinterpret_cast<uintptr_t>(multicast);
  if (address >= members_.of && address + kVector <= members_.of + members_.bytes) return members_;
  const auto ask = [&](uintptr_t of, size_t bytes) {
    if (cuFakeMulticastMembers == nullptr) return false;
    void* found[std::extent_v<decltype(members_.at)>];
    members_ = {.of = of, .bytes = bytes};
    members_.count =
        cuFakeMulticastMembers(reinterpret_cast<const void*>(of), bytes, found, std::size(found));
    for (size_t i = 0; i < members_.count; ++i) {
      members_.at[i] = static_cast<std::byte*>(found[i]);
    }
    return members_.count > 0;
  };
  if (ask(address / kPage * kPage, kPage) || ask(address, kVector)) return members_;
  std::fprintf(stderr, "%p is no multicast address of a whole team\n",
               static_cast<const void*>(multicast));
  std::abort();
}

FiberBlock::~FiberBlock() {
  for (const Fiber& fiber : fibers_) delete_fiber(fiber.sanitizer);
}

void FiberBlock::run() {
  scheduler_sanitizer_ = this_fiber();
  for (Fiber& fiber : fibers_) prepare(fiber);
  while (ended_ < fibers_.size()) {
    const size_t place = random() % runnable_.size();
    resume(fibers_[runnable_[place]]);
    take_from(place);
  }
}

void FiberBlock::prepare(Fiber& fiber) {
  fiber.block = this;
  fiber.sanitizer = new_fiber();
  fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  fiber.context =
      boost::context::detail::make_fcontext(fiber.stack.get() + kStackBytes, kStackBytes, body);
}

void FiberBlock::body(boost::context::detail::transfer_t from) {
  Fiber& fiber = *static_cast<Fiber*>(from.data);
  fiber.scheduler = from.fctx;
  fiber.block->kernel_.run(fiber.thread, fiber.block->parameters_);
  fiber.block->leave(fiber, Reason::end);
}

// No code may run between the notice to the sanitizer and the jump.
void FiberBlock::resume(Fiber& fiber) {
  const auto to = fiber.context;
  tell_switch(fiber.sanitizer, !std::exchange(fiber.started, true));
  fiber.context = boost::context::detail::jump_fcontext(to, &fiber).fctx;
}

void FiberBlock::leave(Fiber& fiber, Reason reason) {
  reason_.store(reason, std::memory_order_relaxed);
  const auto to = fiber.scheduler;
  tell_switch(scheduler_sanitizer_, reason == Reason::end);
  fiber.scheduler = boost::context::detail::jump_fcontext(to, nullptr).fctx;
}

// Handles the reason for which the running fiber yielded.
void FiberBlock::take_from(size_t place) {
  switch (reason_.load(std::memory_order_relaxed)) {
    case Reason::pause:
      // Resume the block's other fibers first. After two pauses per fiber on average, yield the
      // CPU: the fibers may all be waiting for another rank.
      if (++pauses_ % (2 * fibers_.size()) == 0) std::this_thread::yield();
      return;
    case Reason::barrier:
      fibers_[runnable_[place]].at_barrier = true;
      ++waiting_;
      break;
    case Reason::end:
      ++ended_;
      break;
  }
  runnable_[place] = runnable_.back();
  runnable_.pop_back();
  if (waiting_ > 0 && waiting_ + ended_ == fibers_.size()) open_barrier();
}

void FiberBlock::open_barrier() {
  waiting_ = 0;
  for (size_t i = 0; i < fibers_.size(); ++i) {
    if (std::exchange(fibers_[i].at_barrier, false)) runnable_.push_back(i);
  }
}

void FiberBlock::barrier(unsigned index) {
  order_.fetch_add(1, std::memory_order_acq_rel);
  leave(fibers_[index], Reason::barrier);
  order_.load(std::memory_order_acquire);
}

uint64_t FiberBlock::random() { return mix_bits(random_state_ += kGolden); }

// --- functions that the block's threads call

unsigned Thread::threads() const { return block_->grid().threads; }
unsigned Thread::block() const { return block_->number(); }
unsigned Thread::blocks() const { return block_->grid().blocks; }
std::byte* Thread::shared() { return block_->shared(); }
void Thread::barrier() { block_->barrier(index_); }
void Thread::pause() { block_->pause(index_); }

gpu::Line Thread::load_line(const gpu::Line* from) {
  auto* const halves = reinterpret_cast<uint64_t*>(const_cast<gpu::Line*>(from));
  const uint64_t low = load(halves, std::memory_order_relaxed);
  const uint64_t high = load(halves + 1, std::memory_order_relaxed);
  return {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
          static_cast<uint32_t>(high >> 32)};
}

void Thread::store_line(gpu::Line* to, const gpu::Line& line) {
  auto* const halves = reinterpret_cast<uint64_t*>(to);
  std::atomic_ref(halves[1]).store(line.data1 | uint64_t{line.flag1} << 32,
                                   std::memory_order_relaxed);
  std::atomic_ref(halves[0]).store(line.data0 | uint64_t{line.flag0} << 32,
                                   std::memory_order_relaxed);
}

void run(const Grid& grid, const NamedKernel& kernel, void** parameters) {
  std::vector<std::thread> others;
  const auto run_block = [&](unsigned number) {
    FiberBlock(grid, number, kernel, parameters).run();
  };
  for (unsigned i = 1; i < grid.blocks; ++i) others.emplace_back(run_block, i);
  run_block(0);
  for (std::thread& thread : others) thread.join();
}

}  // namespace tutti::host_gpu
