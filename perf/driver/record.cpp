#include "perf/driver/record.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tutti::perf {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity: an error without bound is null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json to_value(const Figures& f) {
  Json value{{"time_us", f.time_us}, {"p50_us", f.p50_us}, {"p95_us", f.p95_us}, {"p99_us", f.p99_us},
             {"min_us", f.min_us},   {"max_us", f.max_us}, {"spread", f.spread}, {"cpu_us", f.cpu_us},
             {"algbw", f.algbw},     {"busbw", f.busbw},   {"wrong", nullptr}};
  if (f.wrong) value["wrong"] = std::uint64_t(*f.wrong);
  if (f.error_over_bound) value["error_over_bound"] = number(*f.error_over_bound);
  return value;
}

Figures figures_from(const Json& value) {
  Figures f;
  f.time_us = value.at("time_us");
  f.p50_us = value.at("p50_us");
  f.p95_us = value.at("p95_us");
  f.p99_us = value.at("p99_us");
  f.min_us = value.value("min_us", 0.0);
  f.max_us = value.value("max_us", 0.0);
  f.spread = value.value("spread", 0.0);
  f.cpu_us = value.value("cpu_us", 0.0);
  f.algbw = value.at("algbw");
  f.busbw = value.at("busbw");
  if (!value.at("wrong").is_null()) f.wrong = value.at("wrong").get<double>();
  if (value.contains("error_over_bound"))
    f.error_over_bound = value["error_over_bound"].is_null() ? INFINITY : value["error_over_bound"].get<double>();
  return f;
}

Json to_value(const Row& row) {
  Json value{{"bytes", row.bytes},
             {"count", row.count},
             {"type", row.type},
             {"op", row.op},
             {"root", row.root},
             {"algorithm", row.algorithm},
             {"transport", row.transport},
             {"out_of_place", to_value(row.out_of_place)},
             {"in_place", row.in_place ? to_value(*row.in_place) : Json(nullptr)}};
  if (!row.timestamp.empty()) value["timestamp"] = row.timestamp;
  return value;
}

Row row_from(const Json& value) {
  Row row;
  row.bytes = value.at("bytes");
  row.count = value.at("count");
  row.type = value.at("type");
  row.op = value.at("op");
  row.root = value.at("root");
  row.algorithm = value.at("algorithm");
  row.transport = value.at("transport");
  row.out_of_place = figures_from(value.at("out_of_place"));
  if (!value.at("in_place").is_null()) row.in_place = figures_from(value.at("in_place"));
  row.timestamp = value.value("timestamp", "");
  return row;
}

std::string csv_figures(const Figures& f) {
  return fmt::format("{},{},{},{},{},{},{}", f.time_us, f.p50_us, f.p95_us, f.p99_us, f.algbw, f.busbw,
                     f.wrong ? fmt::format("{:.0f}", *f.wrong) : "");
}

}  // namespace

double Run::average_busbw() const {
  double sum = 0;
  std::size_t figures = 0;
  for (const Row& row : rows) {
    sum += row.out_of_place.busbw + (row.in_place ? row.in_place->busbw : 0);
    figures += row.in_place ? 2 : 1;
  }
  return figures ? sum / double(figures) : 0;
}

double Run::wrong() const {
  double sum = 0;
  for (const Row& row : rows)
    sum += row.out_of_place.wrong.value_or(0) + (row.in_place ? row.in_place->wrong.value_or(0) : 0);
  return sum;
}

std::string to_json(const Run& run) {
  Json value{{"version", run.version},
             {"program", run.program},
             {"args", run.args},
             {"ranks", run.ranks},
             {"average_busbw", run.average_busbw()},
             {"out_of_bounds", run.out_of_bounds},
             {"results", Json::array()}};
  for (const Row& row : run.rows) value["results"].push_back(to_value(row));
  // An argument need not be UTF-8.
  return value.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Run> from_json(const std::string& text) {
  try {
    const Json value = Json::parse(text);
    Run run;
    run.version = value.at("version");
    run.program = value.at("program");
    run.args = value.at("args").get<std::vector<std::string>>();
    run.ranks = value.at("ranks");
    run.out_of_bounds = value.at("out_of_bounds");
    for (const Json& row : value.at("results")) run.rows.push_back(row_from(row));
    return run;
  } catch (const nlohmann::json::exception& error) {
    return Status(Code::invalid_argument, fmt::format("not a benchmark's JSON: {}", error.what()));
  }
}

std::string to_csv(const Run& run) {
  std::string text = "bytes,count,type,op,root,algorithm,transport";
  for (const char* place : {"out_of_place", "in_place"})
    for (const char* name : {"time_us", "p50_us", "p95_us", "p99_us", "algbw", "busbw", "wrong"})
      text += fmt::format(",{}_{}", place, name);
  text += '\n';
  for (const Row& row : run.rows)
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{}\n", row.bytes, row.count, row.type, row.op, row.root, row.algorithm,
                    row.transport, csv_figures(row.out_of_place), row.in_place ? csv_figures(*row.in_place) : ",,,,,,");
  return text;
}

Status write_file(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) return {Code::invalid_argument, fmt::format("cannot write {}: {}", file, std::strerror(errno))};
  return {};
}

Result<std::string> read_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in) return Status(Code::invalid_argument, fmt::format("cannot read {}: {}", file, std::strerror(errno)));
  return text.str();
}

Status probe_file(const std::string& file) {
  std::ofstream out(file, std::ios::binary | std::ios::app);
  if (!out) return {Code::invalid_argument, fmt::format("cannot write {}: {}", file, std::strerror(errno))};
  return {};
}

}  // namespace tutti::perf
