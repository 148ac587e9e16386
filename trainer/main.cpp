// The trainer's command: `train` trains, its subcommands do what belongs to it. It parses nothing and decides nothing itself.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <utility>
#include <vector>

#include "trainer/export_command.h"
#include "trainer/failure.h"
#include "trainer/plan_command.h"
#include "trainer/report.h"
#include "trainer/sample_command.h"
#include "trainer/tokenizer_command.h"
#include "trainer/train_command.h"

int main(int argc, char** argv) {
  using namespace tutti::trainer;
  CLI::App app("Trains GPT-style Transformers, data parallel over tutti", "train");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);      // what is said last holds
  const std::function<int()> train = add_train(app);
  std::vector<std::pair<CLI::App*, std::function<int()>>> verbs;
  const auto verb = [&](const char* name, const char* what, std::function<int()> (*add)(CLI::App&)) {
    CLI::App* sub = app.add_subcommand(name, what);
    verbs.emplace_back(sub, add(*sub));
  };
  verb("sample", "print text from a checkpoint", add_sample);
  verb("tokenizer", "learn a BPE tokenizer from a text", add_tokenizer);
  verb("tokenize", "make a token file of a text", add_tokenize);
  verb("export", "weights of a checkpoint as ONNX or safetensors", add_export);
  verb("plan", "memory, traffic and time of data parallelism and ZeRO for a model", add_plan);
  verb("report", "a page of HTML from a run's logs", add_report);
  try {
    app.parse(argc, argv);
    for (const auto& [sub, call] : verbs) {
      if (*sub) return call();
    }
    return train();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);      // help
    std::fprintf(stderr, "train: %s\n", tutti::Status(tutti::Code::invalid_argument, std::string(error.what()) + " (--help shows what there is)").to_string().c_str());
    return 2;
  } catch (const Failure& failure) {
    std::fprintf(stderr, "train: %s\n", failure.what());
    return 1;
  }
}
