// The predefined types used in window tests: values, supported operators, and the bytes of an
// element that are significant.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace tutti::test {

struct Kind {
  const char* name;
  MPI_Datatype type;
  size_t extent;
  std::vector<MPI_Op> ops;
  bool is_integer = false;  // for MPI_Compare_and_swap
  std::vector<bool> mask;   // one entry per byte of an element
  // Writes the element that represents a small number.
  std::function<void(std::byte* place, int number)> write;
};

const std::vector<Kind>& all_kinds();

// Returns elements small enough that no operator overflows.
std::vector<std::byte> elements_of(const Kind& kind, size_t count, uint64_t seed);

// Lays out elements of a kind in memory like count() consecutive items of the MPI type type().
class Layout {
 public:
  // `pairs`: only for an even number of elements
  enum Form { row, spread, vector, backwards, pairs };
  static constexpr int kForms = 5;

  Layout(const Kind& kind, int elements, int form);
  ~Layout();
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  MPI_Datatype type() const { return type_; }
  int count() const { return count_; }
  size_t bytes() const { return bytes_; }  // length of the memory, including gaps
  // Convert between this layout and contiguous elements.
  void spread_out(const std::byte* elements, std::byte* memory) const;
  void gather(const std::byte* memory, std::byte* elements) const;

 private:
  size_t place(size_t element) const;  // returns the element's position in memory, in elements

  const Kind& kind_;
  size_t elements_;
  int form_;
  MPI_Datatype type_;
  int count_;
  size_t bytes_;
};

}  // namespace tutti::test
