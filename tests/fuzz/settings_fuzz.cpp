// libFuzzer target of what users write into their environment: lines of NAME=value become settings, rules, interfaces.
// Aborts where a refusal does not name the variable.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "comm/rules.h"
#include "core/config.h"
#include "core/interfaces.h"
#include "core/log.h"

namespace {

void refused(const tutti::Status& status, const std::string& variable) {
  if (status.ok() || status.text().find(variable) != std::string::npos) return;
  std::fprintf(stderr, "a refusal without %s: %s\n", variable.c_str(), status.to_string().c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
  std::map<std::string, std::string> variables;
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos || line.find('\0') != std::string::npos) continue;
    names.push_back(line.substr(0, equals));
    variables[names.back()] = line.substr(equals + 1);
  }
  const auto read = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  const tutti::Result<tutti::Settings> settings = tutti::read_settings(read, names);
  tutti::log::set_level(tutti::log::Level::error);
  if (!settings.ok()) return refused(settings.status(), "TUTTI_"), 0;
  if (const auto rules = tutti::comm::parse_rules(*settings); !rules.ok()) refused(rules.status(), "TUTTI_ALGO");
  const std::vector<tutti::InterfaceAddress> interfaces = {{"eth0", "10.0.0.1"},
                                                           {"ib0", "192.168.7.9"},
                                                           {"docker0", "172.17.0.1"},
                                                           {"eth0", "fe80::1%eth0"},
                                                           {"lo", "127.0.0.1", true, true}};
  if (const auto hosts = tutti::choose_addresses(interfaces, settings->interface, false); !hosts.ok())
    refused(hosts.status(), "no address of this host matches");
  return 0;
}
