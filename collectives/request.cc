#include "collectives/request.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/memory_range.h"
#include "base/reduce.h"
#include "base/text.h"
#include "collectives/runtime/calls/signature.h"

namespace tutti {

namespace {

constexpr uint64_t kMostValueBytes = 256;  // limit for one value of a user-defined operator

// Checks one call.
class Checker {
 public:
  Checker(Request& request, int rank, int size) : request_(request), rank_(rank), size_(size) {}

  void check() {
    if (request_.collective > Collective::exscan) {
      refuse(cat("unknown collective ", static_cast<int>(request_.collective)));
    }
    const bool combines =
        request_.collective == Collective::send_recv && !request_.sends && request_.combines;
    request_.combines = combines;
    if (!reduces(request_.collective) && !combines) request_.op = {};
    if (!has_variant(request_.collective)) {
      request_.uneven = false;
      request_.input_blocks = request_.output_blocks = {};
    }
    if (request_.collective == Collective::barrier) {
      request_.input = {};
      request_.output = {};
    } else if (request_.collective == Collective::send_recv) {
      check_send_recv();
    } else {
      check_collective();
    }
  }

 private:
  static bool has_variant(Collective c) {
    return c == Collective::all_gather || c == Collective::reduce_scatter ||
           c == Collective::gather || c == Collective::scatter || c == Collective::all_to_all;
  }

  void check_collective() {
    const Collective c = request_.collective;
    if (has_root(c)) check_rank(request_.root, "root");
    const bool is_root = !has_root(c) || rank_ == request_.root;
    const bool has_input = is_root || (c != Collective::broadcast && c != Collective::scatter);
    const bool has_output = is_root || (c != Collective::reduce && c != Collective::gather);
    // A buffer that the rank does not use may have any contents and count, so it is replaced by an
    // empty one.
    if (!has_output) request_.output = {nullptr, 0, request_.input.dtype};
    if (!has_input) request_.input = {request_.input.data, 0, request_.output.dtype};
    settle_blocks(request_.input_blocks, has_input && has_input_blocks(c), "input");
    settle_blocks(request_.output_blocks, has_output && has_output_blocks(c), "output");
    request_.count = block_count();
    if (has_input) {
      check_buffer(request_.input, request_.input_blocks, has_input_blocks(c), "input");
    }
    if (has_output) {
      check_buffer(request_.output, request_.output_blocks, has_output_blocks(c), "output");
    }
    if (has_input && has_output && request_.input.dtype != request_.output.dtype) {
      refuse(cat("the input has dtype ", name(request_.input.dtype), ", the output has dtype ",
                 name(request_.output.dtype)));
    }
    if (request_.uneven && c == Collective::all_to_all) check_own_block();
    if (reduces(c)) check_op();
  }

  [[noreturn]] void refuse(std::string_view problem, ErrorDetail detail = {}) const {
    throw Error(ErrorCode::invalid_argument, cat(call(), ": ", problem), std::move(detail));
  }
  std::string call() const {
    if (request_.collective == Collective::send_recv) return request_.sends ? "send" : "recv";
    return cat(name(request_.collective), request_.uneven ? "v" : "");
  }

  void check_rank(int rank, std::string_view which) const {
    if (rank >= 0 && rank < size_) return;
    refuse(cat(which, " ", rank, " is not in the range 0 to ", size_ - 1));
  }

  void check_send_recv() {
    if (request_.sends || request_.root != kAnySource) check_rank(request_.root, "rank");
    if (request_.sends) {
      request_.output = {nullptr, 0, request_.input.dtype};
      check_memory(request_.input, "buffer");
    } else {
      request_.input = {nullptr, 0, request_.output.dtype};
      check_memory(request_.output, "buffer");
      if (request_.combines) check_combination();
    }
    request_.count = request_.sends ? request_.input.count : request_.output.count;
  }

  // Returns the value of Request::count.
  uint64_t block_count() const {
    const Collective c = request_.collective;
    if (request_.blocks_are_private()) return 0;  // the count is not equal on all ranks
    if (request_.uneven)
      return total(c == Collective::all_gather ? request_.output_blocks : request_.input_blocks);
    if (c == Collective::all_to_all) {
      const auto p = static_cast<uint64_t>(size_);
      if (request_.input.count % p == 0) return request_.input.count / p;
      refuse(cat("input has ", request_.input.count,
                 " elements, which cannot be divided evenly among ", size_, " ranks"),
             {.remedy = "use all_to_allv"});
    }
    const bool by_input = has_output_blocks(c) || c == Collective::reduce;
    return by_input ? request_.input.count : request_.output.count;
  }

  uint64_t total(const Blocks& blocks) const {
    uint64_t sum = 0;
    for (const uint64_t count : blocks.counts) {
      if (__builtin_add_overflow(sum, count, &sum) || sum > kMostElements) {
        refuse(cat("the blocks are too long: with a block of ", count,
                   " elements their sum exceeds ", kMostElements),
               {.cause = "the count is a negative number, or its computation overflowed"});
      }
    }
    return sum;
  }

