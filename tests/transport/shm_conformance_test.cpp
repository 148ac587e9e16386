// The conformance suite over shared memory.
#include "shm_pair.h"

namespace tutti::tests {
namespace {

std::unique_ptr<Pair> plain(Listener& a, Listener& b) { return std::make_unique<ShmPair>(a, b, ShmOptions{}); }
std::unique_ptr<Pair> short_segments(Listener& a, Listener& b) {
  return std::make_unique<ShmPair>(a, b, ShmOptions{.segment_bytes = 1000});
}
std::unique_ptr<Pair> few_slots(Listener& a, Listener& b) {
  return std::make_unique<ShmPair>(a, b, ShmOptions{.large_slot_bytes = 1});      // one group: the least there is
}

std::unique_ptr<Pair> lending(Listener& a, Listener& b) { return std::make_unique<ShmPair>(a, b, ShmOptions{}, true); }

TUTTI_TRANSPORT_CONFORMANCE(Shm, plain)
TUTTI_TRANSPORT_CONFORMANCE(ShmShortSegments, short_segments)
TUTTI_TRANSPORT_CONFORMANCE(ShmFewSlots, few_slots)
TUTTI_TRANSPORT_CONFORMANCE(ShmLending, lending)

}  // namespace
}  // namespace tutti::tests
