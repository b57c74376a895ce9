// Checks all reductions with types, operators, counts and communicators against sums computed here.
#include <mpi.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/bindings/mpi/checks.h"

namespace tutti::test {
namespace {

template <typename T>
using Combine = std::function<T(T, T)>;

// The inputs of ranks 0 .. ranks - 1, combined element by element.
template <typename T>
std::vector<T> combined(int ranks, int64_t count, const Combine<T>& combine) {
  std::vector<T> result = values_of<T>(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<T> next = values_of<T>(rank, count);
    std::ranges::transform(result, next, result.begin(), combine);
  }
  return result;
}

template <typename T>
class Reductions {
 public:
  Reductions(const Group& group, std::string name, MPI_Datatype type, MPI_Op op, Combine<T> combine)
      : group_(group), name_(std::move(name)), type_(type), op_(op), combine_(std::move(combine)) {}

  void run(int64_t count) {
    n_ = count;
    all_ = combined<T>(group_.size, count, combine_);
    own_ = values_of<T>(group_.rank, count);
    all_reduce();
    reduce();
    scans();
    blocks();
    uneven_blocks();
  }

 private:
  void check(const char* call, const std::vector<T>& got, const std::vector<T>& wanted) {
    expect(std::string(call) + " " + name_ + " of " + std::to_string(n_), group_, got, wanted);
  }
  int n() const { return static_cast<int>(n_); }

  void all_reduce() {
    std::vector<T> out(own_.size());
    MPI_Allreduce(own_.data(), out.data(), n(), type_, op_, group_.comm);
    check("Allreduce", out, all_);
    out = own_;
    MPI_Allreduce(MPI_IN_PLACE, out.data(), n(), type_, op_, group_.comm);
    check("Allreduce in place", out, all_);
  }

  // Reduces in place only at root 0. With other roots MPICH 4.0 crashes in calls that Tutti leaves
  // to it.
  void reduce() {
    int root = group_.size - 1;
    bool is_root = group_.rank == root;
    std::vector<T> out(is_root ? own_.size() : 0);
    MPI_Reduce(own_.data(), is_root ? out.data() : nullptr, n(), type_, op_, root, group_.comm);
    if (is_root) check("Reduce", out, all_);
    root = 0;
    is_root = group_.rank == root;
    out = own_;
    MPI_Reduce(is_root ? MPI_IN_PLACE : own_.data(), is_root ? out.data() : nullptr, n(), type_,
               op_, root, group_.comm);
    if (is_root) check("Reduce in place", out, all_);
  }

  void scans() {
    const std::vector<T> up_to = combined<T>(group_.rank + 1, n_, combine_);
    std::vector<T> out(own_.size());
    MPI_Scan(own_.data(), out.data(), n(), type_, op_, group_.comm);
    check("Scan", out, up_to);
    out = own_;
    MPI_Scan(MPI_IN_PLACE, out.data(), n(), type_, op_, group_.comm);
    check("Scan in place", out, up_to);
    out = own_;
    MPI_Exscan(MPI_IN_PLACE, out.data(), n(), type_, op_, group_.comm);
    if (group_.rank > 0) {
      check("Exscan in place", out, combined<T>(group_.rank, n_, combine_));
    }
    MPI_Exscan(own_.data(), out.data(), n(), type_, op_, group_.comm);
    if (group_.rank > 0) check("Exscan", out, combined<T>(group_.rank, n_, combine_));
  }

  // Every rank receives n elements.
  void blocks() {
    const int64_t total = n_ * group_.size;
    const std::vector<T> sums = combined<T>(group_.size, total, combine_);
    const std::vector<T> wanted(sums.begin() + group_.rank * n_,
                                sums.begin() + (group_.rank + 1) * n_);
    std::vector<T> in = values_of<T>(group_.rank, total);
    std::vector<T> out(own_.size());
    MPI_Reduce_scatter_block(in.data(), out.data(), n(), type_, op_, group_.comm);
    check("Reduce_scatter_block", out, wanted);
    MPI_Reduce_scatter_block(MPI_IN_PLACE, in.data(), n(), type_, op_, group_.comm);
    in.resize(own_.size());
    check("Reduce_scatter_block in place", in, wanted);
  }

