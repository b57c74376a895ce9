#include "bindings/mpi/values.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "bindings/mpi/arguments.h"

namespace tutti::mpi {

namespace {

// Returns true if elements are contiguous, each without gaps and in the order of its signature.
// Only basic types and arrays of them are detected; packing other types that qualify only costs
// time.
bool is_plain(MPI_Datatype type) {
  if (is_common(type)) return true;
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
  // Types from large-count functions cannot be queried by this function.
  if (PMPI_Type_get_contents(type, integers, addresses, types, &number, &address, &inner) !=
      MPI_SUCCESS) {
    return false;
  }
  const bool plain = is_plain(inner);
  if (!is_named(inner)) PMPI_Type_free(&inner);
  return plain;
}

// Maximum size of a piece in which data is packed, because MPI_Pack counts in int.
constexpr uint64_t kPiece = uint64_t{1} << 30;

// Calls move(address, elements, bytes, position among the packed bytes) for each piece of the data.
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

// An address and a type of the elements there. MPI_BOTTOM, which is used with absolute addresses,
// is null, and MPICH 4.0's MPI_Pack rejects null. In that case the address of the first element is
// used, and the type is shifted back.
class Located {
 public:
  Located(std::byte* place, MPI_Datatype type) : place_(place), type_(type) {
    if (place != nullptr) return;
    MPI_Aint low = 0;
    MPI_Aint extent = 0;
    PMPI_Type_get_true_extent(type, &low, &extent);
    if (low == 0) return;
    const int one = 1;
    const MPI_Aint back = -low;
    PMPI_Type_create_hindexed(1, &one, &back, type, &type_);
    PMPI_Type_commit(&type_);
    is_own_ = true;
    place_ = reinterpret_cast<std::byte*>(low);  // NOLINT(performance-no-int-to-ptr)
  }
  ~Located() {
    if (is_own_) PMPI_Type_free(&type_);
  }
  Located(const Located&) = delete;
  Located& operator=(const Located&) = delete;

  std::byte* place() const { return place_; }
  MPI_Datatype type() const { return type_; }

 private:
  std::byte* place_;
  MPI_Datatype type_;
  bool is_own_ = false;
};

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  PMPI_Error_string(status, text, &length);
  throw Error(ErrorCode::invalid_argument, cat("the MPI library's ", call, " failed"),
              {.cause = std::string(text, static_cast<size_t>(length))});
}

void pack_elements(std::byte* from, uint64_t count, MPI_Datatype type, std::byte* to) {
  in_pieces(from, count, type, [&](std::byte* place, int elements, int bytes, uint64_t start) {
    int position = 0;
    const Located at(place, type);
    check(PMPI_Pack(at.place(), elements, at.type(), to + start, bytes, &position, quiet_comm()),
          "MPI_Pack");
  });
}

void unpack_elements(std::byte* to, uint64_t count, MPI_Datatype type, std::byte* from) {
  in_pieces(to, count, type, [&](std::byte* place, int elements, int bytes, uint64_t start) {
    int position = 0;
    const Located at(place, type);
    check(
        PMPI_Unpack(from + start, bytes, &position, at.place(), elements, at.type(), quiet_comm()),
        "MPI_Unpack");
  });
}

std::byte* writable(const void* data) {
  return static_cast<std::byte*>(const_cast<void*>(data));  // safe, because inputs are only read
}

}  // namespace

int64_t extent_of(MPI_Datatype type) {
  MPI_Aint low = 0;
  MPI_Aint extent = 0;
  PMPI_Type_get_extent(type, &low, &extent);
  return extent;
}

uint64_t size_of_type(MPI_Datatype type) {
  MPI_Count size = 0;
  PMPI_Type_size_x(type, &size);
  return static_cast<uint64_t>(std::max<MPI_Count>(size, 0));
}

bool is_common(MPI_Datatype type) {
  for (MPI_Datatype known : {MPI_BYTE, MPI_CHAR, MPI_INT, MPI_FLOAT, MPI_DOUBLE}) {
    if (type == known) return true;
  }
  return false;
}

bool is_named(MPI_Datatype type) {
  int integers = 0;
  int addresses = 0;
  int types = 0;
  int combiner = 0;
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  return combiner == MPI_COMBINER_NAMED;
}

TypeInUse::TypeInUse(MPI_Datatype type) { PMPI_Type_dup(type, &type_); }
TypeInUse::~TypeInUse() { PMPI_Type_free(&type_); }

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

void Run::keep() {
  if (is_plain_) return;
  type_in_use_ = std::make_shared<TypeInUse>(type_);
  type_ = type_in_use_->type();
}

Run element_run(const void* data, int64_t start, int64_t count, MPI_Datatype type) {
  const std::byte* place = static_cast<const std::byte*>(data) + start * extent_of(type);
  return {place, static_cast<uint64_t>(count), type};
}

// Finds the blocks. Tutti's blocks have nonnegative displacements. If the program's displacements
// are negative, the data is copied.
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
    // The displacement of an empty block has no meaning and may be any value.
    blocks_.displacements.push_back(bytes == 0 ? 0 : start);
    if (bytes > 0) size_ = std::max(size_, start + bytes);
  }
}

void* BlockRun::bytes() const {
  if (is_plain_) return data_;
  aside_.resize(size_);
  return aside_.data();
}

void BlockRun::keep() {
  if (is_plain_) return;
  type_in_use_ = std::make_shared<TypeInUse>(type_);
  type_ = type_in_use_->type();
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
