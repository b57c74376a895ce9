// Table of the loops behind elementwise.h, normalization.h, attention.h ..., per instruction set
// and element type. Void pointers point to elements of the type. Exceptions are intermediate
// results (names that end in `values`, statistics, sums, other_lses, cos_sin): float, or double for
// f64. Outputs may alias inputs of the same shape.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace tutti::training::kernels {

// The random numbers of a call. `index` is the counter of the first element's random number.
struct RandomAt {
  uint64_t seed = 0;
  uint64_t stream = 0;
  uint64_t index = 0;
};

// Heads are side by side in a row: element (row, head, i) is data[row * stride + head * head_size +
// i].
struct Heads {
  int64_t rows = 0;
  int64_t stride = 0;
  int64_t count = 0;
  int64_t head_size = 0;
};

// Sizes of a pooling: windows that slide over samples x height x width pixels of `channels` values;
// padding pixels are absent.
struct Pooling {
  int64_t samples = 0;
  int64_t height = 0, width = 0, channels = 0;
  int64_t output_height = 0, output_width = 0;
  int64_t window_height = 0, window_width = 0, stride = 0, top = 0, left = 0;
};

// The columns of a block of attention scores to which each row attends: row r attends to columns
// [starts[r] - first_col, ends[r] - first_col). Without `starts` the range begins at 0, and without
// `ends` it ends before valid + r.
struct Visible {
  int64_t valid = 0;
  const int32_t* starts = nullptr;
  const int32_t* ends = nullptr;
  int64_t first_col = 0;
};

struct Loops {
  // Elementwise functions of n elements.
  void (*gelu)(const void* x, void* y, int64_t n);
  void (*gelu_backward)(const void* x, const void* dy, void* dx, int64_t n);
  void (*swiglu)(const void* gate, const void* up, void* y, int64_t n);
  void (*swiglu_backward)(const void* gate, const void* up, const void* dy, void* dgate, void* dup,
                          int64_t n);
  void (*relu)(const void* x, void* y, int64_t n);
  void (*relu_backward)(const void* y, const void* dy, void* dx, int64_t n);
  void (*add)(const void* a, const void* b, void* y, int64_t n);
  void (*scale)(const void* x, void* y, int64_t n, double factor);
  void (*to_values)(const void* x, void* values, int64_t n);
  void (*from_values)(const void* values, void* y, int64_t n);
  // y += values
  void (*add_values)(const void* values, void* y, int64_t n);
  bool (*all_finite)(const void* x, int64_t n);
  // y = x / (1 - p) where the element is kept, else 0. `threshold` is p * 2^32.
  void (*dropout)(const void* x, void* y, int64_t n, uint32_t threshold, double keep_scale,
                  RandomAt random);
  // y = residual + dropout of x, as in `dropout`
  void (*dropout_add)(const void* x, const void* residual, void* y, int64_t n, uint32_t threshold,
                      double keep_scale, RandomAt random);

  // Normalization of rows. statistics: two values per row, mean and 1 / deviation; for RMSNorm one,
  // 1 / root mean square.
  void (*layer_norm)(const void* x, const void* gain, const void* bias, void* y, void* statistics,
                     int64_t rows, int64_t cols, double epsilon);
  void (*layer_norm_backward)(const void* x, const void* gain, const void* dy,
                              const void* statistics, void* dx, int64_t rows, int64_t cols);
  // Adds the gradients of gain and bias to gain_values and bias_values.
  void (*layer_norm_gradients)(const void* x, const void* dy, const void* statistics,
                               void* gain_values, void* bias_values, int64_t rows, int64_t cols);
  void (*rms_norm)(const void* x, const void* gain, void* y, void* statistics, int64_t rows,
                   int64_t cols, double epsilon);
  void (*rms_norm_backward)(const void* x, const void* gain, const void* dy, const void* statistics,
                            void* dx, int64_t rows, int64_t cols);
  void (*rms_norm_gradients)(const void* x, const void* dy, const void* statistics,
                             void* gain_values, int64_t rows, int64_t cols);
  // sum_values[c] += sum over rows of x[r][c]
  void (*add_column_sums)(const void* x, void* sum_values, int64_t rows, int64_t cols,
                          int64_t stride);

