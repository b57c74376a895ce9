#include "bindings/mpi/accesses.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/reduce.h"
#include "base/text.h"
#include "bindings/mpi/arguments.h"
#include "bindings/mpi/operators.h"
#include "bindings/mpi/values.h"

namespace tutti::mpi {

namespace {

// Returns the bytes of an element of a common type; 0 for any other type.
inline uint64_t common_size(MPI_Datatype type) {
  if (type == MPI_BYTE || type == MPI_CHAR) return 1;
  if (type == MPI_DOUBLE) return 8;
  return type == MPI_INT || type == MPI_FLOAT ? 4 : 0;
}

bool is_refused_target(const ServedWindow& window, const Target& target) {
  if (target.rank < 0 || target.rank >= window.size()) return true;
  if (target.count < 0 || target.type == MPI_DATATYPE_NULL) return true;
  char somewhere = 0;  // the MPI library needs an address, but the window determines the location
  return common_size(target.type) == 0 && is_refused(&somewhere, target.count, target.type);
}

bool is_refused_elements(const Elements& elements) {
  return is_refused(elements.data, elements.count, elements.type);
}

[[noreturn]] void refuse_range(const ServedWindow& window, const Target& target) {
  throw ClassedError(MPI_ERR_RMA_RANGE,
                     cat(target.count, " elements at displacement ", target.displacement,
                         " are outside the window of rank ", target.rank, ", which has ",
                         window.part(target.rank).bytes, " bytes"));
}

[[noreturn]] void refuse_type() {
  throw ClassedError(MPI_ERR_TYPE, "MPI does not define this call for this type");
}

[[noreturn]] void refuse_operator() {
  throw ClassedError(MPI_ERR_OP, "MPI does not define this operator here for this type");
}

[[noreturn]] void refuse_counts(uint64_t bytes, uint64_t others) {
  throw ClassedError(MPI_ERR_TRUNCATE,
                     cat(bytes, " bytes do not match the target's ", others, " bytes"));
}

// Returns the target's offset in bytes from the start of the part. The access covers the bytes
// [low, high) relative to this offset. Throws if they are outside the part.
int64_t checked_offset(const ServedWindow& window, const Target& target, int64_t low,
                       int64_t high) {
  const Part& part = window.part(target.rank);
  int64_t offset = 0;
  if (__builtin_mul_overflow(target.displacement, part.unit, &offset) || offset + low < 0 ||
      high > part.bytes || offset > part.bytes - high) {
    refuse_range(window, target);
  }
  return offset;
}

// Returns the number of bytes of the target's elements, each of `size` bytes.
int64_t bytes_of(const ServedWindow& window, const Target& target, uint64_t size) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(target.count, size, &bytes)) refuse_range(window, target);
  return bytes;
}

// Returns the address at which this rank has mapped the target's elements. Empty ranges may have
// any address.
std::byte* place_of(const ServedWindow& window, const Target& target) {
  if (target.count == 0) return window.data(target.rank);
  if (const uint64_t size = common_size(target.type); size != 0) {
    const int64_t bytes = bytes_of(window, target, size);
    return window.data(target.rank) + checked_offset(window, target, 0, bytes);
  }
  if (size_of_type(target.type) == 0) return window.data(target.rank);
  MPI_Aint low = 0;
  MPI_Aint length = 0;
  PMPI_Type_get_true_extent(target.type, &low, &length);
  int64_t last = 0;
  int64_t reach = 0;
  if (__builtin_mul_overflow(target.count - 1, extent_of(target.type), &last) ||
      __builtin_add_overflow(low + length, last, &reach) ||
      __builtin_add_overflow(low, last, &reach)) {
    refuse_range(window, target);
  }
  const int64_t offset = checked_offset(window, target, low + std::min<int64_t>(last, 0),
                                        low + length + std::max<int64_t>(last, 0));
  return window.data(target.rank) + offset;
}

Run run_of(const Elements& elements) {
  return {elements.data, static_cast<uint64_t>(elements.count), elements.type};
}

void move(Run from, Run to) {
  from.pack();
  const ConstBuffer input = from.input();
  const Buffer output = to.output();
  if (input.count != output.count) refuse_counts(input.count, output.count);
  if (input.count > 0) std::memmove(output.data, input.data, input.count);
  to.unpack();
}

// ---- reductions

