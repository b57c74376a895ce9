// The limit of open files of this process (RLIMIT_NOFILE), to which connections count as well.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/error.h"

namespace tutti {

// Sees to it that this process can open `more` descriptors besides those it has, as far as its hard
// limit allows. The soft limit grows by what is needed only: a program that uses select() breaks on
// descriptors of FD_SETSIZE and above. False where the limit stays too low.
bool reserve_descriptors(size_t more);

// True for EMFILE and ENFILE: it is this process or host that has too many files open, nobody else.
bool is_descriptor_shortage(int error);
// Error(system) for such an errno, with the limit and how to raise it.
Error descriptor_shortage(std::string_view what, int error);

}  // namespace tutti
