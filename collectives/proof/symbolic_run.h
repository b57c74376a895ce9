// Symbolic execution of a collective on all ranks, with formulas instead of data.
//
// A connection holds one message in each direction. Programs are dataflow: whatever the order in
// which ready steps are executed, the same steps run in the end, on the same values. So it is
// enough to execute one order.
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
    int32_t writer = -1;  // step that wrote the cell last; -1: none
  };

  // Prepares a run. `in_place`: input and output are the same memory, as the collective defines it.
  SymbolicRun(std::span<const Plan> plans, bool in_place, Arithmetic arithmetic,
              Expressions& expressions);

  // Runs to completion. Throws Refusal if a step cannot progress, reads a chunk before it is
  // written, handles a wrong chunk, combines a contribution twice, or scales or divides a value
  // wrongly.
  void to_the_end();

  // Return results after to_the_end(). result() returns the content of an output chunk. In place, a
  // chunk that is not written keeps its former content. known() returns the ranks that have entered
  // the call according to the tokens that `rank` has received.
  const Cell& result(int32_t rank, int32_t chunk) const;
  std::vector<bool> known(int32_t rank) const;

 private:
  using Id = Expressions::Id;

  struct Message {
    std::vector<Id> values;
    std::vector<bool> known;  // for a token: result of knowledge() on the sender
  };

  struct Rank {
    Rank(const Plan& plan, bool in_place);
    size_t index(Space space, int32_t chunk) const {
      return static_cast<size_t>(base[static_cast<size_t>(space)]) + chunk;
    }

    std::array<int32_t, 3> base = {};  // first cell of each space
    std::vector<Cell> cells;
    std::vector<std::vector<bool>> heard;  // by step: `known` of the token that the step received
  };

  std::optional<Message>& connection(int32_t from, int32_t to) {
    return connections_[static_cast<size_t>(from) * plans_.size() + static_cast<size_t>(to)];
  }

  void execute(int32_t rank, int32_t number);
  void execute_send(int32_t rank, int32_t number);
  void execute_recv(int32_t rank, int32_t number);

  bool can_run(int32_t rank, int32_t number);
  // Describes what a blocked step waits for, for an error message.
  std::string waits_for(int32_t rank, int32_t number);
  // Returns the first unfinished step that must finish before this step; -1 if there is none.
  int32_t needed_first(int32_t rank, int32_t number) const;

  std::vector<Id> read(int32_t rank, int32_t number, const RangeList& ranges);
  // Returns the content of an input chunk after the step's scaling.
  Id scaled(int32_t rank, int32_t number, Id value) const;
  // Writes values to chunks, divided if the step divides. Values written to the output are also
  // rounded, because the output holds elements.
  void write(int32_t rank, int32_t number, const RangeList& ranges, const std::vector<Id>& values);
  std::vector<Id> combine(int32_t rank, int32_t number, const std::vector<Id>& left,
                          const std::vector<Id>& right);
  // Returns the ranks that have entered the call according to the tokens that this rank received in
  // steps before `end`.
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
