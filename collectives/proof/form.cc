#include "collectives/proof/form.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace tutti {

namespace {

// Size classes of the chunks, in order.
using Classes = std::vector<int32_t>;

Classes classes(Collective collective, const Program& program, const Shape& shape,
                const RangeList& ranges) {
  Classes result;
  for_each_chunk(ranges, [&](Space space, int32_t chunk) {
    result.push_back(size_class(collective, program, shape, space, chunk));
  });
  return result;
}

// Returns why two range lists do not fit together; empty if they do.
std::string difference(const Classes& a, const Classes& b) {
  if (a.size() != b.size()) {
    return cat("sizes do not match: ", a.size(), " chunks meet ", b.size());
  }
  if (a != b) return "sizes do not match: chunks of different size classes meet";
  return {};
}

// Checks one rank's steps.
class StepChecker {
 public:
  StepChecker(Collective collective, const Program& program, const Shape& shape)
      : collective_(collective), program_(program), shape_(shape) {}

  void check() {
    std::set<int32_t> targets;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const Step& step = program_.steps[i];
      index_ = static_cast<int32_t>(i);
      check_peers(step);
      for (const RangeList* ranges : {&step.src, &step.src2, &step.dst}) check_ranges(*ranges);
      check_operands(step);
      check_arithmetic(step);
      check_destination(step);
      if (step.kind == StepKind::send) targets.insert(step.peers.begin(), step.peers.end());
      if (static_cast<int64_t>(targets.size()) > program_.fan_out) {
        refuse(cat("exceeds the declared limit: this rank sends to ", targets.size(),
                   " ranks, fan_out is ", program_.fan_out));
      }
    }
  }

 private:
  [[noreturn]] void refuse(std::string_view problem) const {
    throw Refusal{cat(place(program_, shape_.rank, index_), ": ", problem)};
  }
  void require(bool holds, std::string_view problem) const {
    if (!holds) refuse(problem);
  }

  void check_peers(const Step& step) const {
    if (is_local(step.kind)) return require(step.peers.empty(), "a local step names a peer");
    require(!step.peers.empty(), "names no peer");
    require(step.kind == StepKind::send || step.peers.size() == 1, "receives from several peers");
    std::set<int32_t> seen;
    for (const int32_t peer : step.peers) {
      if (peer < 0 || peer >= shape_.ranks) {
        refuse(cat("rank ", peer, " is not one of the ", shape_.ranks, " ranks"));
      }
      require(peer != shape_.rank, "names its own rank as the peer");
      require(seen.insert(peer).second, "names a rank twice");
    }
  }

  int32_t chunks_in(Space space) const {
    if (!has_space(collective_, shape_, space)) return 0;
    switch (space) {
      case Space::input:
        return program_.input_chunks;
      case Space::output:
        return program_.output_chunks;
      case Space::scratch:
        return program_.scratch_chunks;
    }
    return 0;
  }

  void check_ranges(const RangeList& ranges) const {
    for (const ChunkRange& range : ranges) {
      const int32_t limit = chunks_in(range.space);
      if (range.first < 0 || range.count <= 0 || range.first > limit - range.count) {
        refuse(cat("range out of bounds: this rank has ", limit, " chunks there"));
      }
    }
  }

  void check_operands(const Step& step) const {
    const auto classes_of = [&](const RangeList& ranges) {
      return classes(collective_, program_, shape_, ranges);
    };
    const auto fit = [&](const RangeList& a, const RangeList& b) {
      const std::string problem = difference(classes_of(a), classes_of(b));
      require(problem.empty(), problem);
    };
    const bool is_send = step.kind == StepKind::send;
    const bool is_message = !step.peers.empty();
    const RangeList& message = is_send ? step.src : step.dst;
    if (is_message) {
      const auto count = static_cast<int64_t>(classes_of(message).size());
      if (count > program_.chunks_per_message) {
        refuse(cat("exceeds the declared limit: a message of ", count,
                   " chunks, chunks_per_message is ", program_.chunks_per_message));
      }
    }
    require(step.wire == Wire::element || (is_message && reduces(collective_)),
            "carries accumulators, but the programs have none");
    require(!step.dst.empty() || is_send || step.kind == StepKind::recv, "writes nothing");
    require(step.dst.empty() || !is_send, "a send has a destination");
    if (step.kind == StepKind::recv) return require(step.src.empty(), "a recv has a source");
    if (is_send) return;
    fit(step.src, step.dst);
    if (step.kind == StepKind::reduce) fit(step.src2, step.dst);
  }

  void check_arithmetic(const Step& step) const {
    const auto is_in = [](Space space) {
      return [=](const ChunkRange& range) { return range.space == space; };
    };
    require(!step.scales ||
                (reduces(collective_) && (std::ranges::any_of(step.src, is_in(Space::input)) ||
                                          std::ranges::any_of(step.src2, is_in(Space::input)))),
            "scales, but reads no input");
    require(!step.divides || (reduces(collective_) && !step.dst.empty()),
            "divides a value that is not a result");
  }

  // Checks that a single step neither writes a chunk twice, nor reads one location and writes
  // another that aliases it: the order within a step is unspecified.
  void check_destination(const Step& step) const {
    std::vector<int64_t> written;
    for_each_chunk(step.dst, [&](Space space, int32_t chunk) {
      require(space != Space::input, "writes to the input");
      written.push_back(place_of(space, chunk));
    });
    std::vector<int64_t> sorted = written;
    std::ranges::sort(sorted);
    require(std::ranges::adjacent_find(sorted) == sorted.end(), "writes a chunk twice");
    for (const RangeList* source : {&step.src, &step.src2}) {
      size_t i = 0;
      for_each_chunk(*source, [&](Space space, int32_t chunk) {
        const int64_t read = place_of(space, chunk);
        const bool own = i < written.size() && written[i] == read;
        require(own || !std::ranges::binary_search(sorted, read),
                "reads a chunk that it overwrites with another one");
        ++i;
      });
    }
  }

