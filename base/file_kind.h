// The largest size of each kind of file that is read whole, so that memory is bounded for any path.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tutti {

enum class FileKind {
  configuration,  // of a run
  cost_model,     // of `tutti tune`
  faults,         // a plan of `tutti chaos`
  graph,          // of a host or a network
  hosts,          // for --hostfile
  losses,         // of a run, by step
  mix,            // of a model's layers over ranks
  order,          // in which a run's ranks applied what others sent
  profile,        // of a model's units
  program,        // MSCCL's, or found rings
  report,         // of an aborted communicator
  tokenizer,
};

struct FileLimit {
  FileKind kind;
  std::string_view name;  // for people
  uint64_t most = 0;      // bytes
};

// In the order of FileKind.
std::span<const FileLimit> file_limits();
const FileLimit& limit_of(FileKind kind);

}  // namespace tutti
