#include "trainer/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "trainer/failure.h"

namespace tutti::trainer {
namespace {

constexpr double kWidth = 800, kHeight = 260;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

// A curve with the smallest and largest value written beside it.
template <class Value>
std::string curve(const std::string& name, const std::vector<LoggedStep>& steps, Value value) {
  double low = value(steps.front()), high = low;
  for (const LoggedStep& step : steps) low = std::min(low, value(step)), high = std::max(high, value(step));
  const double range = high > low ? high - low : 1, length = std::max(1.0, double(steps.back().step - steps.front().step));
  std::string points;
  for (const LoggedStep& step : steps) {
    points += fmt::format("{:.1f},{:.1f} ", double(step.step - steps.front().step) / length * kWidth, kHeight - (value(step) - low) / range * kHeight);
  }
  return fmt::format("<h2>{}</h2>\n<svg viewBox=\"-90 -20 {} {}\" role=\"img\" aria-label=\"{}\">\n"
                     "<rect width=\"{}\" height=\"{}\" class=\"frame\"/>\n<polyline points=\"{}\"/>\n"
                     "<text x=\"-8\" y=\"8\" text-anchor=\"end\">{:.4g}</text><text x=\"-8\" y=\"{}\" text-anchor=\"end\">{:.4g}</text>\n"
                     "<text y=\"{}\">step {}</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">step {}</text>\n</svg>\n",
                     name, kWidth + 110, kHeight + 50, name, kWidth, kHeight, points, high, kHeight, low, kHeight + 20, steps.front().step,
                     kWidth, kHeight + 20, steps.back().step);
}

std::string split_table(const std::vector<std::vector<LoggedStep>>& ranks) {
  std::string text = "<h2>Where the time went</h2>\n<table><tr><th>rank</th><th>steps</th><th>s a step</th><th>compute</th>"
                     "<th>exposed exchange</th><th>exchange under way</th><th>data</th></tr>\n";
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    double all = 0, compute = 0, exposed = 0, exchange = 0, data = 0;
    for (const LoggedStep& step : ranks[rank]) {
      all += step.seconds, compute += step.compute_seconds, exposed += step.exposed_seconds, exchange += step.exchange_seconds, data += step.data_seconds;
    }
    text += fmt::format("<tr><td>{}</td><td>{}</td><td>{:.3f}</td><td>{:.1f} %</td><td>{:.1f} %</td><td>{:.1f} %</td><td>{:.1f} %</td></tr>\n", rank,
                        ranks[rank].size(), all / double(ranks[rank].size()), 100 * compute / all, 100 * exposed / all,
                        100 * exchange / all, 100 * data / all);
  }
  return text + "</table>\n";
}

}  // namespace

Result<std::vector<std::vector<LoggedStep>>> read_logs(const std::string& run) {
  std::vector<std::vector<LoggedStep>> ranks;
  for (int rank = 0;; ++rank) {
    const std::string path = fmt::format("{}/rank-{}.jsonl", run, rank);
    std::ifstream file(path);
    if (!file) break;
    std::map<long, LoggedStep> steps;
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      const auto j = nlohmann::json::parse(line, nullptr, false);
      if (j.is_discarded() && file.peek() == EOF) break;
      try {
        steps[j.at("step")] = {j.at("step"), j.at("loss").is_null() ? 0 : j.at("loss").get<double>(), j.at("seconds"), j.at("compute_seconds"),
                               j.at("exposed_seconds"), j.value("exchange_seconds", 0.0), j.at("data_seconds"), j.at("tokens")};
      } catch (const nlohmann::json::exception& error) {
        return Status(Code::invalid_argument, fmt::format("{}:{}: is damaged: {}", path, number, error.what()));
      }
    }
    if (steps.empty()) break;
    ranks.emplace_back();
    for (const auto& entry : steps) ranks.back().push_back(entry.second);
  }
  if (ranks.empty()) return Status(Code::invalid_argument, fmt::format("{}: no log of a run (rank-0.jsonl) with a step in it", run));
  return ranks;
}

std::string report_page(const std::string& title, const std::vector<std::vector<LoggedStep>>& ranks) {
  const std::vector<LoggedStep>& steps = ranks.front();
  return fmt::format("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{0}</title>\n<style>\n"
                     "body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}\n"
                     "svg {{ width: 100% }} polyline {{ fill: none; stroke: #26c; stroke-width: 1.5 }} .frame {{ fill: none; stroke: #ccc }}\n"
                     "text {{ font-size: 13px }} td, th {{ padding: 0 1rem 0 0; text-align: right }}\n</style>\n"
                     "<h1>{0}</h1>\n<p>{1} ranks, steps {2} to {3}, last loss {4:.4f}</p>\n",
                     escaped(title), ranks.size(), steps.front().step, steps.back().step, steps.back().loss) +
         curve("Loss", steps, [](const LoggedStep& s) { return s.loss; }) +
         curve("Tokens a second", steps, [](const LoggedStep& s) { return s.tokens / s.seconds; }) + split_table(ranks) + "</html>\n";
}

std::function<int()> add_report(CLI::App& app) {
  struct Flags {
    std::string run, out;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("run", flags->run, "a run's folder")->required();
  app.add_option("--out", flags->out, "file; RUN/report.html unless given");
  return [flags] {
    const std::string out = flags->out.empty() ? flags->run + "/report.html" : flags->out;
    std::ofstream file(out);
    file << report_page(std::filesystem::path(flags->run).filename().string(), require(read_logs(flags->run)));
    if (!file.flush()) refuse(fmt::format("{} cannot be written", out));
    fmt::print("{}\n", out);
    return 0;
  };
}

}  // namespace tutti::trainer
