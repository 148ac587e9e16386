// The smallest program with tutti: every rank adds its number plus one. Start it with: tutti run -n 2 ./example
#include <cstdio>
#include <tutti/tutti.h>

int main() {
  auto world = tutti::Communicator::from_environment();
  if (!world.ok()) {
    std::fprintf(stderr, "%s\n", world.status().to_string().c_str());
    return 1;
  }
  float sum = static_cast<float>(world->rank() + 1);
  const tutti::Status status = world->all_reduce({.input = &sum, .output = &sum, .count = 1}).wait();
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.to_string().c_str());
    return 1;
  }
  std::printf("rank %d of %d: %g\n", world->rank(), world->rank_count(), static_cast<double>(sum));
}
