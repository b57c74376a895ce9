// What device code of the test GPU makes of multimem instructions: a multicast address stands for
// one address of each device that is bound there.
#pragma once

#include <cstddef>

// Writes where the members' `bytes` bytes at this address lie in this process, in the order of the
// devices, and returns how many they are. 0: it is no multicast address with access to it, not all
// devices of the team have memory bound there, one of them has ended, or they are more than `most`.
// Where ranks are threads, the addresses are those that they use themselves.
//
// Defined by tests/support/fake_cuda:driver, with which the test GPU's kernels are linked. The
// others find it by dlsym.
extern "C" size_t cuFakeMulticastMembers(const void* address, size_t bytes, void** members,
                                         size_t most);
// How often this process has asked so.
extern "C" size_t cuFakeMulticastUses();
