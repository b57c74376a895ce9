// Reads and writes profile files, which may be measured on one machine and partitioned on another,
// or written by hand.
//
//   {
//     "format": "tutti-profile", "version": 1,
//     "model": "gpt layers=4 ...", "samples": 8,          samples of the micro-batch
//     "layers": [
//       {"name": "h.0", "forward_s": 0.002, "backward_s": 0.004,
//        "activation_bytes": 524288, "parameter_bytes": 792576} ...
//     ]
//   }
#pragma once

#include <string>
#include <string_view>

#include "training/pipeline/profile.h"

namespace tutti::training::pipeline {

std::string to_json(const Profile& profile);

// Parses a profile. Checks its form; partition() checks the values. Throws Error(invalid_argument)
// that describes the fault and names `file`.
Profile profile_from_json(std::string_view text, const std::string& file);

}  // namespace tutti::training::pipeline
