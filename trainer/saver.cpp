#include "trainer/saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "trainer/failure.h"

namespace tutti::trainer {
namespace {

// What a rank tells of its files: state, then the digests and sizes of the two.
enum State : std::uint64_t { kWriting, kDone, kFailed };
constexpr std::size_t kReport = 1 + 2 * 5;

// The status of rank 0, on all ranks.
Status agree(Wire& wire, const Status& of_first) {
  std::array<char, 1024> text{};
  if (wire.rank() == 0 && !of_first) of_first.text().copy(text.data(), text.size() - 1);
  Exchange exchange = wire.broadcast("status", text.data(), text.size(), 0);
  wire.wait(exchange);
  return text[0] ? Status(Code::invalid_argument, text.data()) : Status();
}

// Of rank 0: what to resume from; an empty folder for a start from the beginning.
Status look(const Options& o, Found& found, std::string& told) {
  if (o.resume.empty()) {
    if (!has_checkpoints(o.run)) return {};
    return Status(Code::invalid_argument, fmt::format("{} holds checkpoints: --resume auto goes on from them; a new run wants another folder", o.run));
  }
  if (o.resume == "auto") {
    found = newest_checkpoint(o.run, Contents::all);
    for (const std::string& torn : found.torn) told += fmt::format("not used: {}\n", torn);
    if (found.folder.empty()) {
      const Found light = newest_checkpoint(o.run, Contents::weights);
      if (!light.folder.empty()) told += fmt::format("{} holds weights alone, to sample from and to export: it cannot be gone on from\n", light.folder);
      told += "nothing to resume from: starting anew\n";
    }
  } else {
    auto manifest = read_checkpoint(o.resume);
    if (!manifest) return manifest.status();
    found.folder = o.resume;
    found.manifest = *manifest;
  }
  if (found.folder.empty()) return {};
  const auto refused = [&](const std::string& why) { return Status(Code::invalid_argument, fmt::format("{} {}", found.folder, why)); };
  if (contents_of(found.manifest) == Contents::weights) return refused("holds weights alone: training goes on from a folder checkpoint-...");
  if (const std::string other = difference(o.model, found.manifest.model); !other.empty()) return refused("is of another model: " + other);
  if (found.manifest.settings != settings_text(o)) {
    return refused(fmt::format("was made with {}, this run has {}: its samples would be others", found.manifest.settings, settings_text(o)));
  }
  told += fmt::format("resuming from {}, after step {}\n", found.folder, found.manifest.step);
  return {};
}

}  // namespace

Saver::~Saver() {
  if (thread_.joinable()) thread_.join();
}

std::string Saver::after(const StepResult& result) {
  if (options_.run.empty()) return "";
  std::string told = in_flight_ ? poll(false) : "";
  const auto due = [&](long every) { return every > 0 && result.step % every == 0; };
  const bool all = result.step == options_.steps || due(options_.checkpoint_every);
  if (!all && !due(options_.light_every)) return told;
  if (in_flight_) told += poll(true);
  begin(result, all ? Contents::all : Contents::weights);
  return told;
}

std::string Saver::finish() { return in_flight_ ? poll(true) : ""; }

std::string Saver::save(long step, double loss) {
  if (options_.run.empty() || step == 0) return "";
  std::vector<double> there = {training_.wire().rank() == 0 && is_complete(checkpoint_folder(options_.run, step)) ? 1.0 : 0.0};
  training_.wire().sum_now(there);
  if (there[0] > 0) return "";
  StepResult result;
  result.step = step, result.loss = loss;
  begin(result, Contents::all);
  return finish();
}

void Saver::begin(const StepResult& result, Contents contents) {
  const int rank = training_.wire().rank(), ranks = training_.wire().rank_count();
  manifest_ = {result.step, result.loss, training_.scaler().scale(), training_.scaler().calm(), options_.model, settings_text(options_), {}};
  contents_ = contents;
  folder_ = checkpoint_folder(options_.run, result.step, contents);
  units_.clear();
  for (std::size_t unit = 0; unit < training_.layout().units().size(); ++unit) {
    UnitState state = training_.unit(unit, contents);
    if (unit_owner(unit, ranks) == rank) units_.push_back({unit, std::move(state)});
  }
  in_flight_ = true;
  written_ = false;
  thread_ = std::thread([this] { write(); });
}

void Saver::write() {
  const int rank = training_.wire().rank(), ranks = training_.wire().rank_count();
  std::vector<NamedTensor> weights, averages;
  for (const Unit& unit : units_) {
    for (const Tensor& tensor : training_.layout().tensors()) {
      if (tensor.unit != unit.number) continue;
      weights.push_back({tensor.name, tensor.shape, unit.state.weights.data() + tensor.offset});
      if (contents_ == Contents::weights) continue;
      averages.push_back({tensor.name + ".first", tensor.shape, unit.state.first.data() + tensor.offset});
      averages.push_back({tensor.name + ".second", tensor.shape, unit.state.second.data() + tensor.offset});
    }
  }
  files_.clear();
  status_ = {};
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  const std::array<std::pair<std::string, std::vector<NamedTensor>*>, 2> parts = {
      {{model_file(rank, ranks), &weights}, {optimizer_file(rank, ranks), &averages}}};
  for (const auto& [name, tensors] : parts) {
    if (contents_ == Contents::weights && tensors == &averages) continue;
    auto file = status_ ? write_safetensors(folder_, name, *tensors) : status_;
    if (file) files_.push_back(*file);
    else status_ = file.status();
  }
  written_ = true;
}

std::string Saver::poll(bool wait) {
  if (wait) thread_.join();
  std::vector<std::uint64_t> report(kReport);
  if (written_) {
    report[0] = status_ ? kDone : kFailed;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      report[1 + 5 * i] = files_[i].bytes;
      std::memcpy(&report[2 + 5 * i], files_[i].digest.data(), files_[i].digest.size());
    }
  }
  const auto all = training_.wire().gather_now(report);
  const int ranks = training_.wire().rank_count();
  bool failed = false;
  for (int rank = 0; rank < ranks; ++rank) {
    if (all[std::size_t(rank) * kReport] == kWriting) return "";
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const std::uint64_t* of_rank = all.data() + std::size_t(rank) * kReport;
    failed = failed || of_rank[0] == kFailed;
    for (std::size_t i = 0; i < (contents_ == Contents::all ? 2 : 1); ++i) {
      WrittenFile file{i == 0 ? model_file(rank, ranks) : optimizer_file(rank, ranks), std::size_t(of_rank[1 + 5 * i]), {}};
      std::memcpy(file.digest.data(), of_rank + 2 + 5 * i, file.digest.size());
      manifest_.files.push_back(file);
    }
  }
  if (thread_.joinable()) thread_.join();
  in_flight_ = false;
  units_.clear();
  if (training_.wire().rank() != 0) return status_ ? "" : fmt::format("rank {}: {}\n", training_.wire().rank(), status_.text());
  Status status = failed && status_ ? Status(Code::invalid_argument, "another rank could not write its part") : status_;
  if (status) status = complete_checkpoint(folder_, manifest_, training_.layout(), ranks);
  if (status) {
    prune_checkpoints(options_.run, options_.keep, long(manifest_.step));
    return fmt::format("{} of step {}: {}\n", contents_ == Contents::all ? "checkpoint" : "weights", manifest_.step, folder_);
  }
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
  return fmt::format("warning: no checkpoint of step {}: {} [TUTTI-E016]\n", manifest_.step, status.text());
}

