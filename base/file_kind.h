// Size limits for each kind of file that is read whole, so that memory is bounded for any path.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tutti {

enum class FileKind {
  configuration,  // configuration of a run
  cost_model,     // cost model of `tutti tune`
  faults,         // fault plan of `tutti chaos`
  graph,          // graph of a host or a network
  hosts,          // host list for --hostfile
  losses,         // losses of a run, by step
  mix,            // mix of a model's layers over ranks
  order,          // order in which a run's ranks applied updates
  profile,        // profile of a model's units
  program,        // program of MSCCL, or rings found by a search
  report,         // report of an aborted communicator
  tokenizer,
};

struct FileLimit {
  FileKind kind;
  std::string_view name;  // shown in messages
  uint64_t most = 0;      // maximum size in bytes
};

// Returns the limits in the order of FileKind.
std::span<const FileLimit> file_limits();
const FileLimit& limit_of(FileKind kind);

}  // namespace tutti
