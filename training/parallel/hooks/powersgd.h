// PowerSGD: sums matrices of gradients over ranks in a low-rank factored form. Vogels, Karimireddy,
// Jaggi: PowerSGD: Practical low-rank gradient compression for distributed optimization, NeurIPS
// 2019, algorithms 1 and 2.
//
// For each matrix (n x m) of a bucket, with Q (m x r) of the previous step:
//
//   M = gradient + error         on each rank
//   P = sum of M Q               all-reduce of n r values   start()
//   P = orthonormal columns of P
//   Q = sum of M^T P             all-reduce of m r values   finish()
//   gradient = P Q^T             the same bits on every rank
//   error = M - P (M^T P)^T      the part of M that this rank did not contribute
//
// No gradient is lost over the steps: the sum of all results is the sum of all gradients minus the
// ranks' current errors. Gradients of rank r or less are exact up to rounding.
//
// Vectors, and matrices with r (n + m) >= n m, are summed uncompressed. A bucket takes three
// collectives for any number of parameters: one for all P, one for all Q, and one for the
// uncompressed rest.
#pragma once

#include <cstdint>
#include <vector>

#include "training/core/layout.h"
#include "training/parallel/data_parallel.h"

namespace tutti::training {

struct PowerSgdOptions {
  int rank = 4;       // rank r of the factors; at least 1
  uint64_t seed = 1;  // seed of the first Q
};

// The hook. Errors are local to the rank, Q is equal on all ranks, and checkpoints contain both.
// Only the sum of all ranks' errors matters, so a run that resumes on another number of ranks
// divides that sum among its ranks. If a sum is not finite, the bucket's gradients become
// non-finite and its errors zero.
class PowerSgd : public CommunicationHook {
 public:
  // Creates the hook; does not retain references to its arguments. Throws Error(invalid_argument)
  // for a rank below 1.
  PowerSgd(const Layout& layout, const std::vector<ParameterSpec>& specs,
           const PowerSgdOptions& options = {});

  // Begins the sum. Gradients must be f32 or bf16. For f16 it throws Error(invalid_argument): the
  // loss scale changes from step to step, so errors of one step cannot be added to the next.
  void start(Communicator& communicator, int bucket, Tensor gradients) override;
  // Begins the second all-reduce and blocks until it is done; all ranks must finish their buckets
  // in the same order.
  void finish(int bucket, Tensor gradients) override;
  // Returns true only if finish() begins no collective, because ranks call test() at different
  // times.
  bool test(int bucket) override;
  int64_t payload_bytes(int bucket, Tensor gradients) const override;
  int64_t bytes() const override;
  bool remembers() const override { return true; }
  bool decompresses_by_products() const override { return true; }
  std::vector<HookState> states(Communicator& communicator, DType gradients) override;

 private:
  // A compressed matrix. P and Q are stored transposed, as r rows.
  struct Matrix {
    ParameterSpec spec;
    int64_t offset = 0;  // offset of the matrix in elements from the bucket's start
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t p_offset = 0;
    int64_t q_offset = 0;
    int64_t error_offset = 0;
    float draws = 0;  // number of random rows drawn for Q; part of the state, exact up to 2^24
    std::vector<int> dependent;  // columns of P that depend linearly on earlier ones
  };

  struct BucketState {
    std::vector<Matrix> matrices;
    std::vector<Slot> others;
    int64_t p_size = 0;
    int64_t q_size = 0;
    int64_t other_size = 0;
    int64_t other_bytes = 0;
    std::vector<float> errors;  // the errors, or M between start() and finish()
    // set by the first start()
    Communicator communicator;
    Memory<float> p;
    Memory<float> q;      // Q of all matrices: sums with which the next step starts
    Memory<float> own_q;  // this rank's terms of the sums in q
    Memory<std::byte> other_values;
    Work p_sum;
    Work other_sum;
  };

  BucketState& state(int bucket) { return buckets_.at(static_cast<size_t>(bucket)); }
  Tensor p_of(BucketState& at, const Matrix& matrix) const;
  Tensor q_of(const Memory<float>& q, const Matrix& matrix) const;
  static Tensor matrix_in(Tensor bucket, const Matrix& matrix);
  static Tensor error_of(BucketState& at, const Matrix& matrix);
  // Returns f32 scratch memory with the matrix's shape, valid until the next call.
  Tensor scratch_for(const Matrix& matrix);
  void add_matrix(BucketState& at, const ParameterSpec& spec, const Slot& slot);
  void prepare(BucketState& at, Communicator& communicator, DType dtype);
  void draw_q(BucketState& at, Matrix& matrix, int row) const;
  // Computes Q from the sum of P. Returns false, on every rank, if the sums are not finite.
  bool sum_q(BucketState& at);
  void decompress(BucketState& at, Matrix& matrix, Tensor gradient);
  void restart(BucketState& at, Matrix& matrix, Tensor gradient);

  int rank_;
  uint64_t seed_;
  std::vector<BucketState> buckets_;
  std::vector<float> scratch_;
};

}  // namespace tutti::training
