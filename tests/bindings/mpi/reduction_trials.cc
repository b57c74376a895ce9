// Makes random reductions: every type with every operator that MPI defines for it, and user-defined
// operators. Expected results combine all ranks' inputs, which each rank can generate, in rank
// order.
#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <type_traits>

#include "tests/bindings/mpi/trial.h"

namespace tutti::test {
namespace {

// A type's description; elements are handled as bytes.
struct TypeOfElements {
  std::string name;
  MPI_Datatype type;
  size_t bytes;
  std::function<void(std::byte*, uint64_t seed, bool wild)> fill;
  std::function<bool(const std::byte*, const std::byte*)> equal;
};

struct Operator {
  std::string name;
  MPI_Op op;
  TypeOfElements of;
  // combines two elements into `left`
  std::function<void(std::byte* left, const std::byte* right)> combine;
};

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* to, const T& value) {
  std::memcpy(to, &value, sizeof(T));
}

uint64_t mixed(uint64_t value) {
  value = (value ^ value >> 31) * 0x9e3779b97f4a7c15;
  return (value ^ value >> 29) * 0xbf58476d1ce4e5b9 >> 7;
}

class Operators {
 public:
  Operators() {
    integers<signed char>("SIGNED_CHAR", MPI_SIGNED_CHAR);
    integers<unsigned char>("UNSIGNED_CHAR", MPI_UNSIGNED_CHAR);
    integers<short>("SHORT", MPI_SHORT);
    integers<unsigned short>("UNSIGNED_SHORT", MPI_UNSIGNED_SHORT);
    integers<int>("INT", MPI_INT);
    integers<unsigned>("UNSIGNED", MPI_UNSIGNED);
    integers<long>("LONG", MPI_LONG);
    integers<unsigned long>("UNSIGNED_LONG", MPI_UNSIGNED_LONG);
    integers<long long>("LONG_LONG", MPI_LONG_LONG);
    integers<unsigned long long>("UNSIGNED_LONG_LONG", MPI_UNSIGNED_LONG_LONG);
    integers<int8_t>("INT8_T", MPI_INT8_T);
    integers<int16_t>("INT16_T", MPI_INT16_T);
    integers<int32_t>("INT32_T", MPI_INT32_T);
    integers<int64_t>("INT64_T", MPI_INT64_T);
    integers<uint8_t>("UINT8_T", MPI_UINT8_T);
    integers<uint16_t>("UINT16_T", MPI_UINT16_T);
    integers<uint32_t>("UINT32_T", MPI_UINT32_T);
    integers<uint64_t>("UINT64_T", MPI_UINT64_T);
    integers<MPI_Aint>("AINT", MPI_AINT);
    integers<MPI_Offset>("OFFSET", MPI_OFFSET);
    integers<MPI_Count>("COUNT", MPI_COUNT);
    numbers<int>(integer<int>("INTEGER", MPI_INTEGER));
    bits<int>(integer<int>("INTEGER", MPI_INTEGER));
    bits<uint8_t>(integer<uint8_t>("BYTE", MPI_BYTE));
    logicals<bool>(boolean<bool>("C_BOOL", MPI_C_BOOL));
    logicals<bool>(boolean<bool>("CXX_BOOL", MPI_CXX_BOOL));
    logicals<int>(boolean<int>("LOGICAL", MPI_LOGICAL));
    numbers<float>(number<float>("FLOAT", MPI_FLOAT));
    numbers<double>(number<double>("DOUBLE", MPI_DOUBLE));
    numbers<long double>(number<long double>("LONG_DOUBLE", MPI_LONG_DOUBLE));
    numbers<float>(number<float>("REAL", MPI_REAL));
    numbers<double>(number<double>("DOUBLE_PRECISION", MPI_DOUBLE_PRECISION));
    complex<float>("C_FLOAT_COMPLEX", MPI_C_FLOAT_COMPLEX);
    complex<double>("C_DOUBLE_COMPLEX", MPI_C_DOUBLE_COMPLEX);
    complex<long double>("C_LONG_DOUBLE_COMPLEX", MPI_C_LONG_DOUBLE_COMPLEX);
    complex<float>("CXX_FLOAT_COMPLEX", MPI_CXX_FLOAT_COMPLEX);
    complex<double>("CXX_DOUBLE_COMPLEX", MPI_CXX_DOUBLE_COMPLEX);
    complex<float>("COMPLEX", MPI_COMPLEX);
    complex<double>("DOUBLE_COMPLEX", MPI_DOUBLE_COMPLEX);
    pairs<float, int>("FLOAT_INT", MPI_FLOAT_INT);
    pairs<double, int>("DOUBLE_INT", MPI_DOUBLE_INT);
    pairs<long, int>("LONG_INT", MPI_LONG_INT);
    pairs<short, int>("SHORT_INT", MPI_SHORT_INT);
    pairs<int, int>("2INT", MPI_2INT);
    pairs<long double, int>("LONG_DOUBLE_INT", MPI_LONG_DOUBLE_INT);
    pairs<int, int>("2INTEGER", MPI_2INTEGER);
    pairs<float, float>("2REAL", MPI_2REAL);
    pairs<double, double>("2DOUBLE_PRECISION", MPI_2DOUBLE_PRECISION);
    of_the_program();
  }

