#include "bindings/mpi/values.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

namespace tutti::mpi {

namespace {

// Handles are integers in MPICH and pointers in Open MPI.
template <typename Handle>
uintptr_t key_of(Handle handle) {
  return (uintptr_t)handle;  // NOLINT: no C++ cast takes both
}

using Types = std::unordered_map<uintptr_t, DType>;

template <typename Number>
constexpr DType integer() {
  constexpr bool kSigned = Number(-1) < Number(0);
  switch (sizeof(Number)) {
    case 1:
      return kSigned ? DType::i8 : DType::u8;
    case 2:
      return kSigned ? DType::i16 : DType::u16;
    case 4:
      return kSigned ? DType::i32 : DType::u32;
    default:
      return kSigned ? DType::i64 : DType::u64;
  }
}

// What may be summed. MPI_CHAR and MPI_WCHAR are texts, which MPI does not reduce; MPI_BYTE is for
// bitwise operators only.
Types find_numbers() {
  Types types;
  const auto add = [&](MPI_Datatype type, DType dtype) {
    if (type != MPI_DATATYPE_NULL) types.emplace(key_of(type), dtype);
  };
  add(MPI_SIGNED_CHAR, DType::i8);
  add(MPI_UNSIGNED_CHAR, DType::u8);
  add(MPI_SHORT, integer<short>());                    // NOLINT: MPI's names
  add(MPI_UNSIGNED_SHORT, integer<unsigned short>());  // NOLINT
  add(MPI_INT, integer<int>());
  add(MPI_UNSIGNED, integer<unsigned>());
  add(MPI_LONG, integer<long>());                              // NOLINT
  add(MPI_UNSIGNED_LONG, integer<unsigned long>());            // NOLINT
  add(MPI_LONG_LONG_INT, integer<long long>());                // NOLINT
  add(MPI_UNSIGNED_LONG_LONG, integer<unsigned long long>());  // NOLINT
  add(MPI_INT8_T, DType::i8);
  add(MPI_INT16_T, DType::i16);
  add(MPI_INT32_T, DType::i32);
  add(MPI_INT64_T, DType::i64);
  add(MPI_UINT8_T, DType::u8);
  add(MPI_UINT16_T, DType::u16);
  add(MPI_UINT32_T, DType::u32);
  add(MPI_UINT64_T, DType::u64);
  add(MPI_AINT, integer<MPI_Aint>());
  add(MPI_OFFSET, integer<MPI_Offset>());
  add(MPI_COUNT, integer<MPI_Count>());
  add(MPI_FLOAT, DType::f32);
  add(MPI_DOUBLE, DType::f64);
  add(MPI_INTEGER1, DType::i8);
  add(MPI_INTEGER2, DType::i16);
  add(MPI_INTEGER4, DType::i32);
  add(MPI_INTEGER8, DType::i64);
  add(MPI_REAL4, DType::f32);
  add(MPI_REAL8, DType::f64);
  // How wide Fortran's own are was decided when the MPI library was built.
  const auto add_by_size = [&](MPI_Datatype type, DType four, DType eight) {
    if (type == MPI_DATATYPE_NULL) return;
    const uint64_t size = size_of_type(type);
    if (size == 4) add(type, four);
    if (size == 8) add(type, eight);
  };
  add_by_size(MPI_INTEGER, DType::i32, DType::i64);
  add_by_size(MPI_REAL, DType::f32, DType::f64);
  add_by_size(MPI_DOUBLE_PRECISION, DType::f32, DType::f64);
  return types;
}

Types find_pairs() {
  Types types;
  types.emplace(key_of(MPI_FLOAT_INT), DType::f32_i32);
  types.emplace(key_of(MPI_2INT), DType::i32_i32);
  if (size_of_type(MPI_2INTEGER) == 8) types.emplace(key_of(MPI_2INTEGER), DType::i32_i32);
  return types;
}

const Types& numbers() {
  static const Types types = find_numbers();
  return types;
}

std::optional<DType> look_up(const Types& types, MPI_Datatype type) {
  const auto found = types.find(key_of(type));
  if (found == types.end()) return std::nullopt;
  return found->second;
}

std::optional<ReduceOp> op_of(MPI_Op op) {
  if (op == MPI_SUM) return ReduceOp::sum;
  if (op == MPI_MAX) return ReduceOp::max;
  if (op == MPI_MIN) return ReduceOp::min;
  if (op == MPI_PROD) return ReduceOp::prod;
  if (op == MPI_BAND) return ReduceOp::band;
  if (op == MPI_BOR) return ReduceOp::bor;
  if (op == MPI_BXOR) return ReduceOp::bxor;
  if (op == MPI_MINLOC) return ReduceOp::minloc;
  if (op == MPI_MAXLOC) return ReduceOp::maxloc;
  return std::nullopt;
}

int64_t extent_of(MPI_Datatype type) {
  MPI_Aint low = 0;
  MPI_Aint extent = 0;
  PMPI_Type_get_extent(type, &low, &extent);
  return extent;
}

// Whether elements lie one behind the other, each without gaps and in its signature's order: basic
// types, and rows of such. Others may be so too; packing them costs time, not correctness.
bool is_plain(MPI_Datatype type) {
  if (type == MPI_BYTE || type == MPI_CHAR || numbers().contains(key_of(type))) return true;
  int integers = 0;
  int addresses = 0;
  int types = 0;
  int combiner = 0;
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  if (combiner == MPI_COMBINER_NAMED) {
    return size_of_type(type) == static_cast<uint64_t>(extent_of(type));
  }
  if (combiner != MPI_COMBINER_CONTIGUOUS && combiner != MPI_COMBINER_DUP) return false;
  if (types != 1 || integers > 1 || addresses > 0) return false;
  int number = 0;
  MPI_Aint address = 0;
  MPI_Datatype inner = MPI_DATATYPE_NULL;
  // A type made by a large-count function tells nothing to this one.
  if (PMPI_Type_get_contents(type, integers, addresses, types, &number, &address, &inner) !=
      MPI_SUCCESS) {
    return false;
  }
  const bool plain = is_plain(inner);
  PMPI_Type_get_envelope(inner, &integers, &addresses, &types, &combiner);
  if (combiner != MPI_COMBINER_NAMED) PMPI_Type_free(&inner);
  return plain;
}

// MPI_Pack counts in int: in pieces of at most so many bytes.
constexpr uint64_t kPiece = uint64_t{1} << 30;

// move(place, elements, bytes of them, where they are among the packed ones)
template <typename Move>
void in_pieces(std::byte* place, uint64_t count, MPI_Datatype type, Move move) {
  const uint64_t size = size_of_type(type);
  if (size == 0) return;
  const int64_t extent = extent_of(type);
  const uint64_t most = std::max<uint64_t>(1, kPiece / size);
  for (uint64_t i = 0; i < count; i += most) {
    const uint64_t piece = std::min(most, count - i);
    move(place + static_cast<int64_t>(i) * extent, static_cast<int>(piece),
         static_cast<int>(piece * size), i * size);
  }
}

void pack_elements(std::byte* from, uint64_t count, MPI_Datatype type, std::byte* to) {
  in_pieces(from, count, type, [&](std::byte* place, int elements, int bytes, uint64_t start) {
    int position = 0;
    PMPI_Pack(place, elements, type, to + start, bytes, &position, MPI_COMM_SELF);
  });
}

void unpack_elements(std::byte* to, uint64_t count, MPI_Datatype type, std::byte* from) {
  in_pieces(to, count, type, [&](std::byte* place, int elements, int bytes, uint64_t start) {
    int position = 0;
    PMPI_Unpack(from + start, bytes, &position, place, elements, type, MPI_COMM_SELF);
  });
}

std::byte* writable(const void* data) {
  return static_cast<std::byte*>(const_cast<void*>(data));  // inputs are only read
}

}  // namespace

std::optional<Reducible> reducible(MPI_Datatype type, MPI_Op op) {
  static const Types pairs = find_pairs();
  const std::optional<ReduceOp> known = op_of(op);
  if (!known) return std::nullopt;
  std::optional<DType> dtype = look_up(is_location(*known) ? pairs : numbers(), type);
  if (!dtype && is_bitwise(*known) && type == MPI_BYTE) dtype = DType::u8;
  if (!dtype || !supports(*known, *dtype)) return std::nullopt;
  return Reducible{*dtype, *known};
}

uint64_t size_of_type(MPI_Datatype type) {
  MPI_Count size = 0;
  PMPI_Type_size_x(type, &size);
  return static_cast<uint64_t>(std::max<MPI_Count>(size, 0));
}

Run::Run(const void* data, uint64_t count, MPI_Datatype type)
    : data_(writable(data)),
      count_(count),
      type_(type),
      size_(count * size_of_type(type)),
      is_plain_(is_plain(type)) {}

void* Run::bytes() const {
  if (is_plain_) return data_;
  aside_.resize(size_);
  return aside_.data();
}

void Run::pack() {
  if (!is_plain_) pack_elements(data_, count_, type_, static_cast<std::byte*>(bytes()));
}

void Run::unpack() {
  if (!is_plain_) unpack_elements(data_, count_, type_, static_cast<std::byte*>(bytes()));
}

Run element_run(const void* data, int64_t start, int64_t count, MPI_Datatype type) {
  const std::byte* place = static_cast<const std::byte*>(data) + start * extent_of(type);
  return {place, static_cast<uint64_t>(count), type};
}

// Tutti's blocks are not before the start of their buffer; MPI's may be, and are set aside then.
BlockRun::BlockRun(const void* data, std::vector<int64_t> counts,
                   std::vector<int64_t> displacements, MPI_Datatype type)
    : data_(writable(data)),
      counts_(std::move(counts)),
      displacements_(std::move(displacements)),
      type_(type),
      extent_(extent_of(type)),
      is_plain_(is_plain(type)) {
  const uint64_t element = size_of_type(type);
  for (const int64_t place : displacements_) is_plain_ = is_plain_ && place >= 0;
  for (size_t r = 0; r < counts_.size(); ++r) {
    const uint64_t bytes = static_cast<uint64_t>(counts_[r]) * element;
    const uint64_t start = is_plain_ ? static_cast<uint64_t>(displacements_[r]) * element : size_;
    blocks_.counts.push_back(bytes);
    // Where an empty block is said to lie does not matter, and may be anywhere.
    blocks_.displacements.push_back(bytes == 0 ? 0 : start);
    if (bytes > 0) size_ = std::max(size_, start + bytes);
  }
}

void* BlockRun::bytes() const {
  if (is_plain_) return data_;
  aside_.resize(size_);
  return aside_.data();
}

std::byte* BlockRun::place(size_t block) const { return data_ + displacements_[block] * extent_; }

void BlockRun::pack() {
  if (is_plain_) return;
  for (size_t r = 0; r < counts_.size(); ++r) {
    pack_elements(place(r), static_cast<uint64_t>(counts_[r]), type_,
                  static_cast<std::byte*>(bytes()) + blocks_.displacements[r]);
  }
}

void BlockRun::unpack() {
  if (is_plain_) return;
  for (size_t r = 0; r < counts_.size(); ++r) {
    unpack_elements(place(r), static_cast<uint64_t>(counts_[r]), type_,
                    static_cast<std::byte*>(bytes()) + blocks_.displacements[r]);
  }
}

}  // namespace tutti::mpi
