// Rank 0's part of a save: the step's folder, and its atomic publication.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "training/checkpoint/run_directory.h"

namespace tutti::training {

class Publication {
 public:
  // Creates a temporary folder in the run's directory, to which files are to be written.
  Publication(RunDirectory& directory, int64_t step);
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;
  ~Publication();  // removes the folder unless it was published

  const std::string& folder() const { return folder_; }
  // Writes the manifest and renames the folder to the step's name. All other files must be on the
  // disk. Replaces an existing step of that name, and a run that is overwritten.
  void publish(std::string_view manifest, const std::function<void(std::string_view)>& at_phase);

 private:
  void give_name() const;

  RunDirectory& directory_;
  int64_t step_;
  std::string folder_;
};

}  // namespace tutti::training
