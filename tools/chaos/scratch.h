// The temporary directory of a trial, which replaces {dir} in the command.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::tool::chaos {

class Scratch {
 public:
  // Creates the directory. If `bytes` > 0, mounts a file system of that size, visible to this
  // process and its descendants. Throws Error(system) if that is not permitted.
  explicit Scratch(uint64_t bytes);
  // Removes the directory and its contents.
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool is_mounted_ = false;
};

}  // namespace tutti::tool::chaos
