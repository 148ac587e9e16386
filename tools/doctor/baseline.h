#pragma once
// Baseline: what has changed since an examination that was kept. Pure functions of two values.
#include "tools/doctor/examination.h"

namespace tutti::tools::doctor {

// Hosts are paired by name where names are unique, else by rank. A figure counts as changed only when it is worse by
// more than two runs of a healthy machine differ; everything that is compared and is as before gives one pass in all.
std::vector<Finding> compare(const Examination& before, const Examination& now);

// invalid_argument: no such file, or not written by --save or --json.
Result<Examination> read_examination(const std::string& file);

}  // namespace tutti::tools::doctor
