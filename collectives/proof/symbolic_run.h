// One run of a collective's programs, all ranks of it, on formulas in place of data.
//
// A connection holds one message in each direction. Programs are dataflow: whatever the order in
// which the steps that can run are run, the same steps run in the end, on the same values. So one
// order proves all of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/program/arithmetic.h"
#include "collectives/program/joint_walk.h"
#include "collectives/program/plan.h"
#include "collectives/proof/expression.h"

namespace tutti {

class SymbolicRun {
 public:
  struct Cell {
    Expressions::Id value = Expressions::kNothing;
    int32_t writer = -1;  // the step that wrote it last; -1: none
  };

  // In place: input and output are the same memory, as the collective says.
  SymbolicRun(std::span<const Plan> plans, bool in_place, Arithmetic arithmetic,
              Expressions& expressions);

  // Throws Refusal: no progress, read before write, wrong chunk, double count.
  void to_the_end();

  // After the end: what an output chunk holds, and whom the rank knows to have started. Where
  // nothing was written to it in place, that is what was there before.
  const Cell& result(int32_t rank, int32_t chunk) const;
  std::vector<bool> known(int32_t rank) const;

 private:
  using Id = Expressions::Id;

  struct Message {
    std::vector<Id> values;
    std::vector<bool> known;  // of the sender; tokens only
  };

  struct Rank {
    Rank(const Plan& plan, bool in_place);
    size_t index(Space space, int32_t chunk) const {
      return static_cast<size_t>(base[static_cast<size_t>(space)]) + chunk;
    }

    std::array<int32_t, 3> base = {};  // first cell of each space
    std::vector<Cell> cells;
    std::vector<std::vector<bool>> heard;  // by step: what the token that it received said
  };

  std::optional<Message>& connection(int32_t from, int32_t to) {
    return connections_[static_cast<size_t>(from) * plans_.size() + static_cast<size_t>(to)];
  }

  void execute(int32_t rank, int32_t number);
  void execute_send(int32_t rank, int32_t number);
  void execute_recv(int32_t rank, int32_t number);

  bool can_run(int32_t rank, int32_t number);
  // In words; of a step that cannot run.
  std::string waits_for(int32_t rank, int32_t number);
  // The first step that must be done before this one and is not, or -1.
  int32_t needed_first(int32_t rank, int32_t number) const;

  std::vector<Id> read(int32_t rank, int32_t number, const RangeList& ranges);
  // What is in a chunk of the input, once the step has scaled it.
  Id scaled(int32_t rank, int32_t number, Id value) const;
  // Output holds elements: what is written to it is divided where the step divides, and rounded.
  void write(int32_t rank, int32_t number, const RangeList& ranges, const std::vector<Id>& values);
  std::vector<Id> combine(int32_t rank, int32_t number, const std::vector<Id>& left,
                          const std::vector<Id>& right);
  // Whom the rank surely knows to have started when its step `end` starts: only receives above it
  // count.
  std::vector<bool> knowledge(int32_t rank, int32_t end) const;

  [[noreturn]] void refuse(int32_t rank, int32_t number, const std::string& problem) const;
  void refuse_if_stuck();

  std::span<const Plan> plans_;
  Expressions& expressions_;
  JointWalk walk_;
  std::vector<Rank> ranks_;
  std::vector<std::optional<Message>> connections_;  // [from * p + to]
};

}  // namespace tutti
