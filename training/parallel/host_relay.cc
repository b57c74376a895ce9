#include "training/parallel/host_relay.h"

#include <algorithm>

namespace tutti::training {
namespace {

// A row to send; rows are ordered by receiver.
struct Sent {
  int rank = 0;
  int32_t token = 0;
  std::vector<size_t> choices;
};

std::vector<Sent> rows_by_host(const ExpertChoices& choices, const Hosts& hosts, int own,
                               const std::function<int(int64_t)>& rank_of) {
  const auto each = static_cast<size_t>(choices.each);
  std::vector<Sent> rows;
  for (size_t first = 0; first < choices.experts.size(); first += each) {
    const size_t begin = rows.size();
    for (size_t choice = first; choice < first + each; ++choice) {
      if (choices.experts[choice] < 0) continue;
      const int rank = rank_of(choices.experts[choice]);
      const auto its = std::find_if(rows.begin() + static_cast<std::ptrdiff_t>(begin), rows.end(),
                                    [&](const Sent& row) { return hosts.near(row.rank, rank); });
      if (its != rows.end()) {
        its->choices.push_back(choice);
        continue;
      }
      // This rank forwards the rows for its own host.
      rows.push_back(
          {hosts.near(own, rank) ? own : rank, static_cast<int32_t>(first / each), {choice}});
    }
  }
  std::ranges::stable_sort(rows, {}, &Sent::rank);
  return rows;
}

Tensor column_of(std::vector<double>& numbers, int64_t cols) {
  return tensor_at(numbers.data(), DType::f64, std::ssize(numbers) / cols, cols);
}

}  // namespace

HostRelay::HostRelay(Pass& pass, AxisSet axes, const ExpertChoices& choices,
                     const std::function<int(int64_t)>& rank_of)
    : each_(choices.each) {
  Communicator& ranks = pass.mesh->group(axes);
  const Hosts& hosts = pass.mesh->by_hosts(axes).hosts;
  const std::vector<Sent> rows = rows_by_host(choices, hosts, ranks.rank(), rank_of);
  const auto each = static_cast<size_t>(each_);
  std::vector<int64_t> counts(static_cast<size_t>(ranks.size()));
  // For each row, the experts of its choices, then their weights; -1 if a choice is not in the row.
  std::vector<double> columns(rows.size() * 2 * each, -1);
  places_.assign(choices.experts.size(), -1);
  row_of_choice_ = places_;
  for (size_t row = 0; row < rows.size(); ++row) {
    const Sent& sent = rows[row];
    ++counts[static_cast<size_t>(sent.rank)];
    tokens_.push_back(sent.token);
    places_[sent.choices.front()] = static_cast<int32_t>(row);
    for (const size_t choice : sent.choices) {
      row_of_choice_[choice] = static_cast<int32_t>(row);
      double* const its = &columns[row * 2 * each + choice % each];
      its[0] = choices.experts[choice];
      its[each] = choices.weights[choice];
    }
  }
  const std::vector<int64_t> one_each(counts.size(), 1);
  exchange_ = RowExchange({&ranks, ranks.rank(), one_each}, counts);
  std::vector<double> received(static_cast<size_t>(exchange_.received()) * 2 * each);
  exchange_.dispatch(pass, column_of(columns, 2 * each_), column_of(received, 2 * each_)).wait();
  for (size_t row = 0; row < received.size(); row += 2 * each) {
    for (size_t choice = 0; choice < each; ++choice) {
      experts_.push_back(static_cast<int32_t>(received[row + choice]));
      weights_.push_back(received[row + each + choice]);
    }
  }
}

void HostRelay::return_numbers(Pass& pass, std::span<const double> of_arrived,
                               std::span<double> of_choices) const {
  std::vector<double> sent(of_arrived.begin(), of_arrived.end());
  std::vector<double> received(tokens_.size() * static_cast<size_t>(each_));
  exchange_.return_rows(pass, column_of(sent, each_), column_of(received, each_)).wait();
  for (size_t choice = 0; choice < of_choices.size(); ++choice) {
    if (row_of_choice_[choice] < 0) continue;
    const auto row = static_cast<size_t>(row_of_choice_[choice]);
    of_choices[choice] =
        received[row * static_cast<size_t>(each_) + choice % static_cast<size_t>(each_)];
  }
}

}  // namespace tutti::training
