// Import of a Hugging Face directory into the directory of a run.
#pragma once

#include <string>

namespace tutti::training::hugging_face {

// The run's companion folder, given the folder of a step; empty if no files came with its model.
std::string companions_of_step(const std::string& step);

// Copies the files that belong to a model, and its config.json, into a folder.
void copy_companions(const std::string& from, const std::string& folder);

struct ImportOptions {
  bool overwrite = false;  // replace a run in the directory
};

// Creates a run's directory with one checkpoint, of step 0, that contains the model unchanged: its
// values in their types, without optimizer state and settings. Files that belong to the model are
// copied beside it. Memory does not grow with the model.
//
// Throws what Directory and RunDirectory throw, and Error(invalid_argument) for non-finite values,
// before a checkpoint is created.
void import_model(const std::string& directory, const std::string& run,
                  const ImportOptions& options = {});

}  // namespace tutti::training::hugging_face
