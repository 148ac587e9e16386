#pragma once
// Which of this host's addresses others could use, and the order to try them in. The choice is a function of values, so
// that it can be tested without interfaces.
#include <tutti/status.h>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string host;       // numeric: "10.0.0.1", "fe80::1%eth0"
  bool up = true, loopback = false;
  bool operator==(const InterfaceAddress&) const = default;
};

// The rule of TUTTI_INTERFACE by its form alone. invalid_argument: what is wrong with it and what is wanted.
Status check_interface_rule(std::string_view rule);

// The rule of TUTTI_INTERFACE: names separated by commas, each `name`, `prefix*` or a network such as 10.1.0.0/16; with
// ^ before the first, those are excluded instead. Hosts, best first: physical-looking interfaces before those of
// containers and virtual machines, IPv4 before IPv6, link-local addresses only when there is nothing else; loopback
// last, if at all. invalid_argument: the rule is malformed, or matches nothing (names what there is).
Result<std::vector<std::string>> choose_addresses(const std::vector<InterfaceAddress>& all, std::string_view rule,
                                                  bool loopback);

// What the kernel lists. Empty where it refuses.
std::vector<InterfaceAddress> interface_addresses();

}  // namespace tutti
