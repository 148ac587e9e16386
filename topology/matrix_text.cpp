#include "topology/matrix_text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include <fmt/format.h>

namespace tutti::topology {
namespace {

bool digits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_label(const std::string& word) {
  static const std::set<std::string> kPlain = {"X",   "SYS", "SOC", "NODE", "PHB",  "PXB",
                                               "PIX", "PXN", "N/A", "XGMI", "PCIE", "MX"};
  return kPlain.count(word) != 0 ||
         (word.size() > 2 && (word.rfind("NV", 0) == 0 || word.rfind("MX", 0) == 0) && digits(word.substr(2)));
}

// "GPU0GPU1GPU2mlx5_0": the names that a lost blank ran together.
void append_names(std::string word, std::vector<std::string>& names) {
  while (word.rfind("GPU", 0) == 0) {
    std::size_t end = 3;
    while (end < word.size() && std::isdigit(static_cast<unsigned char>(word[end])) != 0) ++end;
    if (end == 3 || end == word.size()) break;
    names.push_back(word.substr(0, end));
    word.erase(0, end);
  }
  if (!word.empty()) names.push_back(word);
}

std::vector<std::size_t> starts_of(const std::string& line) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const auto blank = [&line](std::size_t at) { return std::isspace(static_cast<unsigned char>(line[at])) != 0; };
    if (!blank(i) && (i == 0 || blank(i - 1))) starts.push_back(i);
  }
  return starts;
}

struct Header {
  std::vector<std::string> names, columns;  // columns: the titles behind the labels
  std::vector<std::size_t> column_at;       // where each stands in the line
};

// Titles of two or three words. The devices end where the first begins.
Header parse_header(const std::string& line) {
  static const std::vector<std::vector<std::string>> kTitles = {
      {"CPU", "Affinity"}, {"NUMA", "Affinity"}, {"GPU", "NUMA", "ID"}};
  Header header;
  const std::vector<std::string> words = words_of(line);
  const std::vector<std::size_t> starts = starts_of(line);
  for (std::size_t i = 0; i < words.size();) {
    const auto title = std::find_if(kTitles.begin(), kTitles.end(), [&](const auto& t) {
      return i + t.size() <= words.size() && std::equal(t.begin(), t.end(), words.begin() + std::ptrdiff_t(i));
    });
    if (title != kTitles.end()) {
      std::string joined;
      for (const std::string& word : *title) joined += (joined.empty() ? "" : " ") + word;
      header.columns.push_back(joined);
      header.column_at.push_back(starts[i]);
      i += title->size();
      continue;
    }
    if (header.columns.empty()) append_names(words[i], header.names);
    ++i;
  }
  return header;
}

// A header names devices and no label: at least one GPU.
bool is_header(const std::string& line) {
  const Header header = parse_header(line);
  const bool gpu = !header.names.empty() && gpu_number(header.names.front());
  return gpu && std::none_of(header.names.begin(), header.names.end(), is_label) &&
         (header.names.size() > 1 || !header.columns.empty());
}

bool is_row(const std::vector<std::string>& words) {
  return words.size() > 1 && is_label(words[1]) && !is_label(words[0]);
}

class NvidiaParser {
 public:
  NvidiaParser(const std::string& text, const std::string& name)
      : lines_(lines_of(text)), name_(name), open_end_(!text.empty() && text.back() != '\n') {}

  Result<MatrixText> parse() {
    std::size_t first = 0;
    while (first < lines_.size() && !is_header(lines_[first].text) && !is_row(words_of(lines_[first].text))) ++first;
    if (first == lines_.size())
      return wrong(lines_.empty() ? 1 : lines_.back().number,
                   "no matrix; expected a header with GPU0 ... as nvidia-smi topo -m prints it, or rocm-smi "
                   "--showtopo's tables");
    const bool header = is_header(lines_[first].text);
    if (Status status = header ? take_header(lines_[first]) : header_from_rows(first); !status.ok()) return status;
    for (std::size_t i = first + (header ? 1 : 0); i < lines_.size(); ++i) {
      const std::vector<std::string> words = words_of(lines_[i].text);
      if (!words.empty() && words[0].rfind("Legend", 0) == 0) break;
      if (words.empty() || words[0] == "NIC") continue;
      if (Status status = take_row(lines_[i], words); !status.ok()) return status;
    }
    take_legend();
    return finish();
  }

 private:
  Status wrong(int line, const std::string& what) const {
    return {Code::invalid_argument, fmt::format("{}:{}: {}", name_, line, what)};
  }

  Status take_header(const TextLine& line) {
    header_ = parse_header(line.text);
    return take_names(line.number);
  }

  // A paste that lost its header: the rows name the columns, if there is one for each.
  Status header_from_rows(std::size_t first) {
    for (std::size_t i = first; i < lines_.size(); ++i)
      if (const auto words = words_of(lines_[i].text); is_row(words)) header_.names.push_back(words[0]);
    const auto words = words_of(lines_[first].text);
    const auto cells = std::size_t(std::count_if(words.begin() + 1, words.end(), is_label));
    if (cells != header_.names.size())
      return wrong(lines_[first].number,
                   fmt::format("{} labels and {} rows, and no header; expected a header that names the columns", cells,
                               header_.names.size()));
    return take_names(lines_[first].number);
  }

  Status take_names(int line) {
    if (header_.names.size() > kMaxMatrixDevices)
      return wrong(line, fmt::format("{} columns; expected at most {}", header_.names.size(), kMaxMatrixDevices));
    std::set<std::string> seen;
    for (const std::string& name : header_.names) {
      const std::string as_one = gpu_number(name) ? fmt::format("GPU{}", *gpu_number(name)) : name;  // GPU07 is GPU7
      if (!seen.insert(as_one).second)
        return wrong(line, fmt::format("column {:.40} occurs twice; expected each device once", name));
      MatrixText::Device device;
      device.name = name;
      device.gpu = gpu_number(name).value_or(-1);
      out_.devices.push_back(device);
    }
    return {};
  }

