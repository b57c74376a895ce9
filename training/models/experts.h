// The experts of a mixture, optionally sharded over ranks, and the rows that they compute with: a
// dispatch copies each token's row once for each of its experts. An expert is a feed-forward
// network (modules/mlp.h).
//
//   tokens    0 1 2 3                    rows of    expert 0: 0 3
//   experts   0 1 1 0   (topk = 2)       the        expert 1: 1 2 3
//             2 2 . 1                    experts    expert 2: 0 1
//
// With expert parallelism rows are dispatched to the rank that owns their expert, and the outputs
// are returned (GShard: Lepikhin et al. 2020). Backward dispatches the gradients of outputs and the
// rows' weights; the gradients of inputs and of weights are returned.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "training/modules/mlp.h"
#include "training/parallel/host_relay.h"
#include "training/parallel/mesh.h"
#include "training/parallel/row_exchange.h"

namespace tutti::training {

class Experts {
 public:
  // One call of an expert.
  struct Job {
    size_t expert = 0;
    Share rows;  // among the rows of all jobs
    // Indices of these rows in the source tensor; empty: the same as `rows`.
    std::span<const int32_t> indices;
    Mlp::Saved mlp = {};
  };
  struct Saved {
    // By token and choice: the number of its row, below 0 if there is none. This rank's rows are
    // sorted by expert.
    std::vector<int32_t> places;
    std::vector<int32_t> tokens;  // by row
    std::vector<double> weights;  // by row
    // Expert parallelism: the rows that this rank received. Jobs compute with them in `order`; if
    // it is empty, in the order in which they were received.
    RowExchange exchange;
    std::vector<int32_t> order;
    Tensor received;
    Tensor before;
    std::vector<Job> jobs;

    int64_t rows() const { return std::ssize(tokens); }
  };
  // Gradients with respect to this rank's rows of the input, and to their weights.
  struct RowGradients {
    Tensor rows;
    std::span<double> weights;
  };

  // Parameters NAME.0.LAYER, NAME.1.LAYER ...
  Experts(ParameterTable& table, const std::string& name, int64_t experts, const MlpOptions& mlp);

  // True with expert parallelism: several ranks own experts.
  bool exchanges() const { return place_.ranks_along(place_.experts) > 1; }
  int64_t before_width() const { return experts_.front().before_width(); }

  // The owner's number among the ranks that own experts.
  int rank_of(int64_t expert) const;
  // Sorts the choices into rows. With expert parallelism it is collective, and allocates memory for
  // received rows of the type and width of `like`. `inside`: all choices are of experts on this
  // host, and only this host's ranks take part.
  void lay_out(Pass& pass, const ExpertChoices& choices, ConstTensor like, Saved& saved,
               Mesh::ByHosts* inside = nullptr) const;
  // Dispatches rows of `tokens`. They are received when wait() has returned.
  RowExchange::Transfer send(Pass& pass, ConstTensor tokens, const Saved& saved) const;
  // Forward in three steps, as in Mlp. `before`: rows x before_width(); unused with expert
  // parallelism.
  void project(Pass& pass, ConstTensor tokens, Saved& saved, Tensor before) const;
  void activate(Pass& pass, Saved& saved) const;
  // Writes this rank's outputs to `rows`. They are complete when wait() has returned.
  RowExchange::Transfer finish(Pass& pass, Saved& saved, Tensor rows) const;
  // `tokens`: the input. `gradients`: with respect to each token's output. `meanwhile` runs while
  // rows are in flight.
  void backward(Pass& pass, ConstTensor tokens, ConstTensor gradients, Saved& saved,
                const RowGradients& found, const std::function<void()>& meanwhile) const;

 private:
  // The experts that a rank owns.
  Share experts_of(int rank) const;
  std::vector<int64_t> lay_out_rows(const ExpertChoices& choices, Saved& saved) const;
  void put_into_order(const Pass& pass, Saved& saved) const;
  Tensor rows_to_send(Pass& pass, const Saved& saved, ConstTensor tokens) const;
  Tensor in_received_order(Pass& pass, const Saved& saved, Tensor results) const;
  void backward_jobs(Pass& pass, ConstTensor inputs, ConstTensor gradients,
                     std::span<const double> weights, Saved& saved,
                     const RowGradients& found) const;

  MeshPlace place_;
  std::deque<Mlp> experts_;
};

}  // namespace tutti::training
