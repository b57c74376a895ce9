// Messages besides tensors among ranks that train together: texts, the result of work that one rank
// did for all of them, and errors, which all of them throw.
//
// No rank throws before every rank has come to the call: the first one to leave would abort the
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

// Collective. Returns where no rank has an error. Else every rank throws: its own error, or that of
// the lowest rank that has one.
void throw_any(Communicator& communicator, const std::optional<Error>& own);

// Collective. Throws `error`, which every rank has found.
[[noreturn]] void throw_on_all(Communicator& communicator, const Error& error);

// Collective where make() throws an Error, which every rank finds. Returns make().
template <typename Make>
auto made_on_all(Communicator& communicator, Make&& make) {
  try {
    return make();
  } catch (const Error& error) {
    throw_on_all(communicator, error);
  }
}

// The ranks that save and resume together, or one process by itself. Both functions are collective.
struct Group {
  int rank = 0;
  int size = 1;
  std::function<std::vector<std::string>(std::string)> gather_to_first;  // as gather_texts()
  std::function<std::string(std::string)> from_first;                    // as text_of_first()
};

// A process by itself.
Group group_of_one();
// The communicator's ranks. The communicator outlives the group.
Group group_of(Communicator& communicator);

// Collective. Rank 0 does the work. Every rank returns its result, or throws the Error that it
// threw, with `failed` in front ("the checkpoint of step 3 was not saved: ").
std::string done_by_first(const Group& group, const std::string& failed,
                          const std::function<std::string()>& work);

}  // namespace tutti::training
