#pragma once
// MatrixText: the tables that nvidia-smi topo -m and rocm-smi --showtopo print, as they stand: names, labels, columns.
// What a label means, and whether to believe it, is the reader's business (matrix_reader.cpp).
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tutti/status.h>

namespace tutti::topology {

struct MatrixText {
  struct Device {
    std::string name;                                          // "GPU0", "mlx5_0", "NIC0"
    std::string legend;                                        // what the NIC legend calls it, "" where there is none
    int gpu = -1;                                              // the number of a GPU
    std::vector<std::string> cells;                            // of its row, one a column; "" where missing
    std::vector<std::pair<std::string, std::string>> columns;  // ("CPU Affinity", "0-15")
  };
  std::vector<Device> devices;  // in order of the columns
  bool truncated = false;       // rows, or cells of the last row, are missing
};

// At most so many devices: a hostile header costs no more.
inline constexpr std::size_t kMaxMatrixDevices = 512;

struct TextLine {
  int number = 0;  // from 1
  std::string text;
};
std::vector<TextLine> lines_of(const std::string& text);  // without terminal escapes, carriage returns and # comments
std::vector<std::string> words_of(const std::string& line);

// nullopt: "GPU12" is what it is not.
std::optional<int> gpu_number(const std::string& name);

// invalid_argument: the text holds no matrix, or one that contradicts itself; with name, line and what was expected.
Result<MatrixText> parse_nvidia_matrix(const std::string& text, const std::string& name);

// The tables of rocm-smi by title ("Link Type", "Hops", "Weight"), and its NUMA lines as columns.
struct RocmText {
  std::map<std::string, MatrixText> tables;
  std::map<int, std::vector<std::pair<std::string, std::string>>> columns;  // of a GPU: ("NUMA Affinity", "0")
  bool truncated = false;
};
bool looks_like_rocm(const std::string& text);
Result<RocmText> parse_rocm_matrix(const std::string& text, const std::string& name);

}  // namespace tutti::topology
