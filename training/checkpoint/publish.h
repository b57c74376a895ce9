// Rank 0's part of a save: the folder, and its one moment of getting its name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "training/checkpoint/run_directory.h"

namespace tutti::training {

class Publication {
 public:
  // Makes, in the run's directory, the folder that files are to be written to.
  Publication(RunDirectory& directory, int64_t step);
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;
  ~Publication();  // removes the folder, unless it was published

  const std::string& folder() const { return folder_; }
  // Adds the manifest and gives the folder its name. All other files are on the disk. What was
  // there under that name is gone afterwards, and so is a run that is overwritten.
  void publish(std::string_view manifest, const std::function<void(std::string_view)>& at_phase);

 private:
  void give_name() const;

  RunDirectory& directory_;
  int64_t step_;
  std::string folder_;
};

}  // namespace tutti::training