// Returns the predefined type that all elements of a type have; null if the elements have several
// types, or an unknown type.
MPI_Datatype base_of(MPI_Datatype type) {
  int integers = 0;
  int addresses = 0;
  int types = 0;
  int combiner = 0;
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  if (combiner == MPI_COMBINER_NAMED) return type;
  if (types == 0) return MPI_DATATYPE_NULL;
  std::vector<int> numbers(static_cast<size_t>(std::max(integers, 1)));
  std::vector<MPI_Aint> places(static_cast<size_t>(std::max(addresses, 1)));
  std::vector<MPI_Datatype> inner(static_cast<size_t>(types));
  if (PMPI_Type_get_contents(type, integers, addresses, types, numbers.data(), places.data(),
                             inner.data()) != MPI_SUCCESS) {
    return MPI_DATATYPE_NULL;
  }
  MPI_Datatype base = base_of(inner.front());
  for (MPI_Datatype one : inner) {
    if (base_of(one) != base) base = MPI_DATATYPE_NULL;
  }
  for (MPI_Datatype& one : inner) {
    if (!is_named(one)) PMPI_Type_free(&one);
  }
  return base;
}

MPI_Datatype combined_type(MPI_Datatype type) {
  const MPI_Datatype base = common_size(type) != 0 ? type : base_of(type);
  if (base == MPI_DATATYPE_NULL) refuse_type();
  return base;
}

// Contiguous elements of a base type, in the caller's memory or in a temporary copy.
class Row {
 public:
  Row(const void* data, int64_t count, MPI_Datatype type, MPI_Datatype base)
      : run_(data, static_cast<uint64_t>(count), type), base_(base) {
    const uint64_t bytes = run_.input().count;
    size_ = bytes / size_of_type(base);
    if (type == base) {
      // The cast is safe, because inputs are only read.
      data_ = static_cast<std::byte*>(const_cast<void*>(data));
      return;
    }
    run_.pack();
    aside_.resize(size_ * static_cast<uint64_t>(extent_of(base)));
    data_ = aside_.data();
    Run row(data_, size_, base);
    if (bytes > 0) std::memcpy(row.output().data, run_.input().data, bytes);
    row.unpack();
  }
  // Writes the copy back to the caller's memory.
  void store() {
    if (aside_.empty()) return;
    Run row(data_, size_, base_);
    row.pack();
    std::memcpy(run_.output().data, row.input().data, row.input().count);
    run_.unpack();
  }
  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  Run run_;
  MPI_Datatype base_;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  std::vector<std::byte> aside_;
};

// The update of a window element: MPI_NO_OP, MPI_REPLACE, or a reduction.
class Update {
 public:
  Update(MPI_Datatype base, MPI_Op op)
      : keeps_(op == MPI_NO_OP),
        replaces_(op == MPI_REPLACE),
        kind_(keeps_ || replaces_ ? nullptr : reducible(base, op)),
        base_(base),
        op_(op),
        bytes_(static_cast<uint64_t>(extent_of(base))) {
    // Only the MPI library reduces elements of at least this size (Fortran has types of 16 bytes).
    constexpr uint64_t kLarge = 16;
    const bool is_possible =
        keeps_ || replaces_ ||
        (kind_ != nullptr ? !kind_->is_programs : size_of_type(base) >= kLarge);
    if (!is_possible) {
      refuse_operator();
    }
  }

  bool keeps() const { return keeps_; }
  // Returns true if accumulate() of Tutti's windows supports the operator.
  bool has_kernel() const { return kind_ != nullptr && kind_->op.op != ReduceOp::user; }
  const Reducible& kind() const { return *kind_; }

  void apply(std::byte* to, const std::byte* from, uint64_t elements) const {
    if (keeps_) return;
    if (replaces_) {
      std::memmove(to, from, elements * bytes_);
    } else if (has_kernel()) {
      reduce_kernel(kind_->dtype, kind_->op.op)(to, to, from, elements, {});
    } else if (kind_ == nullptr) {
      constexpr uint64_t kMost = 1 << 30;  // maximum number of elements per call
      for (uint64_t done = 0; done < elements; done += kMost) {
        PMPI_Reduce_local(from + done * bytes_, to + done * bytes_,
                          static_cast<int>(std::min(kMost, elements - done)), base_, op_);
      }
    } else {
      kind_->op.function->combine(to, to, from, elements * kind_->op.width(), kind_->dtype);
    }
  }

 private:
  bool keeps_;
  bool replaces_;
  const Reducible* kind_;
  MPI_Datatype base_;
  MPI_Op op_;
  uint64_t bytes_;
};

}  // namespace

// ---- accesses

bool put(ServedWindow& window, const Elements& origin, const Target& target) {
  if (target.rank == MPI_PROC_NULL) return true;
  if (is_refused_target(window, target) || is_refused_elements(origin)) return false;
  const uint64_t size = common_size(target.type);
  if (size == 0 || target.type != origin.type || target.count != origin.count) {
    move(run_of(origin), run_of({place_of(window, target), target.count, target.type}));
    return true;
  }
  if (target.count == 0) return true;
  const auto bytes = static_cast<uint64_t>(bytes_of(window, target, size));
  const int64_t offset = checked_offset(window, target, 0, static_cast<int64_t>(bytes));
  window.window().put({origin.data, bytes, DType::u8}, target.rank, static_cast<uint64_t>(offset));
  return true;
}

