// Declares the functions by which the test GPU's device code implements multimem instructions: a
// multicast address represents one address of each device bound to the object.
#pragma once

#include <cstddef>

// Resolves multicast `address` to ordinary addresses in this process. Writes one address per device
// (device order, at most `most`) to `members`, each of `bytes` accessible bytes, and returns their
// number. Returns 0 if `address` is not an accessible multicast address, if a device of the team
// has no memory bound there, if a device's memory can no longer be opened (its process has exited),
// or if there are more than `most` devices. If ranks are threads, the addresses are those at which
// the ranks themselves map the memory.
//
// The library tests/support/fake_cuda:driver, which the test GPU's kernels link, defines this
// function. Other code finds the function by dlsym.
extern "C" size_t cuFakeMulticastMembers(const void* address, size_t bytes, void** members,
                                         size_t most);
// Returns the number of calls of cuFakeMulticastMembers() in this process.
extern "C" size_t cuFakeMulticastUses();