  const Operator& random(RandomDraws& dice) const {
    return all_[static_cast<size_t>(dice.draw(static_cast<int64_t>(all_.size())))];
  }

 private:
  template <typename T>
  static TypeOfElements type_of(const char* name, MPI_Datatype type,
                                std::function<T(uint64_t, bool)> value) {
    return {name, type, sizeof(T),
            [value](std::byte* to, uint64_t seed, bool wild) { store(to, value(seed, wild)); },
            [](const std::byte* a, const std::byte* b) { return load<T>(a) == load<T>(b); }};
  }

  template <typename T>
  static TypeOfElements integer(const char* name, MPI_Datatype type) {
    return type_of<T>(name, type, [](uint64_t seed, bool wild) {
      return static_cast<T>(wild ? seed : seed % 3);
    });
  }
  template <typename T>
  static TypeOfElements boolean(const char* name, MPI_Datatype type) {
    return type_of<T>(name, type, [](uint64_t seed, bool) { return static_cast<T>(seed % 2); });
  }
  template <typename T>
  static TypeOfElements number(const char* name, MPI_Datatype type) {
    return type_of<T>(name, type, [](uint64_t seed, bool) {
      return static_cast<T>(static_cast<int>(seed % 5) - 2);
    });
  }

  template <typename T>
  void add(const TypeOfElements& of, const char* name, MPI_Op op, std::function<T(T, T)> combine) {
    all_.push_back({of.name + " " + name, op, of, [combine](std::byte* a, const std::byte* b) {
                      store(a, combine(load<T>(a), load<T>(b)));
                    }});
  }

  template <typename T>
  void numbers(const TypeOfElements& of) {
    // Integers wrap around, as unsigned ones do in C++.
    using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
    const auto wide = [](auto combine) {
      return [combine](T a, T b) {
        return static_cast<T>(combine(static_cast<Wide>(a), static_cast<Wide>(b)));
      };
    };
    add<T>(of, "SUM", MPI_SUM, wide(std::plus<Wide>()));
    add<T>(of, "PROD", MPI_PROD, wide(std::multiplies<Wide>()));
    add<T>(of, "MIN", MPI_MIN, [](T a, T b) { return std::min(a, b); });
    add<T>(of, "MAX", MPI_MAX, [](T a, T b) { return std::max(a, b); });
  }
  template <typename T>
  void bits(const TypeOfElements& of) {
    add<T>(of, "BAND", MPI_BAND, [](T a, T b) { return static_cast<T>(a & b); });
    add<T>(of, "BOR", MPI_BOR, [](T a, T b) { return static_cast<T>(a | b); });
    add<T>(of, "BXOR", MPI_BXOR, [](T a, T b) { return static_cast<T>(a ^ b); });
  }
  template <typename T>
  void logicals(const TypeOfElements& of) {
    add<T>(of, "LAND", MPI_LAND, [](T a, T b) { return static_cast<T>(a && b); });
    add<T>(of, "LOR", MPI_LOR, [](T a, T b) { return static_cast<T>(a || b); });
    add<T>(of, "LXOR", MPI_LXOR, [](T a, T b) { return static_cast<T>(!a != !b); });
  }
  template <typename T>
  void integers(const char* name, MPI_Datatype type) {
    const TypeOfElements of = integer<T>(name, type);
    numbers<T>(of);
    bits<T>(of);
    logicals<T>(of);
  }

