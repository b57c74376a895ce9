// The limit of open files of this process (RLIMIT_NOFILE), which also covers connections.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/error.h"

namespace tutti {

// Raises the soft limit, up to the hard one, so that `more` further descriptors can be opened. The
// limit grows no more than needed, because a program that uses select() breaks on descriptors of
// FD_SETSIZE and above. Returns false if the limit stays too low.
bool reserve_descriptors(size_t more);

// Returns true for EMFILE and ENFILE: the shortage is in this process or on this host.
bool is_descriptor_shortage(int error);
// Builds Error(system) for EMFILE or ENFILE (`error`) while doing `what`; the error says what the
// limit is and how to raise it.
Error descriptor_shortage(std::string_view what, int error);

}  // namespace tutti
