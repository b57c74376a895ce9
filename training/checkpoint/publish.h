// Creates a step's folder and publishes it atomically: rank 0's part of a save.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "training/checkpoint/run_directory.h"

namespace tutti::training {

class Publication {
 public:
  // Creates a temporary folder in the run's directory, into which all ranks write their files.
  Publication(RunDirectory& directory, int64_t step);
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;
  ~Publication();  // Removes the folder unless it was published.

  const std::string& folder() const { return folder_; }
  // Writes the manifest and renames the folder to the step's name. All other files must be on the
  // disk. An existing step of that name is replaced if RunDirectory::may_replace() allows it, and
  // otherwise set aside. The steps of a run that is to be overwritten are removed afterwards.
  void publish(std::string_view manifest, const std::function<void(std::string_view)>& at_phase);

 private:
  void give_name() const;

  RunDirectory& directory_;
  int64_t step_;
  std::string folder_;
};

}  // namespace tutti::training
