// tutti in the comparison.
#include <tutti/tutti.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "perf/compare/contender.h"

namespace tutti::perf::compare {
namespace {

class WithTutti final : public Contender {
 public:
  explicit WithTutti(Communicator communicator) : communicator_(std::move(communicator)) {}
  int rank() const override { return communicator_.rank(); }
  int ranks() const override { return communicator_.rank_count(); }
  float* allocate(std::size_t count) override { return own_.emplace_back(new float[count]).get(); }
  void prepare(const std::string& collective, const float* in, float* out, std::size_t count) override {
    if (collective == "all_reduce") start_ = [=, this] { return communicator_.all_reduce({in, out, count}); };
    if (collective == "broadcast") {
      if (communicator_.rank() == 0) std::copy(in, in + count, out);      // in place, as MPI's
      start_ = [=, this] { return communicator_.broadcast({out, out, count}); };
    }
    if (collective == "all_gather") start_ = [=, this] { return communicator_.all_gather({in, out, count}); };
    if (collective == "reduce_scatter") start_ = [=, this] { return communicator_.reduce_scatter({in, out, count}); };
  }
  void call() override { check(start_()); }
  void barrier() override { check(communicator_.barrier()); }

 private:
  static void check(Work work) {
    if (const Status status = work.wait(); !status.ok()) throw std::runtime_error(status.to_string());
  }
  Communicator communicator_;
  std::function<Work()> start_;
  std::vector<std::unique_ptr<float[]>> own_;
};

}  // namespace
}  // namespace tutti::perf::compare

int main(int argc, char** argv) {
  using namespace tutti::perf::compare;
  auto communicator = tutti::Communicator::from_environment();
  if (!communicator) return std::fprintf(stderr, "%s\n", communicator.status().to_string().c_str()), 1;
  try {
    const Wish wish = wish_of(argc, argv);
    WithTutti contender(std::move(*communicator));
    return compete(contender, wish);
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "tutti: %s\n", error.what()), 1;
  }
}
