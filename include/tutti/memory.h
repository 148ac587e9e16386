#pragma once
// Memory that other ranks of this host read in place: what lies in it is not copied on its way through shared memory.
#include <tutti/status.h>

#include <cstddef>

namespace tutti {

// Zeroed, at a multiple of 4096, for inputs and outputs of any communicator. Any thread, before or after joining. An operation on
// it ends when the others have read what they need of it, a little later perhaps than one on other memory, which is copied.
// invalid_argument: no bytes. out_of_resources: the kernel refused; says the size and why.
Result<void*> allocate(std::size_t bytes);

// What allocate() gave; nullptr: nothing. No operation may be using it. What ranks have mapped of it takes no memory any more.
void deallocate(void* memory);

// Says that these bytes stay mapped until unregister_memory(): RDMA then moves them without a copy, once it has registered them with its
// devices (at first use; the pages are locked from then on). What allocate() gives needs none of it. Any thread. invalid_argument: no
// bytes, or some are registered or allocated by tutti already. Memory of a GPU needs none of it: operations on streams take it as it is.
Status register_memory(void* memory, std::size_t bytes);

// No operation may be using it. invalid_argument: nothing was registered at that address.
Status unregister_memory(void* memory);

}  // namespace tutti
