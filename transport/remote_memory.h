// One-sided access to other ranks' memory by a fabric's own remote memory access (RMA): no message
// is sent, and a network card needs no help from the owner's processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tutti {

// Memory of this rank that other ranks may access until this object is destroyed.
class ExposedMemory {
 public:
  ExposedMemory() = default;
  ExposedMemory(const ExposedMemory&) = delete;
  ExposedMemory& operator=(const ExposedMemory&) = delete;
  virtual ~ExposedMemory() = default;
  // The key that other ranks need, at most kLongestKey bytes.
  virtual const std::string& key() const = 0;
  // Leaves the memory exposed until this process leaves the job. `owner` keeps it alive.
  virtual void keep(std::shared_ptr<void> owner) = 0;

  static constexpr size_t kLongestKey = 240;
};

// Memory that another rank has exposed. No function blocks. A caller that has to wait calls a
// function again, and makes progress (Transport::progress) between the calls.
//
// Data pass through buffers of this process's fabric. So a caller that gives up, because the owner
// has died, may reuse or free its memory at once.
//
// Threads: any, several at a time.
class RemoteMemory {
 public:
  RemoteMemory() = default;
  RemoteMemory(const RemoteMemory&) = delete;
  RemoteMemory& operator=(const RemoteMemory&) = delete;
  virtual ~RemoteMemory() = default;

  // Begins to write a prefix of `from` at byte `offset` and returns the length of the prefix, which
  // is 0 while too many puts or an overlapping one are in flight. `from` may be reused on return.
  virtual size_t put(uint64_t offset, std::span<const std::byte> from) = 0;
  // Returns true once all puts are visible in the owner's memory.
  virtual bool is_flushed() = 0;

  // A read in progress. Destroying it abandons the read.
  class Get {
   public:
    virtual ~Get() = default;
    // Returns true once all bytes have arrived.
    virtual bool advance() = 0;
  };
  // Begins to read the bytes at `offset` into `into`, which must outlive the returned object.
  virtual std::unique_ptr<Get> get(uint64_t offset, std::span<std::byte> into) = 0;

  // Returns why accesses fail: the owner has left the job, the path to the owner is broken, or an
  // earlier access has failed. Then put() returns 0, is_flushed() and advance() may return false
  // forever, and callers must give up. Returns an empty text while accesses can succeed.
  virtual std::string failure() = 0;
};

}  // namespace tutti
