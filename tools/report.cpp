#include "tools/report.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "core/config.h"
#include "record/folder.h"
#include "tools/refusal.h"
#include "tools/report_html.h"
#include "tools/report_text.h"

namespace tutti::tools {
namespace {

struct Asked {
  std::vector<std::string> places;
  std::string html;
  bool json = false, all = false;
};

// Where this user's jobs keep theirs.
std::vector<std::string> usual_folders() {
  std::vector<std::string> folders = record::default_folders();
  if (const std::string named = environment("TUTTI_RECORDER"); !named.empty() && named != "0")
    folders.insert(folders.begin(), named);
  return folders;
}

bool is_folder(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
}

// All of the job of that process, if it has a recorder.
void add_job_of(int pid, std::vector<std::string>& files, std::vector<std::string>& complaints) {
  bool any = false;
  for (const std::string& folder : usual_folders()) {
    const auto here = record::recorders_in(folder);
    for (const std::string& path : here) {
      const std::string name = path.substr(folder.size() + 1);
      if (record::pid_of(name) != pid) continue;
      any = true;
      for (const std::string& other : here)
        if (other.compare(folder.size() + 1, 16, name, 0, 16) == 0) files.push_back(other);
    }
  }
  if (!any) complaints.push_back(fmt::format("process {} has no recorder here", pid));
}

Status write_page(const std::string& path, const std::string& page) {
  std::ofstream file(path, std::ios::binary);
  file << page;
  file.close();
  return file ? Status() : Status(Code::out_of_resources, path + " cannot be written");
}

int report(const Asked& asked) {
  std::vector<std::string> complaints;
  std::vector<record::Story> stories = read_stories(asked.places, complaints);
  for (const std::string& complaint : complaints) refuse("report", {Code::invalid_argument, complaint});
  if (stories.empty()) {
    const char* const where = asked.places.empty() ? " in the usual folders; give a folder, or a process id" : "";
    return refuse("report", {Code::invalid_argument, fmt::format("no recorder found{}", where)}, kFailure);
  }
  if (!asked.html.empty())
    if (const Status written = write_page(asked.html, report_html(stories[0])); !written)
      return refuse("report", written, kFailure);
  const std::size_t told = asked.all ? stories.size() : 1;
  for (std::size_t i = 0; i < told; ++i)
    std::fputs((asked.json ? report_json(stories[i]) : report_text(stories[i])).c_str(), stdout);
  if (told < stories.size())
    fmt::print(stderr, "tutti report: the newest of {} jobs; --all tells of all\n", stories.size());
  return complaints.empty() ? 0 : 1;
}

}  // namespace

std::vector<record::Story> read_stories(const std::vector<std::string>& places, std::vector<std::string>& complaints) {
  std::vector<std::string> files;
  const auto add_folder = [&](const std::string& folder) {
    const auto found = record::recorders_in(folder);
    files.insert(files.end(), found.begin(), found.end());
    return !found.empty();
  };
  for (const std::string& place : places) {
    if (is_folder(place)) {
      if (!add_folder(place)) complaints.push_back("no recorder in " + record::printable(place));
    } else if (is_number(place)) {
      add_job_of(std::atoi(place.c_str()), files, complaints);
    } else {
      files.push_back(place);
    }
  }
  if (places.empty())
    for (const std::string& folder : usual_folders()) add_folder(folder);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  std::vector<record::Recording> recordings;
  for (const std::string& file : files) {
    auto recording = record::read_recording(file);
    if (recording) recordings.push_back(std::move(*recording));
    else complaints.push_back(record::printable(recording.status().text()));
  }
  return record::tell(std::move(recordings));
}

void add_report(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand("report", "say how a job's operations went, from its flight recorders");
  auto asked = std::make_shared<Asked>();
  verb->add_option("PLACE", asked->places, "folders, recorders' files or process ids; none: the usual folders");
  verb->add_option("--html", asked->html, "also write a page with a timeline to this file");
  verb->add_flag("--json", asked->json, "print one JSON object a job");
  verb->add_flag("--all", asked->all, "all jobs found, not only the newest");
  verb->callback([&status, asked] { status = report(*asked); });
}

}  // namespace tutti::tools
