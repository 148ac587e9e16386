#include "tools/topo.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/config.h"
#include "core/errno_text.h"
#include "tools/refusal.h"
#include "tools/text_block.h"
#include "tools/topo_svg.h"
#include "tools/topo_text.h"
#include "topology/describe.h"
#include "topology/read.h"

namespace tutti::tools {
namespace {

using topology::Graph;

constexpr std::size_t kMostInput = 512u << 20;  // of standard input; larger is no description of a machine

struct TopoFlags {
  std::string file, svg, hwloc, nccl;
  bool json = false;
};

// A file in memory, so that what was piped in is told apart and read as any other file.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("topology", MFD_CLOEXEC)) {}
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }
  std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_); }  // for child processes too

 private:
  int fd_;
};

Status copy_standard_input(int to) {
  std::string block(1u << 16, '\0');
  std::size_t total = 0;
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return {Code::invalid_argument, "standard input: cannot be read: " + errno_text(errno)};
    if (got == 0) return {};
    total += std::size_t(got);
    if (total > kMostInput)
      return {Code::invalid_argument,
              fmt::format("standard input: more than {} MB, expected a description of a machine", kMostInput >> 20)};
    for (ssize_t written = 0; written < got;) {
      const ssize_t put = write(to, block.data() + written, std::size_t(got - written));
      if (put <= 0) return {Code::out_of_resources, "standard input: no memory for it: " + errno_text(errno)};
      written += put;
    }
  }
}

std::string with_name(std::string text, const std::string& path) {
  constexpr char kName[] = "standard input";
  for (std::size_t at = text.find(path); at != std::string::npos; at = text.find(path))
    text.replace(at, path.size(), kName);
  return text;
}

Result<Graph> read_standard_input() {
  const MemoryFile file;
  if (file.fd() < 0) return Status(Code::out_of_resources, "standard input: no memory for it: " + errno_text(errno));
  if (Status status = copy_standard_input(file.fd()); !status) return status;
  Result<Graph> graph = topology::read_file(file.path());
  if (!graph) return Status(graph.status().code(), with_name(graph.status().text(), file.path()));
  graph->source = "standard input";
  for (std::string& text : graph->distrusted) text = with_name(text, file.path());
  for (std::string& text : graph->notes) text = with_name(text, file.path());
  return graph;
}

// "-": standard output.
Status write_file(const std::string& file, const std::string& text) {
  if (file == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return {};
  }
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text << std::flush;
  if (!out) return {Code::invalid_argument, fmt::format("{}: cannot be written: {}", file, errno_text(errno))};
  fmt::print(stderr, "tutti topo: wrote {}\n", printable(file));
  return {};
}

Status write_format(const Result<std::string>& text, const std::string& file) {
  return text ? write_file(file, *text) : Status(text.status().code(), file + ": " + text.status().text());
}

Status topo(const TopoFlags& flags) {
  const Result<Settings> settings = read_settings();
  if (!settings) return settings.status();
  const Result<Graph> graph = read_topology(flags.file.empty() ? settings->topology_file : flags.file);
  if (!graph) return graph.status();
  if (!settings->topology_dump.empty())
    if (Status status = dump_topology(*graph, settings->topology_dump); !status) return status;
  if (!flags.svg.empty())
    if (Status status = write_file(flags.svg, topo_svg(*graph)); !status) return status;
  if (!flags.hwloc.empty())
    if (Status status = write_format(topology::write_hwloc_xml(*graph), flags.hwloc); !status) return status;
  if (!flags.nccl.empty())
    if (Status status = write_format(topology::write_nccl_xml(*graph), flags.nccl); !status) return status;
  const bool file_asked = !flags.svg.empty() || !flags.hwloc.empty() || !flags.nccl.empty();
  if (flags.json) return write_file("-", topo_json(*graph));
  return file_asked ? Status() : write_file("-", topo_text(*graph));
}

}  // namespace

Result<Graph> read_topology(const std::string& file) {
  if (file.empty()) return topology::read_live();
  return file == "-" ? read_standard_input() : topology::read_file(file);
}

std::string topo_json(const Graph& graph) {
  nlohmann::json out = topology::describe(graph);
  out["source"] = graph.source;
  out["format"] = graph.format;
  out["distrusted"] = graph.distrusted;
  out["notes"] = graph.notes;
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

Status dump_topology(const Graph& graph, const std::string& file) {
  constexpr std::string_view kNccl = ".nccl.xml";
  const bool nccl = file.size() >= kNccl.size() && file.compare(file.size() - kNccl.size(), kNccl.size(), kNccl) == 0;
  return write_format(nccl ? topology::write_nccl_xml(graph) : topology::write_hwloc_xml(graph), file);
}

void add_topo(CLI::App& app, int& status) {
  CLI::App* verb =
      app.add_subcommand("topo", "show what is wired to what: tree, matrix, groups, ring order, nearest NICs");
  auto flags = std::make_shared<TopoFlags>();
  verb->add_option(
      "--file", flags->file,
      "instead of this machine: hwloc or NCCL XML, `nvidia-smi topo -m` or `rocm-smi --showtopo` text, a snapshot "
      "of /sys (folder or tar), a synthetic \"numa:2 pu:4\", - for standard input (default: TUTTI_TOPOLOGY_FILE)");
  verb->add_flag("--json", flags->json, "print JSON instead of the page");
  verb->add_option("--svg", flags->svg,
                   "write a picture with the ring, the trees and the groups drawn on it (- : standard output)");
  verb->add_option("--write-hwloc", flags->hwloc, "write hwloc XML");
  verb->add_option("--write-nccl", flags->nccl, "write NCCL's XML, as NCCL_TOPO_FILE takes it");
  verb->callback([&status, flags] {
    if (const Status done = topo(*flags); !done) status = refuse("topo", done);
  });
}

}  // namespace tutti::tools
