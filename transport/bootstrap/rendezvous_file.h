// A file on a shared file system through which rank 0 tells where it listens.
#pragma once

#include <optional>
#include <string>

#include "transport/bootstrap/socket.h"

namespace tutti::bootstrap {

// Rank 0's side: there while the ranks gather, gone with this object.
class RendezvousFile {
 public:
  // Written under another name and renamed, so that nobody reads half of it. Throws
  // Error(bootstrap).
  RendezvousFile(std::string path, const SocketAddress& address);
  ~RendezvousFile();
  RendezvousFile(const RendezvousFile&) = delete;
  RendezvousFile& operator=(const RendezvousFile&) = delete;

 private:
  std::string path_;
};

// Nothing while the file is not there or is not one of ours.
std::optional<SocketAddress> read_rendezvous(const std::string& path);

}  // namespace tutti::bootstrap
