// Child processes, pipes between them, and checks of how they end. The children are forked from a
// test process that itself does not use CUDA.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "base/error.h"
#include "base/fd.h"

namespace tutti::cuda {

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) std::abort();
    out = Fd(ends[0]);
    in = Fd(ends[1]);
  }
  template <typename T>
  void send(const T& value) const {
    if (::write(in.get(), &value, sizeof value) != sizeof value) std::_Exit(3);
  }
  template <typename T>
  T receive() const {
    T value{};
    if (::read(out.get(), &value, sizeof value) != sizeof value) std::_Exit(4);
    return value;
  }
  Fd out;
  Fd in;
};

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::_Exit(1);
}

class Child {
 public:
  explicit Child(const std::function<void()>& run) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::alarm(60);
    try {
      run();
    } catch (const Error& error) {
      require(false, error.what());
    }
    std::_Exit(0);
  }
  ~Child() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    EXPECT_EQ(status, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t pid_;
};

inline std::vector<char> read(const Stream& stream, const void* from, size_t bytes) {
  std::vector<char> values(bytes);
  copy_async(values.data(), from, bytes, stream.handle());
  synchronize(stream.handle());
  return values;
}

}  // namespace tutti::cuda
