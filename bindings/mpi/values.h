// Converts MPI's types and buffers to Tutti's.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "collectives/request.h"

namespace tutti::mpi {

// Returns the number of data bytes in one element, without gaps. The result is equal on all ranks
// for corresponding elements.
uint64_t size_of_type(MPI_Datatype type);
// Returns the distance between elements, in bytes.
int64_t extent_of(MPI_Datatype type);
// Returns true for common types, which are recognised without a query to the MPI library.
bool is_common(MPI_Datatype type);
// Returns true for predefined types, which must not be freed.
bool is_named(MPI_Datatype type);

// Keeps a type alive after the program has freed its handle.
class TypeInUse {
 public:
  explicit TypeInUse(MPI_Datatype type);
  TypeInUse(const TypeInUse&) = delete;
  TypeInUse& operator=(const TypeInUse&) = delete;
  ~TypeInUse();
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

// Presents `count` elements of a type in the caller's memory as bytes, in the order of the type's
// signature. All ranks agree on these bytes, even if only some ranks' types have gaps. If the type
// allows it, the bytes are the caller's memory itself. Otherwise they are a copy, which pack()
// fills and unpack() stores.
class Run {
 public:
  Run() = default;  // has no elements
  Run(const void* data, uint64_t count, MPI_Datatype type);
  void pack();
  void unpack();
  void keep();  // keeps the type, which the program may free before unpack()
  ConstBuffer input() const { return {bytes(), size_, DType::u8}; }
  Buffer output() { return {bytes(), size_, DType::u8}; }

 private:
  void* bytes() const;

  std::byte* data_ = nullptr;
  uint64_t count_ = 0;
  MPI_Datatype type_ = MPI_BYTE;
  std::shared_ptr<const TypeInUse> type_in_use_;
  uint64_t size_ = 0;
  bool is_plain_ = true;
  mutable std::vector<std::byte> aside_;
};

// Returns `count` elements that begin `start` extents of the type after `data`.
Run element_run(const void* data, int64_t start, int64_t count, MPI_Datatype type);
// Returns block `rank` of consecutive blocks of `count` elements.
inline Run block_run(const void* data, int rank, int64_t count, MPI_Datatype type) {
  return element_run(data, rank * count, count, type);
}

// One block of elements per rank, anywhere in the caller's memory. Like Run, it presents the
// elements as bytes.
class BlockRun {
 public:
  BlockRun() = default;
  // Creates the blocks. Displacements are relative to `data`, in extents of the type.
  template <typename Count, typename Displacement>
  BlockRun(const void* data, const Count* counts, const Displacement* displacements, int blocks,
           MPI_Datatype type)
      : BlockRun(data, {counts, counts + blocks}, {displacements, displacements + blocks}, type) {}
  void pack();
  void unpack();
  void keep();  // keeps the type, which the program may free before unpack()
  ConstBuffer input() const { return {bytes(), size_, DType::u8}; }
  Buffer output() { return {bytes(), size_, DType::u8}; }
  // Returns the blocks, whose counts and displacements are in bytes of input() or output().
  const Blocks& blocks() const { return blocks_; }

 private:
  BlockRun(const void* data, std::vector<int64_t> counts, std::vector<int64_t> displacements,
           MPI_Datatype type);
  void* bytes() const;
  std::byte* place(size_t block) const;

  std::byte* data_ = nullptr;
  std::vector<int64_t> counts_;
  std::vector<int64_t> displacements_;
  MPI_Datatype type_ = MPI_BYTE;
  std::shared_ptr<const TypeInUse> type_in_use_;
  int64_t extent_ = 1;
  uint64_t size_ = 0;
  bool is_plain_ = true;
  Blocks blocks_;
  mutable std::vector<std::byte> aside_;
};

}  // namespace tutti::mpi
