// Exchange of anything but tensors among ranks that train together: texts, the result of work that
// one rank did for all of them, and errors, which all of them throw.
//
// No rank throws before every rank has reached the call: the first one to leave would abort the
// communicator, and the others would report that instead of the error.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/communicator.h"

namespace tutti::training {

// Collective. Returns the texts of all ranks, in the order of ranks, on rank 0; nothing elsewhere.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& own);
// Collective. Returns the texts of all ranks on every rank. No text may contain a zero.
std::vector<std::string> texts_of_all(Communicator& communicator, const std::string& own);
// Collective. Returns rank 0's text on every rank.
std::string text_of_first(Communicator& communicator, std::string text);

// Collective. Returns if no rank has an error. Otherwise every rank throws: its own error, or that
// of the lowest rank that has one.
void throw_any(Communicator& communicator, const std::optional<Error>& own);

// Collective. Throws `error`, which every rank has.
[[noreturn]] void throw_on_all(Communicator& communicator, const Error& error);

// Returns make(). If make() throws an Error, all ranks throw: make() must fail on all or on none.
template <typename Make>
auto made_on_all(Communicator& communicator, Make&& make) {
  try {
    return make();
  } catch (const Error& error) {
    throw_on_all(communicator, error);
  }
}

// The ranks that save and resume together, or a single process. Both functions are collective.
struct Group {
  int rank = 0;
  int size = 1;
  std::function<std::vector<std::string>(std::string)> gather_to_first;  // as gather_texts()
  std::function<std::string(std::string)> from_first;                    // as text_of_first()
};

// A group of one process.
Group group_of_one();
// A group of the communicator's ranks. The communicator must outlive the group.
Group group_of(Communicator& communicator);

// Collective. Runs `work` on rank 0 and returns the result of `work` on every rank. If `work`
// throws an Error, every rank throws that Error, with `failed` as prefix ("the checkpoint of step 3
// was not saved: ").
std::string done_by_first(const Group& group, const std::string& failed,
                          const std::function<std::string()>& work);

}  // namespace tutti::training
