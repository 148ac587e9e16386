#include "perf/driver/report.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "perf/driver/table.h"

namespace tutti::perf {
namespace {

// What each rank tells the others of itself, as bytes.
struct Card {
  int process = 0, local_rank = 0, color = 0;
  char host[64] = {};
};

}  // namespace

Result<std::vector<Series>> read_added(const Options& options) {
  std::vector<Series> all;
  for (const AddedRun& added : options.plot_add) {
    const Result<std::string> text = read_file(added.file);
    if (!text.ok()) return text.status();
    const Result<Run> run = from_json(text.value());
    if (!run.ok()) return Status(Code::invalid_argument, added.file + ": " + run.status().text());
    for (Series& series : series_of(run.value(), added.label)) all.push_back(std::move(series));
  }
  return all;
}

Report::Report(const Benchmark& benchmark, const Options& options, const std::vector<std::string>& args,
               const Goal& goal, bool speaks)
    : benchmark_(benchmark),
      options_(options),
      args_(args),
      goal_(goal),
      speaks_(speaks),
      terminal_(isatty(STDERR_FILENO) == 1) {}

Report::~Report() {
  if (line_shown_) std::fputs("\r\x1b[K", stderr);
}

Status Report::open(Communicator& world, int color, const std::string& note) {
  Card card{.process = getpid(), .local_rank = world.local_rank(), .color = color};
  gethostname(card.host, sizeof card.host - 1);
  std::vector<Card> cards(std::size_t(world.rank_count()));
  const AllGather call{.input = &card, .output = cards.data(), .count = sizeof card, .type = DataType::u8};
  if (Status s = world.all_gather(call).wait(); !s.ok()) return s;
  Heading heading{
      .program = std::string(benchmark_.program), .version = TUTTI_VERSION_STRING, .note = note, .ranks = {}};
  for (std::size_t r = 0; r < cards.size(); ++r) {
    cards[r].host[sizeof cards[r].host - 1] = 0;
    heading.ranks.push_back({int(r), cards[r].color, cards[r].process, cards[r].local_rank, cards[r].host});
  }
  say(heading_text(heading, options_) + columns_text(options_));
  return {};
}

void Report::say(const std::string& text) {
  if (!speaks_) return;
  if (line_shown_) std::fputs("\r\x1b[K", stderr);
  line_shown_ = false;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void Report::progress(const std::string& doing, std::size_t done, std::size_t all) {
  fmt::print(stderr, "\r\x1b[K{} of {}: {}", done + 1, all, doing);
  std::fflush(stderr);
  line_shown_ = true;
}

Watcher Report::watcher() {
  Watcher watcher;
  if (!speaks_) return watcher;
  watcher.remark = [this](const std::string& text) { say("# " + text + "\n"); };
  watcher.row = [this](const Row& row) { say(row_text(row, options_)); };
  watcher.cycle = [this](int cycle) {
    say(options_.cycles ? fmt::format("# Cycle {} of {}\n", cycle + 1, options_.cycles)
                        : fmt::format("# Cycle {}\n", cycle + 1));
  };
  if (terminal_)
    watcher.progress = [this](const std::string& doing, std::size_t done, std::size_t all) {
      progress(doing, done, all);
    };
  return watcher;
}

Status Report::write_files(const Run& run) const {
  if (!options_.json.empty())
    if (Status s = write_file(options_.json, to_json(run)); !s.ok()) return s;
  if (!options_.csv.empty())
    if (Status s = write_file(options_.csv, to_csv(run)); !s.ok()) return s;
  if (options_.plot.empty()) return {};
  std::vector<Series> series = series_of(run, "");
  Result<std::vector<Series>> added = read_added(options_);
  if (!added.ok()) return added.status();
  for (Series& s : added.value()) series.push_back(std::move(s));
  return write_file(options_.plot, to_svg(series, run.program));
}

Result<int> Report::close(Run run) {
  run.program = benchmark_.program;
  run.version = TUTTI_VERSION_STRING;
  run.args = args_;
  std::optional<bool> enough;
  if (goal_.busbw) enough = run.average_busbw() >= *goal_.busbw;
  say(closing_text(run, options_, enough));
  if (speaks_)
    if (Status s = write_files(run); !s.ok()) return s;
  const bool wrong = run.wrong() > 0 || run.out_of_bounds > 0 || !enough.value_or(true);
  return wrong ? kExitWrong : kExitOk;
}

}  // namespace tutti::perf
