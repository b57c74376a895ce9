// Exchanges texts and errors among ranks that train together.
//
// If any rank has an error, every rank throws an error, but only after all ranks have reached the
// call. A rank that threw earlier would abort the communicator, and the other ranks would report
// the abort instead of the error.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/communicator.h"

namespace tutti::training {

// Collective. Returns the texts `own` of all ranks, in rank order, on rank 0; returns nothing
// elsewhere.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& own);
// Collective. Returns the texts `own` of all ranks on every rank. A text must not contain a zero
// byte.
std::vector<std::string> texts_of_all(Communicator& communicator, const std::string& own);
// Collective. Returns rank 0's text on every rank.
std::string text_of_first(Communicator& communicator, std::string text);

// Collective. Returns true on every rank if all ranks have the same text. Costs one small
// all-reduce.
bool same_on_all(Communicator& communicator, const std::string& own);

// Collective. Returns if no rank has an error. Otherwise a rank with an error throws its own error,
// and each other rank throws the error of the lowest such rank.
void throw_any(Communicator& communicator, const std::optional<Error>& own);

// Collective. Throws `error`, which must be the same on every rank, once all ranks have reached the
// call.
[[noreturn]] void throw_on_all(Communicator& communicator, const Error& error);

// Returns make(), which must succeed on all ranks or throw an Error on all ranks. Each rank throws
// its Error after all ranks have failed.
template <typename Make>
auto made_on_all(Communicator& communicator, Make&& make) {
  try {
    return make();
  } catch (const Error& error) {
    throw_on_all(communicator, error);
  }
}

// The ranks that save and resume together, or a single process. Calling gather_to_first or
// from_first is collective.
struct Group {
  int rank = 0;
  int size = 1;
  // does what gather_texts() does
  std::function<std::vector<std::string>(std::string)> gather_to_first;
  std::function<std::string(std::string)> from_first;  // does what text_of_first() does
};

// Returns a group of one process.
Group group_of_one();
// Returns the group of the communicator's ranks. The communicator must outlive the group.
Group group_of(Communicator& communicator);

// Collective. Runs `work` on rank 0 and returns its result on every rank. If `work` throws an
// exception, every rank throws an Error with the same message and with `failed` as prefix ("the
// checkpoint of step 3 was not saved: ").
std::string done_by_first(const Group& group, const std::string& failed,
                          const std::function<std::string()>& work);

}  // namespace tutti::training