  Status take_row(const TextLine& line, const std::vector<std::string>& words) {
    const auto device =
        std::find_if(out_.devices.begin(), out_.devices.end(), [&](const auto& d) { return d.name == words[0]; });
    if (device == out_.devices.end()) {
      if (!is_row(words)) return {};  // prose
      return wrong(line.number,
                   fmt::format("row {:.40}; expected one of the header's {} devices", words[0], out_.devices.size()));
    }
    if (short_row_ != 0)
      return wrong(short_row_, fmt::format("row {} has {} labels; expected {}, one for each column", short_name_,
                                           short_cells_, out_.devices.size()));
    if (!device->cells.empty())
      return wrong(line.number, fmt::format("row {:.40} occurs twice; expected each device once", words[0]));
    std::size_t cells = 0;
    while (cells + 1 < words.size() && cells < out_.devices.size() &&
           (is_label(words[cells + 1]) || !looks_like_affinity(words[cells + 1])))
      ++cells;
    const std::size_t found = cells;
    if (cells < out_.devices.size() && cells > 0 && line.number == lines_.back().number && open_end_)
      --cells;  // its last word may be cut, too
    device->cells.assign(words.begin() + 1, words.begin() + 1 + std::ptrdiff_t(cells));
    if (cells < out_.devices.size()) {
      // Only the last line of a paste may be cut, and then nothing follows its labels.
      if (found + 1 < words.size())
        return wrong(line.number, fmt::format("row {} has {} labels; expected {}, one for each column", words[0], found,
                                              out_.devices.size()));
      short_row_ = line.number;
      short_name_ = words[0];
      short_cells_ = cells;
      device->cells.resize(out_.devices.size());
      out_.truncated = true;
    }
    const std::size_t self = std::size_t(device - out_.devices.begin());
    for (std::size_t i = 0; i < cells; ++i)
      if ((device->cells[i] == "X") != (i == self))
        return wrong(line.number, fmt::format("row {}, column {}: \"{:.20}\"; expected {}", words[0],
                                              out_.devices[i].name, device->cells[i], i == self ? "X" : "a label"));
    return found < out_.devices.size() ? Status() : take_columns(line, words, cells, *device);
  }

  static bool looks_like_affinity(const std::string& word) {
    return std::isdigit(static_cast<unsigned char>(word[0])) != 0;
  }

  // What stands behind the labels. Text aligned with blanks and with cells left out: a word belongs to the title that
  // it stands below.
  Status take_columns(const TextLine& line, const std::vector<std::string>& words, std::size_t cells,
                      MatrixText::Device& device) {
    const std::size_t count = words.size() - 1 - cells;
    const std::vector<std::string>& titles = header_.columns;
    if (count > titles.size() && (!titles.empty() || is_label(words[cells + 1])))
      return wrong(line.number, fmt::format("row {} has {} words behind its {} labels; expected {}", device.name, count,
                                            cells, titles.size()));
    const bool aligned = count < titles.size() && line.text.find('\t') == std::string::npos;
    const std::vector<std::size_t> starts = starts_of(line.text);
    for (std::size_t i = 0, column = 0; i < count && column < titles.size(); ++i, ++column) {
      const std::size_t word = cells + 1 + i;
      while (aligned && column + 1 < titles.size() && starts[word] >= header_.column_at[column + 1]) ++column;
      device.columns.emplace_back(titles[column], words[word]);
    }
    return {};
  }

  // "  NIC0: mlx5_0", and not "  X    = Self".
  void take_legend() {
    for (const TextLine& line : lines_) {
      const std::vector<std::string> words = words_of(line.text);
      if (words.size() != 2 || words[0].back() != ':') continue;
      for (MatrixText::Device& device : out_.devices)
        if (device.name + ":" == words[0] && device.gpu < 0) device.legend = words[1];
    }
  }

  Result<MatrixText> finish() {
    for (MatrixText::Device& device : out_.devices) {
      if (!device.cells.empty()) continue;
      device.cells.resize(out_.devices.size());
      out_.truncated = true;
    }
    return std::move(out_);
  }

  std::vector<TextLine> lines_;
  const std::string& name_;
  bool open_end_;  // no line end at the end: the last word may be a part of one
  Header header_;
  MatrixText out_;
  int short_row_ = 0;  // the line of a row that was cut
  std::size_t short_cells_ = 0;
  std::string short_name_;
};

}  // namespace

std::vector<TextLine> lines_of(const std::string& text) {
  std::vector<TextLine> lines;
  int number = 1;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line;
    for (std::size_t i = at; i < end; ++i) {
      if (text[i] == '\x1b' && i + 1 < end && text[i + 1] == '[') {  // nvidia-smi underlines its header
        i += 2;
        while (i < end && std::isalpha(static_cast<unsigned char>(text[i])) == 0) ++i;
      } else if (text[i] != '\r' && text[i] != '\0') {
        line += text[i];
      }
    }
    at = end + 1;
    if (line.rfind('#', 0) != 0) lines.push_back({number, line});
  }
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : line + " ") {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  return words;
}

std::optional<int> gpu_number(const std::string& name) {
  if (name.rfind("GPU", 0) != 0 || !digits(name.substr(3)) || name.size() > 9) return std::nullopt;
  int number = 0;
  std::from_chars(name.data() + 3, name.data() + name.size(), number);
  return number;
}

Result<MatrixText> parse_nvidia_matrix(const std::string& text, const std::string& name) {
  return NvidiaParser(text, name).parse();
}

}  // namespace tutti::topology
