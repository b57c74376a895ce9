// From one of Hugging Face's directories to the directory of a run.
#pragma once

#include <string>

namespace tutti::training::hugging_face {

// The folder of a run that a step's folder is of; empty where nothing came with its model.
std::string companions_of_step(const std::string& step);

// Copies what came with a model, and its config.json, into a folder.
void copy_companions(const std::string& from, const std::string& folder);

struct ImportOptions {
  bool overwrite = false;  // a run that is in the directory goes
};

// Makes a run's directory with one checkpoint, of step 0, that has the model as it is: its values
// in the types that they have, no optimizer's state, no run's settings. Files that belong to the
// model are copied beside it. Memory does not grow with the model.
//
// Throws what Directory and RunDirectory do, and Error(invalid_argument) for values that are not
// finite, before there is a checkpoint.
void import_model(const std::string& directory, const std::string& run,
                  const ImportOptions& options = {});

}  // namespace tutti::training::hugging_face
