// Returns the memory behind a multicast address as the fake driver finds it for device code.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <vector>

#include "tests/support/multicast_members.h"

namespace tutti::cuda {

inline std::vector<char*> members_of(const void* address, size_t bytes = 1) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  const auto find = reinterpret_cast<decltype(&cuFakeMulticastMembers)>(
      ::dlsym(driver, "cuFakeMulticastMembers"));
  std::array<void*, 8> members{};
  const size_t count = find(address, bytes, members.data(), members.size());
  std::vector<char*> found;
  for (size_t i = 0; i < count; ++i) found.push_back(static_cast<char*>(members[i]));
  ::dlclose(driver);
  return found;
}

}  // namespace tutti::cuda