  template <typename B>
  void check_memory(const B& buffer, std::string_view which) const {
    const size_t types = request_.encoded ? kEveryDType : kAllDTypes.size();
    if (static_cast<size_t>(buffer.dtype) >= types) {
      refuse(cat(which, " has an unknown dtype"));
    }
    if (buffer.data == nullptr && buffer.count > 0) {
      refuse(cat(which, " is null, but has ", buffer.count, " elements"));
    }
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(buffer.count, size_of(buffer.dtype), &bytes) ||
        buffer.count > kMostElements || wraps(buffer.data, bytes)) {
      refuse(cat(which, " has ", buffer.count, " elements of ", name(buffer.dtype),
                 ", which exceed the address space"),
             {.cause = "the count is a negative number, or its computation overflowed"});
    }
    if (buffer.space == MemorySpace::host && !may_be_memory(buffer.data, bytes)) {
      refuse(cat(which, " has ", buffer.count, " elements of ", name(buffer.dtype), ", but the ",
                 bytes, " bytes at ", static_cast<const void*>(buffer.data),
                 " are not all mapped in this process"));
    }
  }

  template <typename B>
  void check_buffer(const B& buffer, const Blocks& blocks, bool in_blocks, std::string_view which) {
    check_memory(buffer, which);
    if (request_.uneven) return check_uneven(buffer.count, blocks, in_blocks, which);
    uint64_t wanted = request_.count;
    if (in_blocks && __builtin_mul_overflow(wanted, static_cast<uint64_t>(size_), &wanted)) {
      refuse(cat(request_.count, " elements per rank are too many"));
    }
    if (buffer.count != wanted) {
      refuse(cat(which, " has ", buffer.count, " elements, not ", wanted));
    }
  }

  // Checks that a buffer's blocks have one count and one displacement per rank, and computes
  // missing displacements. Clears the blocks if the rank does not use them.
  void settle_blocks(Blocks& blocks, bool used, std::string_view which) const {
    if (!request_.uneven || !used) {
      blocks = {};
      return;
    }
    const auto p = static_cast<size_t>(size_);
    if (blocks.counts.size() != p) {
      refuse(cat(which, " has ", blocks.counts.size(), " blocks for ", size_, " ranks"));
    }
    if (blocks.displacements.empty()) {
      total(blocks);
      uint64_t start = 0;
      for (const uint64_t count : blocks.counts) {
        blocks.displacements.push_back(start);
        start += count;
      }
    }
    if (blocks.displacements.size() != p) {
      refuse(cat(which, " has ", blocks.displacements.size(), " displacements for ", size_,
                 " blocks"));
    }
  }

  void check_own_block() const {
    const uint64_t sent = request_.input_blocks.counts[rank_];
    const uint64_t received = request_.output_blocks.counts[rank_];
    if (sent == received) return;
    refuse(cat("rank ", rank_, " sends itself ", sent, " elements, but receives ", received));
  }

  void check_uneven(uint64_t count, const Blocks& blocks, bool in_blocks,
                    std::string_view which) const {
    if (!in_blocks) {
      const Blocks& others =
          &blocks == &request_.input_blocks ? request_.output_blocks : request_.input_blocks;
      if (others.empty() || count == others.counts[rank_]) return;
      refuse(cat(which, " has ", count, " elements, but block ", rank_, " has ",
                 others.counts[rank_]));
    }
    for (size_t r = 0; r < blocks.counts.size(); ++r) {
      uint64_t end = 0;
      if (__builtin_add_overflow(blocks.displacements[r], blocks.counts[r], &end) || end > count) {
        refuse(cat(which, " has ", count, " elements: block ", r, " (", blocks.counts[r],
                   " elements from ", blocks.displacements[r], ") does not fit into it"));
      }
    }
  }

  void check_op() const {
    const Reduction& op = request_.op;
    if (op.op != ReduceOp::user && static_cast<size_t>(op.op) >= kAllReduceOps.size()) {
      refuse("unknown reduction operator");
    }
    const DType dtype = request_.input.dtype;
    if (!supports(op.op, dtype)) {
      refuse(cat(name(op.op), " is not defined for ", name(dtype)),
             {.cause = "bitwise operators require integers; minloc and maxloc require pairs"});
    }
    if (op.op == ReduceOp::premul_sum) check_factor(dtype, op.factor);
    if (op.op == ReduceOp::user && (!op.function || !op.function->combine)) {
      refuse("the user-defined operator has no function");
    }
    if (op.op == ReduceOp::user) check_width(op.function->width);
  }

  void check_combination() const {
    check_op();
    const ReduceOp op = request_.op.op;
    if (op != ReduceOp::avg && op != ReduceOp::premul_sum) return;
    refuse(cat("a receive does not support the operator ", name(op)),
           {.remedy = "use sum, and divide or multiply the data before sending it"});
  }

