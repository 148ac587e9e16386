#pragma once
// What of a header of NCCL's a compiled program depends on: the types of functions, values of constants, sizes and offsets, as texts.
// One file, abi_list.h, makes the list of either header.
#include <map>
#include <string>

namespace tutti::test {

using Abi = std::map<std::string, std::string>;
Abi abi_of_ours();
Abi abi_of_nvidia();      // empty: its header is not here

}  // namespace tutti::test
