// Imports a Hugging Face directory into the directory of a run.
#pragma once

#include <string>

namespace tutti::training::hugging_face {

// Returns the run's companion folder, given the folder of a step; empty if no files came with its
// model.
std::string companions_of_step(const std::string& step);

// Copies the files that belong to a model, and its config.json, into a folder.
void copy_companions(const std::string& from, const std::string& folder);

struct ImportOptions {
  bool overwrite = false;  // replace a run in the directory
};

// Creates a run's directory with one checkpoint, of step 0. The checkpoint contains the model's
// values in their original types, but neither optimizer state nor settings. Files that belong to
// the model are copied beside it. Memory use is independent of the model's size.
//
// Throws what Directory and RunDirectory throw, and Error(invalid_argument) for non-finite values,
// before creating a checkpoint.
void import_model(const std::string& directory, const std::string& run,
                  const ImportOptions& options = {});

}  // namespace tutti::training::hugging_face