  // Returns the location of a chunk in an in-place call.
  int64_t place_of(Space space, int32_t chunk) const {
    return location(collective_, program_, shape_, space, chunk);
  }

  Collective collective_;
  const Program& program_;
  Shape shape_;
  int32_t index_ = 0;
};

bool counts_fit(Collective collective, const Program& program, int32_t ranks) {
  const auto input = int64_t{program.input_chunks};
  const auto output = int64_t{program.output_chunks};
  if (collective == Collective::barrier) return input == 0 && output == 0;
  if (input <= 0 || output <= 0) return false;
  const bool in_blocks = has_input_blocks(collective);
  const bool out_blocks = has_output_blocks(collective);
  if (in_blocks && out_blocks) return input == output && input % ranks == 0;
  return input * (out_blocks ? ranks : 1) == output * (in_blocks ? ranks : 1);
}

}  // namespace

std::string place(const Program& program, int32_t rank, int32_t step) {
  return cat("rank ", rank, ", step ", step, " (", to_string(program.steps[step]), ")");
}

bool has_space(Collective collective, const Shape& shape, Space space) {
  if (shape.rank == shape.root || space == Space::scratch) return true;
  if (space == Space::input) {
    return collective != Collective::broadcast && collective != Collective::scatter;
  }
  return collective != Collective::reduce && collective != Collective::gather;
}

void check_direct(std::span<const Program> programs) {
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    const std::vector<Step>& steps = programs[rank].steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto lies_in = [](const RangeList& ranges, Space space) {
        return std::ranges::all_of(ranges, [&](const ChunkRange& r) { return r.space == space; });
      };
      if (lies_in(steps[i].src, Space::input) && lies_in(steps[i].dst, Space::output)) continue;
      throw Refusal{cat(place(programs[rank], static_cast<int32_t>(rank), static_cast<int32_t>(i)),
                        ": declared direct, but forwards received data")};
    }
  }
}

void check_steps(Collective collective, std::span<const Program> programs, int32_t root) {
  const auto ranks = static_cast<int32_t>(programs.size());
  const auto declared = [](const Program& p) {
    return std::array{p.input_chunks, p.output_chunks, p.scratch_chunks, p.chunks_per_message,
                      p.fan_out};
  };
  for (int32_t rank = 0; rank < ranks; ++rank) {
    if (declared(programs[rank]) != declared(programs[0])) {
      throw Refusal{cat("rank ", rank, " declares different chunk counts or limits from rank 0")};
    }
  }
  if (!counts_fit(collective, programs[0], ranks)) {
    throw Refusal{cat("sizes do not match: ", programs[0].input_chunks, " input and ",
                      programs[0].output_chunks, " output chunks for a ", name(collective), " of ",
                      ranks, " ranks")};
  }
  for (int32_t rank = 0; rank < ranks; ++rank) {
    StepChecker(collective, programs[rank], {.ranks = ranks, .rank = rank, .root = root}).check();
  }
}

void check_messages(Collective collective, std::span<const Plan> plans) {
  const size_t ranks = plans.size();
  static const std::vector<int32_t> kNone;
  // sends[a * ranks + b]: steps of a that send to b; receives[a * ranks + b]: steps of b that
  // receive from a
  std::vector<const std::vector<int32_t>*> sends(ranks * ranks, &kNone);
  std::vector<const std::vector<int32_t>*> receives(ranks * ranks, &kNone);
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (const Plan::Queue& queue : plans[rank].queues) {
      if (queue.kind == Plan::QueueKind::send) sends[rank * ranks + queue.peer] = &queue.steps;
      if (queue.kind == Plan::QueueKind::recv) receives[queue.peer * ranks + rank] = &queue.steps;
    }
  }
  const auto classes_of = [&](const Plan& plan, const RangeList& ranges) {
    return classes(collective, plan.program, plan.shape, ranges);
  };
  for (size_t a = 0; a < ranks; ++a) {
    for (size_t b = 0; b < ranks; ++b) {
      const std::vector<int32_t>& sent = *sends[a * ranks + b];
      const std::vector<int32_t>& received = *receives[a * ranks + b];
      const auto from = static_cast<int32_t>(a);
      const auto to = static_cast<int32_t>(b);
      for (size_t k = 0; k < std::max(sent.size(), received.size()); ++k) {
        if (k >= received.size()) {
          throw Refusal{cat(place(plans[a].program, from, sent[k]), ": unmatched message: rank ",
                            to, " never receives it")};
        }
        if (k >= sent.size()) {
          throw Refusal{cat(place(plans[b].program, to, received[k]), ": unmatched message: rank ",
                            from, " never sends it")};
        }
        const Step& out = plans[a].program.steps[sent[k]];
        const Step& in = plans[b].program.steps[received[k]];
        std::string problem =
            difference(classes_of(plans[a], out.src), classes_of(plans[b], in.dst));
        if (problem.empty() && out.wire != in.wire) {
          problem = "one end treats the data as accumulators, the other end as elements,";
        }
        if (!problem.empty()) {
          throw Refusal{cat(place(plans[b].program, to, received[k]), ": ", problem, " from ",
                            place(plans[a].program, from, sent[k]))};
        }
      }
    }
  }
}

}  // namespace tutti
