// How the engine comes to a connection with another rank: of two ranks the higher dials; shared memory is tried first, then RDMA, then TCP.
// Each attempt ends alike on both sides, and the next one follows where it failed.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "comm/budget.h"
#include "comm/engine.h"
#include "comm/member.h"
#include "core/device.h"
#include "core/log.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"

namespace tutti::comm {
namespace {

constexpr std::chrono::milliseconds kDialMeAfter{500}; // a peer in the same call dials within far less

transport::rdma::RdmaOptions rdma_options(const Settings& settings, int numa) {
  transport::rdma::RdmaOptions options;
  options.numa = numa;
  options.relaxed_ordering = settings.ib_relaxed_ordering;
  options.gpu_distance = settings.ib_gpu_distance;
  if (settings.ib_tcp) options.socket_after = settings.link_timeout / 2;
  options.devices = settings.ib_hca;
  if (!settings.ib_gid_index.empty()) options.gid_index = std::stoi(settings.ib_gid_index);
  options.queues = settings.ib_qps;
  options.resumable = settings.link_timeout.count() > 0;
  options.timeout = settings.ib_timeout;
  options.retry = settings.ib_retry;
  options.service_level = settings.ib_sl;
  options.traffic_class = settings.ib_traffic_class;
  options.landing_bytes = Budget(settings.memory_limit).granted;
  options.staging_bytes = Budget(settings.memory_limit).eager;
  if (settings.segment) options.segment_bytes = settings.segment;
  return options;
}

}  // namespace

void Engine::connect(int world_rank) {
  Peer& peer = peers_[std::size_t(world_rank)];
  if (peer.state != Peer::none || world_rank == world_rank_) return;
  peer.state = Peer::connecting;
  // The higher rank dials; the other waits to be dialled, which happens when the peer makes the same call.
  if (world_rank_ > world_rank) {
    const bool tries_memory = settings_.transport == "auto" || settings_.transport == "shm";
    return dial(world_rank, tries_memory ? Purpose::shm : over_network());
  }
  // Or when it is asked to: it may be making another call, and shall hear of ours.
  peer.reminder = loop_->at(loop_->now() + kDialMeAfter, [this, world_rank] {
    if (peers_[std::size_t(world_rank)].state == Peer::connecting) directory_->say({.kind = Word::Kind::dial_me, .about = world_rank});
  });
}

// Looks for devices at the first call. Null: none is to be used; no_rdma_ says why.
transport::RdmaTransport* Engine::rdma() {
  if (rdma_ || !no_rdma_.empty()) return rdma_.get();
  if (settings_.transport == "tcp" || settings_.transport == "shm") no_rdma_ = "TUTTI_TRANSPORT=" + settings_.transport;
  else if (settings_.encrypt) no_rdma_ = "TUTTI_ENCRYPT=1, and RDMA is not encrypted";
  else if (loop_->doorbell_descriptor() < 0) no_rdma_ = "simulated";
  if (!no_rdma_.empty()) return nullptr;
  auto made = transport::RdmaTransport::make(*loop_, *this, rdma_options(settings_, numa_));
  if (!made) {
    no_rdma_ = made.status().text();
    log::write(settings_.transport == "rdma" ? log::Level::warning : log::Level::debug, fmt::format("no RDMA here: {}", no_rdma_));
    return nullptr;
  }
  rdma_ = std::move(*made);
  transports_.push_back(rdma_.get());
  log::info("RDMA devices: {}", rdma_->describe_devices());
  return rdma_.get();
}

Status Engine::use_gpu(const std::shared_ptr<Device>& gpu) {
  if (!rdma()) return Status(Code::unsupported, no_rdma_);
  if (gpu_ && gpu_ != gpu) return Status(Code::unsupported, fmt::format("its connections serve the memory of {}, and not that of {}", gpu_->describe(), gpu->describe()));
  if (gpu_) return gpu_reach_;
  gpu_ = gpu;
  gpu_reach_ = rdma_->use_gpu(*gpu);
  for (std::size_t peer = 0; peer < peers_.size(); ++peer)
    if (peers_[peer].state == Peer::up && by_rdma(int(peer))) journal_.goes_by(int(peer), peers_[peer].wire.connection->describe());
  nudge();
  return gpu_reach_;
}

Purpose Engine::over_network() { return rdma() ? Purpose::rdma : Purpose::tcp; }

void Engine::dial(int world_rank, Purpose purpose) {
  const int count = purpose == Purpose::shm ? 1 : std::max(1, settings_.sockets);
  directory_->dial(world_rank, purpose, count, settings_.init_timeout, [this, world_rank, purpose](auto streams) {
    if (streams) return streams_ready(world_rank, purpose, true, std::move(*streams));
    if (purpose != Purpose::shm) return cannot_connect(world_rank, streams.status());
    if (settings_.transport == "shm")
      return cannot_connect(world_rank, Status(Code::network, fmt::format("{}; TUTTI_TRANSPORT=shm allows nothing but shared memory: is it on another host or in "
                                                                          "another container? TUTTI_TRANSPORT=auto uses tcp there", streams.status().text())));
    log::debug("no shared memory with {}: {}", describe(world_rank), streams.status().text());
    dial(world_rank, over_network());
  });
}

void Engine::streams_ready(int world_rank, Purpose purpose, bool opener, std::vector<std::unique_ptr<Stream>> streams) {
  if (purpose == Purpose::tcp) return connected(world_rank, tcp_->connect(world_rank, std::move(streams)), *tcp_);
  if (purpose == Purpose::rdma) return join_by_rdma(world_rank, opener, std::move(streams));
  join_by_shm(world_rank, opener, std::move(streams[0]));
}

void Engine::join_by_shm(int world_rank, bool opener, std::unique_ptr<Stream> stream) {
  shm_->connect(world_rank, std::move(stream), opener, [this, world_rank, opener](Result<transport::Connection*> result) {
    if (!result && opener && settings_.transport != "shm") {
      const Purpose next = over_network();
      log::info("no shared memory with {}: {}; using {}", describe(world_rank), result.status().text(), name_of(next));
      return dial(world_rank, next);
    }
    if (!result && settings_.transport != "shm") {        // the opener sees it too, and comes back over another transport
      return log::debug("no shared memory with {}: {}", describe(world_rank), result.status().text());
    }
    connected(world_rank, std::move(result), *shm_);
  });
}

// Both sides learn the same: a connection, or why there is none, and go on over TCP.
void Engine::join_by_rdma(int world_rank, bool opener, std::vector<std::unique_ptr<Stream>> streams) {
  auto ready = [this, world_rank, opener](Result<transport::Connection*> result, std::vector<std::unique_ptr<Stream>> back) {
    if (result) {
      log::info("{}: {}", describe(world_rank), (*result)->describe());
      return connected(world_rank, std::move(result), *rdma_);
    }
    log::info("no RDMA with {}: {}; using tcp", describe(world_rank), result.status().text());
    if (!back.empty()) return connected(world_rank, tcp_->connect(world_rank, std::move(back)), *tcp_);
    if (opener) dial(world_rank, Purpose::tcp);
  };
  if (rdma()) return rdma_->connect(world_rank, std::move(streams), opener, std::move(ready));
  tasks_.spawn(transport::rdma::decline(*loop_, std::move(streams), no_rdma_, std::move(ready)));
}

void Engine::connected(int world_rank, Result<transport::Connection*> connection, transport::Transport& transport) {
  if (!connection) return cannot_connect(world_rank, connection.status());
  Peer& peer = peers_[std::size_t(world_rank)];
  peer.wire = {*connection, &transport};
  peer.state = Peer::up;
  if (std::find(wires_.begin(), wires_.end(), &transport) == wires_.end()) wires_.push_back(&transport);
  journal_.connected(world_rank, transport.name(), (*connection)->describe());
  log::debug("{}: {}", describe(world_rank), (*connection)->describe());
  for (const auto& [id, member] : members_) member->wire_up(world_rank, peer.wire);
}

void Engine::cannot_connect(int world_rank, const Status& why) {
  on_lost(world_rank, Status(why.code(), "cannot be reached: " + why.text()));
}

}  // namespace tutti::comm
