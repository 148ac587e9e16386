// parse_rocm_matrix: rocm-smi --showtopo.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "topology/matrix_text.h"

namespace tutti::topology {
namespace {

// "=== Link Type between two GPUs ===": "Link Type".
std::string title_of(const std::string& line) {
  const std::size_t end = line.find(" between two GPUs");
  const std::size_t start = line.find_first_not_of("= ");
  return end == std::string::npos || start == std::string::npos || start >= end ? "" : line.substr(start, end - start);
}

// "GPU[3]   : (Topology) Numa Affinity: 1": 3, "NUMA Affinity", "1".
bool take_numa_line(const std::string& line, RocmText& out) {
  if (line.rfind("GPU[", 0) != 0) return false;
  int gpu = -1;
  const auto [rest, error] = std::from_chars(line.data() + 4, line.data() + line.size(), gpu);
  if (error != std::errc() || rest == line.data() + line.size() || *rest != ']' || gpu < 0) return false;
  for (const auto& [text, column] :
       {std::pair("Numa Node:", "NUMA Node"), std::pair("Numa Affinity:", "NUMA Affinity")}) {
    const std::size_t at = line.find(text);
    if (at == std::string::npos) continue;
    const std::vector<std::string> words = words_of(line.substr(at + std::string(text).size()));
    if (!words.empty()) out.columns[gpu].emplace_back(column, words[0]);
    return true;
  }
  return false;
}

class RocmParser {
 public:
  RocmParser(const std::string& text, const std::string& name) : lines_(lines_of(text)), name_(name) {}

  Result<RocmText> parse() {
    MatrixText* table = nullptr;
    for (const TextLine& line : lines_) {
      if (std::string title = title_of(line.text); !title.empty()) {
        table = &out_.tables[title];
        *table = {};
        continue;
      }
      if (line.text.find("===") != std::string::npos) {
        table = nullptr;
        continue;
      }
      if (take_numa_line(line.text, out_) || table == nullptr) continue;
      const std::vector<std::string> words = words_of(line.text);
      if (words.empty()) continue;
      const Status status = table->devices.empty() ? take_header(line, words, *table) : take_row(line, words, *table);
      if (!status.ok()) return status;
    }
    return finish();
  }

 private:
  Status wrong(int line, const std::string& what) const {
    return {Code::invalid_argument, fmt::format("{}:{}: {}", name_, line, what)};
  }

  Status take_header(const TextLine& line, const std::vector<std::string>& words, MatrixText& table) {
    if (words.size() > kMaxMatrixDevices)
      return wrong(line.number, fmt::format("{} columns; expected at most {}", words.size(), kMaxMatrixDevices));
    for (const std::string& word : words) {
      const auto number = gpu_number(word);
      if (!number) return wrong(line.number, fmt::format("column \"{:.40}\"; expected GPU and a number", word));
      for (const MatrixText::Device& device : table.devices)
        if (device.gpu == *number)
          return wrong(line.number, fmt::format("column {} occurs twice; expected each GPU once", word));
      MatrixText::Device device;
      device.name = word;
      device.gpu = *number;
      table.devices.push_back(device);
    }
    return {};
  }

  Status take_row(const TextLine& line, const std::vector<std::string>& words, MatrixText& table) {
    const auto device =
        std::find_if(table.devices.begin(), table.devices.end(), [&](const auto& d) { return d.name == words[0]; });
    if (device == table.devices.end())
      return gpu_number(words[0])
                 ? wrong(line.number, fmt::format("row {:.40}; expected one of the header's GPUs", words[0]))
                 : Status();
    if (!device->cells.empty())
      return wrong(line.number, fmt::format("row {:.40} occurs twice; expected each GPU once", words[0]));
    const bool last = line.number == lines_.back().number;
    if (words.size() - 1 > table.devices.size() || (words.size() - 1 < table.devices.size() && !last))
      return wrong(line.number, fmt::format("row {:.40} has {} cells; expected {}, one for each column", words[0],
                                            words.size() - 1, table.devices.size()));
    device->cells.assign(words.begin() + 1, words.end());
    if (!device->cells.empty() && words.size() - 1 < table.devices.size())
      device->cells.pop_back();  // it may be half a word
    device->cells.resize(table.devices.size());
    return {};
  }

  Result<RocmText> finish() {
    for (auto& [title, table] : out_.tables)
      for (MatrixText::Device& device : table.devices) {
        if (device.cells.empty()) out_.truncated = true;
        device.cells.resize(table.devices.size());
      }
    const bool any =
        std::any_of(out_.tables.begin(), out_.tables.end(), [](const auto& t) { return !t.second.devices.empty(); });
    if (!any)
      return wrong(lines_.empty() ? 1 : lines_.back().number,
                   "no table; expected \"Link Type between two GPUs\" with a row for each GPU");
    return std::move(out_);
  }

  std::vector<TextLine> lines_;
  const std::string& name_;
  RocmText out_;
};

}  // namespace

bool looks_like_rocm(const std::string& text) {
  return text.find("between two GPUs") != std::string::npos || text.find("ROCm System Management") != std::string::npos;
}

Result<RocmText> parse_rocm_matrix(const std::string& text, const std::string& name) {
  return RocmParser(text, name).parse();
}

}  // namespace tutti::topology
