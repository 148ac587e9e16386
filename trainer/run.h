#pragma once
// A training run from its first step to its last, through all the worlds of ranks that it has on its way: where a launcher restarts
// ranks (tutti::Elastic), those that are left go on from their memory, else from the newest valid checkpoint.
#include <memory>
#include <string>

#include "trainer/options.h"
#include "trainer/progress.h"
#include "trainer/run_log.h"
#include "trainer/saver.h"
#include "trainer/training.h"

namespace tutti { class Elastic; }

namespace tutti::trainer {

// How a process ends whose job has stopped cleanly since too few ranks were left: `tutti run` knows it.
inline constexpr int kTooFewLeft = 75;

class Run {
 public:
  Run(const Options& options, Tokens tokens, Elastic& elastic, Backend<float>& backend, Threads& threads);
  ~Run();
  // The exit status. Throws Failure for what cannot be gone on from.
  int carry_out();

 private:
  // What there is of a set of ranks.
  struct World {
    World(Run& run, std::shared_ptr<Communicator> of);
    std::shared_ptr<Communicator> communicator;
    Training training;
    std::unique_ptr<Saver> saver;
    RunLog log;
    std::unique_ptr<Progress> progress;
    bool has_state = false;
    bool first() const { return communicator->rank() == 0; }
  };
  void enter();                       // into the world of now, with the state that there is
  void begin_anew(World& world);      // from a checkpoint, or from the start
  bool work();                        // false: ranks have come
  void finish();
  int stop_early();
  void after_loss(const Status& why);
  void leave(bool intact);            // `now_` becomes `before_`

  const Options options_;
  const Tokens tokens_;
  Elastic& elastic_;
  Backend<float>& backend_;
  Threads& threads_;
  Trace trace_;
  const double peak_flops_;           // of this rank
  std::unique_ptr<World> before_, now_;
  bool intact_ = false;               // all ranks of before_ are there
  double loss_ = 0;                   // of the last step
  double loss_before_ = 0;            // of the checkpoint that the run goes on from, until it is compared; 0: none
};

}  // namespace tutti::trainer