bool get(ServedWindow& window, const Elements& result, const Target& target) {
  if (target.rank == MPI_PROC_NULL) return true;
  if (is_refused_target(window, target) || is_refused_elements(result)) return false;
  const uint64_t size = common_size(target.type);
  if (size == 0 || target.type != result.type || target.count != result.count) {
    move(run_of({place_of(window, target), target.count, target.type}), run_of(result));
    return true;
  }
  if (target.count == 0) return true;
  const auto bytes = static_cast<uint64_t>(bytes_of(window, target, size));
  const int64_t offset = checked_offset(window, target, 0, static_cast<int64_t>(bytes));
  window.window().get({const_cast<void*>(result.data), bytes, DType::u8}, target.rank,
                      static_cast<uint64_t>(offset));
  return true;
}

bool accumulate(ServedWindow& window, const Elements& origin, const Target& target, MPI_Op op) {
  if (target.rank == MPI_PROC_NULL) return true;
  if (is_refused_target(window, target) || is_refused_elements(origin) || op == MPI_OP_NULL)
    return false;
  const MPI_Datatype base = combined_type(target.type);
  const Update update(base, op);
  if (update.keeps()) refuse_operator();
  std::byte* const place = place_of(window, target);
  if (update.has_kernel() && target.type == base && origin.type == base &&
      target.count == origin.count) {
    const Reducible& kind = update.kind();
    window.window().accumulate({origin.data, static_cast<uint64_t>(origin.count), kind.dtype},
                               target.rank, static_cast<uint64_t>(place - window.data(target.rank)),
                               kind.op.op);
    return true;
  }
  const Row from(origin.data, origin.count, origin.type, base);
  const Window::Exclusion exclusion(window.window(), target.rank);
  Row to(place, target.count, target.type, base);
  if (from.size() != to.size()) refuse_counts(from.size(), to.size());
  update.apply(to.data(), from.data(), to.size());
  to.store();
  return true;
}

bool get_accumulate(ServedWindow& window, const Elements& origin, const Elements& result,
                    const Target& target, MPI_Op op) {
  if (target.rank == MPI_PROC_NULL) return true;
  if (is_refused_target(window, target) || is_refused_elements(result) || op == MPI_OP_NULL)
    return false;
  if (op != MPI_NO_OP && is_refused_elements(origin)) return false;
  const MPI_Datatype base = combined_type(target.type);
  const Update update(base, op);
  std::byte* const place = place_of(window, target);
  const Row from(origin.data, update.keeps() ? 0 : origin.count,
                 update.keeps() ? base : origin.type, base);
  const Window::Exclusion exclusion(window.window(), target.rank);
  Row to(place, target.count, target.type, base);
  if (!update.keeps() && from.size() != to.size()) refuse_counts(from.size(), to.size());
  move(run_of({place, target.count, target.type}), run_of(result));
  update.apply(to.data(), from.data(), to.size());
  if (!update.keeps()) to.store();
  return true;
}

bool compare_and_swap(ServedWindow& window, const void* origin, const void* compare, void* result,
                      const Target& target) {
  if (target.rank == MPI_PROC_NULL) return true;
  if (is_refused_target(window, target) || origin == nullptr || compare == nullptr ||
      result == nullptr) {
    return false;
  }
  // MPI allows this call for integers, logicals and bytes, which are the types of these operators.
  if (!is_named(target.type) || (reducible(target.type, MPI_BAND) == nullptr &&
                                 reducible(target.type, MPI_LAND) == nullptr)) {
    refuse_type();
  }
  std::byte* const place = place_of(window, target);
  const uint64_t bytes = size_of_type(target.type);
  const Window::Exclusion exclusion(window.window(), target.rank);
  std::memcpy(result, place, bytes);
  if (std::memcmp(result, compare, bytes) == 0) std::memcpy(place, origin, bytes);
  return true;
}

int complete_request(MPI_Request* request) {
  const auto query = [](void*, MPI_Status* status) -> int {
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
  };
  const auto nothing = [](void*) -> int { return MPI_SUCCESS; };
  const auto nothing_to_cancel = [](void*, int) -> int { return MPI_SUCCESS; };
  const int status = PMPI_Grequest_start(query, nothing, nothing_to_cancel, nullptr, request);
  return status == MPI_SUCCESS ? PMPI_Grequest_complete(*request) : status;
}

}  // namespace tutti::mpi
