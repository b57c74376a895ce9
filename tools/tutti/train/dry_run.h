// Implements tutti train --dry-run.
#pragma once

#include <string>

#include "training/setup/data.h"
#include "training/setup/options.h"

namespace tutti::tool {

// Prints the planned run and its memory per rank without running it. Also writes them as a line
// into the file `json`, unless that is empty. Returns the exit code.
int dry_run(const training::RunOptions& settled, const training::LoadedData& data, int ranks,
            const std::string& json);

}  // namespace tutti::tool
