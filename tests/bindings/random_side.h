// One rank's part of a random call: its buffers, its request, the expected result, and several ways
// to make the call.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "bindings/c/tutti.h"
#include "tests/bindings/random_call.h"

namespace tutti::testing {

inline double input_value(int rank, uint64_t index) {
  return static_cast<double>((static_cast<uint64_t>(rank) * 7 + index * 3) % 5 + 1);
}

inline size_t size_of(tutti_dtype_t dtype) {
  return dtype == TUTTI_U8 ? 1 : dtype == TUTTI_I32 || dtype == TUTTI_F32 ? 4 : 8;
}

inline void put(void* data, tutti_dtype_t dtype, uint64_t i, double value) {
  if (dtype == TUTTI_I32) static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
  if (dtype == TUTTI_I64) static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
  if (dtype == TUTTI_U8) static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(value);
  if (dtype == TUTTI_F32) static_cast<float*>(data)[i] = static_cast<float>(value);
  if (dtype == TUTTI_F64) static_cast<double*>(data)[i] = value;
}

inline double get(const void* data, tutti_dtype_t dtype, uint64_t i) {
  if (dtype == TUTTI_I32) return static_cast<const int32_t*>(data)[i];
  if (dtype == TUTTI_I64) return static_cast<double>(static_cast<const int64_t*>(data)[i]);
  if (dtype == TUTTI_U8) return static_cast<const uint8_t*>(data)[i];
  if (dtype == TUTTI_F32) return static_cast<double>(static_cast<const float*>(data)[i]);
  return static_cast<const double*>(data)[i];
}

inline constexpr double kUntouched = 99;

// One rank's part of a call: its buffers and the expected result.
class Side {
 public:
  Side(const Call& call, int rank, int p) : call_(call), rank_(rank), p_(p) {
    lay_out(call.in_blocks, true, input_counts_, input_places_, inputs_);
    lay_out(call.out_blocks, false, output_counts_, output_places_, outputs_);
    const size_t element = size_of(call.dtype);
    // Buffers end with the call's data, so that the address sanitizer detects overruns.
    input_.resize(inputs_ * element);
    output_.resize(outputs_ * element);
    for (uint64_t i = 0; i < inputs_; ++i) put(input_.data(), call.dtype, i, input_value(rank, i));
    for (uint64_t i = 0; i < outputs_; ++i) put(output_.data(), call.dtype, i, kUntouched);
    fill_request();
  }
  const tutti_request_t& request() const { return request_; }
  const tutti_call_options_t& options() const { return options_; }
  // Returns true if the erroneous argument is one that this rank uses.
  bool must_be_refused() const { return refused_; }

  void expect_untouched() const {
    for (uint64_t i = 0; i < outputs_; ++i) {
      ASSERT_EQ(get(output_.data(), call_.dtype, i), kUntouched) << "element " << i;
    }
  }

  void expect_right() const {
    if (!call_.has_output(rank_, p_)) return;
    for (int block = 0; block < (call_.out_blocks ? p_ : 1); ++block) {
      const uint64_t start = call_.out_blocks ? output_places_[block] : 0;
      const uint64_t length = call_.out_blocks ? output_counts_[block] : outputs_;
      for (uint64_t i = 0; i < length; ++i) {
        ASSERT_EQ(get(output_.data(), call_.dtype, start + i), expected(block, i))
            << "collective " << call_.collective << " on rank " << rank_ << " of " << p_
            << ", block " << block << ", element " << i << (call_.uneven ? ", uneven" : "");
      }
    }
  }

 private:
  // Returns the length of block `block` in the buffer of rank `of`.
  uint64_t length(bool of_input, int of, int block) const {
    if (call_.collective != TUTTI_ALL_TO_ALL) return call_.lengths[block];
    return of_input ? call_.lengths[of * p_ + block] : call_.lengths[block * p_ + of];
  }
  uint64_t gap() const { return call_.uneven && call_.displaced ? 2 : 0; }

