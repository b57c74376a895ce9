// XXH3, 64 bits (Collet, https://xxhash.com): detects damage, not forgery.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct XXH3_state_s;

namespace tutti::training {

class Checksum {
 public:
  Checksum();
  void add(std::span<const std::byte> bytes);
  // Returns the checksum of all bytes added so far, as 16 hexadecimal digits.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

std::string checksum_of(std::span<const std::byte> bytes);

}  // namespace tutti::training
