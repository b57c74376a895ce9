#include "bindings/mpi/operators.h"

#include <complex>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/mpi/values.h"

namespace tutti::mpi {

namespace {

// Returns a handle as a number. Handles are integers in MPICH and pointers in Open MPI.
template <typename Handle>
uintptr_t key_of(Handle handle) {
  return (uintptr_t)handle;  // NOLINT: no C++ cast takes both
}

struct TypeAndOp {
  uintptr_t type;
  uintptr_t op;
  bool operator==(const TypeAndOp&) const = default;
};
struct HashOfBoth {
  size_t operator()(const TypeAndOp& both) const {
    return (both.type ^ both.op * 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9 >> 20;
  }
};

// Makes an operator that has no Tutti kernel. The operator is applied element by element, and `dst`
// may alias either input.
template <typename T, typename Combine>
Reduction by_elements(Combine combine) {
  const auto all = [combine](void* dst, const void* a, const void* b, uint64_t bytes, DType) {
#pragma GCC ivdep
    for (uint64_t i = 0; i < bytes; i += sizeof(T)) {
      T left;
      T right;
      std::memcpy(&left, static_cast<const std::byte*>(a) + i, sizeof(T));
      std::memcpy(&right, static_cast<const std::byte*>(b) + i, sizeof(T));
      const T result = combine(left, right);
      std::memcpy(static_cast<std::byte*>(dst) + i, &result, sizeof(T));
    }
  };
  return Reduction::user(
      std::make_shared<const UserOp>(UserOp{.combine = all, .width = sizeof(T)}));
}

// Returns the product, without C's check whether a NaN should be an infinity. That check takes
// longer than the product.
template <typename T>
std::complex<T> product_of(const std::complex<T>& a, const std::complex<T>& b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

// All predefined operators on the types for which MPI defines them.
class Predefined {
 public:
  Predefined() {
    add_integers();
    add_logicals();
    add_floats();
    add_pairs();
  }

  const Reducible* find(MPI_Datatype type, MPI_Op op) const {
    const auto found = all_.find({key_of(type), key_of(op)});
    return found == all_.end() ? nullptr : &found->second;
  }

 private:
  void add(MPI_Datatype type, MPI_Op op, DType dtype, Reduction reduction) {
    if (type == MPI_DATATYPE_NULL) return;
    all_.emplace(TypeAndOp{key_of(type), key_of(op)}, Reducible{dtype, std::move(reduction)});
  }

  void add_numbers(MPI_Datatype type, DType dtype) {
    add(type, MPI_SUM, dtype, ReduceOp::sum);
    add(type, MPI_PROD, dtype, ReduceOp::prod);
    add(type, MPI_MIN, dtype, ReduceOp::min);
    add(type, MPI_MAX, dtype, ReduceOp::max);
  }

  void add_bits(MPI_Datatype type, DType dtype) {
    add(type, MPI_BAND, dtype, ReduceOp::band);
    add(type, MPI_BOR, dtype, ReduceOp::bor);
    add(type, MPI_BXOR, dtype, ReduceOp::bxor);
  }

  // Adds the logical operators. True is 1, in C and in the Fortran compilers with which these MPI
  // libraries are built.
  template <typename T>
  void add_logical(MPI_Datatype type) {
    static const Reduction both = by_elements<T>([](T a, T b) -> T { return a && b ? 1 : 0; });
    static const Reduction any = by_elements<T>([](T a, T b) -> T { return a || b ? 1 : 0; });
    static const Reduction one = by_elements<T>([](T a, T b) -> T { return !a != !b ? 1 : 0; });
    add(type, MPI_LAND, DType::u8, both);
    add(type, MPI_LOR, DType::u8, any);
    add(type, MPI_LXOR, DType::u8, one);
  }

  template <typename T>
  void add_integer(MPI_Datatype type) {
    constexpr bool kSigned = T(-1) < T(0);
    constexpr DType kSignedTypes[] = {DType::i8, DType::i16, DType::i32, DType::i64};
    constexpr DType kUnsignedTypes[] = {DType::u8, DType::u16, DType::u32, DType::u64};
    constexpr size_t kIndex = sizeof(T) == 1 ? 0 : (sizeof(T) == 2 ? 1 : (sizeof(T) == 4 ? 2 : 3));
    const DType dtype = kSigned ? kSignedTypes[kIndex] : kUnsignedTypes[kIndex];
    add_numbers(type, dtype);
    add_bits(type, dtype);
    add_logical<T>(type);
  }

  // Adds the integer types. MPI_CHAR and MPI_WCHAR are text, which MPI does not reduce; MPI_BYTE
  // supports bitwise operators only. The width of Fortran's own types was fixed when the MPI
  // library was built.
  void add_integers() {
    add_integer<signed char>(MPI_SIGNED_CHAR);
    add_integer<unsigned char>(MPI_UNSIGNED_CHAR);
    add_integer<short>(MPI_SHORT);                    // NOLINT: MPI's names
    add_integer<unsigned short>(MPI_UNSIGNED_SHORT);  // NOLINT
    add_integer<int>(MPI_INT);
    add_integer<unsigned>(MPI_UNSIGNED);
    add_integer<long>(MPI_LONG);                              // NOLINT
    add_integer<unsigned long>(MPI_UNSIGNED_LONG);            // NOLINT
    add_integer<long long>(MPI_LONG_LONG_INT);                // NOLINT
    add_integer<unsigned long long>(MPI_UNSIGNED_LONG_LONG);  // NOLINT
    add_integer<int8_t>(MPI_INT8_T);
    add_integer<int16_t>(MPI_INT16_T);
    add_integer<int32_t>(MPI_INT32_T);
    add_integer<int64_t>(MPI_INT64_T);
    add_integer<uint8_t>(MPI_UINT8_T);
    add_integer<uint16_t>(MPI_UINT16_T);
    add_integer<uint32_t>(MPI_UINT32_T);
    add_integer<uint64_t>(MPI_UINT64_T);
    add_integer<MPI_Aint>(MPI_AINT);
    add_integer<MPI_Offset>(MPI_OFFSET);
    add_integer<MPI_Count>(MPI_COUNT);
    add_integer<int8_t>(MPI_INTEGER1);
    add_integer<int16_t>(MPI_INTEGER2);
    add_integer<int32_t>(MPI_INTEGER4);
    add_integer<int64_t>(MPI_INTEGER8);
    if (size_of_type(MPI_INTEGER) == 4) add_integer<int32_t>(MPI_INTEGER);
    if (size_of_type(MPI_INTEGER) == 8) add_integer<int64_t>(MPI_INTEGER);
    add_bits(MPI_BYTE, DType::u8);
  }

  void add_logicals() {
    add_logical<bool>(MPI_C_BOOL);
    add_logical<bool>(MPI_CXX_BOOL);
    if (size_of_type(MPI_LOGICAL) == 4) add_logical<int32_t>(MPI_LOGICAL);
    if (size_of_type(MPI_LOGICAL) == 8) add_logical<int64_t>(MPI_LOGICAL);
  }

  void add_real(MPI_Datatype type) {
    if (size_of_type(type) == 4) add_numbers(type, DType::f32);
    if (size_of_type(type) == 8) add_numbers(type, DType::f64);
  }

  template <typename T>
  void add_complex(MPI_Datatype type) {
    using Complex = std::complex<T>;
    static const Reduction sum = by_elements<Complex>(std::plus<Complex>());
    static const Reduction product =
        by_elements<Complex>([](const Complex& a, const Complex& b) { return product_of(a, b); });
    if (size_of_type(type) != sizeof(Complex)) return;
    add(type, MPI_SUM, DType::u8, sum);
    add(type, MPI_PROD, DType::u8, product);
  }

  void add_floats() {
    for (MPI_Datatype type :
         {MPI_FLOAT, MPI_DOUBLE, MPI_REAL4, MPI_REAL8, MPI_REAL, MPI_DOUBLE_PRECISION}) {
      add_real(type);
    }
    using Long = long double;
    add(MPI_LONG_DOUBLE, MPI_SUM, DType::u8, by_elements<Long>(std::plus<Long>()));
    add(MPI_LONG_DOUBLE, MPI_PROD, DType::u8, by_elements<Long>(std::multiplies<Long>()));
    add(MPI_LONG_DOUBLE, MPI_MIN, DType::u8,
        by_elements<Long>([](Long a, Long b) { return b < a ? b : a; }));
    add(MPI_LONG_DOUBLE, MPI_MAX, DType::u8,
        by_elements<Long>([](Long a, Long b) { return a < b ? b : a; }));
    for (MPI_Datatype type :
         {MPI_C_FLOAT_COMPLEX, MPI_CXX_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_CXX_DOUBLE_COMPLEX,
          MPI_C_LONG_DOUBLE_COMPLEX, MPI_CXX_LONG_DOUBLE_COMPLEX, MPI_COMPLEX, MPI_DOUBLE_COMPLEX,
          MPI_COMPLEX8, MPI_COMPLEX16}) {
      add_complex<float>(type);
      add_complex<double>(type);
    }
    add_complex<Long>(MPI_C_LONG_DOUBLE_COMPLEX);
    add_complex<Long>(MPI_CXX_LONG_DOUBLE_COMPLEX);
  }

  // Adds a type of pairs. If values are equal, the lower index is taken.
  template <typename Value, typename Index>
  void add_pair(MPI_Datatype type) {
    struct Pair {
      Value value;
      Index index;
    };
    if (type == MPI_DATATYPE_NULL || extent_of(type) != sizeof(Pair)) return;
    const auto lower = [](const Pair& a, const Pair& b) { return b.index < a.index ? b : a; };
    add(type, MPI_MINLOC, DType::u8, by_elements<Pair>([lower](const Pair& a, const Pair& b) {
          if (a.value < b.value) return a;
          return b.value < a.value ? b : lower(a, b);
        }));
    add(type, MPI_MAXLOC, DType::u8, by_elements<Pair>([lower](const Pair& a, const Pair& b) {
          if (b.value < a.value) return a;
          return a.value < b.value ? b : lower(a, b);
        }));
  }

  void add_pairs() {
    const auto add_known = [this](MPI_Datatype type, DType dtype) {
      add(type, MPI_MINLOC, dtype, ReduceOp::minloc);
      add(type, MPI_MAXLOC, dtype, ReduceOp::maxloc);
    };
    add_known(MPI_FLOAT_INT, DType::f32_i32);
    add_known(MPI_2INT, DType::i32_i32);
    if (size_of_type(MPI_2INTEGER) == 8) add_known(MPI_2INTEGER, DType::i32_i32);
    add_pair<double, int>(MPI_DOUBLE_INT);
    add_pair<long, int>(MPI_LONG_INT);    // NOLINT: MPI's names
    add_pair<short, int>(MPI_SHORT_INT);  // NOLINT
    add_pair<long double, int>(MPI_LONG_DOUBLE_INT);
    add_pair<float, float>(MPI_2REAL);
    add_pair<double, double>(MPI_2DOUBLE_PRECISION);
  }

  std::unordered_map<TypeAndOp, Reducible, HashOfBoth> all_;
};

bool is_predefined(MPI_Op op) {
  for (MPI_Op known : {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND,
                       MPI_BOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC, MPI_REPLACE, MPI_NO_OP}) {
    if (op == known) return true;
  }
  return false;
}

// Returns true if Tutti must not write every byte of an array of this type, because bytes between
// or inside elements may be the program's other data. The padding of predefined pair types
// (MPI_DOUBLE_INT) does not count as a gap.
bool has_gaps(MPI_Datatype type) {
  MPI_Aint low = 0;
  MPI_Aint extent = 0;
  MPI_Aint true_low = 0;
  MPI_Aint true_extent = 0;
  PMPI_Type_get_extent(type, &low, &extent);
  PMPI_Type_get_true_extent(type, &true_low, &true_extent);
  if (low != 0 || true_low != 0 || true_extent > extent) return true;
  return size_of_type(type) != static_cast<uint64_t>(extent) && !is_named(type);
}

// Calls the program's own function through the MPI library, which passes the arguments as the
// function's language and count type require.
class ProgramsFunction {
 public:
  ProgramsFunction(MPI_Datatype type, MPI_Op op, uint64_t element)
      : type_(type), op_(op), element_(element) {}

  // Computes dst = a op b. The program's function stores its result in its second argument.
  void operator()(void* dst, const void* a, const void* b, uint64_t bytes, DType) const {
    const bool direct = dst != a && is_aligned(dst) && is_aligned(a);
    if (direct) {
      if (dst != b) std::memcpy(dst, b, bytes);
      apply(a, dst, bytes);
      return;
    }
    // The copy is aligned for all C types, because memory from operator new is.
    const std::vector<std::byte> left(static_cast<const std::byte*>(a),
                                      static_cast<const std::byte*>(a) + bytes);
    std::vector<std::byte> right(static_cast<const std::byte*>(b),
                                 static_cast<const std::byte*>(b) + bytes);
    apply(left.data(), right.data(), bytes);
    std::memcpy(dst, right.data(), bytes);
  }

 private:
  static bool is_aligned(const void* data) {
    return reinterpret_cast<uintptr_t>(data) % alignof(std::max_align_t) == 0;
  }
  void apply(const void* in, void* in_out, uint64_t bytes) const {
    PMPI_Reduce_local(in, in_out, static_cast<int>(bytes / element_), type_, op_);
  }

  MPI_Datatype type_;
  MPI_Op op_;
  uint64_t element_;
};

// Returns the operator for a function that the program supplied. The thread's last result is
// cached, so that repeated calls are planned once. A handle may have been reused, so the properties
// on which the function depends are compared.
const Reducible* programs(MPI_Datatype type, MPI_Op op) {
  struct Last {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Op op = MPI_OP_NULL;
    Reducible reducible;
  };
  thread_local Last last;
  constexpr int64_t kMostBytes = 256;
  const int64_t element = extent_of(type);
  if (element <= 0 || element > kMostBytes || has_gaps(type)) return nullptr;
  int commutes = 0;
  if (PMPI_Op_commutative(op, &commutes) != MPI_SUCCESS) return nullptr;
  const std::shared_ptr<const UserOp>& known = last.reducible.op.function;
  if (known == nullptr || last.type != type || last.op != op ||
      known->width != static_cast<uint64_t>(element) || known->commutative != (commutes != 0)) {
    const auto width = static_cast<uint64_t>(element);
    last.type = type;
    last.op = op;
    // These members have no initialisers, because GCC 12 would zero them each time.
    last.reducible.dtype = DType::u8;
    last.reducible.is_programs = true;
    last.reducible.op = Reduction::user(
        std::make_shared<const UserOp>(UserOp{.combine = ProgramsFunction(type, op, width),
                                              .commutative = commutes != 0,
                                              .width = width}));
  }
  return &last.reducible;
}

}  // namespace

const Reducible* reducible(MPI_Datatype type, MPI_Op op) {
  static const Predefined predefined;
  if (type == MPI_DATATYPE_NULL || op == MPI_OP_NULL) return nullptr;
  const Reducible* const found = predefined.find(type, op);
  if (found != nullptr || is_predefined(op)) return found;
  return programs(type, op);
}

}  // namespace tutti::mpi