  // Rotates the pairs (i, i + head_size / 2) of every head; row r is at position r % context.
  // `cos_sin`: for each position head_size / 2 cosines, then as many sines. direction: 1 or -1.
  void (*rope)(const void* x, void* y, Heads heads, int64_t context, const void* cos_sin,
               int direction);

  // Steps of one block of online softmax; cpu/attention.cc shows how they work together.
  void (*attention_softmax)(const void* score_values, void* probabilities, int64_t rows,
                            int64_t cols, Visible visible, double scale, void* max_values,
                            void* sum_values, void* output_values, int64_t head_size);
  void (*attention_finish)(const void* output_values, const void* max_values,
                           const void* sum_values, void* y, int64_t y_stride, void* lse_values,
                           int64_t rows, int64_t head_size);
  void (*attention_merge)(const void* other, int64_t other_stride, const void* other_lses, void* y,
                          int64_t y_stride, void* lse_values, int64_t rows, int64_t head_size);
  void (*attention_recompute)(const void* score_values, const void* lse_values, void* probabilities,
                              int64_t rows, int64_t cols, Visible visible, double scale);
  void (*attention_score_gradient)(const void* probabilities, const void* dp_values,
                                   const void* delta_values, void* ds, int64_t rows, int64_t cols,
                                   double scale);
  // delta[r] = sum over i of dy[r][i] * y[r][i]
  void (*attention_delta)(const void* y, const void* dy, int64_t stride, void* delta_values,
                          int64_t rows, int64_t head_size);

  // Batch normalization of columns. column_moments adds x to sums and x^2 to squares, in double, in
  // the order of rows.
  void (*column_moments)(const void* x, double* sums, double* squares, int64_t rows, int64_t cols);
  // y = (x - mean) * factor + bias, clamped to >= 0 if `relu`.
  void (*batch_norm)(const void* x, const void* mean_values, const void* factor_values,
                     const void* bias_values, bool relu, void* y, int64_t rows, int64_t cols);
  // With g = dy, or 0 where y <= 0 (null y: g = dy), adds g to sums and g (x - mean) to products,
  // in double, in the order of rows.
  void (*batch_norm_sums)(const void* x, const void* mean_values, const void* y, const void* dy,
                          double* sums, double* products, int64_t rows, int64_t cols);
  // dx = g * factor - (x - mean) * slope - offset
  void (*batch_norm_backward)(const void* x, const void* mean_values, const void* y, const void* dy,
                              const void* factor_values, const void* slope_values,
                              const void* offset_values, void* dx, int64_t rows, int64_t cols);

  // places: for each output, the index of the (first) largest pixel in its window.
  void (*max_pool)(const Pooling& shape, const void* x, void* y, uint8_t* places);
  void (*max_pool_backward)(const Pooling& shape, const void* dy, const uint8_t* places, void* dx);
  // y = the sum over a window, times `factor`.
  void (*average_pool)(const Pooling& shape, const void* x, void* y, double factor);
  void (*average_pool_backward)(const Pooling& shape, const void* dy, void* dx, double factor);

  // Column c is the logit of class first_class + c. sums: three values per row. statistics: per row
  // the maximum and the logarithm of the sum (cross_entropy.h).
  void (*cross_entropy_sums)(const void* logits, const int32_t* targets, int64_t first_class,
                             void* sums, int64_t rows, int64_t cols, int64_t stride);
  void (*cross_entropy_backward)(const void* logits, const int32_t* targets, int64_t first_class,
                                 const void* statistics, void* dlogits, int64_t rows, int64_t cols,
                                 double scale);
};

// Returns the table for f16, bf16, f32 or f64 on the selected instruction set (TUTTI_CPU). Throws
// Error(unsupported) for another type.
const Loops& loops(DType type);

// number of types: f16, bf16, f32, f64, in the order of DType
inline constexpr int kFloatTypes = 4;

namespace baseline {
extern const Loops kLoops[kFloatTypes];
}
namespace avx2 {
extern const Loops kLoops[kFloatTypes];
}
namespace avx512 {
extern const Loops kLoops[kFloatTypes];
}

}  // namespace tutti::training::kernels
