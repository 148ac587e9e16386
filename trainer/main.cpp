// The trainer's command: `train` trains. It parses nothing and decides nothing itself.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "trainer/failure.h"
#include "trainer/train_command.h"

int main(int argc, char** argv) {
  CLI::App app("Trains GPT-style Transformers, data parallel over tutti", "train");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);      // what is said last holds
  const std::function<int()> train = tutti::trainer::add_train(app);
  try {
    app.parse(argc, argv);
    return train();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const tutti::trainer::Failure& failure) {
    std::fprintf(stderr, "train: %s\n", failure.what());
    return 1;
  }
}