  // Rank r receives n + r elements, except the last rank, which receives none.
  void uneven_blocks() {
    std::vector<int> counts;
    for (int r = 0; r < group_.size; ++r) counts.push_back(n() + r);
    if (group_.size > 1) counts.back() = 0;
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const auto before = std::accumulate(counts.begin(), counts.begin() + group_.rank, int64_t{0});
    const auto own = static_cast<size_t>(counts[static_cast<size_t>(group_.rank)]);
    const std::vector<T> sums = combined<T>(group_.size, total, combine_);
    const std::vector<T> wanted(sums.begin() + before,
                                sums.begin() + before + static_cast<int64_t>(own));
    std::vector<T> in = values_of<T>(group_.rank, total);
    std::vector<T> out(own);
    MPI_Reduce_scatter(in.data(), out.data(), counts.data(), type_, op_, group_.comm);
    check("Reduce_scatter", out, wanted);
    MPI_Reduce_scatter(MPI_IN_PLACE, in.data(), counts.data(), type_, op_, group_.comm);
    in.resize(own);
    check("Reduce_scatter in place", in, wanted);
  }

  const Group& group_;
  std::string name_;
  MPI_Datatype type_;
  MPI_Op op_;
  Combine<T> combine_;
  int64_t n_ = 0;
  std::vector<T> all_;
  std::vector<T> own_;
};

constexpr int64_t kCounts[] = {0, 1, 7, 1000};
constexpr int64_t kLarge = 20011;

template <typename T>
void run(const Group& group, const std::string& name, MPI_Datatype type, MPI_Op op,
         const Combine<T>& combine) {
  for (const int64_t count : kCounts) {
    Reductions<T>(group, name, type, op, combine).run(count);
  }
}

template <typename T>
void numbers(const Group& group, const std::string& name, MPI_Datatype type) {
  run<T>(group, name + " sum", type, MPI_SUM, std::plus<T>());
  run<T>(group, name + " prod", type, MPI_PROD, std::multiplies<T>());
  run<T>(group, name + " min", type, MPI_MIN, [](T a, T b) { return std::min(a, b); });
  run<T>(group, name + " max", type, MPI_MAX, [](T a, T b) { return std::max(a, b); });
}

template <typename T>
void bits(const Group& group, const std::string& name, MPI_Datatype type) {
  run<T>(group, name + " band", type, MPI_BAND, std::bit_and<T>());
  run<T>(group, name + " bor", type, MPI_BOR, std::bit_or<T>());
  run<T>(group, name + " bxor", type, MPI_BXOR, std::bit_xor<T>());
}

template <typename T>
void integers(const Group& group, const std::string& name, MPI_Datatype type) {
  numbers<T>(group, name, type);
  bits<T>(group, name, type);
}

// Checks extreme values and their locations; of equal values, the lowest location is expected.
void locations(const Group& group) {
  struct FloatInt {
    float value;
    int index;
    bool operator==(const FloatInt&) const = default;
  };
  struct DoubleInt {
    double value;
    int index;
    bool operator==(const DoubleInt& o) const { return value == o.value && index == o.index; }
  };
  const auto check = [&]<typename Pair>(Pair, const char* name, MPI_Datatype type) {
    std::vector<Pair> in(101);
    std::vector<Pair> wanted(in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      const auto step = static_cast<int>(i);
      in[i] = Pair{value_of<decltype(Pair::value)>(group.rank, step), group.rank};
      for (int r = 0; r < group.size; ++r) {
        const auto value = value_of<decltype(Pair::value)>(r, step);
        if (r == 0 || value > wanted[i].value) wanted[i] = {value, r};
      }
    }
    std::vector<Pair> out(in.size());
    MPI_Allreduce(in.data(), out.data(), 101, type, MPI_MAXLOC, group.comm);
    expect(std::string("MAXLOC ") + name, group, out, wanted);
  };
  check(FloatInt{}, "float int", MPI_FLOAT_INT);
  check(DoubleInt{}, "double int", MPI_DOUBLE_INT);
}

// Tests operations that Tutti leaves to the MPI library: user-defined and logical operators.
void others(const Group& group) {
  MPI_Op op = MPI_OP_NULL;
  MPI_Op_create(
      [](void* in, void* in_out, int* count, MPI_Datatype*) {
        for (int i = 0; i < *count; ++i) {
          static_cast<int*>(in_out)[i] += static_cast<int*>(in)[i];
        }
      },
      1, &op);
  run<int>(group, "user's sum", MPI_INT, op, std::plus<int>());
  MPI_Op_free(&op);
  run<int>(group, "land", MPI_INT, MPI_LAND, [](int a, int b) { return a && b ? 1 : 0; });
}

void everything(const Group& group) {
  integers<int8_t>(group, "signed char", MPI_SIGNED_CHAR);
  integers<uint8_t>(group, "unsigned char", MPI_UNSIGNED_CHAR);
  integers<short>(group, "short", MPI_SHORT);
  integers<unsigned short>(group, "unsigned short", MPI_UNSIGNED_SHORT);
  integers<int>(group, "int", MPI_INT);
  integers<unsigned>(group, "unsigned", MPI_UNSIGNED);
  integers<long>(group, "long", MPI_LONG);
  integers<unsigned long long>(group, "unsigned long long", MPI_UNSIGNED_LONG_LONG);
  integers<int16_t>(group, "int16", MPI_INT16_T);
  integers<uint64_t>(group, "uint64", MPI_UINT64_T);
  integers<MPI_Aint>(group, "Aint", MPI_AINT);
  integers<MPI_Count>(group, "Count", MPI_COUNT);
  integers<int>(group, "INTEGER", MPI_INTEGER);
  numbers<float>(group, "float", MPI_FLOAT);
  numbers<double>(group, "double", MPI_DOUBLE);
  numbers<float>(group, "REAL", MPI_REAL);
  numbers<double>(group, "DOUBLE PRECISION", MPI_DOUBLE_PRECISION);
  numbers<long double>(group, "long double", MPI_LONG_DOUBLE);
  bits<uint8_t>(group, "byte", MPI_BYTE);
  MPI_Datatype matched = MPI_DATATYPE_NULL;
  MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &matched);
  numbers<double>(group, "matched real", matched);
  MPI_Type_match_size(MPI_TYPECLASS_INTEGER, 4, &matched);
  integers<int32_t>(group, "matched integer", matched);
  locations(group);
  others(group);
}

void some(const Group& group) {
  integers<int>(group, "int", MPI_INT);
  numbers<double>(group, "double", MPI_DOUBLE);
  locations(group);
  Reductions<int>(group, "int sum", MPI_INT, MPI_SUM, std::plus<int>()).run(kLarge);
  Reductions<float>(group, "float max", MPI_FLOAT, MPI_MAX, [](float a, float b) {
    return std::max(a, b);
  }).run(kLarge);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  using tutti::test::Group;
  MPI_Init(&argc, &argv);
  const Group world("world", MPI_COMM_WORLD);
  tutti::test::everything(world);
  tutti::test::some(world);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  tutti::test::some(Group("a duplicate", comm));
  MPI_Comm_free(&comm);
  MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, 0, &comm);
  tutti::test::some(Group("every second rank", comm));
  MPI_Comm_free(&comm);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world.rank, &comm);
  tutti::test::some(Group("the world in reverse", comm));
  MPI_Comm_free(&comm);
  return tutti::test::finish();
}
