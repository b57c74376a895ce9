#include "tests/bindings/mpi/window_values.h"

#include <complex>
#include <cstring>

namespace tutti::test {

namespace {

constexpr size_t kLongDouble = 10;  // significant bytes on x86; elsewhere all bytes are significant

template <typename T>
constexpr size_t meaningful() {
  constexpr bool kHasPadding =
      std::is_same_v<T, long double> && sizeof(T) == 16 && __LDBL_MANT_DIG__ == 64;
  return kHasPadding ? kLongDouble : sizeof(T);
}

void mark(std::vector<bool>& mask, size_t from, size_t bytes) {
  for (size_t i = from; i < from + bytes; ++i) mask[i] = true;
}

template <typename T>
Kind number(const char* name, MPI_Datatype type, std::vector<MPI_Op> ops, bool is_integer) {
  Kind kind{name, type, sizeof(T), std::move(ops), is_integer, std::vector<bool>(sizeof(T)), {}};
  mark(kind.mask, 0, meaningful<T>());
  kind.write = [](std::byte* place, int value) {
    const T element = static_cast<T>(value);
    std::memcpy(place, &element, sizeof(T));
  };
  return kind;
}

template <typename T>
Kind integer(const char* name, MPI_Datatype type) {
  return number<T>(name, type,
                   {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND,
                    MPI_LOR, MPI_LXOR},
                   true);
}

template <typename T>
Kind real(const char* name, MPI_Datatype type) {
  return number<T>(name, type, {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX}, false);
}

template <typename T>
Kind complex_number(const char* name, MPI_Datatype type) {
  using Complex = std::complex<T>;
  Kind kind = number<Complex>(name, type, {MPI_SUM, MPI_PROD}, false);
  kind.mask.assign(sizeof(Complex), false);
  mark(kind.mask, 0, meaningful<T>());
  mark(kind.mask, sizeof(T), meaningful<T>());
  return kind;
}

template <typename Value, typename Index>
Kind pair(const char* name, MPI_Datatype type) {
  struct Pair {
    Value value;
    Index index;
  };
  Kind kind{name, type, sizeof(Pair), {MPI_MINLOC, MPI_MAXLOC}, false, {}, {}};
  kind.mask.assign(sizeof(Pair), false);
  mark(kind.mask, 0, meaningful<Value>());
  mark(kind.mask, offsetof(Pair, index), sizeof(Index));
  kind.write = [](std::byte* place, int number) {
    Pair element;
    std::memset(static_cast<void*>(&element), 0, sizeof(element));
    element.value = static_cast<Value>(number % 3);
    element.index = static_cast<Index>(number / 3 + 5);
    std::memcpy(place, &element, sizeof(element));
  };
  return kind;
}

std::vector<Kind> make_kinds() {
  return {
      integer<signed char>("SIGNED_CHAR", MPI_SIGNED_CHAR),
      integer<unsigned char>("UNSIGNED_CHAR", MPI_UNSIGNED_CHAR),
      integer<short>("SHORT", MPI_SHORT),                             // NOLINT: MPI's names
      integer<unsigned short>("UNSIGNED_SHORT", MPI_UNSIGNED_SHORT),  // NOLINT
      integer<int>("INT", MPI_INT),
      integer<unsigned>("UNSIGNED", MPI_UNSIGNED),
      integer<long>("LONG", MPI_LONG),                                            // NOLINT
      integer<unsigned long>("UNSIGNED_LONG", MPI_UNSIGNED_LONG),                 // NOLINT
      integer<long long>("LONG_LONG", MPI_LONG_LONG),                             // NOLINT
      integer<unsigned long long>("UNSIGNED_LONG_LONG", MPI_UNSIGNED_LONG_LONG),  // NOLINT
      integer<int8_t>("INT8_T", MPI_INT8_T),
      integer<int16_t>("INT16_T", MPI_INT16_T),
      integer<int32_t>("INT32_T", MPI_INT32_T),
      integer<int64_t>("INT64_T", MPI_INT64_T),
      integer<uint8_t>("UINT8_T", MPI_UINT8_T),
      integer<uint16_t>("UINT16_T", MPI_UINT16_T),
      integer<uint32_t>("UINT32_T", MPI_UINT32_T),
      integer<uint64_t>("UINT64_T", MPI_UINT64_T),
      integer<MPI_Aint>("AINT", MPI_AINT),
      integer<MPI_Offset>("OFFSET", MPI_OFFSET),
      integer<MPI_Count>("COUNT", MPI_COUNT),
      number<unsigned char>("BYTE", MPI_BYTE, {MPI_BAND, MPI_BOR, MPI_BXOR}, false),
      number<char>("CHAR", MPI_CHAR, {}, false),
      number<bool>("C_BOOL", MPI_C_BOOL, {MPI_LAND, MPI_LOR, MPI_LXOR}, false),
      real<float>("FLOAT", MPI_FLOAT),
      real<double>("DOUBLE", MPI_DOUBLE),
      real<long double>("LONG_DOUBLE", MPI_LONG_DOUBLE),
      complex_number<float>("C_FLOAT_COMPLEX", MPI_C_FLOAT_COMPLEX),
      complex_number<double>("C_DOUBLE_COMPLEX", MPI_C_DOUBLE_COMPLEX),
      complex_number<long double>("C_LONG_DOUBLE_COMPLEX", MPI_C_LONG_DOUBLE_COMPLEX),
      pair<float, int>("FLOAT_INT", MPI_FLOAT_INT),
      pair<int, int>("2INT", MPI_2INT),
      pair<double, int>("DOUBLE_INT", MPI_DOUBLE_INT),
      pair<long, int>("LONG_INT", MPI_LONG_INT),     // NOLINT: MPI's names
      pair<short, int>("SHORT_INT", MPI_SHORT_INT),  // NOLINT
      pair<long double, int>("LONG_DOUBLE_INT", MPI_LONG_DOUBLE_INT),
  };
}

}  // namespace

const std::vector<Kind>& all_kinds() {
  static const std::vector<Kind> kinds = make_kinds();
  return kinds;
}

std::vector<std::byte> elements_of(const Kind& kind, size_t count, uint64_t seed) {
  std::vector<std::byte> elements(count * kind.extent);
  std::mt19937_64 draw(seed);
  for (size_t i = 0; i < count; ++i) {
    kind.write(elements.data() + i * kind.extent, static_cast<int>(draw() % 3));
  }
  return elements;
}

Layout::Layout(const Kind& kind, int elements, int form)
    : kind_(kind),
      elements_(static_cast<size_t>(elements)),
      form_(form == pairs && elements % 2 != 0 ? row : form),
      type_(kind.type),
      count_(elements),
      bytes_(elements_ * kind.extent) {
  const auto extent = static_cast<MPI_Aint>(kind.extent);
  switch (form_) {
    case spread:
      MPI_Type_create_resized(kind.type, 0, 2 * extent, &type_);
      bytes_ *= 2;
      break;
    case vector:
      MPI_Type_vector(elements, 1, 2, kind.type, &type_);
      count_ = 1;
      bytes_ *= 2;
      break;
    case backwards: {
      std::vector<int> places(elements_);
      for (int i = 0; i < elements; ++i) places[static_cast<size_t>(i)] = elements - 1 - i;
      MPI_Type_create_indexed_block(elements, 1, places.data(), kind.type, &type_);
      count_ = 1;
      break;
    }
    case pairs:
      MPI_Type_contiguous(2, kind.type, &type_);
      count_ = elements / 2;
      break;
    default:
      return;
  }
  MPI_Type_commit(&type_);
}

Layout::~Layout() {
  if (type_ != kind_.type) MPI_Type_free(&type_);
}

size_t Layout::place(size_t element) const {
  if (form_ == spread || form_ == vector) return 2 * element;
  return form_ == backwards ? elements_ - 1 - element : element;
}

void Layout::spread_out(const std::byte* elements, std::byte* memory) const {
  for (size_t i = 0; i < elements_; ++i) {
    std::memcpy(memory + place(i) * kind_.extent, elements + i * kind_.extent, kind_.extent);
  }
}

void Layout::gather(const std::byte* memory, std::byte* elements) const {
  for (size_t i = 0; i < elements_; ++i) {
    std::memcpy(elements + i * kind_.extent, memory + place(i) * kind_.extent, kind_.extent);
  }
}

}  // namespace tutti::test
