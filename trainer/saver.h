#pragma once
// Saves checkpoints beside the training: all ranks copy their units at one step, a thread of each writes them, and when all have told
// that they are done, rank 0 writes the manifest and removes old checkpoints. Nobody waits for a disk but at the end of the run. A
// checkpoint that could not be written is given up with a warning; training and older checkpoints are not touched.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "trainer/checkpoint.h"
#include "trainer/training.h"

namespace tutti::trainer {

class Saver {
 public:
  Saver(const Options& options, Training& training) : options_(options), training_(training) {}
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  ~Saver();
  // Collective, after each step: begins a checkpoint where one is due and ends one that is complete. What to tell the user, on rank 0.
  std::string after(const StepResult& result);
  // Collective: waits for the checkpoint in flight.
  std::string finish();
  // Collective: makes one now, unless there is one of that step, or no step is done.
  std::string save(long step, double loss);

 private:
  void begin(const StepResult& result, Contents contents);
  std::string poll(bool wait);        // collective
  void write();                       // on thread_
  const Options& options_;
  Training& training_;
  struct Unit {
    std::size_t number;
    UnitState state;
  };
  bool in_flight_ = false;
  Contents contents_ = Contents::all;
  Manifest manifest_;
  std::string folder_;
  std::vector<Unit> units_;
  std::thread thread_;
  std::atomic<bool> written_{false};
  Status status_;                     // of the writing; read when written_
  std::vector<WrittenFile> files_;    // this rank's
};

// Collective. Sets weights, optimizer and step from what options.resume names; what to tell the user, on rank 0. Throws Failure on
// all ranks where rank 0 cannot read it, where it is of another model or other settings, and where nothing is to be resumed but the
// run's folder holds checkpoints already.
std::string resume(const Options& options, Training& training, double& loss);

}  // namespace tutti::trainer