  // Returns the start of block `block` in the buffer of rank `of`, which every rank can compute.
  uint64_t place(bool of_input, int of, int block) const {
    uint64_t start = gap();
    for (int b = 0; b < block; ++b) start += length(of_input, of, b) + gap();
    return start;
  }

  void lay_out(bool blocks, bool of_input, std::vector<uint64_t>& counts,
               std::vector<uint64_t>& places, uint64_t& elements) const {
    const bool used = of_input ? call_.has_input(rank_) : call_.has_output(rank_, p_);
    const bool other_has_blocks = of_input ? call_.out_blocks : call_.in_blocks;
    elements = other_has_blocks ? length(!of_input, call_.root, rank_) : call_.count;
    if (blocks) {
      for (int b = 0; b < p_; ++b) {
        counts.push_back(length(of_input, rank_, b));
        places.push_back(place(of_input, rank_, b));
      }
      elements = place(of_input, rank_, p_);
    }
    if (!used) elements = 0;
  }

  double expected(int block, uint64_t i) const {
    switch (call_.collective) {
      case TUTTI_ALL_GATHER:
      case TUTTI_GATHER:
        return input_value(block, i);
      case TUTTI_ALL_TO_ALL:
        return input_value(block, place(true, block, rank_) + i);
      case TUTTI_BROADCAST:
      case TUTTI_SEND:
        return input_value(call_.root, i);
      case TUTTI_SCATTER:
        return input_value(call_.root, place(true, call_.root, rank_) + i);
      case TUTTI_REDUCE_SCATTER:
        return combined(0, p_, place(true, 0, rank_) + i);
      case TUTTI_SCAN:
        return combined(0, rank_ + 1, i);
      case TUTTI_EXSCAN:
        return rank_ == 0 ? kUntouched : combined(0, rank_, i);
      default:
        return combined(0, p_, i);
    }
  }

  double combined(int first, int end, uint64_t i) const {
    double value = input_value(first, i);
    for (int r = first + 1; r < end; ++r) {
      const double other = input_value(r, i);
      value = call_.op == TUTTI_SUM   ? value + other
              : call_.op == TUTTI_MIN ? std::min(value, other)
                                      : std::max(value, other);
    }
    return value;
  }

  void fill_request() {
    request_.collective = call_.collective;
    request_.root = call_.root;
    if (call_.collective == TUTTI_SEND) {
      const bool sends = rank_ == call_.root;
      request_.collective = sends ? TUTTI_SEND : TUTTI_RECV;
      request_.root = sends ? (call_.root + 1) % p_ : call_.root;
    }
    const bool in = call_.has_input(rank_);
    const bool out = call_.has_output(rank_, p_);
    request_.input = tutti_host(in ? input_.data() : nullptr, inputs_, call_.dtype);
    request_.output = tutti_host(out ? output_.data() : nullptr, outputs_, call_.dtype);
    request_.op = call_.op;
    request_.uneven = call_.uneven ? 1 : 0;
    // Arguments that a rank does not use may have any value.
    const auto* const nowhere = reinterpret_cast<const uint64_t*>(call_.garbage);
    request_.input_counts = in && call_.in_blocks ? input_counts_.data() : nowhere;
    request_.output_counts = out && call_.out_blocks ? output_counts_.data() : nowhere;
    request_.input_displacements = in && call_.in_blocks ? input_places_.data() : nowhere;
    request_.output_displacements = out && call_.out_blocks ? output_places_.data() : nowhere;
    if (!call_.displaced) {
      request_.input_displacements = request_.output_displacements = nullptr;
    }
    if (call_.wrong_rank < 0 || call_.wrong_rank == rank_) spoil(in, out);
  }

