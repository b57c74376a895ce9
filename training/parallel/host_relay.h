// Sends a row only once to each host on which ranks own experts of the row. One of these ranks
// receives the row, forwards it to the other owners on its host, adds up the weighted outputs, and
// returns one row.
//
//   host A    host B                        row 0: experts on ranks 2 and 3; row 1: on rank 3
//   rank 0    rank 2   row 0 ->  row 0      rank 2 forwards row 0 to rank 3
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

// Experts of rows (tokens), `each` per row, and the weights of their outputs. A negative expert
// index means no expert.
struct ExpertChoices {
  std::span<const int32_t> experts;
  std::span<const double> weights;
  int64_t each = 1;
};

class HostRelay {
 public:
  // Chooses the receiver of each row. Collective among the ranks along `axes`. `rank_of` returns an
  // expert's owner among these ranks.
  HostRelay(Pass& pass, AxisSet axes, const ExpertChoices& choices,
            const std::function<int(int64_t)>& rank_of);

  // places() returns, for each choice, the index of the row to send if the choice is its token's
  // first one on a host, otherwise a negative number. tokens() returns the token of each row to
  // send.
  std::span<const int32_t> places() const { return places_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  // arrived() returns the number of rows received for this host, which this rank forwards to the
  // owners of their experts. choices() returns the expert choices of these rows, in which choices
  // on other hosts are -1.
  int64_t arrived() const { return exchange_.received(); }
  ExpertChoices choices() const { return {experts_, weights_, each_}; }

  // Collective. dispatch() starts to send rows to their hosts. return_rows() starts to send back
  // the sums of the rows' outputs.
  RowExchange::Transfer dispatch(Pass& pass, ConstTensor sent, Tensor arrived) const {
    return exchange_.dispatch(pass, sent, arrived);
  }
  RowExchange::Transfer return_rows(Pass& pass, ConstTensor sums, Tensor received) const {
    return exchange_.return_rows(pass, sums, received);
  }
  // Collective. Sends one number per choice of each forwarded row back to the row's sender.
  // Elements of `of_choices` for choices without an expert remain unchanged.
  void return_numbers(Pass& pass, std::span<const double> of_arrived,
                      std::span<double> of_choices) const;

 private:
  int64_t each_;
  RowExchange exchange_;
  std::vector<int32_t> places_, tokens_;
  // by choice: index of its row among the rows to send; negative: none
  std::vector<int32_t> row_of_choice_;
  std::vector<int32_t> experts_;
  std::vector<double> weights_;
};

}  // namespace tutti::training
