// The directory of a trial, which the command finds in the place of {dir}.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::tool::chaos {

class Scratch {
 public:
  // Of `bytes`, unless that is 0: a file system of its own, which this process and those below it
  // see. Throws Error(system), where it may not be made.
  explicit Scratch(uint64_t bytes);
  // It goes with all that is in it.
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool is_mounted_ = false;
};

}  // namespace tutti::tool::chaos
