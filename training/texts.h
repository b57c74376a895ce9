// Texts of any length between ranks.
#pragma once

#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "training/checkpoint/group.h"

namespace tutti::training {

// Collective. Every rank's text, in the order of ranks, on rank 0; nothing elsewhere.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& own);
// Collective. Every rank's text, on every rank. None of them has a zero in it.
std::vector<std::string> texts_of_all(Communicator& communicator, const std::string& own);
// Collective. The text of rank 0.
std::string text_of_first(Communicator& communicator, std::string text);

// The communicator's ranks; it outlives the group.
Group group_of(Communicator& communicator);

}  // namespace tutti::training
