#pragma once
// What a run tells of its steps: a line on the screen of rank 0, and a line of JSON a rank in the run's folder.
#include <cstdio>
#include <string>

#include "trainer/training.h"

namespace tutti::trainer {

// What the rates of a line are computed with.
struct StepWork {
  double tokens = 0;                  // of a step, over all ranks
  double flops = 0;                   // likewise
  double peak_flops = 0;              // a second, over all ranks
};

// "step 12/50  loss 2.3412  lr 1.0e-03  norm 0.52  45.2k tok/s  mfu 41 %  compute 92 %  exchange 5 % of 31 %  data 3 %":
// of the step's time 31 % with communication under way, and 5 % waiting for it
std::string step_line(const StepResult& result, long steps, const StepWork& work);

class RunLog {
 public:
  // Appends to FOLDER/rank-R.jsonl; nothing with an empty folder. Throws Failure where it cannot be opened.
  RunLog(const std::string& folder, int rank);
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;
  ~RunLog();
  void add(const StepResult& result, const StepWork& work);

 private:
  std::FILE* file_ = nullptr;
};

// The best of a few large products: multiplications and additions a second of this rank.
double peak_flops(Backend<float>& backend, Precision precision = Precision::f32);

}  // namespace tutti::trainer
