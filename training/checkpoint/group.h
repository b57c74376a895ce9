// The ranks that save and resume together, and how they learn what rank 0 found.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tutti::training {

// Both functions are collective: all ranks call them in the same order.
struct Group {
  int rank = 0;
  int size = 1;
  // On rank 0: every rank's text, in the order of ranks. Elsewhere: nothing.
  std::function<std::vector<std::string>(std::string)> gather_to_first;
  // Everywhere: the text that rank 0 gave.
  std::function<std::string(std::string)> from_first;
};

// A process by itself.
Group group_of_one();

// Collective: rank 0 does the work; all ranks return its result, or throw the Error that it threw,
// with `failed` in front ("the checkpoint of step 3 was not saved: ").
std::string done_by_first(const Group& group, const std::string& failed,
                          const std::function<std::string()>& work);

}  // namespace tutti::training
