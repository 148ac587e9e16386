// read_file: which reader a path is for, told by what is in it. It reads nothing itself.
#include <fmt/format.h>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/errno_text.h"
#include "topology/hwloc_object.h"
#include "topology/read.h"
#include "topology/unpacked_archive.h"

namespace tutti::topology {
namespace {

bool starts(const std::string& text, const std::string& with) { return text.compare(0, with.size(), with) == 0; }

// By the first bytes: bzip2, gzip, xz, or "ustar" in a tar header.
bool is_archive(const std::string& text) {
  return starts(text, "BZh") || starts(text, "\x1f\x8b") || starts(text, std::string("\xfd") + "7zXZ") ||
         (text.size() > 262 && text.compare(257, 5, "ustar") == 0);
}

// Looks like "numa:2 pu:4", "2 4 8" or "[numa] pu:3"; a path has no such words.
bool is_synthetic(const std::string& text) {
  if (text.empty() || text.size() > 4096 || text.find_first_of("/\\\n<") != std::string::npos) return false;
  return text.find_first_of(":[") != std::string::npos || text.find_first_not_of("0123456789 ") == std::string::npos;
}

// The first element of an XML, behind declaration, comments and doctype.
std::string root_element(const std::string& text) {
  std::size_t at = text.find('<');
  while (at != std::string::npos && at + 1 < text.size()) {
    if (starts(text.substr(at, 4), "<!--")) {
      at = text.find("-->", at);
      at = at == std::string::npos ? at : text.find('<', at);
    } else if (text[at + 1] == '?' || text[at + 1] == '!') {
      at = text.find('<', at + 1);
    } else {
      const std::size_t end = text.find_first_of(" \t\r\n/>", at + 1);
      return text.substr(at + 1, end == std::string::npos ? end : end - at - 1);
    }
  }
  return "";
}

Result<Graph> read_archive(const std::string& path) {
  const Result<UnpackedArchive> archive = UnpackedArchive::unpack(path);
  if (!archive) return archive.status();
  Result<Graph> graph = read_sysfs(archive->folder());
  if (!graph) {  // the folder means nothing to who named the archive
    std::string text = graph.status().text();
    for (std::size_t at = text.find(archive->folder()); at != std::string::npos; at = text.find(archive->folder(), at))
      text.replace(at, archive->folder().size(), path);
    return Status(graph.status().code(), std::move(text));
  }
  graph->source = path;
  return graph;
}

Result<std::string> contents(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return Status(Code::invalid_argument, path + ": expected a file or a folder");
  if (std::filesystem::file_size(path, error) > kMaxHwlocText)
    return Status(Code::invalid_argument,
                  fmt::format("{}: more than {} MB, expected a description of a machine", path, kMaxHwlocText >> 20));
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return Status(Code::invalid_argument, fmt::format("{}: cannot be read: {}", path, errno_text(errno)));
  return std::move(text).str();
}

}  // namespace

Result<Graph> read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return read_sysfs(path);
  if (!std::filesystem::exists(path, error)) {
    if (is_synthetic(path)) return read_synthetic(path, path);
    return Status(
        Code::invalid_argument,
        fmt::format("{}: no such file or folder, and not a synthetic topology such as \"numa:2 pu:4\"", path));
  }
  std::ifstream in(path, std::ios::binary);
  std::string head(512, '\0');
  in.read(head.data(), std::streamsize(head.size()));
  head.resize(std::size_t(in.gcount()));
  if (is_archive(head)) return read_archive(path);
  const Result<std::string> text = contents(path);
  if (!text) return text.status();
  const std::size_t first = text->find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first == std::string::npos)
    return Status(Code::invalid_argument, path + ":1: expected a topology, found an empty file");
  const std::string line = text->substr(first, text->find_last_not_of(" \t\r\n") + 1 - first);
  if (is_synthetic(line)) return read_synthetic(line, path);
  if ((*text)[first] != '<') return read_matrix(*text, path);
  const std::string root = root_element(*text);
  if (root == "topology") return read_hwloc_xml(*text, path);
  if (root == "system") return read_nccl_xml(*text, path);
  return Status(Code::invalid_argument,
                fmt::format("{}: expected <topology> (hwloc) or <system> (NCCL) as the first element, found \"{:.40}\"",
                            path, root));
}

}  // namespace tutti::topology