  void spoil(bool in, bool out) {
    const bool talks = in || out;
    // The type and space of unused buffers are checked as well.
    const bool has_both = call_.collective != TUTTI_BARRIER && call_.collective != TUTTI_SEND;
    const uint64_t number = call_.absurd;
    const auto small = static_cast<int32_t>(call_.garbage);
    switch (call_.wrong) {
      case Wrong::nothing:
        return;
      case Wrong::input_count:
        request_.input.count = number;
        refused_ = in;
        return;
      case Wrong::output_count:
        request_.output.count = number;
        refused_ = out;
        return;
      case Wrong::both_counts:
        request_.input.count = request_.output.count = number;
        refused_ = talks;
        return;
      case Wrong::null_input:
        request_.input.data = nullptr;
        refused_ = in && inputs_ > 0;
        return;
      case Wrong::null_output:
        request_.output.data = nullptr;
        refused_ = out && outputs_ > 0;
        return;
      case Wrong::wrapping_input:
        refused_ = in && inputs_ * size_of(call_.dtype) > 8;
        if (refused_) request_.input.data = reinterpret_cast<void*>(UINTPTR_MAX - 7);
        return;
      case Wrong::wrapping_output:
        refused_ = out && outputs_ * size_of(call_.dtype) > 8;
        if (refused_) request_.output.data = reinterpret_cast<void*>(UINTPTR_MAX - 7);
        return;
      case Wrong::input_dtype:
        request_.input.dtype = number % 2 == 0 ? -1 : 18 + small;
        refused_ = in || has_both;
        return;
      case Wrong::output_dtype:
        request_.output.dtype = number % 2 == 0 ? INT32_MIN : 256 + call_.dtype;
        refused_ = out || has_both;
        return;
      case Wrong::op:
        request_.op = number % 3 == 0 ? -1 : number % 3 == 1 ? 12 + small : TUTTI_USER;
        refused_ = call_.reduces();
        return;
      case Wrong::root:
        request_.root = number % 3 == 0   ? -2  // -1 is any source
                        : number % 3 == 1 ? p_ + small
                                          : INT32_MIN + request_.root;
        refused_ = call_.rooted() || (call_.collective == TUTTI_SEND && talks);
        return;
      case Wrong::input_space:
        request_.input.space = number % 2 == 0 ? TUTTI_DEVICE : 7;
        refused_ = in || (has_both && number % 2 != 0);
        return;
      case Wrong::request_size:
        request_.size = number % 2 == 0 ? 3 : SIZE_MAX;
        refused_ = true;
        return;
      case Wrong::collective:
        request_.collective = number % 2 == 0 ? -1 : 13 + small;
        refused_ = true;
        return;
      case Wrong::block_count:
      case Wrong::block_place:
      case Wrong::no_blocks:
        return spoil_blocks(in, out);
      case Wrong::options_size:
        options_.size = number % 2 == 0 ? 1 : SIZE_MAX / 2;
        refused_ = true;
        return;
      case Wrong::timeout:
        options_.timeout = number % 2 == 0 ? -1 : std::numeric_limits<double>::quiet_NaN();
        refused_ = true;
        return;
      case Wrong::algorithm:
        options_.algorithm = number % 2 == 0 ? "no_such_algorithm" : "/nowhere/at_all.xml";
        refused_ = call_.collective != TUTTI_SEND;
        return;
    }
  }

  void spoil_blocks(bool in, bool out) {
    const bool input = in && call_.in_blocks;
    const bool output = out && call_.out_blocks;
    refused_ = call_.uneven && (input || output);
    if (!refused_) return;
    std::vector<uint64_t>& counts = input ? input_counts_ : output_counts_;
    std::vector<uint64_t>& places = input ? input_places_ : output_places_;
    if (call_.wrong == Wrong::block_count) {
      counts[call_.garbage % counts.size()] = call_.absurd;
    } else if (call_.wrong == Wrong::block_place) {
      refused_ = call_.displaced;
      if (refused_) places[call_.garbage % places.size()] = call_.absurd;
    } else {
      (input ? request_.input_counts : request_.output_counts) = nullptr;
    }
  }