  // Checks the size of an operator's values, and that no value straddles the end of a buffer or
  // block.
  void check_width(uint64_t width) const {
    if (width == 1) return;
    const DType dtype = request_.input.dtype;
    if (width == 0 || width > kMostValueBytes / size_of(dtype)) {
      refuse(cat("the user-defined operator combines values of ", width, " elements of ",
                 name(dtype), "; a value must have 1 to ", kMostValueBytes, " bytes"));
    }
    const auto is_whole = [width](uint64_t count) { return count % width == 0; };
    if (!is_whole(request_.count) || !std::ranges::all_of(request_.input_blocks.counts, is_whole) ||
        !std::ranges::all_of(request_.input_blocks.displacements, is_whole)) {
      refuse(cat("the user-defined operator combines values of ", width,
                 " elements, but the buffers do not hold a whole number of values"));
    }
  }

  Request& request_;
  int rank_;
  int size_;
};

}  // namespace

Blocks Blocks::of(std::span<const uint64_t> counts, std::span<const uint64_t> displacements) {
  return {{counts.begin(), counts.end()}, {displacements.begin(), displacements.end()}};
}

uint32_t Blocks::hash() const {
  const uint64_t hash = fnv_of_words(counts);
  return static_cast<uint32_t>((hash ^ hash >> 32) & 0x3fffffff);
}

Request Request::all_reduce(ConstBuffer input, Buffer output, Reduction op) {
  return {
      .collective = Collective::all_reduce, .input = input, .output = output, .op = std::move(op)};
}
Request Request::all_gather(ConstBuffer input, Buffer output) {
  return {.collective = Collective::all_gather, .input = input, .output = output};
}
Request Request::all_gatherv(ConstBuffer input, Buffer output, Blocks blocks) {
  return {.collective = Collective::all_gather,
          .input = input,
          .output = output,
          .uneven = true,
          .output_blocks = std::move(blocks)};
}
Request Request::reduce_scatter(ConstBuffer input, Buffer output, Reduction op) {
  return {.collective = Collective::reduce_scatter,
          .input = input,
          .output = output,
          .op = std::move(op)};
}
Request Request::reduce_scatterv(ConstBuffer input, Buffer output, Blocks blocks, Reduction op) {
  return {.collective = Collective::reduce_scatter,
          .input = input,
          .output = output,
          .op = std::move(op),
          .uneven = true,
          .input_blocks = std::move(blocks)};
}
Request Request::broadcast(ConstBuffer input, Buffer output, int root) {
  return {.collective = Collective::broadcast, .input = input, .output = output, .root = root};
}
Request Request::reduce(ConstBuffer input, Buffer output, Reduction op, int root) {
  return {.collective = Collective::reduce,
          .input = input,
          .output = output,
          .op = std::move(op),
          .root = root};
}
Request Request::gather(ConstBuffer input, Buffer output, int root) {
  return {.collective = Collective::gather, .input = input, .output = output, .root = root};
}
Request Request::gatherv(ConstBuffer input, Buffer output, Blocks blocks, int root) {
  return {.collective = Collective::gather,
          .input = input,
          .output = output,
          .root = root,
          .uneven = true,
          .output_blocks = std::move(blocks)};
}
Request Request::scatter(ConstBuffer input, Buffer output, int root) {
  return {.collective = Collective::scatter, .input = input, .output = output, .root = root};
}
Request Request::scatterv(ConstBuffer input, Blocks blocks, Buffer output, int root) {
  return {.collective = Collective::scatter,
          .input = input,
          .output = output,
          .root = root,
          .uneven = true,
          .input_blocks = std::move(blocks)};
}
Request Request::all_to_all(ConstBuffer input, Buffer output) {
  return {.collective = Collective::all_to_all, .input = input, .output = output};
}
Request Request::all_to_allv(ConstBuffer input, Blocks input_blocks, Buffer output,
                             Blocks output_blocks) {
  return {.collective = Collective::all_to_all,
          .input = input,
          .output = output,
          .uneven = true,
          .input_blocks = std::move(input_blocks),
          .output_blocks = std::move(output_blocks)};
}
Request Request::scan(ConstBuffer input, Buffer output, Reduction op) {
  return {.collective = Collective::scan, .input = input, .output = output, .op = std::move(op)};
}
Request Request::exscan(ConstBuffer input, Buffer output, Reduction op) {
  return {.collective = Collective::exscan, .input = input, .output = output, .op = std::move(op)};
}
Request Request::barrier() { return {}; }
Request Request::send(ConstBuffer buffer, int to) {
  return {.collective = Collective::send_recv, .input = buffer, .root = to, .sends = true};
}
Request Request::recv_reduce(Buffer buffer, int from, Reduction op) {
  Request request = recv(buffer, from);
  request.op = std::move(op);
  request.combines = true;
  return request;
}
Request Request::recv(Buffer buffer, int from) {
  return {.collective = Collective::send_recv, .output = buffer, .root = from};
}

void complete(Request& request, int rank, int size) { Checker(request, rank, size).check(); }

}  // namespace tutti
