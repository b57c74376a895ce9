// Simulates the memory that a caching allocator reserves for activations during training, and
// compares it with one contiguous arena (core/arena.h):
//
//   fragmentation [--steps 40] [--layers 24] [--width 256]
//
// Requests memory like a decoder with recomputation whose steps have sequences of different
// lengths. Each block's output is kept until backward, and all other memory is freed at the block's
// end, so that kept memory separates freed memory (Rajbhandari et al., ZeRO, 2020, section 6.3).
// The allocator works like a framework's: it takes the best fit among the free blocks, which are
// split and merged within segments, and never returns segments.
//
// Prints sizes in MB: asked (the largest sum of requested memory at any time), reserved, and the
// largest block that is free in the middle of the last forward pass. Also prints the fraction by
// which asked is smaller than reserved.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "training/core/arena.h"

namespace tutti::training {
namespace {

struct Options {
  int64_t steps = 40;
  int64_t layers = 24;
  int64_t width = 256;
};

class BestFit {
 public:
  struct Block {
    size_t segment = 0;
    size_t first = 0;
    size_t bytes = 0;
  };

  Block take(size_t bytes) {
    asked_ += bytes;
    most_asked_ = std::max(most_asked_, asked_);
    auto best = free_.end();
    for (auto block = free_.begin(); block != free_.end(); ++block) {
      if (block->bytes >= bytes && (best == free_.end() || block->bytes < best->bytes))
        best = block;
    }
    Block found;
    if (best == free_.end()) {
      found = {segments_++, 0, (bytes + kSegment - 1) / kSegment * kSegment};
      reserved_ += found.bytes;
    } else {
      found = *best;
      free_.erase(best);
    }
    const size_t rest = found.bytes - bytes;
    if (rest >= kSmallestRest) {
      free_.push_back({found.segment, found.first + bytes, rest});
      found.bytes = bytes;
    }
    return found;
  }

  void release(Block block, size_t asked) {
    asked_ -= asked;
    std::erase_if(free_, [&](const Block& other) {
      if (other.segment != block.segment) return false;
      const bool before = other.first + other.bytes == block.first;
      const bool after = block.first + block.bytes == other.first;
      if (before) block.first = other.first;
      if (before || after) block.bytes += other.bytes;
      return before || after;
    });
    free_.push_back(block);
  }

  size_t most_asked() const { return most_asked_; }
  size_t reserved() const { return reserved_; }
  size_t largest_free() const {
    size_t largest = 0;
    for (const Block& block : free_) largest = std::max(largest, block.bytes);
    return largest;
  }

 private:
  static constexpr size_t kSegment = size_t{2} << 20;
  static constexpr size_t kSmallestRest = size_t{1} << 20;

  std::vector<Block> free_;
  size_t segments_ = 0;
  size_t asked_ = 0;
  size_t most_asked_ = 0;
  size_t reserved_ = 0;
};

// Returns the tokens of a step: 512 to 1 024, in an order that repeats after 17 steps.
int64_t tokens_of(int64_t step) { return 512 + 32 * (step * 7 % 17); }

// Returns the floats that a block needs besides its output: queries, keys and values, scores,
// hidden values.
std::vector<int64_t> temporaries(const Options& o, int64_t tokens) {
  constexpr int64_t kHeads = 4;
  return {3 * tokens * o.width, kHeads * tokens * tokens, tokens * o.width, 4 * tokens * o.width};
}

size_t bytes_of(int64_t floats) { return static_cast<size_t>(floats) * sizeof(float); }

struct Figures {
  size_t asked = 0;
  size_t reserved = 0;
  size_t largest_free = 0;
};

Figures by_allocator(const Options& o) {
  BestFit memory;
  Figures figures;
  const auto block_with = [&](int64_t tokens) {
    std::vector<BestFit::Block> taken;
    const std::vector<int64_t> sizes = temporaries(o, tokens);
    for (const int64_t floats : sizes) taken.push_back(memory.take(bytes_of(floats)));
    return taken;
  };
  const auto release = [&](const std::vector<BestFit::Block>& taken, int64_t tokens) {
    const std::vector<int64_t> sizes = temporaries(o, tokens);
    for (size_t i = 0; i < sizes.size(); ++i) memory.release(taken[i], bytes_of(sizes[i]));
  };
  for (int64_t step = 0; step < o.steps; ++step) {
    const int64_t tokens = tokens_of(step);
    const size_t output = bytes_of(tokens * o.width);
    std::vector<BestFit::Block> kept;
    for (int64_t layer = 0; layer < o.layers; ++layer) {
      const std::vector<BestFit::Block> taken = block_with(tokens);
      kept.push_back(memory.take(output));
      release(taken, tokens);
      if (layer == o.layers / 2) figures.largest_free = memory.largest_free();
    }
    for (; !kept.empty(); kept.pop_back()) {
      release(block_with(tokens), tokens);
      memory.release(kept.back(), output);
    }
  }
  figures.asked = memory.most_asked();
  figures.reserved = memory.reserved();
  return figures;
}

Figures by_arena(const Options& o) {
  Arena arena;
  Figures figures;
  const auto block_with = [&](int64_t tokens) {
    const ArenaScope scope(arena);
    for (const int64_t floats : temporaries(o, tokens)) arena.take(DType::f32, 1, floats);
  };
  size_t half = 0;  // bytes in use in the middle of the last forward pass
  for (int64_t step = 0; step < o.steps; ++step) {
    const ArenaScope whole(arena);
    const int64_t tokens = tokens_of(step);
    for (int64_t layer = 0; layer < o.layers; ++layer) {
      arena.take(DType::f32, tokens, o.width);
      block_with(tokens);
      if (layer == o.layers / 2) half = arena.mark();
    }
    for (int64_t layer = 0; layer < o.layers; ++layer) block_with(tokens);
  }
  figures.asked = figures.reserved = arena.high_water();
  figures.largest_free = figures.reserved - half;
  return figures;
}

void print(const char* name, const Figures& figures) {
  constexpr double kMB = 1e6;
  std::printf(
      "%-10s %10.1f %10.1f %14.1f %9.1f%%\n", name, static_cast<double>(figures.asked) / kMB,
      static_cast<double>(figures.reserved) / kMB, static_cast<double>(figures.largest_free) / kMB,
      100 * (1 - static_cast<double>(figures.asked) / static_cast<double>(figures.reserved)));
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const int64_t value = std::atoll(argv[i + 1]);
    if (name == "--steps") options.steps = value;
    if (name == "--layers") options.layers = value;
    if (name == "--width") options.width = value;
  }
  return options;
}

}  // namespace
}  // namespace tutti::training

int main(int argc, char** argv) {
  namespace training = tutti::training;
  const training::Options options = training::parse(argc, argv);
  std::printf("%-10s %10s %10s %14s %10s\n", "MB", "asked", "reserved", "largest free", "unusable");
  training::print("allocator", training::by_allocator(options));
  training::print("arena", training::by_arena(options));
}
