#include "training/optimizers/whole_matrices.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

// Returns the number of multiplications in a product of the matrix with its transpose (the smaller
// of the two products).
double cost_of(const ParameterSpec& spec) {
  const auto rows = static_cast<double>(spec.shape.front());
  const auto all = static_cast<double>(spec.count());
  return all * std::min(rows, all / rows);
}

class OwnerAssignment {
 public:
  OwnerAssignment(const MatrixExchange& exchange, const IsMatrix& is_matrix)
      : exchange_(exchange), pieces_(static_cast<size_t>(exchange.owners())) {
    std::map<int, double> costs;
    for (int owner = 0; owner < exchange.owners(); ++owner) {
      for (const Piece& piece : exchange.pieces(owner)) {
        const ParameterSpec& spec = exchange.spec(piece.parameter);
        if (!is_matrix(spec)) continue;
        pieces_[static_cast<size_t>(owner)].push_back(piece);
        costs[piece.parameter] = cost_of(spec);
      }
    }
    assign(costs);
  }

  const std::vector<Piece>& own() const { return pieces_[static_cast<size_t>(exchange_.self())]; }

  std::vector<int> computed_here() const {
    std::vector<int> parameters;
    for (const auto& [parameter, home] : homes_) {
      if (home == static_cast<size_t>(exchange_.self())) parameters.push_back(parameter);
    }
    return parameters;
  }

  // Computes the matrices; `exchange` must be the one that was used for the assignment.
  void compute(MatrixExchange& exchange, std::span<float> values, const MatrixWork& work) {
    std::vector<float> packed = in_order_of_homes(values);
    std::vector<int64_t> sent(pieces_.size());
    std::vector<int64_t> received(pieces_.size());
    for (const Piece& piece : own()) sent[home_of(piece)] += piece.count;
    visit_here([&](size_t owner, const Piece& piece) { received[owner] += piece.count; });
    int64_t total = 0;
    for (const int64_t count : received) total += count;
    std::vector<float> here(static_cast<size_t>(total));
    exchange.exchange(packed, sent, here, received);

    std::map<int, std::vector<float>> matrices;
    copy_here(here, matrices,
              [](auto whole, auto part) { std::ranges::copy(part, whole.begin()); });
    for (auto& [parameter, matrix] : matrices) {
      work(parameter, exchange_.spec(parameter), matrix);
    }
    copy_here(here, matrices,
              [](auto whole, auto part) { std::ranges::copy(whole, part.begin()); });
    exchange.exchange(here, received, packed, sent);
    take_back(packed, values);
  }

 private:
  // Assigns matrices in descending order of cost, each to the least loaded owner.
  void assign(const std::map<int, double>& costs) {
    std::vector<std::pair<int, double>> order(costs.begin(), costs.end());
    std::ranges::stable_sort(order, std::ranges::greater(), &std::pair<int, double>::second);
    std::vector<double> load(pieces_.size());
    for (const auto& [parameter, cost] : order) {
      const auto least = std::ranges::min_element(load);
      *least += cost;
      homes_[parameter] = static_cast<size_t>(least - load.begin());
    }
  }

  size_t home_of(const Piece& piece) const { return homes_.at(piece.parameter); }

  // Visits all pieces of matrices that are computed here, owner by owner.
  template <typename Visit>
  void visit_here(const Visit& visit) const {
    const auto self = static_cast<size_t>(exchange_.self());
    for (size_t owner = 0; owner < pieces_.size(); ++owner) {
      for (const Piece& piece : pieces_[owner]) {
        if (home_of(piece) == self) visit(owner, piece);
      }
    }
  }

  template <typename Copy>
  void copy_here(std::span<float> here, std::map<int, std::vector<float>>& matrices,
                 const Copy& copy) const {
    size_t at = 0;
    visit_here([&](size_t, const Piece& piece) {
      std::vector<float>& matrix = matrices[piece.parameter];
      matrix.resize(static_cast<size_t>(exchange_.spec(piece.parameter).count()));
      const auto count = static_cast<size_t>(piece.count);
      copy(std::span(matrix).subspan(static_cast<size_t>(piece.first), count),
           here.subspan(at, count));
      at += count;
    });
  }

