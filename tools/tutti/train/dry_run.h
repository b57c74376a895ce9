// Implements tutti train --dry-run.
#pragma once

#include <string>

#include "training/setup/data.h"
#include "training/setup/options.h"

namespace tutti::tool {

// Prints the configuration of a run and the memory of its largest rank, without running it. Also
// writes them and the memory of every rank as a line into the file `json`, unless that is empty.
// Returns the exit code.
int dry_run(const training::RunOptions& settled, const training::LoadedData& data, int ranks,
            const std::string& json);

}  // namespace tutti::tool
