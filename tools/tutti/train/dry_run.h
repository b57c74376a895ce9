// tutti train --dry-run.
#pragma once

#include <string>

#include "training/setup/data.h"
#include "training/setup/options.h"

namespace tutti::tool {

// Prints what the run would be, and what it would take of each rank's memory, without running it;
// writes that as a line into the file `json`, unless it is empty. Returns the exit status.
int dry_run(const training::RunOptions& settled, const training::LoadedData& data, int ranks,
            const std::string& json);

}  // namespace tutti::tool