  // Calls visit(offset in `values`, number of elements) for each piece in own(), grouped by the
  // owner that computes its matrix. Within a group, pieces are in the order of own().
  template <typename Visit>
  void visit_own(const Visit& visit) const {
    for (size_t home = 0; home < pieces_.size(); ++home) {
      size_t at = 0;
      for (const Piece& piece : own()) {
        const auto count = static_cast<size_t>(piece.count);
        if (home_of(piece) == home) visit(at, count);
        at += count;
      }
    }
  }

  std::vector<float> in_order_of_homes(std::span<const float> values) const {
    std::vector<float> packed;
    packed.reserve(values.size());
    visit_own([&](size_t at, size_t count) {
      const auto part = values.subspan(at, count);
      packed.insert(packed.end(), part.begin(), part.end());
    });
    return packed;
  }

  void take_back(std::span<const float> packed, std::span<float> values) const {
    size_t next = 0;
    visit_own([&](size_t at, size_t count) {
      std::ranges::copy(packed.subspan(next, count), values.subspan(at, count).begin());
      next += count;
    });
  }

  const MatrixExchange& exchange_;
  std::vector<std::vector<Piece>> pieces_;  // each owner's pieces of matrices
  std::map<int, size_t> homes_;             // key: parameter; value: the owner that computes it
};

}  // namespace

void require_one_group(const Layout& layout) {
  if (std::ranges::all_of(layout.buckets, [](const Bucket& bucket) { return bucket.group == 0; })) {
    return;
  }
  throw Error(ErrorCode::unsupported,
              "an optimizer that updates whole matrices cannot have shards of several groups",
              {.cause = "some parameters are reduced over different ranks",
               .remedy = "use ZeRO stage 0, or another optimizer"});
}

void check_whole(const ParameterSpec& spec, std::string_view optimizer) {
  if (spec.slice().is_whole()) return;
  throw Error(ErrorCode::unsupported,
              cat(optimizer, " updates whole matrices, but ", spec.name,
                  " is sharded over the axis ", name(spec.placement.cut_over())),
              {.remedy = "use another optimizer"});
}

PieceValues::PieceValues(std::span<const OwnedPiece> pieces, const IsMatrix& is_matrix)
    : pieces_(pieces) {
  int64_t elements = 0;
  for (const OwnedPiece& owned : pieces) {
    starts_.push_back(elements);
    if (is_matrix(*owned.spec)) elements += owned.piece.count;
  }
  values_.resize(static_cast<size_t>(elements));
}

float* PieceValues::of(const UpdateBlock& block) {
  const auto piece = static_cast<size_t>(&block.owned - pieces_.data());
  return values_.data() + starts_[piece] + block.first;
}

std::vector<int> computed_here(std::span<const OwnedPiece> pieces, const IsMatrix& is_matrix,
                               const MatrixExchange* exchange) {
  if (exchange != nullptr && exchange->owners() > 1) {
    return OwnerAssignment(*exchange, is_matrix).computed_here();
  }
  std::vector<int> parameters;
  for (const OwnedPiece& owned : pieces) {
    if (is_matrix(*owned.spec)) parameters.push_back(owned.piece.parameter);
  }
  std::ranges::sort(parameters);
  return parameters;
}

WholeStates whole_states_here(const Optimizer& optimizer, const std::vector<ParameterSpec>& specs,
                              int units, std::span<const OwnedPiece> pieces,
                              const MatrixExchange* exchange) {
  const auto states_of = [&](const ParameterSpec& spec) {
    return optimizer.whole_states(spec, units);
  };
  const auto has_states = [&](const ParameterSpec& spec) { return !states_of(spec).empty(); };
  if (std::ranges::none_of(specs, has_states)) return {};
  return {specs, computed_here(pieces, has_states, exchange), states_of};
}

void compute_whole(std::span<const OwnedPiece> pieces, const IsMatrix& is_matrix,
                   std::span<float> values, MatrixExchange* exchange, const MatrixWork& work) {
  if (exchange != nullptr && exchange->owners() > 1) {
    OwnerAssignment(*exchange, is_matrix).compute(*exchange, values, work);
    return;
  }
  size_t at = 0;
  for (const OwnedPiece& owned : pieces) {
    if (!is_matrix(*owned.spec)) continue;
    if (owned.piece.count != owned.spec->count()) {
      throw Error(ErrorCode::internal,
                  "an owner has part of a matrix and no peers that have the rest",
                  {.where = owned.spec->name});
    }
    const auto count = static_cast<size_t>(owned.piece.count);
    work(owned.piece.parameter, *owned.spec, values.subspan(at, count));
    at += count;
  }
}

}  // namespace tutti::training
