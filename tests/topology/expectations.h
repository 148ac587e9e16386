#pragma once
// Expectations: NAME.expect.json beside a topology of the corpus, and how our description compares with it, key by key.
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "topology/graph.h"

namespace tutti::topology::test {

// $TUTTI_TOPOLOGY_CORPUS, else ../shared/topology beside the sources. Empty path: there is none.
std::filesystem::path corpus();
// Files of a folder with that extension, sorted.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder, const std::string& extension);
std::string read_text(const std::filesystem::path& file);
nlohmann::json expectation_of(const std::filesystem::path& file);

// One line for each key that differs: "sockets: 2, expected 1". Keys without a machine-readable meaning (notes,
// reasons) are not compared; rings are compared by what they cost.
std::vector<std::string> differences(const Graph& graph, const nlohmann::json& expected);

}  // namespace tutti::topology::test