  // Values of magnitude one, so that all products and sums are exact.
  template <typename T>
  void complex(const char* name, MPI_Datatype type) {
    using Complex = std::complex<T>;
    const TypeOfElements of = type_of<Complex>(name, type, [](uint64_t seed, bool) {
      const T sign = seed % 2 == 0 ? 1 : -1;
      return seed % 4 < 2 ? Complex(sign, 0) : Complex(0, sign);
    });
    add<Complex>(of, "SUM", MPI_SUM, [](Complex a, Complex b) { return a + b; });
    add<Complex>(of, "PROD", MPI_PROD, [](Complex a, Complex b) { return a * b; });
  }

  template <typename Value, typename Index>
  void pairs(const char* name, MPI_Datatype type) {
    struct Pair {
      Value value;
      Index index;
      bool operator==(const Pair&) const = default;
    };
    const TypeOfElements of = type_of<Pair>(name, type, [](uint64_t seed, bool) {
      return Pair{static_cast<Value>(static_cast<int>(seed % 5) - 2),
                  static_cast<Index>(seed / 5 % 50)};
    });
    const auto better = [](bool is_better, bool is_worse, const Pair& a, const Pair& b) {
      if (is_better || is_worse) return is_better ? a : b;
      return b.index < a.index ? b : a;
    };
    add<Pair>(of, "MINLOC", MPI_MINLOC, [better](Pair a, Pair b) {
      return better(a.value < b.value, b.value < a.value, a, b);
    });
    add<Pair>(of, "MAXLOC", MPI_MAXLOC, [better](Pair a, Pair b) {
      return better(a.value > b.value, b.value > a.value, a, b);
    });
  }

  // ---- user-defined operators

  // x -> a x + b, composed: associative, and not commutative.
  struct Affine {
    int64_t a;
    int64_t b;
    bool operator==(const Affine&) const = default;
    Affine then(const Affine& other) const { return {a * other.a, a * other.b + b}; }
  };
  struct Three {
    double x[3];
    bool operator==(const Three&) const = default;
    Three operator+(const Three& o) const {
      return {{x[0] + o.x[0], x[1] + o.x[1], x[2] + o.x[2]}};
    }
  };
  struct Spaced {  // with a gap at its end
    double x;
    int n;
    bool operator==(const Spaced&) const = default;
    Spaced operator+(const Spaced& o) const { return {x + o.x, n + o.n}; }
  };

  template <typename T, typename Combine>
  static void combine_all(void* in, void* in_out, const int* count, Combine combine) {
    for (int i = 0; i < *count; ++i) {
      static_cast<T*>(in_out)[i] = combine(static_cast<T*>(in)[i], static_cast<T*>(in_out)[i]);
    }
  }
  static void compose(void* in, void* in_out, int* count, MPI_Datatype*) {
    combine_all<Affine>(in, in_out, count,
                        [](const Affine& a, const Affine& b) { return a.then(b); });
  }
  static void add_three(void* in, void* in_out, int* count, MPI_Datatype*) {
    combine_all<Three>(in, in_out, count, std::plus<Three>());
  }
  static void add_spaced(void* in, void* in_out, int* count, MPI_Datatype*) {
    combine_all<Spaced>(in, in_out, count, std::plus<Spaced>());
  }
  static void largest(void* in, void* in_out, int* count, MPI_Datatype*) {
    combine_all<int>(in, in_out, count, [](int a, int b) { return std::max(a, b); });
  }