std::string resume(const Options& o, Training& training, double& loss) {
  Wire& wire = training.wire();
  Found found;
  std::string told;
  std::optional<CheckpointTensors> tensors;
  Status status;
  if (wire.rank() == 0) {
    status = look(o, found, told);
    if (status && !found.folder.empty()) {
      auto opened = CheckpointTensors::open(found.folder, found.manifest);
      status = opened.status();
      if (opened) tensors = std::move(*opened);
    }
  }
  require(agree(wire, status));
  std::array<double, 4> facts = {double(found.manifest.step), found.manifest.loss, found.manifest.loss_scale, double(found.manifest.calm_steps)};
  Exchange exchange = wire.broadcast("resumed step", facts.data(), sizeof(facts), 0);
  wire.wait(exchange);
  if (facts[0] == 0) return told;
  for (std::size_t unit = 0; unit < training.layout().units().size(); ++unit) {
    UnitState state;
    if (tensors) {
      const std::size_t count = training.layout().units()[unit].count;
      state.weights.resize(count), state.first.resize(count), state.second.resize(count);
      status = tensors->fill(training.layout(), unit, "", state.weights.data());
      if (status) status = tensors->fill(training.layout(), unit, ".first", state.first.data());
      if (status) status = tensors->fill(training.layout(), unit, ".second", state.second.data());
    }
    require(agree(wire, status));
    training.set_unit(unit, state);
  }
  training.set_steps_done(long(facts[0]));
  training.scaler().set(facts[2], long(facts[3]));
  loss = facts[1];
  return told;
}

}  // namespace tutti::trainer
