#include "training/logs/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/host_name.h"
#include "base/text.h"

namespace tutti::training {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    table[byte] = crc;
  }
  return table;
}

// Returns the bytes of a number, little-endian on every machine.
std::string bytes_of(uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> 8 * i & 0xff);
  return bytes;
}

uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8; }

// The wire format of protocol buffers.

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes += static_cast<char>(value);
}

enum class WireType { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

std::string key(int field, WireType type) {
  return varint(static_cast<uint64_t>(field << 3 | static_cast<int>(type)));
}

std::string number(int field, uint64_t value) {
  return key(field, WireType::varint) + varint(value);
}
std::string real(int field, double value) {
  return key(field, WireType::fixed64) + bytes_of(std::bit_cast<uint64_t>(value), 8);
}
std::string real(int field, float value) {
  return key(field, WireType::fixed32) + bytes_of(std::bit_cast<uint32_t>(value), 4);
}
std::string bytes(int field, std::string_view value) {
  return key(field, WireType::bytes) + varint(value.size()) + std::string(value);
}

std::string event_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return real(1, std::chrono::duration<double>(now).count());
}

std::string file_name() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return cat("events.out.tfevents.", std::chrono::duration_cast<std::chrono::seconds>(now).count(),
             '.', host_name(), '.', ::getpid(), ".tutti");
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

EventFile::EventFile(std::string directory, bool continues)
    : path_(cat(directory, '/', file_name())), continues_(continues) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  int problem = error.value();
  if (problem == 0 && ::access(directory.c_str(), W_OK | X_OK) != 0) problem = errno;
  if (problem == 0) return;
  throw tutti::system_error(cat("cannot write to the directory ", directory), problem,
                            {.remedy = "use a directory with write permission"});
}

void EventFile::begin(uint64_t step) {
  errno = 0;
  file_.open(path_, std::ios::binary);
  if (!file_) throw tutti::system_error(cat("cannot write ", path_), errno);
  record(event_now() + bytes(3, "brain.Event:2"));
  constexpr uint64_t kStart = 1;  // value of SessionLog.status
  if (continues_) record(event_now() + number(2, step) + bytes(7, number(1, kStart)));
}

void EventFile::write(const Scalars& scalars) {
  if (!file_.is_open()) begin(scalars.step);
  std::string summary;
  for (const auto& [name, value] : scalars.values) {
    if (!std::isfinite(value)) continue;
    summary += bytes(1, bytes(1, name) + real(2, static_cast<float>(value)));
  }
  record(event_now() + number(2, scalars.step) + bytes(5, summary));
}

void EventFile::record(std::string_view event) {
  const std::string length = bytes_of(event.size(), 8);
  errno = 0;
  file_ << length << bytes_of(masked_crc(length), 4) << event << bytes_of(masked_crc(event), 4)
        << std::flush;
  if (!file_) throw tutti::system_error(cat("cannot write ", path_), errno);
}

}  // namespace tutti::training