  Call call_;
  int rank_;
  int p_;
  uint64_t inputs_ = 0;  // number of elements
  uint64_t outputs_ = 0;
  std::vector<uint64_t> input_counts_;
  std::vector<uint64_t> input_places_;
  std::vector<uint64_t> output_counts_;
  std::vector<uint64_t> output_places_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  tutti_request_t request_ = TUTTI_REQUEST_INIT;
  tutti_call_options_t options_ = TUTTI_CALL_OPTIONS_INIT;
  bool refused_ = false;
};

// ---- making calls

// Arguments of the functions for single collectives.
struct Arguments {
  tutti_comm_t* comm;
  const tutti_request_t& r;
  const tutti_call_options_t* o;
};

inline tutti_status_t call_directly(const Arguments& a) {
  const tutti_request_t& r = a.r;
  switch (r.collective) {
    case TUTTI_ALL_REDUCE:
      return tutti_all_reduce(a.comm, r.input, r.output, r.op, a.o);
    case TUTTI_ALL_GATHER:
      return tutti_all_gather(a.comm, r.input, r.output, a.o);
    case TUTTI_REDUCE_SCATTER:
      return tutti_reduce_scatter(a.comm, r.input, r.output, r.op, a.o);
    case TUTTI_BROADCAST:
      return tutti_broadcast(a.comm, r.input, r.output, r.root, a.o);
    case TUTTI_REDUCE:
      return tutti_reduce(a.comm, r.input, r.output, r.op, r.root, a.o);
    case TUTTI_GATHER:
      return tutti_gather(a.comm, r.input, r.output, r.root, a.o);
    case TUTTI_SCATTER:
      return tutti_scatter(a.comm, r.input, r.output, r.root, a.o);
    case TUTTI_ALL_TO_ALL:
      return tutti_all_to_all(a.comm, r.input, r.output, a.o);
    case TUTTI_SCAN:
      return tutti_scan(a.comm, r.input, r.output, r.op, a.o);
    case TUTTI_EXSCAN:
      return tutti_exscan(a.comm, r.input, r.output, r.op, a.o);
    case TUTTI_SEND:
      return tutti_send(a.comm, r.input, r.root, a.o);
    case TUTTI_RECV:
      return tutti_recv(a.comm, r.output, r.root, a.o);
    default:
      return tutti_barrier(a.comm, a.o);
  }
}

inline tutti_status_t finish(tutti_work_t* work, uint64_t how) {
  int done = 0;
  tutti_status_t status = TUTTI_OK;
  if (how % 3 == 0) {
    while (status == TUTTI_OK && done == 0) status = tutti_test(work, &done);
  } else if (how % 3 == 1) {
    while (status == TUTTI_OK && done == 0) status = tutti_wait_for(work, 0.01, &done);
  } else {
    status = tutti_wait(work);
  }
  tutti_work_free(work);
  return status;
}

inline tutti_status_t make(tutti_comm_t* comm, const Side& side, const Call& call) {
  const tutti_request_t& request = side.request();
  const tutti_call_options_t* options = &side.options();
  tutti_work_t* work = nullptr;
  tutti_status_t status = TUTTI_OK;
  switch (call.form) {
    case 0:
      return tutti_run(comm, &request, options);
    case 1:
      status = tutti_start(comm, &request, options, &work);
      return status == TUTTI_OK ? finish(work, call.garbage) : status;
    case 2: {
      tutti_prepared_t* prepared = nullptr;
      status = tutti_prepare(comm, &request, options, &prepared);
      for (int i = 0; i < 2 && status == TUTTI_OK; ++i) {
        status = tutti_prepared_start(prepared, &work);
        if (status == TUTTI_OK) status = finish(work, call.garbage);
      }
      tutti_prepared_free(prepared);
      return status;
    }
    case 3: {
      EXPECT_EQ(tutti_group_begin(), TUTTI_OK);
      status = tutti_run(comm, &request, options);
      const tutti_status_t end = tutti_group_end();
      return status == TUTTI_OK ? end : status;
    }
    default: {
      const bool by_value =
          call.uneven || call.wrong == Wrong::request_size || call.wrong == Wrong::collective;
      if (by_value) return tutti_run(comm, &request, options);
      return call_directly({comm, request, options});
    }
  }
}

}  // namespace tutti::testing
