// A mixture's experts, and the rows that they compute with: of a tensor's rows (tokens) each goes to
// some of them. Experts are feed-forward parts (modules/mlp.h).
//
//   tokens    0 1 2 3                    rows of    expert 0: 0 3
//   experts   0 1 1 0   (two each)       the        expert 1: 1 2 3
//             2 2 . 1                    experts    expert 2: 0 1
//
// Where experts are shared out among ranks, rows travel to the rank that has their expert, and what
// it makes of them comes back (GShard: Lepikhin et al. 2020). Backward sends gradients and weights
// of rows, and gets gradients of both.
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

class ExpertCalls {
 public:
  // Rows that an expert computes with at once.
  struct Job {
    size_t expert = 0;
    Share rows;  // of all jobs' rows
    // Where these lie in the tensor that they come from; empty: where they lie among all jobs'.
    std::span<const int32_t> indices;
    Mlp::Saved mlp = {};
  };
  struct Saved {
    // Of each token, by choice: its row among this rank's, which lie expert after expert; below 0:
    // none.
    std::vector<int32_t> places;
    std::vector<int32_t> tokens;  // by row
    std::vector<double> weights;
    // Where rows travel: those that came, in the order in which jobs compute with them.
    RowExchange exchange;
    std::vector<int32_t> order;  // empty: as they came
    Tensor came;
    Tensor before;
    std::vector<Job> jobs;

    int64_t rows() const { return std::ssize(tokens); }
  };
  // Of this rank's rows: of their inputs, and of the weights with which outputs are added up.
  struct RowGradients {
    Tensor rows;
    std::span<double> weights;
  };

  // Parameters NAME.0.LAYER, NAME.1.LAYER ...
  ExpertCalls(ParameterTable& table, const std::string& name, int64_t experts,
              const MlpOptions& mlp);

  // True if rows travel.
  bool exchanges() const { return place_.ranks_along(place_.experts) > 1; }
  int64_t before_width() const { return experts_.front().before_width(); }

  // The rank among those that share out the experts that has this one.
  int rank_of(int64_t expert) const;
  // Where rows travel it is collective, and takes memory for what comes, as wide as `like`.
  // `inside`: all choices are of experts on this host, whose ranks alone take part.
  void lay_out(Pass& pass, const HostRelay::Choices& choices, ConstTensor like, Saved& saved,
               Mesh::ByHosts* inside = nullptr) const;
  // The rows leave. They are there when wait() has returned.
  RowExchange::Travel send(Pass& pass, ConstTensor tokens, const Saved& saved) const;
  // In three parts, as Mlp. `before`: rows x before_width(), of rows that do not travel.
  void project(Pass& pass, ConstTensor tokens, Saved& saved, Tensor before) const;
  void activate(Pass& pass, Saved& saved) const;
  // `rows`: the outputs of this rank's rows, once wait() has returned.
  RowExchange::Travel finish(Pass& pass, Saved& saved, Tensor rows) const;
  // `tokens`: the input; `gradients`: of each token's output. `meanwhile` runs while rows travel.
  void backward(Pass& pass, ConstTensor tokens, ConstTensor gradients, Saved& saved,
                const RowGradients& found, const std::function<void()>& meanwhile) const;

 private:
  // The experts that a rank has.
  Share experts_of(int rank) const;
  std::vector<int64_t> lay_out_rows(const HostRelay::Choices& choices, Saved& saved) const;
  void put_into_order(const Pass& pass, Saved& saved) const;
  Tensor rows_to_send(Pass& pass, const Saved& saved, ConstTensor tokens) const;
  Tensor as_they_came(Pass& pass, const Saved& saved, Tensor results) const;
  void backward_jobs(Pass& pass, ConstTensor inputs, ConstTensor gradients,
                     std::span<const double> weights, Saved& saved,
                     const RowGradients& found) const;

  MeshPlace place_;
  std::deque<Mlp> experts_;
};

}  // namespace tutti::training
