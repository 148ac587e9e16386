// Gloo in the comparison, over its TCP transport (it has none for shared memory). Ranks meet in a folder:
// COMPARE_FOLDER, COMPARE_ADDRESS (of this host), and RANK and WORLD_SIZE as torchrun sets them.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <functional>
#include <map>
#include <memory>

#include "perf/compare/contender.h"

namespace tutti::perf::compare {
namespace {

using Environment = std::map<std::string, std::string>;

Environment environment_of(char** names_and_values) {
  Environment out;
  for (; *names_and_values; ++names_and_values) {
    const std::string both = *names_and_values;
    const std::size_t at = both.find('=');
    out[both.substr(0, at)] = at == std::string::npos ? "" : both.substr(at + 1);
  }
  return out;
}

class WithGloo final : public Contender {
 public:
  explicit WithGloo(const Environment& environment)
      : rank_(std::stoi(environment.at("RANK"))),
        ranks_(std::stoi(environment.at("WORLD_SIZE"))),
        store_(environment.at("COMPARE_FOLDER")) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = environment.at("COMPARE_ADDRESS");
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank_, ranks_);
    context->connectFullMesh(store_, device);
    context_ = context;
  }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  float* allocate(std::size_t count) override { return own_.emplace_back(new float[count]).get(); }
  void prepare(const std::string& collective, const float* in, float* out, std::size_t count) override {
    auto* input = const_cast<float*>(in);
    if (collective == "all_reduce") {
      call_ = [=, this] {
        gloo::AllreduceOptions options(context_);
        options.setInput(input, count);
        options.setOutput(out, count);
        using Sum = void (*)(void*, const void*, const void*, std::size_t);
        options.setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
        gloo::allreduce(options);
      };
    } else if (collective == "all_gather") {
      call_ = [=, this] {
        gloo::AllgatherOptions options(context_);
        options.setInput(input, count);
        options.setOutput(out, count * std::size_t(ranks_));
        gloo::allgather(options);
      };
    } else if (collective == "broadcast") {
      call_ = [=, this] {
        gloo::BroadcastOptions options(context_);
        options.setRoot(0);
        if (rank_ == 0) options.setInput(input, count);
        options.setOutput(out, count);
        gloo::broadcast(options);
      };
    } else {
      // In place: it leaves its part at the front of the input, from where it must still be moved.
      const auto parts = std::vector<int>(std::size_t(ranks_), int(count));
      scatter_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(context_, std::vector<float*>{input},
                                                                             int(count) * ranks_, parts);
      call_ = [=, this] {
        scatter_->run();
        std::copy(input, input + count, out);
      };
    }
  }
  void call() override { call_(); }
  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

 private:
  const int rank_, ranks_;
  gloo::rendezvous::FileStore store_;
  std::shared_ptr<gloo::Context> context_;
  std::function<void()> call_;
  std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> scatter_;
  std::vector<std::unique_ptr<float[]>> own_;
};

}  // namespace
}  // namespace tutti::perf::compare

int main(int argc, char** argv, char** names_and_values) {
  using namespace tutti::perf::compare;
  try {
    WithGloo contender(environment_of(names_and_values));
    return compete(contender, wish_of(argc, argv));
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "gloo: %s\n", error.what()), 1;
  }
}
