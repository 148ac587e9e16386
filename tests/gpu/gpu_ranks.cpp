// One rank of the stress, as a process of its own: tutti run -n 4 gpu_ranks. Ends with 1 and says what went wrong.
#include <fmt/core.h>
#include <tests/gpu/gpu.h>
#include <tests/gpu/stress.h>

int main() {
  std::string why;
  if (!tutti::gpu::device(&why)) {
    fmt::print(stderr, "{}\n", why);
    return 1;
  }
  auto comm = tutti::Communicator::from_environment();
  if (!comm.ok()) {
    fmt::print(stderr, "{}\n", comm.status().to_string());
    return 1;
  }
  const auto how = comm->use_gpu();
  if (!how.ok()) {
    fmt::print(stderr, "{}\n", how.status().to_string());
    return 1;
  }
  fmt::print("rank {} of {}: {}\n", comm->rank(), comm->rank_count(), *how);
  const std::string wrong = tutti::gpu::stress(*comm, 40);
  if (wrong.empty())
    fmt::print("rank {} of {}: 40 rounds are right\n", comm->rank(), comm->rank_count());
  else
    fmt::print(stderr, "rank {} of {}: {}\n", comm->rank(), comm->rank_count(), wrong);
  return wrong.empty() ? 0 : 1;
}
