// An MPI library in the comparison: compiled once for each, with its own compiler wrapper.
#include <mpi.h>

#include <functional>
#include <memory>

#include "perf/compare/contender.h"

namespace tutti::perf::compare {
namespace {

class WithMpi final : public Contender {
 public:
  WithMpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  float* allocate(std::size_t count) override { return own_.emplace_back(new float[count]).get(); }
  void prepare(const std::string& collective, const float* in, float* out, std::size_t count) override {
    const int n = int(count);
    if (collective == "all_reduce")
      call_ = [=] { return MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    if (collective == "all_gather")
      call_ = [=] { return MPI_Allgather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD); };
    if (collective == "reduce_scatter")
      call_ = [=] { return MPI_Reduce_scatter_block(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    if (collective != "broadcast") return;
    if (rank_ == 0) std::copy(in, in + count, out);      // MPI's is in place
    call_ = [=] { return MPI_Bcast(out, n, MPI_FLOAT, 0, MPI_COMM_WORLD); };
  }
  void call() override { check(call_()); }
  void barrier() override { check(MPI_Barrier(MPI_COMM_WORLD)); }

 private:
  static void check(int code) {
    if (code != MPI_SUCCESS) throw std::runtime_error("an MPI call failed");
  }
  int rank_ = 0, ranks_ = 0;
  std::function<int()> call_;
  std::vector<std::unique_ptr<float[]>> own_;
};

}  // namespace
}  // namespace tutti::perf::compare

int main(int argc, char** argv) {
  using namespace tutti::perf::compare;
  MPI_Init(&argc, &argv);
  int status = 1;
  try {
    WithMpi contender;
    status = compete(contender, wish_of(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi: %s\n", error.what());
  }
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return status;
}
