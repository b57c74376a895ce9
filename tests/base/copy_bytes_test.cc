#include "base/copy_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace tutti {
namespace {

// Copies between all kinds of places within a page, with and without the case in which the
// destination lies a little after the source.
TEST(CopyBytes, CopiesExactlyTheseBytes) {
  constexpr size_t kPage = 4096;
  constexpr size_t kMost = (2 << 20) + 1;
  std::vector<std::byte> source(kMost + 2 * kPage), destination(kMost + 2 * kPage);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(1 + i * 7 % 255);
  const auto page_in = [](std::vector<std::byte>& memory) {
    void* at = memory.data();
    size_t space = memory.size();
    return static_cast<std::byte*>(std::align(kPage, kMost + kPage / 2, at, space));
  };
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{2048}, size_t{2049}, size_t{5000}, size_t{1} << 20, kMost}) {
    for (const size_t from : {0, 1, 16, 64}) {
      for (const size_t to : {0, 16, 63, 64}) {
        std::ranges::fill(destination, std::byte{0});
        std::byte* const target = page_in(destination) + to;
        copy_bytes(target, page_in(source) + from, bytes);
        EXPECT_TRUE(std::equal(target, target + bytes, page_in(source) + from));
        const auto written =
            std::ranges::count_if(destination, [](std::byte b) { return b != std::byte{0}; });
        EXPECT_EQ(static_cast<size_t>(written), bytes) << from << ' ' << to;
      }
    }
  }
}

}  // namespace
}  // namespace tutti
