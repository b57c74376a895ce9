// The experts of a mixture, optionally sharded over ranks, and the rows that they process: each
// token's row is copied once for each of its experts. An expert is a feed-forward network
// (modules/mlp.h).
//
//   tokens    0 1 2 3                    rows of    expert 0: 0 3
//   experts   0 1 1 0   (topk = 2)       the        expert 1: 1 2 3
//             2 2 . 1                    experts    expert 2: 0 1
//
// With expert parallelism each row is dispatched to the rank that owns its expert, and the output
// is sent back (GShard: Lepikhin et al. 2020). Backward dispatches the gradients of the outputs and
// the rows' weights, and gets back the gradients of the inputs and of the weights.
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
  // One call of one expert.
  struct Job {
    size_t expert = 0;
    Share rows;  // range of this call's rows in the list of all jobs' rows
    // Indices of the rows in the tensor from which they are read. If empty, the rows are the range
    // `rows` of that tensor.
    std::span<const int32_t> indices;
    Mlp::Saved mlp = {};
  };
  struct Saved {
    // Indexed by token and choice: index of the choice's row, or -1 if the choice has no row. This
    // rank's rows are sorted by expert.
    std::vector<int32_t> places;
    std::vector<int32_t> tokens;  // by row: its token
    std::vector<double> weights;  // by row: its weight
    // Expert parallelism: the rows that this rank received. Jobs process them in `order` or, if
    // `order` is empty, in the order in which they were received.
    RowExchange exchange;
    std::vector<int32_t> order;
    Tensor received;
    Tensor before;  // Mlp::Saved::before of all jobs
    std::vector<Job> jobs;

    int64_t rows() const { return std::ssize(tokens); }
  };
  // Gradients with respect to this rank's rows of the input, and to their weights.
  struct RowGradients {
    Tensor rows;
    std::span<double> weights;
  };

  // Adds parameters NAME.0.LAYER, NAME.1.LAYER ...
  Experts(ParameterTable& table, const std::string& name, int64_t experts, const MlpOptions& mlp);

  // Returns true if several ranks own experts (expert parallelism).
  bool exchanges() const { return place_.ranks_along(place_.experts) > 1; }
  int64_t before_width() const { return experts_.front().before_width(); }

  // Returns the index of the expert's owner among the ranks that own experts.
  int rank_of(int64_t expert) const;
  // Sorts the choices into rows. With expert parallelism the call is collective, and allocates
  // memory for received rows of the type and width of `like`. `inside`: null, or the ranks of this
  // host if all choices are of experts on this host; only these ranks then take part.
  void lay_out(Pass& pass, const ExpertChoices& choices, ConstTensor like, Saved& saved,
               Mesh::ByHosts* inside = nullptr) const;
  // Starts to dispatch rows of `tokens`. They have been received when wait() returns.
  RowExchange::Transfer send(Pass& pass, ConstTensor tokens, const Saved& saved) const;
  // Runs the first of the three steps of forward (as in Mlp). `before`: rows x before_width();
  // unused with expert parallelism.
  void project(Pass& pass, ConstTensor tokens, Saved& saved, Tensor before) const;
  void activate(Pass& pass, Saved& saved) const;
  // Starts to write the experts' outputs for this rank's rows to `rows`. They are complete when
  // wait() returns.
  RowExchange::Transfer finish(Pass& pass, Saved& saved, Tensor rows) const;
  // Runs backward. `tokens`: the input. `gradients`: the gradients with respect to each token's
  // output. `found` receives the gradients of rows. Calls `meanwhile` while rows are in flight.
  void backward(Pass& pass, ConstTensor tokens, ConstTensor gradients, Saved& saved,
                const RowGradients& found, const std::function<void()>& meanwhile) const;

 private:
  // Returns the experts that a rank owns.
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
