#pragma once
// `train report`: a page of HTML from a run's logs, with the loss, the throughput and where each rank's time went. One file without
// scripts, to be opened anywhere.
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <tutti/status.h>
#include <vector>

namespace tutti::trainer {

// A line of rank-R.jsonl.
struct LoggedStep {
  long step = 0;
  double loss = 0, seconds = 0, compute_seconds = 0, exposed_seconds = 0, exchange_seconds = 0, data_seconds = 0, tokens = 0;
};
// Of each rank. A step that stands there twice, after a resume, counts as it was last. invalid_argument: no log there, or a line of
// one is damaged (a torn last line is passed over).
Result<std::vector<std::vector<LoggedStep>>> read_logs(const std::string& run);
std::string report_page(const std::string& title, const std::vector<std::vector<LoggedStep>>& ranks);

std::function<int()> add_report(CLI::App& app);

}  // namespace tutti::trainer