  void of_the_program() {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Op op = MPI_OP_NULL;
    MPI_Type_contiguous(2, MPI_INT64_T, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(compose, 0, &op);
    add<Affine>(
        type_of<Affine>(
            "affine", type,
            [](uint64_t seed, bool) {
              return Affine{static_cast<int64_t>(seed % 3) - 1, static_cast<int64_t>(seed / 3 % 7)};
            }),
        "composed", op, [](Affine a, Affine b) { return a.then(b); });
    MPI_Type_contiguous(3, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(add_three, 1, &op);
    add<Three>(type_of<Three>("three doubles", type,
                              [](uint64_t seed, bool) {
                                const auto x = static_cast<double>(seed % 11);
                                return Three{{x, x + 1, -x}};
                              }),
               "added", op, std::plus<Three>());
    const int lengths[] = {1, 1};
    const MPI_Aint places[] = {0, offsetof(Spaced, n)};
    const MPI_Datatype types[] = {MPI_DOUBLE, MPI_INT};
    MPI_Datatype packed = MPI_DATATYPE_NULL;
    MPI_Type_create_struct(2, lengths, places, types, &packed);
    MPI_Type_create_resized(packed, 0, sizeof(Spaced), &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&packed);
    MPI_Op_create(add_spaced, 1, &op);
    add<Spaced>(type_of<Spaced>(
                    "with a gap", type,
                    [](uint64_t seed, bool) {
                      return Spaced{static_cast<double>(seed % 11), static_cast<int>(seed % 13)};
                    }),
                "added", op, std::plus<Spaced>());
    MPI_Op_create(largest, 1, &op);
    add<int>(number<int>("INT", MPI_INT), "largest", op,
             [](int a, int b) { return std::max(a, b); });
  }

  std::vector<Operator> all_;
};

using Bytes = std::vector<std::byte>;

enum class Kind : uint8_t {
  all_reduce,
  reduce,
  scan,
  exscan,
  reduce_scatter_block,
  reduce_scatter,
};
constexpr const char* kNames[] = {
    "Allreduce", "Reduce", "Scan", "Exscan", "Reduce_scatter_block", "Reduce_scatter"};

struct State {
  const Group& group;
  const Operator& op;
  Kind kind;
  bool in_place;
  int root;
  std::vector<int> counts;  // block sizes
  uint64_t seed;
  bool wild;
  Bytes in;
  Bytes out;

  int64_t total() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  bool has_blocks() const { return kind >= Kind::reduce_scatter_block; }
  int64_t count() const { return has_blocks() ? total() : counts[0]; }
  int64_t before() const {
    return std::accumulate(counts.begin(), counts.begin() + group.rank, int64_t{0});
  }

  Bytes input_of(int rank) const {
    Bytes made(static_cast<size_t>(count()) * op.of.bytes);
    for (int64_t i = 0; i < count(); ++i) {
      op.of.fill(made.data() + static_cast<size_t>(i) * op.of.bytes,
                 mixed(seed + static_cast<uint64_t>(int64_t{rank} * 1000003 + i)), wild);
    }
    return made;
  }

  void prepare() {
    in = input_of(group.rank);
    out = in_place ? in : Bytes(static_cast<size_t>(count()) * op.of.bytes, std::byte{0x5a});
  }

  void call(MPI_Request* request, bool large) {
    const bool root_in_place = in_place && group.rank == root;
    const void* const from =
        (kind == Kind::reduce ? root_in_place : in_place) ? MPI_IN_PLACE : in.data();
    void* const to = out.data();
    const MPI_Datatype type = op.of.type;
    const MPI_Comm comm = group.comm;
    const int n = counts[0];
    if (large) return call_large(request, from, to);
    switch (kind) {
      case Kind::all_reduce:
        request != nullptr ? MPI_Iallreduce(from, to, n, type, op.op, comm, request)
                           : MPI_Allreduce(from, to, n, type, op.op, comm);
        break;
      case Kind::reduce:
        request != nullptr ? MPI_Ireduce(from, to, n, type, op.op, root, comm, request)
                           : MPI_Reduce(from, to, n, type, op.op, root, comm);
        break;
      case Kind::scan:
        request != nullptr ? MPI_Iscan(from, to, n, type, op.op, comm, request)
                           : MPI_Scan(from, to, n, type, op.op, comm);
        break;
      case Kind::exscan:
        request != nullptr ? MPI_Iexscan(from, to, n, type, op.op, comm, request)
                           : MPI_Exscan(from, to, n, type, op.op, comm);
        break;
      case Kind::reduce_scatter_block:
        request != nullptr ? MPI_Ireduce_scatter_block(from, to, n, type, op.op, comm, request)
                           : MPI_Reduce_scatter_block(from, to, n, type, op.op, comm);
        break;
      case Kind::reduce_scatter:
        request != nullptr
            ? MPI_Ireduce_scatter(from, to, counts.data(), type, op.op, comm, request)
            : MPI_Reduce_scatter(from, to, counts.data(), type, op.op, comm);
        break;
    }
  }

  void call_large(MPI_Request* request, const void* from, void* to);

  // Returns the number of ranks whose inputs the result combines; 0: there is no result.
  int combined() const {
    if (kind == Kind::scan) return group.rank + 1;
    if (kind == Kind::exscan) return group.rank;
    return kind == Kind::reduce && group.rank != root ? 0 : group.size;
  }

  std::string check() const {
    if (combined() == 0) return {};
    Bytes wanted = input_of(0);
    for (int r = 1; r < combined(); ++r) {
      const Bytes next = input_of(r);
      for (size_t at = 0; at < wanted.size(); at += op.of.bytes) {
        op.combine(wanted.data() + at, next.data() + at);
      }
    }
    const int64_t first = has_blocks() ? before() : 0;
    const int64_t own = counts[has_blocks() ? static_cast<size_t>(group.rank) : 0];
    for (int64_t i = 0; i < own; ++i) {
      if (!op.of.equal(out.data() + static_cast<size_t>(i) * op.of.bytes,
                       wanted.data() + static_cast<size_t>(first + i) * op.of.bytes)) {
        return "element " + std::to_string(i) + " of " + std::to_string(own);
      }
    }
    return {};
  }
};

#ifdef MPICH
void State::call_large(MPI_Request* request, const void* from, void* to) {
  const MPI_Datatype type = op.of.type;
  const MPI_Comm comm = group.comm;
  const MPI_Count n = counts[0];
  if (kind == Kind::all_reduce) {
    request != nullptr ? MPI_Iallreduce_c(from, to, n, type, op.op, comm, request)
                       : MPI_Allreduce_c(from, to, n, type, op.op, comm);
  } else if (kind == Kind::reduce) {
    request != nullptr ? MPI_Ireduce_c(from, to, n, type, op.op, root, comm, request)
                       : MPI_Reduce_c(from, to, n, type, op.op, root, comm);
  } else {
    call(request, false);
  }
}
#else
void State::call_large(MPI_Request* request, const void*, void*) { call(request, false); }
#endif

}  // namespace

Trial random_reduction(const Group& group, RandomDraws& dice) {
  static const Operators operators;
  const auto kind = static_cast<Kind>(dice.draw(6));
  constexpr int64_t kMost[] = {2, 20, 300, 6000};
  const int64_t most = kMost[dice.draw(4)];
  const auto state = std::make_shared<State>(State{.group = group,
                                                   .op = operators.random(dice),
                                                   .kind = kind,
                                                   .in_place = dice.flip(),
                                                   .root = static_cast<int>(dice.draw(group.size)),
                                                   .counts = {},
                                                   .seed = dice.common(),
                                                   .wild = dice.wild,
                                                   .in = {},
                                                   .out = {}});
  state->counts.assign(static_cast<size_t>(group.size), static_cast<int>(dice.draw(most)));
  if (kind == Kind::reduce_scatter) {
    for (int& count : state->counts) count = static_cast<int>(dice.draw(most));
  }
  // MPICH 4.0 crashes in in-place reductions whose root is not rank 0.
  if (kind == Kind::reduce && state->root != 0) state->in_place = false;
  state->prepare();
  return {.what = std::string(kNames[static_cast<size_t>(kind)]) + " " + state->op.name + " of " +
                  std::to_string(state->count()) + (state->in_place ? " in place" : ""),
          .call = [state](MPI_Request* request, bool large) { state->call(request, large); },
          .check =
              [state] {
                const std::string problem = state->check();
                if (!problem.empty()) throw std::runtime_error(problem);
              }};
}

}  // namespace tutti::test
