#include "topology/bus_address.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>

namespace tutti {
namespace {

std::optional<uint32_t> hex(std::string_view word) {
  uint32_t value = 0;
  const char* const end = word.data() + word.size();
  const auto [at, status] = std::from_chars(word.data(), end, value, 16);
  if (status != std::errc{} || at != end) return std::nullopt;
  return value;
}

}  // namespace

std::string bus_address(std::string_view word) {
  const std::string unknown(word);
  const size_t dot = word.rfind('.');
  const size_t colon = word.rfind(':');
  if (dot == word.npos || colon == word.npos || dot < colon) return unknown;
  const auto function = hex(word.substr(dot + 1));
  const auto device = hex(word.substr(colon + 1, dot - colon - 1));
  word = word.substr(0, colon);
  const size_t domain_end = word.find(':');
  const auto domain = domain_end == word.npos ? 0U : hex(word.substr(0, domain_end));
  const auto bus = hex(domain_end == word.npos ? word : word.substr(domain_end + 1));
  if (!domain || !bus || !device || !function) return unknown;
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", *domain, *bus, *device, *function);
  return text.data();
}

}  // namespace tutti
