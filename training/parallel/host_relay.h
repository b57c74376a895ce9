// Rows that several ranks of another host are to have are sent there once: to one of these ranks,
// which hands them on. It adds up what they make of a row, and sends back one row.
//
//   host A    host B                        row 0 is for experts on ranks 2 and 3, row 1 for rank 3's
//   rank 0    rank 2   row 0 ->  row 0      rank 2 hands row 0 on to rank 3
//   rank 1    rank 3   row 1 ->  row 1
//
// DeepSeek-AI: DeepSeek-V3, 2024, section 3.2.2.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "training/core/pass.h"
#include "training/parallel/mesh.h"
#include "training/parallel/row_exchange.h"

namespace tutti::training {

class HostRelay {
 public:
  // Each row's choices: experts, below 0 where there is none, and their weights.
  struct Choices {
    std::span<const int32_t> experts;
    std::span<const double> weights;
    int64_t each = 1;
  };

  HostRelay() = default;
  // Collective among the ranks along `axes`. `rank_of` tells an expert's number among them.
  HostRelay(Pass& pass, AxisSet axes, const Choices& choices,
            const std::function<int(int64_t)>& rank_of);

  // Here: of each choice's place the row that is sent for it, as the first of a host, or below 0;
  // and each row's token.
  std::span<const int32_t> places() const { return places_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  // There: rows that arrive for this host, and their choices that are on it.
  int64_t arrived() const { return exchange_.received(); }
  Choices choices() const { return {experts_, weights_, each_}; }

  // Collective. Rows to their hosts; their sums back.
  RowExchange::Travel forth(Pass& pass, ConstTensor sent, Tensor arrived) const {
    return exchange_.forth(pass, sent, arrived);
  }
  RowExchange::Travel back(Pass& pass, ConstTensor sums, Tensor received) const {
    return exchange_.back(pass, sums, received);
  }
  // Numbers of the arrived rows' choices back to where these were made.
  void return_numbers(Pass& pass, std::span<const double> of_arrived,
                      std::span<double> of_choices) const;

 private:
  int64_t each_ = 1;
  RowExchange exchange_;
  std::vector<int32_t> places_, tokens_;
  std::vector<int32_t> row_of_choice_;  // here, below 0: none
  std::vector<int32_t> experts_;
  std::vector<double> weights_;
};

}  // namespace tutti::training
