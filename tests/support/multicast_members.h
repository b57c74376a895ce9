// How the test GPU's device code implements multimem instructions: a multicast address represents
// one address of each device bound to the object.
#pragma once

#include <cstddef>

// Writes the addresses in this process of the members' `bytes` bytes at this address, in device
// order, and returns their number. Returns 0 if it is not an accessible multicast address, if not
// all devices of the team have memory bound there, if one of them has ended, or if there are more
// than `most`. If ranks are threads, these are the addresses that they use themselves.
//
// Defined by tests/support/fake_cuda:driver, which the test GPU's kernels link. Other code finds it
// by dlsym.
extern "C" size_t cuFakeMulticastMembers(const void* address, size_t bytes, void** members,
                                         size_t most);
// Number of such requests of this process.
extern "C" size_t cuFakeMulticastUses();
