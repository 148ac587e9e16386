#include "tools/doctor/member.h"

#include <algorithm>

#include "tools/doctor/devices.h"
#include "tools/doctor/link_probe.h"
#include "tools/doctor/link_server.h"
#include "tools/doctor/trial.h"

namespace tutti::tools::doctor {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kAnswer{10};

json listen(const json& order, const Facts& own, std::unique_ptr<LinkServer>& server) {
  server.reset();
  auto started = LinkServer::start(from_hex(order.value("token", "")));
  if (!started) return {{"error", started.status().text()}};
  server = std::move(*started);
  return {{"port", server->port()}, {"addresses", own.chosen}};
}

json join(const json& order, const Facts& own, const std::string& job_key) {
  UniqueId id;
  const std::string bytes = from_hex(order.value("id", ""));
  if (bytes.size() != id.bytes.size()) return Trial{.error = "an id of the wrong size"};
  std::transform(bytes.begin(), bytes.end(), id.bytes.begin(), [](char c) { return std::byte(c); });
  return try_together(own.rank, order.value("rank_count", 1), id, job_key);
}

json obey(const json& order, const Facts& own, const std::string& job_key, std::unique_ptr<LinkServer>& server) {
  const std::string what = order.value("do", "");
  if (what == "clock") return {{"clock", clock_now()}};
  if (what == "listen") return listen(order, own, server);
  if (what == "probe") {
    const auto probing = parse<ProbeOrder>(dump(order));
    return probing ? json(probe(*probing)) : json{{"error", probing.status().text()}};
  }
  if (what == "counters") return {{"interfaces", read_interfaces("")}};
  if (what == "close") return server.reset(), json::object();
  if (what == "name") {
    const auto id = Communicator::make_unique_id();
    if (!id) return {{"error", id.status().text()}};
    return {{"id", to_hex(std::string(reinterpret_cast<const char*>(id->bytes.data()), id->bytes.size()))}};
  }
  if (what == "join") return join(order, own, job_key);
  return {{"error", "an order that this version does not know: " + what}};
}

}  // namespace

Status serve_orders(Channel channel, const Facts& own, const std::string& job_key) {
  std::unique_ptr<LinkServer> server;
  for (;;) {
    const auto order = channel.receive(Clock::now() + kOrderLimit);
    if (!order) return order.status();
    try {
      if (order->value("do", "") == "end") return {};
      const json answer = obey(*order, own, job_key, server);
      if (Status status = channel.send(answer, Clock::now() + kAnswer); !status) return status;
    } catch (const json::exception& error) {
      return {Code::invalid_argument, error.what()};
    }
  }
}

}  // namespace tutti::tools::doctor
